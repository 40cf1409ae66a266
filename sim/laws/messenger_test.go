//go:build cgo

package laws

import (
	"strings"
	"testing"
	"time"

	"weir/experiment"
	"weir/law"
	"weir/law/telemetry"
	"weir/sim/event"
	"weir/sim/network"
)

// noter is a law of a controller that notes what its switch reports: A for arrivals, T for telemetry.
type noter struct{ reports strings.Builder }

func (n *noter) Step(_ time.Duration, e law.Event, out []law.Action) []law.Action {
	switch e.(type) {
	case *telemetry.Arrivals:
		n.reports.WriteByte('A')
	case *telemetry.Telemetry:
		n.reports.WriteByte('T')
	}
	return out
}

func (*noter) Wake() time.Duration { return 0 }

// Reports of a switch arrive in order with a jitter of five intervals: of each interval the arrivals and then the telemetry.
func TestMessenger_KeepsTheOrder(t *testing.T) {
	const readings = 200
	g, err := experiment.BuildGraph(twoSenders, experiment.Network{Rate: 1e9, Delay: 1000, Buffer: law.Limit{N: 125_000}})
	if err != nil {
		t.Fatal(err)
	}
	r := &experiment.Run{Laws: []string{"noter"}, At: []string{"switch"}, Seed: 1, Params: map[string]any{"noter": struct{}{}}}
	r.Config.Graph, r.Config.Control = g, &experiment.Control{Delay: 100e3, Jitter: 5e6}
	n, err := network.Build(event.NewQueue(), &r.Config, network.Options{})
	if err != nil {
		t.Fatal(err)
	}
	l := &noter{}
	set, err := Laws{"noter": Controlled(law.Spec{
		Name: "noter", Sites: []law.Site{law.Controller}, Signals: []law.Signal{law.Backlog, law.Arrivals},
		Interval: func(any) law.Duration { return 1e6 },
		New:      func(law.Site, any, *law.Topology) (law.Law, error) { return l, nil },
	})}.Put(n, r)
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	n.Queue.Run(readings*event.Millisecond + 10*event.Millisecond)
	if got := l.reports.String(); len(got) < 2*readings || strings.Trim(strings.ReplaceAll(got, "AT", ""), "A") != "" {
		t.Errorf("%d readings arrive as %s", readings, got)
	}
}
