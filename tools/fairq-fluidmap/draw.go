//go:build cgo

package main

import (
	"fmt"
	"image/color"
	"math"
	"os"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/palette/moreland"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"

	"weir/datapath/fairq/fluid"
)

// drawMeans draws Fig. 1: the mean since the start, and the queue itself in the first 2000 T.
func drawMeans(path string, versions []version, courses []*fluid.Course) error {
	mean, queue := plot.New(), plot.New()
	mean.X.Label.Text, mean.Y.Label.Text = "time (T)", "mean queue since the start (packets)"
	queue.X.Label.Text, queue.Y.Label.Text = "time (T)", "queue (packets)"
	mean.Legend.Left, mean.Y.Min = false, 0
	colours := []color.Color{color.RGBA{B: 180, A: 255}, color.RGBA{R: 200, G: 90, A: 255}, color.Gray{170}}
	for i, c := range courses {
		a, err := plotter.NewLine(runningMean(c, reportedTicks, 500))
		if err != nil {
			return fmt.Errorf("draw: %w", err)
		}
		steps := len(c.Queue) / reportedTicks
		var points plotter.XYs
		for k := 0; k < 2000*steps; k += steps {
			points = append(points, plotter.XY{X: float64(k / steps), Y: c.Queue[k] / packet})
		}
		b, err := plotter.NewLine(points)
		if err != nil {
			return fmt.Errorf("draw: %w", err)
		}
		a.Color, b.Color, a.Width = colours[i%len(colours)], colours[i%len(colours)], vg.Points(1.5)
		mean.Add(a)
		queue.Add(b)
		mean.Legend.Add(versions[i].name, a)
	}
	return save(path, mean, queue)
}

// runningMean reduces the mean since the start to this many points.
func runningMean(c *fluid.Course, ticks, points int) plotter.XYs {
	var out plotter.XYs
	each, sum := len(c.Queue)/points, 0.0
	for i, q := range c.Queue {
		if sum += q; (i+1)%each == 0 {
			out = append(out, plotter.XY{X: float64(i+1) / float64(len(c.Queue)) * float64(ticks), Y: sum / float64(i+1) / packet})
		}
	}
	return out
}

// mostSwing is the end of the scale of colours.
const mostSwing = 3

// panel is the map of one gain.
type panel [][]float64

func (p panel) Dims() (c, r int)   { return len(periods), len(alphas) }
func (p panel) Z(c, r int) float64 { return min(p[r][c], mostSwing) }
func (p panel) X(c int) float64    { return float64(c) }
func (p panel) Y(r int) float64    { return float64(r) }

// draw draws a panel for each gain and the scale of the colours.
func (s *stability) draw(path string) error {
	colours := moreland.SmoothBlueRed()
	colours.SetMin(0)
	colours.SetMax(mostSwing)
	var plots []*plot.Plot
	for i, g := range gains {
		p := plot.New()
		p.Title.Text = "gain of the " + g.name
		p.X.Label.Text, p.Y.Label.Text = "M T / RTT", "alpha"
		h := plotter.NewHeatMap(panel(s.swing[i]), colours.Palette(64))
		h.Min, h.Max = 0, mostSwing
		p.Add(h)
		p.X.Tick.Marker, p.Y.Tick.Marker = labels(periods), labels(alphas)
		plots = append(plots, p)
	}
	bar := plot.New()
	bar.Add(&plotter.ColorBar{ColorMap: colours, Vertical: true})
	bar.HideX()
	bar.Y.Label.Text = fmt.Sprintf("swing of the queue (targets, %d and more)", mostSwing)
	return save(path, append(plots, bar)...)
}

// labels names the cells of a map.
func labels(values []float64) plot.ConstantTicks {
	var out plot.ConstantTicks
	for i, v := range values {
		text := fmt.Sprint(v)
		if v < 1 && v == math.Exp2(math.Round(math.Log2(v))) {
			text = fmt.Sprintf("1/%.0f", 1/v)
		}
		out = append(out, plot.Tick{Value: float64(i), Label: text})
	}
	return out
}

// save draws plots next to each other; a scale of colours needs less room.
func save(path string, plots ...*plot.Plot) error {
	const width, height, bar = 420, 320, 110
	total := vg.Length(0)
	widths := make([]vg.Length, len(plots))
	for i := range plots {
		widths[i] = width
		if i == 2 {
			widths[i] = bar
		}
		total += widths[i]
	}
	img := vgimg.NewWith(vgimg.UseWH(total, height), vgimg.UseDPI(110), vgimg.UseBackgroundColor(color.White))
	whole, left := draw.New(img), vg.Length(0)
	for i, p := range plots {
		p.Draw(draw.Crop(whole, left+8, left+widths[i]-total-8, 6, -6))
		left += widths[i]
	}
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("write the figure: %w", err)
	}
	if _, err := (vgimg.PngCanvas{Canvas: img}).WriteTo(f); err != nil {
		_ = f.Close()
		return fmt.Errorf("write the figure: %w", err)
	}
	return f.Close()
}
