package report

import (
	"math"

	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// The plotting library reserves room for the name of a logarithmic axis at the middle of its values, not at the
// middle of the axis, so half the figure stays empty. Therefore we draw these names ourselves.

const logLabelRoom = labelSize * 1.45

// logRoom is the room that the names of logarithmic axes need at the left and at the bottom.
func (p *picture) logRoom() (left, foot vg.Length) {
	if p.y.log {
		left = logLabelRoom
	}
	if p.x.log {
		foot = logLabelRoom
	}
	return left, foot
}

// drawLogLabels writes the names of the logarithmic axes of a plot on canvas c; its data lie in data.
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
