package tcp

import (
	"testing"

	"weir/experiment"
	"weir/law"
	"weir/sim/event"
	"weir/sim/network"
)

// A sender whose own line is the bottleneck keeps two bursts in its NIC at most, and the line busy; without
// small queues its window fills the NIC, which drops. (Linux: TCP Small Queues.)
func TestSmallQueues(t *testing.T) {
	for _, on := range []bool{true, false} {
		q := event.NewQueue()
		net, err := network.Build(q, &experiment.Config{Graph: &experiment.Graph{
			Nodes: []experiment.Node{
				{Name: "switch", Kind: experiment.Switch},
				{Name: "a", Kind: experiment.Guest, Attached: "switch"},
				{Name: "b", Kind: experiment.Guest, Attached: "switch"},
			},
			Links: []experiment.Link{
				{A: "a", B: "switch", Rate: 100e6, Delay: 50_000, Buffer: law.Limit{N: 1e6}},
				{A: "b", B: "switch", Rate: 1e9, Delay: 50_000, Buffer: law.Limit{N: 1e6}},
			},
		}}, network.Options{})
		if err != nil {
			t.Fatal(err)
		}
		s := NewStack(q, net, 1)
		net.Sink = s
		c := Default("reno")
		c.SmallQueues = on
		server := &program{}
		s.Listen(2, 80, c, func(*Endpoint) App { return server })
		e := s.Dial(1, 2, 1000, 80, c, &program{})
		e.Write(1 << 40)
		nic := net.NIC(1)
		most := int64(0)
		for now := event.Time(0); now < 2*event.Second; now += 100 * event.Microsecond {
			q.Run(now)
			most = max(most, nic.Backlog())
			if err := e.Check(); err != nil {
				t.Fatal(err)
			}
		}
		drops := nic.Counters().Tail.Packets
		// Two bursts of 64 KiB, a window's growth in between, and headers.
		if on && (most > 150_000 || drops > 0 || e.Counters().Timeouts > 0) || !on && (most < 1_000_000 || drops == 0) {
			t.Errorf("small queues %v: %d bytes in the NIC, %d drops, %+v", on, most, drops, e.Counters())
		}
		// 1448 of 1538 bytes on a line of 100 Mbit/s, in two seconds less slow start.
		if rate := float64(server.got) * 8 / 2 / 1e6; on && rate < 90 {
			t.Errorf("%.1f Mbit/s", rate)
		}
	}
}
