package report

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"gonum.org/v1/plot/plotter"

	"weir/experiment/result"
)

// joining returns a run of three flows with 60 Mbit/s in total: one from 0 to 6 s, one from 2 to 6 s, one from 3
// to 5 s, on items with these names.
func joining(scheme string, items ...string) *result.Run {
	raw := &result.Raw{Duration: 6 * time.Second, Bin: 10 * time.Millisecond}
	spans := [][2]time.Duration{{0, 6}, {2, 6}, {3, 5}}
	for i, s := range spans {
		f := result.Flow{
			Group: "flows", Item: items[i], Src: "sender" + string(rune('1'+i)), Mouse: i, Start: s[0] * time.Second,
			End: s[1] * time.Second, Done: true, Endless: true,
			Key: result.Key{Proto: 6, Src: netip.MustParseAddrPort("10.0.0.1:1"), Dst: netip.MustParseAddrPort("10.0.0.2:2")},
		}
		for bin := range int32(600) {
			at, n := time.Duration(bin)*raw.Bin/time.Second, int32(0)
			for _, o := range spans {
				if o[0] <= at && at < o[1] {
					n++
				}
			}
			if at >= s[0] && at < s[1] {
				f.Delivered = append(f.Delivered, result.Delivery{Bin: bin, Bytes: 75000 / n})
				f.Bytes += int64(75000 / n)
			}
		}
		raw.Flows = append(raw.Flows, f)
	}
	raw.Ports = []result.Port{{Name: "p", Labels: []string{"bottleneck"}, RateBps: 62e6, Buffer: 100e3, Samples: []result.Sample{
		{At: 0, Step: time.Millisecond, Count: 6000, Backlog: 40e3},
	}}}
	return result.Build(result.Info{
		World: "lab", Scheme: scheme, Seed: 1, Params: map[string]any{"fairq": map[string]any{"target_fraction": 0.5}},
	}, raw)
}

func TestSharesPicture(t *testing.T) {
	doc := &result.Document{Experiment: "x", Runs: []*result.Run{joining("droptail", "a", "b", "c"), joining("fairq", "a", "b", "c")}}
	var shares []*picture
	for _, p := range pictures(doc) {
		if strings.HasPrefix(p.name, "shares-") {
			shares = append(shares, p)
		}
	}
	if len(shares) != 2 || shares[0].name != "shares-droptail" || shares[1].name != "shares-fairq" {
		t.Fatalf("%d pictures, want one for each scheme", len(shares))
	}
	p := shares[1]
	if want := (plotter.XYs{{X: 0, Y: 60}, {X: 2, Y: 30}, {X: 3, Y: 20}, {X: 5, Y: 30}, {X: 6, Y: 30}}); !slices.Equal(p.guide.steps, want) {
		t.Errorf("fair share %v, want %v", p.guide.steps, want)
	}
	var events []string
	for _, e := range p.events {
		events = append(events, e.label)
	}
	if want := []string{"+a", "+b", "+c", "\u2212c"}; !slices.Equal(events, want) {
		t.Errorf("events %q, want %q", events, want)
	}
	for i, f := range []struct{ from, to, first, last float64 }{{0, 6, 60, 30}, {2, 6, 30, 30}, {3, 5, 20, 20}} {
		line := p.curves[i].line
		first, last := line[0], line[len(line)-1]
		if first.X <= f.from || last.X >= f.to || first.Y != f.first || last.Y != f.last || len(line) != int(f.to-f.from)*10 {
			t.Errorf("flow %d: %d points from %v to %v", i, len(line), first, last)
		}
	}
	svg, err := p.svg()
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"+a", "fair share", "target", "buffer", "queue (KB)", "payload (Mbit/s)", "time (s)"} {
		if texts := svgTexts(t, svg); !slices.Contains(texts, text) {
			t.Errorf("the picture does not say %q: %q", text, texts)
		}
	}
	if shares[0].y != p.y {
		t.Errorf("the schemes' axes differ: %v, %v", shares[0].y, p.y)
	}
}

// Flows of one item are named by their senders. Flows that begin and end together have no such picture.
func TestSharesPicture_Flows(t *testing.T) {
	flows := longFlows(joining("fairq", "a", "a", "a").Detail)
	if len(flows) != 3 || flows[2].name != "sender3" {
		t.Errorf("%d flows, %+v", len(flows), flows)
	}
	together := joining("fairq", "a", "b", "c").Detail
	for i := range together.Flows {
		together.Flows[i].StartMs, together.Flows[i].EndMs = float64(i), 6000-float64(i)
	}
	if flows := longFlows(together); flows != nil {
		t.Errorf("flows that begin and end together: %d", len(flows))
	}
}
