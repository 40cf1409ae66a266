package report

import (
	"cmp"
	"image/color"
	"math"
	"slices"
	"strconv"

	xfont "golang.org/x/image/font"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// picture is one figure, independent of how it is drawn.
type picture struct {
	name    string // of its files, without extension
	title   string
	caption string
	of      string // the point on the axes that it shows, or "over AXIS"
	x, y    axis
	curves  []curve
	lines   []refLine
	guide   guide    // a level that changes over time
	events  []event  // named above the plot
	names   []string // of the categories at x = 0, 1, 2 ...
	below   *picture // a second plot below this one, over the same x
}

// guide is a reference for curves that changes over time: drawn in steps, with its name in the margin next to its
// end.
type guide struct {
	label string
	steps plotter.XYs
}

// event is an instant that is named above the plot, in the colour of its curve.
type event struct {
	x     float64
	label string
	look  look
}

// axis is one axis of a picture. If min equals max, its ends follow from the data.
type axis struct {
	label    string
	log      bool
	min, max float64
}

// curve is one scheme in a picture: a line, the band between the extremes, thin lines.
type curve struct {
	label   string
	look    look
	line    plotter.XYs
	band    plotter.XYs // a closed polygon
	thin    []plotter.XYs
	markers bool
	steps   bool
	bars    []bar
	pale    bool // bars with the same colour as another's, but paler
}

// refLine is a level with a meaning, such as a buffer's size: its name is in the margin.
type refLine struct {
	label string
	y     float64
}

// Size of a figure in points, and its font size: figures are shown at half size, where 15 pt is 7.5 pt.
const (
	figureWidth  = vg.Length(660)
	figureHeight = vg.Length(420)
	belowHeight  = vg.Length(180) // additional height of a second plot
	labelSize    = vg.Length(15)
	tickSize     = vg.Length(14)
	titleSize    = vg.Length(16)
)

// palette is Okabe and Ito's, which most colour-blind readers can distinguish; the dashes differ too, for print
// without colour.
var palette = []color.NRGBA{
	{0x00, 0x72, 0xB2, 0xFF}, {0xD5, 0x5E, 0x00, 0xFF}, {0x00, 0x9E, 0x73, 0xFF}, {0xAA, 0x4A, 0x8C, 0xFF},
	{0xB0, 0x7D, 0x00, 0xFF}, {0x3C, 0x9D, 0xD8, 0xFF}, {0x6B, 0x4E, 0xC8, 0xFF}, {0x8A, 0x5A, 0x44, 0xFF},
}

var (
	inkColor  = color.NRGBA{0x1A, 0x1C, 0x1E, 0xFF}
	gridColor = color.NRGBA{0xE0, 0xE3, 0xE6, 0xFF}
	refColor  = color.NRGBA{0x70, 0x76, 0x7C, 0xFF}
	paper     = color.NRGBA{0xFF, 0xFF, 0xFF, 0xFF}
)

// dashes are lengths of ink and gap, in points; none is a solid line.
var dashes = [][]vg.Length{
	nil, {9, 4}, {2.5, 3}, {12, 4, 2.5, 4}, {16, 5}, {5, 3}, {9, 3, 2.5, 3, 2.5, 3}, {1.5, 2},
}

// shapes are the markers, one for each kind of dashes.
var shapes = []draw.GlyphDrawer{
	draw.CircleGlyph{}, draw.PyramidGlyph{}, draw.BoxGlyph{}, draw.TriangleGlyph{},
	draw.RingGlyph{}, draw.CrossGlyph{}, draw.SquareGlyph{}, draw.PlusGlyph{},
}

func faded(c color.NRGBA, alpha uint8) color.NRGBA {
	c.A = alpha
	return c
}

func textStyle(size vg.Length, bold bool) text.Style {
	f := font.From(font.Font{Typeface: "Liberation", Variant: "Sans"}, size)
	if bold {
		f.Weight = xfont.WeightBold
	}
	return text.Style{Color: inkColor, Font: f, Handler: plot.DefaultTextHandler, XAlign: text.XLeft, YAlign: text.YBottom}
}

// draw draws the picture on a canvas: title, legend and plot below each other, so that the legend never covers the
// data, and the names of reference lines in the right margin.
func (p *picture) draw(c draw.Canvas) {
	c.SetColor(paper)
	c.Fill(c.Path())
	c = draw.Crop(c, 10, -14, 8, -10)
	title := textStyle(titleSize, true)
	title.YAlign = text.YTop
	c.FillText(title, vg.Point{X: c.Min.X, Y: c.Max.Y}, p.title)
	c.Max.Y -= titleSize * 1.55
	if len(p.events) > 0 { // the events name the curves
		c.Max.Y -= eventRows * eventHeight
	} else {
		c.Max.Y -= p.drawLegend(c)
	}
	p.drawPlots(c)
}

// drawPlots draws the plot, and the one below it with the same x.
func (p *picture) drawPlots(c draw.Canvas) {
	panels, margin := []*picture{p}, p.marginWidth()
	if p.below != nil {
		panels, margin = append(panels, p.below), max(margin, p.below.marginWidth())
	}
	var plots [][]*plot.Plot
	for _, panel := range panels {
		plots = append(plots, []*plot.Plot{panel.plot()})
	}
	left, foot := p.logRoom()
	areas := plot.Align(plots, draw.Tiles{Rows: len(panels), Cols: 1, PadY: 6}, draw.Crop(c, left, -margin, foot, 0))
	for i, panel := range panels {
		plots[i][0].Draw(areas[i][0])
		data := plots[i][0].DataCanvas(areas[i][0])
		panel.drawLogLabels(c, data)
		panel.drawMargin(c, plots[i][0], data)
		panel.drawEvents(plots[i][0], data)
	}
}

// height returns the height of the whole figure.
func (p *picture) height() vg.Length {
	if p.below != nil {
		return figureHeight + belowHeight
	}
	return figureHeight
}

const (
	eventRows   = 2
	eventHeight = tickSize + 4
)

// drawEvents writes the events' names above the plot, in the next row if a name would touch the previous one.
func (p *picture) drawEvents(pl *plot.Plot, data draw.Canvas) {
	var ends [eventRows]vg.Length // where each row is free from
	for _, e := range p.events {
		style := textStyle(tickSize-1, true)
		style.Color = e.look.color()
		x := data.X(pl.X.Norm(e.x))
		row := 0
		for row < eventRows-1 && x < ends[row] {
			row++
		}
		ends[row] = x + style.Width(e.label) + 4
		y := data.Max.Y + 5 + vg.Length(row)*eventHeight
		c := data
		c.StrokeLine2(draw.LineStyle{Color: e.look.color(), Width: 1}, x, data.Max.Y, x, y-2)
		c.FillText(style, vg.Point{X: x, Y: y}, e.label)
	}
}

// drawLegend draws the names of the curves in rows, and returns its height.
func (p *picture) drawLegend(c draw.Canvas) vg.Length {
	const sample, gap, rowHeight = 34, 20, 21
	style := textStyle(labelSize, false)
	style.YAlign = text.YCenter
	x, y := c.Min.X, c.Max.Y-rowHeight/2
	for _, cv := range p.curves {
		width := sample + 6 + style.Width(cv.label)
		if x > c.Min.X && x+width > c.Max.X {
			x, y = c.Min.X, y-rowHeight
		}
		cv.drawSample(c, x, y, sample)
		if cv.markers {
			c.DrawGlyph(markerStyle(cv.look), vg.Point{X: x + sample/2, Y: y})
		}
		c.FillText(style, vg.Point{X: x + sample + 6, Y: y + 1.5}, cv.label)
		x += width + gap
	}
	return c.Max.Y - y + rowHeight/2 + 4
}

// drawSample draws a sample of a curve in the legend.
func (cv *curve) drawSample(c draw.Canvas, x, y, width vg.Length) {
	box := rectangle(x, y-6, x+width, y+6)
	if len(cv.bars) > 0 {
		fill := cv.look.color()
		if cv.pale {
			fill = faded(fill, 0x60)
		}
		c.FillPolygon(fill, box)
		c.StrokeLines(draw.LineStyle{Color: cv.look.color(), Width: 0.8}, append(box, box[0]))
		return
	}
	if len(cv.band) > 0 {
		c.FillPolygon(faded(cv.look.color(), 0x38), box)
	}
	c.StrokeLine2(lineStyle(cv.look, 2.4), x, y, x+width, y)
}

func rectangle(x0, y0, x1, y1 vg.Length) []vg.Point {
	return []vg.Point{{X: x0, Y: y0}, {X: x1, Y: y0}, {X: x1, Y: y1}, {X: x0, Y: y1}}
}

func lineStyle(l look, width vg.Length) draw.LineStyle {
	return draw.LineStyle{Color: l.color(), Width: width, Dashes: dashes[l.dash]}
}

func markerStyle(l look) draw.GlyphStyle {
	return draw.GlyphStyle{Color: l.color(), Radius: 3.6, Shape: shapes[l.dash]}
}

const marginGap = vg.Length(6)

func (p *picture) marginWidth() vg.Length {
	style, width := textStyle(tickSize-1, false), vg.Length(0)
	for _, l := range p.margin() {
		width = max(width, style.Width(l.label)+marginGap)
	}
	return width
}

// margin returns the lines that are named next to the plot, in order of y.
func (p *picture) margin() []refLine {
	out := slices.Clone(p.lines)
	if n := len(p.guide.steps); n > 0 {
		out = append(out, refLine{p.guide.label, p.guide.steps[n-1].Y})
	}
	slices.SortStableFunc(out, func(a, b refLine) int { return cmp.Compare(a.y, b.y) })
	return out
}

// drawMargin writes the names of the reference lines next to the plot; names that would collide move up.
func (p *picture) drawMargin(c draw.Canvas, pl *plot.Plot, data draw.Canvas) {
	style := textStyle(tickSize-1, false)
	style.YAlign = text.YCenter
	style.Color = refColor
	last := -math.MaxFloat64
	for _, l := range p.margin() {
		y := max(data.Y(pl.Y.Norm(l.y)), vg.Length(last)+style.Height("x")*1.1)
		y = min(y, c.Max.Y)
		c.FillText(style, vg.Point{X: data.Max.X + marginGap, Y: y + 1.5}, l.label)
		last = float64(y)
	}
}

// plot makes the axes and curves.
func (p *picture) plot() *plot.Plot {
	pl := plot.New()
	pl.BackgroundColor = nil
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = gridColor, gridColor
	pl.Add(grid)
	for i, c := range p.bands() {
		if i > 0 { // two translucent colours on top of each other would be a third one, which has no meaning
			pl.Add(&plotter.Polygon{XYs: []plotter.XYs{c.band}, Color: paper})
		}
		pl.Add(&plotter.Polygon{XYs: []plotter.XYs{c.band}, Color: faded(c.look.color(), 0x38)})
	}
	for _, c := range p.curves {
		for _, xy := range c.thin {
			pl.Add(&plotter.Line{XYs: xy, LineStyle: draw.LineStyle{Color: faded(c.look.color(), 0x70), Width: 0.8}})
		}
	}
	for _, c := range p.curves {
		if len(c.line) == 0 {
			continue
		}
		l := &plotter.Line{XYs: c.line, LineStyle: lineStyle(c.look, 2.2)}
		if c.steps {
			l.StepStyle = plotter.PostStep
		}
		pl.Add(l)
		if c.markers {
			pl.Add(&plotter.Scatter{XYs: c.line, GlyphStyle: markerStyle(c.look)})
		}
	}
	for _, c := range p.curves {
		if len(c.bars) > 0 {
			pl.Add(barsPlotter{c, p.barCount() <= namedBars})
		}
	}
	if len(p.guide.steps) > 0 {
		pl.Add(&plotter.Line{XYs: p.guide.steps, LineStyle: refStyle(), StepStyle: plotter.PostStep})
	}
	setAxis(&pl.X, p.x)
	if len(p.names) > 0 {
		pl.X.Tick.Marker = nameTicks(p.names)
	}
	setAxis(&pl.Y, p.y)
	for _, l := range p.lines {
		pl.Y.Max = math.Max(pl.Y.Max, l.y)
		ends := plotter.XYs{{X: pl.X.Min, Y: l.y}, {X: pl.X.Max, Y: l.y}}
		pl.Add(&plotter.Line{XYs: ends, LineStyle: refStyle()})
	}
	return pl
}

func refStyle() draw.LineStyle {
	return draw.LineStyle{Color: refColor, Width: 1.2, Dashes: []vg.Length{4, 3}}
}

func setAxis(a *plot.Axis, is axis) {
	if is.min < is.max {
		a.Min, a.Max = is.min, is.max
	}
	a.Label.Text = is.label
	if is.log {
		a.Label.Text = "" // drawLogLabels writes it
	}
	label, tick := textStyle(labelSize, false), textStyle(tickSize, false)
	label.XAlign, label.YAlign = a.Label.TextStyle.XAlign, a.Label.TextStyle.YAlign
	tick.XAlign, tick.YAlign = a.Tick.Label.XAlign, a.Tick.Label.YAlign
	a.Label.TextStyle, a.Tick.Label = label, tick
	a.Label.Padding = 4
	a.Color, a.Tick.Color = inkColor, inkColor
	a.Padding = 0
	a.Tick.Marker = plot.TickerFunc(linearTicks)
	if is.log {
		a.Scale, a.Tick.Marker = plot.LogScale{}, plot.TickerFunc(logTicks)
	}
}

// linearTicks returns at most seven named ticks at multiples of 1, 2 or 5.
func linearTicks(low, high float64) []plot.Tick {
	step := math.Pow(10, math.Floor(math.Log10((high-low)/7)))
	for _, m := range []float64{1, 2, 5, 10} {
		if (high-low)/(step*m) <= 7 {
			step *= m
			break
		}
	}
	var out []plot.Tick
	for k := int(math.Ceil(low/step - 1e-9)); float64(k)*step <= high+step*1e-9; k++ {
		v := float64(k) * step
		out = append(out, plot.Tick{Value: v, Label: tickText(v)})
	}
	return out
}

// logTicks names the powers of ten, and 2 and 5 times those if there are few.
func logTicks(low, high float64) []plot.Tick {
	few := math.Log10(high/low) < 3.2
	var out []plot.Tick
	for e := math.Floor(math.Log10(low)); e <= math.Ceil(math.Log10(high)); e++ {
		for m := 1.0; m < 10; m++ {
			v := m * math.Pow(10, e)
			if v < low*(1-1e-9) || v > high*(1+1e-9) {
				continue
			}
			t := plot.Tick{Value: v}
			if m == 1 || few && (m == 2 || m == 5) {
				t.Label = tickText(v)
			}
			out = append(out, t)
		}
	}
	return out
}

func tickText(v float64) string {
	v, _ = strconv.ParseFloat(strconv.FormatFloat(v, 'g', 10, 64), 64) // 0.1 x 3 is 0.3
	return strconv.FormatFloat(v, 'f', -1, 64)
}

// bands returns the curves with a band, the widest first, so that a narrow one is in front of a wide one.
func (p *picture) bands() []curve {
	out := slices.DeleteFunc(slices.Clone(p.curves), func(c curve) bool { return len(c.band) <= 2 })
	slices.SortStableFunc(out, func(a, b curve) int { return cmp.Compare(area(b.band), area(a.band)) })
	return out
}

// area returns the area of a closed polygon.
func area(polygon plotter.XYs) float64 {
	sum := 0.0
	for i, a := range polygon {
		b := polygon[(i+1)%len(polygon)]
		sum += a.X*b.Y - b.X*a.Y
	}
	return math.Abs(sum) / 2
}
