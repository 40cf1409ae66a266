package report

import (
	"math"

	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// The plotting library keeps room for the name of a logarithmic axis where the middle of its values would
// lie, not its own middle, so half the figure stays empty. We draw these names ourselves.

const logLabelRoom = labelSize * 1.45

// logRoom is what the names of logarithmic axes need at the left and at the foot.
func (p *picture) logRoom() (left, foot vg.Length) {
	if p.y.log {
		left = logLabelRoom
	}
	if p.x.log {
		foot = logLabelRoom
	}
	return left, foot
}

// drawLogLabels names the logarithmic axes of a plot whose data lie in data and which ends with c.
func (p *picture) drawLogLabels(c, data draw.Canvas) {
	style := textStyle(labelSize, false)
	style.XAlign, style.YAlign = text.XCenter, text.YBottom
	middle := vg.Point{X: (data.Min.X + data.Max.X) / 2, Y: (data.Min.Y + data.Max.Y) / 2}
	if p.x.log {
		c.FillText(style, vg.Point{X: middle.X, Y: c.Min.Y}, p.x.label)
	}
	if p.y.log {
		style.Rotation, style.YAlign = math.Pi/2, text.YTop
		c.FillText(style, vg.Point{X: c.Min.X, Y: middle.Y}, p.y.label)
	}
}
