package report

import (
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// barsPlotter draws the bars of one variant, from the bottom of the axis, with their values above them.
type barsPlotter struct {
	curve
	names bool // there is room for the values
}

// Plot implements plot.Plotter.
func (b barsPlotter) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	foot := y(p.Y.Min)
	place := func(v float64) vg.Length {
		if v <= p.Y.Min || math.IsNaN(v) { // a logarithmic axis has no 0
			return foot
		}
		return y(v)
	}
	full := b.look.color()
	fill := full
	if b.pale {
		fill = faded(full, 0x60)
	}
	label := textStyle(tickSize-4, false)
	label.XAlign, label.YAlign = text.XCenter, text.YBottom
	for _, v := range b.bars {
		left, right, top := x(v.x-v.width/2), x(v.x+v.width/2), place(v.y)
		box := rectangle(left, foot, right, top)
		c.FillPolygon(fill, box)
		c.StrokeLines(draw.LineStyle{Color: full, Width: 0.8}, append(box, box[0]))
		end := top
		if v.high > v.low {
			middle := x(v.x)
			end = max(end, place(v.high))
			ink := draw.LineStyle{Color: inkColor, Width: 1}
			c.StrokeLine2(ink, middle, place(v.low), middle, place(v.high))
			for _, at := range []float64{v.low, v.high} {
				c.StrokeLine2(ink, middle-3, place(at), middle+3, place(at))
			}
		}
		if b.names {
			b.name(c, label, number(v.y), left, right, end+1.5)
		}
	}
}

// name writes the value of a bar above it; vertically if it is wider than the bar, because neighbours have values
// too.
func (b barsPlotter) name(c draw.Canvas, style draw.TextStyle, value string, left, right, foot vg.Length) {
	if style.Width(value) > 1.1*(right-left) {
		style.Rotation = math.Pi / 2
		style.XAlign, style.YAlign = text.XLeft, text.YCenter
	}
	c.FillText(style, vg.Point{X: (left + right) / 2, Y: foot}, value)
}

// nameTicks puts the names of categories at 0, 1, 2 ...
func nameTicks(names []string) plot.Ticker {
	var out plot.ConstantTicks
	for i, n := range names {
		out = append(out, plot.Tick{Value: float64(i), Label: n})
	}
	return out
}

// barCount returns the number of bars of a picture.
func (p *picture) barCount() int {
	n := 0
	for _, c := range p.curves {
		n += len(c.bars)
	}
	return n
}

// namedBars is the largest number of bars with room for their values.
const namedBars = 26
