package sim

import (
	"flag"
	"testing"

	"weir/experiment"
	"weir/law"
	"weir/sim/event"
	"weir/sim/network"
	"weir/sim/tcp"
)

// The tests of response_*.go compare the simulated TCP with known laws: the throughput for a rate of losses, the length
// of a queue, the shares of flows. Each names the law, its source, the tolerance and the reason for it. Tolerances were
// set before the first run. docs/tables/simulator.md has the figures.

var longer = flag.Int("longer", 1, "TestResponse: measure for so many times as long")

// bed is a network with transports, for flows that a test starts itself.
type bed struct {
	t     testing.TB
	queue *event.Queue
	net   *network.Network
	stack *tcp.Stack
	flows map[int32]*bulk // by connection; only looked up
	next  uint16
}

func newBed(t testing.TB, cfg *experiment.Config, seed int64) *bed {
	t.Helper()
	b := &bed{t: t, queue: event.NewQueue(), flows: map[int32]*bulk{}}
	var err error
	if b.net, err = network.Build(b.queue, cfg, network.Options{Seed: seed, NICFrames: hostFrames}); err != nil {
		t.Fatal(err)
	}
	b.stack = tcp.NewStack(b.queue, b.net, seed)
	b.net.Sink = b.stack
	return b
}

func (b *bed) host(name string) network.NodeID {
	b.t.Helper()
	id, ok := b.net.Node(name)
	if !ok {
		b.t.Fatalf("there is no host %s", name)
	}
	return id
}

// bulk is a flow, and the program at both of its ends.
type bulk struct {
	b        *bed
	sender   *tcp.Endpoint
	size     int64 // bytes
	received int64
	done     event.Time // when all of them had arrived; 0: not yet
}

// Connected implements tcp.App.
func (f *bulk) Connected(*tcp.Endpoint) {}

// Received implements tcp.App.
func (f *bulk) Received(_ *tcp.Endpoint, n int64) {
	if f.received += n; f.received >= f.size && f.done == 0 {
		f.done = f.b.queue.Now()
	}
}

// Finished implements tcp.App.
func (f *bulk) Finished(*tcp.Endpoint) {}

// Acknowledged implements tcp.App.
func (f *bulk) Acknowledged(*tcp.Endpoint) {}

// Failed implements tcp.App.
func (f *bulk) Failed(_ *tcp.Endpoint, why error) { f.b.t.Errorf("a flow failed: %v", why) }

// begin starts a flow at once; both ends have the same settings.
func (b *bed) begin(from, to string, cfg *tcp.Config, size int64) *bulk {
	b.t.Helper()
	src, dst := b.host(from), b.host(to)
	client, server := firstClientPort+b.next, firstServerPort+b.next
	b.next++
	b.stack.Listen(dst, server, cfg, func(e *tcp.Endpoint) tcp.App { return b.flows[e.Index()] })
	f := &bulk{b: b, size: size}
	f.sender = b.stack.Dial(src, dst, client, server, cfg, f)
	b.flows[f.sender.Index()] = f
	f.sender.Write(size)
	return f
}

// later starts a flow at a time.
func (b *bed) later(at event.Time, start func()) {
	doAt(b.queue, at, start)
}

// Of the lossy path. Its line is so fast that a window of 1000 segments passes in 0.13 ms, and nothing is queued.
const (
	lossyRate   = law.Rate(100e9)
	lossyBuffer = 1 << 30
	longestRun  = 100_000 * event.Second
)

// lossMark is a loss: when, and how many segments had been sent for the first time by then.
type lossMark struct {
	at       event.Time
	segments int64
}

// lossyPath is one endless flow over a path that loses the segments that a test chooses, and delays the others.
type lossyPath struct {
	*bed
	flow     *bulk
	rtt      event.Time
	to       network.NodeID
	edge     uint32 // end of the last segment that was sent for the first time
	segments int64
	begun    bool
	marks    []lossMark
}

// newLossyPath starts the flow with a window of w segments whose first is lost. So it is in congestion avoidance one
// RTT later, and has recorded a loss at w.
func newLossyPath(t testing.TB, cfg tcp.Config, rtt event.Time, w float64) *lossyPath {
	t.Helper()
	delay := law.Duration(rtt / 4)
	buffer := law.Limit{N: lossyBuffer}
	b := newBed(t, &experiment.Config{Graph: &experiment.Graph{
		Nodes: []experiment.Node{
			{Name: "switch", Kind: experiment.Switch},
			{Name: "sender", Kind: experiment.Guest, Attached: "switch"},
			{Name: "receiver", Kind: experiment.Guest, Attached: "switch"},
		},
		Links: []experiment.Link{
			{A: "sender", B: "switch", Rate: lossyRate, Delay: delay, Buffer: buffer},
			{A: "receiver", B: "switch", Rate: lossyRate, Delay: delay, Buffer: buffer},
		},
	}}, 1)
	cfg.InitialWindow = max(4, uint32(w+0.5))
	cfg.Buffer = 256 << 20 // the receiver's window is never the limit
	p := &lossyPath{bed: b, rtt: rtt, to: b.host("receiver")}
	p.flow = b.begin("sender", "receiver", &cfg, endlessBytes)
	return p
}

// run loses data segments for which lose returns true, until that many are lost. lose gets whether the segment is sent
// for the first time, and how many were so far.
func (p *lossyPath) run(losses int, lose func(first bool, n int64) bool) {
	p.t.Helper()
	p.net.Loss(func(at *network.Port, pk *network.Packet) bool {
		if at.Peer != p.to || pk.Payload() == 0 {
			return false
		}
		first := !p.begun || int32(pk.Seq()-p.edge) >= 0
		if first {
			p.edge = pk.Seq() + uint32(pk.Payload())
			p.segments++
		}
		if !p.begun {
			p.begun = true
			p.segments = 0
			return true
		}
		if !lose(first, p.segments) {
			return false
		}
		if p.marks = append(p.marks, lossMark{p.queue.Now(), p.segments}); len(p.marks) == losses {
			p.queue.Halt()
		}
		return true
	})
	p.queue.Run(longestRun)
	if len(p.marks) < losses {
		p.t.Fatalf("%d losses in %v s, want %d: the flow stands", len(p.marks), longestRun/event.Second, losses)
	}
}

// every loses each n-th segment that is sent for the first time: the deterministic losses of the derivations.
// Retransmissions arrive.
func every(n int64) func(bool, int64) bool {
	return func(first bool, segments int64) bool { return first && segments%n == 0 }
}

// window returns the mean window in segments between two losses, from what was sent in that time: throughput x RTT.
func (p *lossyPath) window(from, to int) float64 {
	a, b := p.marks[from], p.marks[to]
	return float64(b.segments-a.segments) / float64(b.at-a.at) * float64(p.rtt)
}

// near fails unless got is within a relative tolerance of want.
func near(t testing.TB, what string, got, want, tolerance float64) {
	t.Helper()
	off := got/want - 1
	verdict := t.Logf
	if !(off >= -tolerance && off <= tolerance) { // NaN too
		verdict = t.Errorf
	}
	verdict("%-34s %10.4g, law %10.4g: %+6.1f %% (%.1f %% allowed)", what, got, want, 100*off, 100*tolerance)
}
