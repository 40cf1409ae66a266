// Command observefig draws docs/img/observe.png: the prediction of weir observe for each load, and the measurement
// with enforcing. It reads the file written by `go test ./cmd/weir -run TestObserve_Predicts -soak -observe-out
// FILE`.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"image/color"
	"io"
	"os"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"

	"weir/agent/switchd"
)

type pair struct{ Before, After switchd.ObservedPort }

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: observefig OBSERVATIONS.json FIGURE.png")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "observefig:", err)
		os.Exit(1)
	}
}

func run(from, to string) error {
	pairs, err := read(from)
	if err != nil {
		return err
	}
	queue, err := figure("queue, KB", pairs, func(p *pair) figures {
		then := &p.Before.Then
		return figures{p.Before.Now.MeanBytes / 1e3, then.MeanBytes / 1e3, p.After.Now.MeanBytes / 1e3, then.LeastBytes / 1e3, then.MostBytes / 1e3}
	})
	if err != nil {
		return err
	}
	window, err := figure("window of a flow, KB", pairs, func(p *pair) figures {
		return figures{now: -1, expected: float64(p.Before.Then.WindowBytes) / 1e3, measured: p.After.Now.GrantBytes / 1e3}
	})
	if err != nil {
		return err
	}
	drops, err := figure("drops a second", pairs, func(p *pair) figures {
		return figures{now: p.Before.Now.DropsPerSecond, expected: p.Before.Then.DropsPerSecond, measured: p.After.Now.DropsPerSecond}
	})
	if err != nil {
		return err
	}
	return save(to, []*plot.Plot{queue, window, drops})
}

func read(path string) ([]pair, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var out []pair
	for d := json.NewDecoder(f); ; {
		var p pair
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		out = append(out, p)
	}
}

// figures are those of one load; below 0: there is none.
type figures struct {
	now, expected, measured float64
	least, most             float64 // range of the prediction; 0: no range is drawn
}

// ranges are lines from the smallest to the largest predicted value.
type ranges struct {
	plotter.XYs
	plotter.YErrors
}

// figure draws one quantity over the number of flows.
func figure(what string, pairs []pair, of func(*pair) figures) (*plot.Plot, error) {
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = "flows", what
	p.Y.Min = 0
	var now, expected, measured plotter.XYs
	var around ranges
	for i := range pairs {
		f, n := of(&pairs[i]), float64(pairs[i].Before.FlowsSeen)
		if f.now >= 0 {
			now = append(now, plotter.XY{X: n, Y: f.now})
		}
		expected = append(expected, plotter.XY{X: n, Y: f.expected})
		if f.most > 0 {
			around.XYs = append(around.XYs, plotter.XY{X: n, Y: f.expected})
			around.YErrors = append(around.YErrors, struct{ Low, High float64 }{f.expected - f.least, f.most - f.expected})
		}
		measured = append(measured, plotter.XY{X: n, Y: f.measured})
	}
	line, err := plotter.NewLine(expected)
	if err != nil {
		return nil, err
	}
	line.Width = vg.Points(1.5)
	p.Add(plotter.NewGrid(), line)
	p.Legend.Add("expected", line)
	if len(around.XYs) > 0 {
		bars, err := plotter.NewYErrorBars(around)
		if err != nil {
			return nil, err
		}
		p.Add(bars)
	}
	for _, s := range []struct {
		name string
		of   plotter.XYs
		as   draw.GlyphStyle
	}{
		{"before", now, draw.GlyphStyle{Color: color.Gray{150}, Radius: vg.Points(3), Shape: draw.CrossGlyph{}}},
		{"enforced", measured, draw.GlyphStyle{Color: color.RGBA{B: 180, A: 255}, Radius: vg.Points(3), Shape: draw.CircleGlyph{}}},
	} {
		if len(s.of) == 0 {
			continue
		}
		points, err := plotter.NewScatter(s.of)
		if err != nil {
			return nil, err
		}
		points.GlyphStyle = s.as
		p.Add(points)
		p.Legend.Add(s.name, points)
	}
	p.Legend.Top = true
	p.Y.Max *= 1.35 // room for the legend
	return p, nil
}

// save draws the figures next to each other.
func save(path string, row []*plot.Plot) error {
	canvas := vgimg.NewWith(vgimg.UseWH(vg.Length(len(row))*3.5*vg.Inch, 2.8*vg.Inch), vgimg.UseDPI(120))
	tiles := draw.Tiles{Rows: 1, Cols: len(row), PadX: vg.Inch / 5, PadTop: vg.Points(4), PadBottom: vg.Points(4), PadRight: vg.Points(4)}
	canvases := plot.Align([][]*plot.Plot{row}, tiles, draw.New(canvas))
	for i, p := range row {
		p.Draw(canvases[0][i])
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = vgimg.PngCanvas{Canvas: canvas}.WriteTo(f)
	return errors.Join(err, f.Close())
}
