package tcp

import (
	"testing"

	"weir/experiment"
	"weir/law"
	"weir/sim/event"
	"weir/sim/network"
)

// slowSender builds two hosts, "a" behind a line of that rate and "b" behind 1 Gbit/s.
func slowSender(t *testing.T, rate law.Rate) (*event.Queue, *network.Network, *Stack) {
	t.Helper()
	q := event.NewQueue()
	net, err := network.Build(q, &experiment.Config{Graph: &experiment.Graph{
		Nodes: []experiment.Node{
			{Name: "switch", Kind: experiment.Switch},
			{Name: "a", Kind: experiment.Guest, Attached: "switch"},
			{Name: "b", Kind: experiment.Guest, Attached: "switch"},
		},
		Links: []experiment.Link{
			{A: "a", B: "switch", Rate: rate, Delay: 50_000, Buffer: law.Limit{N: 1e6}},
			{A: "b", B: "switch", Rate: 1e9, Delay: 50_000, Buffer: law.Limit{N: 1e6}},
		},
	}}, network.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := NewStack(q, net, 1)
	net.Sink = s
	return q, net, s
}

// A sender whose own line is the bottleneck keeps at most two bursts in its NIC, and the line busy. Without small
// queues its window fills the NIC, which drops. (Linux: TCP Small Queues.)
func TestSmallQueues(t *testing.T) {
	for _, on := range []bool{true, false} {
		q, net, s := slowSender(t, 100e6)
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

// A rate that changes during the run limits the sender, and small queues count what has left its NIC. The sender keeps
// at most two bursts there, continues at once when the rate rises, and fills each rate.
func TestSmallQueues_RateChanges(t *testing.T) {
	q, net, s := slowSender(t, 1e9)
	nic := net.NIC(1)
	c := Default("reno")
	c.SmallQueues = true
	server := &program{}
	s.Listen(2, 80, c, func(*Endpoint) App { return server })
	e := s.Dial(1, 2, 1000, 80, c, &program{})
	e.Write(1 << 40)
	q.Run(100 * event.Millisecond) // by its line, a FIFO
	for i, rate := range []law.Rate{100e6, 10e6, 500e6, 20e6, 800e6} {
		if err := nic.SetRate(rate, 3000); err != nil {
			t.Fatal(err)
		}
		before := server.got
		from, most := q.Now(), int64(0)
		for now := from; now < from+500*event.Millisecond; now += 100 * event.Microsecond {
			q.Run(now)
			if err := e.Check(); err != nil {
				t.Fatal(err)
			}
			if now > from+100*event.Millisecond {
				most = max(most, nic.Backlog())
			}
		}
		// 1448 of the 1514 bytes that the bucket counts, over half a second. The first rate also sends what 1 Gbit/s
		// left in the NIC.
		share := float64(server.got-before) * 8 / 0.5 / float64(rate)
		if most > 150_000 || share < 0.9 || share > 1.0 {
			t.Errorf("rate %d, %v: %d bytes in the NIC, %.3f of the rate", i, rate, most, share)
		}
	}
	if n := e.Counters().Timeouts; n != 0 || nic.Counters().Tail.Packets != 0 {
		t.Errorf("%d timeouts, %+v", n, nic.Counters())
	}
	if n := e.counting().queued; n < 0 || n > nic.Backlog() {
		t.Errorf("%d bytes are counted in the NIC, which holds %d", n, nic.Backlog())
	}
	// A packet that leaves makes a waiting sender continue, without an ACK.
	e.small.count.queued, e.small.count.resume, e.small.count.waits = 10_000, 8000, true
	q.Stop(&e.small.event)
	for i, want := range []bool{false, true} {
		pk := e.header(network.ACK, e.nxt, 1000)
		net.Left(pk)
		net.Free(pk)
		if got := e.small.event.Pending(); got != want || e.small.count.waits == want {
			t.Errorf("%d bytes left: %v, %+v", 1000*(i+1), got, *e.small.count)
		}
	}
}

// Packets that a guard or a full port drops before they leave their host's NIC no longer count there.
func TestSmallQueues_DropsInTheHost(t *testing.T) {
	for _, rate := range []law.Rate{1e6, 1e9} {
		q, net, s := slowSender(t, 1e9)
		nic := net.NIC(1)
		if err := nic.SetRate(rate, 3000); err != nil {
			t.Fatal(err)
		}
		c := Default("reno")
		c.SmallQueues = true
		s.Listen(2, 80, c, func(*Endpoint) App { return &program{} })
		e := s.Dial(1, 2, 1000, 80, c, &program{})
		e.Write(1 << 20)
		drops := 0
		nic.SetLaws(&everyTenth{})
		net.OnDrop = func(*network.Port, *network.Packet, network.DropReason, event.Time) { drops++ }
		for range 1000 {
			q.Run(q.Now() + event.Millisecond)
			if e.counting().queued > nic.Backlog() {
				t.Fatalf("%v: %d bytes are counted in the NIC, which holds %d", rate, e.counting().queued, nic.Backlog())
			}
		}
		if drops == 0 {
			t.Errorf("%v: nothing was dropped", rate)
		}
	}
}

// everyTenth drops every tenth packet.
type everyTenth struct{ n int }

func (d *everyTenth) Packet(*network.Port, *network.Packet, event.Time) network.Verdict {
	if d.n++; d.n%10 == 0 {
		return network.Drop
	}
	return network.Pass
}
