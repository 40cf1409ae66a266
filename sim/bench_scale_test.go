package sim

import (
	"fmt"
	"testing"

	"weir/experiment"
	"weir/law"
	"weir/sim/event"
	"weir/sim/network"
	"weir/sim/tcp"
)

// The network in which cost is compared with size: some hosts send to one, by a switch whose port to it is the
// bottleneck and has an unlimited buffer. The receiver's windows are the limit, so that nothing is lost and the length
// of the queue is known.
const (
	starRate    = 10e9 // of the bottleneck
	starDelay   = event.Microsecond
	starSenders = 100                                              // most hosts; flows share them
	starPacket  = event.Time((bareData + 24) * 8 / 10)             // a data packet's time on the bottleneck
	starPipe    = int64((4*starDelay + 3*starPacket) / starPacket) // packets that are not in the queue
)

// scaleRow has the cost of a packet with that many flows and queued packets.
type scaleRow struct {
	Flows     int     `json:"flows"`
	Window    int64   `json:"window_segments"` // of each flow
	Queued    int64   `json:"queued_packets"`  // found at the end
	Ns        float64 `json:"ns_per_data_packet"`
	OverFirst float64 `json:"times_first_row"`
	Events    float64 `json:"events_per_data_packet"`
	Allocs    float64 `json:"steady_allocations_per_data_packet"`
	Live      int64   `json:"live_bytes"`
	Bare      float64 `json:"bare_ns_per_data_packet"`
	BareFirst float64 `json:"bare_times_first_row"`
	OverBare  float64 `json:"times_bare"`
	Share     float64 `json:"share_of_processor"`

	borrowed, bareLive, bareBorrowed int64
}

// memory is bytes of heap, from the differences between rows.
type memory struct {
	QueuedBare float64 `json:"bytes_per_queued_packet_in_the_network"`
	QueuedTCP  float64 `json:"bytes_per_queued_packet_with_tcp"` // its sender's record too
	FlowTCP    float64 `json:"bytes_per_flow_tcp"`               // both ends, a window of 10 recorded, without packets
	FlowRun    float64 `json:"bytes_per_flow_of_a_run"`          // its program and its results too; 0: not measured
}

// scale measures cost against the number of queued packets, with 4 flows, and against the number of flows, with 10
// packets each.
func (r *speedReport) scale(t *testing.T) {
	t.Helper()
	queued, flows, packets := []int64{10, 100, 1000, 10_000, 100_000}, []int{4, 100, 1000, 10_000}, int64(400_000)
	if !*speedFull {
		queued, flows, packets = queued[:3], flows[:2], 4000
	}
	r.scaleHead("what is queued: 4 flows")
	for _, n := range queued {
		r.Queued = append(r.Queued, scalePoint(t, 4, (n+starPipe+3)/4, packets))
		r.scaleLine(r.Queued)
	}
	r.scaleHead("the number of flows: 10 packets of each are under way")
	for _, n := range flows {
		r.Flows = append(r.Flows, scalePoint(t, n, 10, packets))
		r.scaleLine(r.Flows)
	}
	r.memory()
}

// memory computes the differences.
func (r *speedReport) memory() {
	short, long := &r.Queued[0], &r.Queued[len(r.Queued)-1]
	most := &r.Flows[len(r.Flows)-1]
	r.Memory = &memory{
		QueuedBare: float64(long.bareLive-short.bareLive) / float64(long.bareBorrowed-short.bareBorrowed),
		QueuedTCP:  float64(long.Live-short.Live) / float64(long.borrowed-short.borrowed),
		FlowTCP:    float64(most.Live-most.bareLive-(most.borrowed-most.bareBorrowed)*packetBytes) / float64(most.Flows),
	}
	for i := range r.Cases {
		if r.Cases[i].Flows >= 5000 {
			r.Memory.FlowRun = r.Cases[i].PerFlow
		}
	}
	r.memoryLines()
}

// scalePoint measures one row; the caller compares it with the first.
func scalePoint(t *testing.T, flows int, window, packets int64) scaleRow {
	t.Helper()
	row := scaleRow{Flows: flows, Window: window}
	var with, without spent
	for range *speedRepeats {
		before := live()
		one := newLoaded(t, flows, window)
		happened, allocs := one.net.Queue.Happened(), allocations()
		took, moved := one.time(packets)
		row.Allocs = float64(allocations()-allocs) / float64(moved)
		row.Events = float64(one.net.Queue.Happened()-happened) / float64(moved)
		row.Queued = one.port.BacklogPackets()
		row.Live, row.borrowed = live()-before, one.net.Borrowed()
		with = with.least(took)
		row.Ns = with.per(moved)
		if one.failed != nil || row.Queued < window*int64(flows)-2*starPipe-int64(flows) {
			t.Fatalf("%d flows with %d packets each: %d are queued, %v", flows, window, row.Queued, one.failed)
		}

		before = live()
		two := bareLoaded(t, flows, window)
		took, moved = two.time(packets)
		row.bareLive, row.bareBorrowed = live()-before, two.net.Borrowed()
		without = without.least(took)
		row.Bare = without.per(moved)
	}
	row.OverBare, row.Share = row.Ns/row.Bare, with.share()
	return row
}

// loaded is a network whose queue has its final length.
type loaded struct {
	net    *network.Network
	port   *network.Port // the bottleneck
	hosts  []network.NodeID
	to     network.NodeID
	fill   event.Time // the time of the packets in flight on the bottleneck
	failed error
}

// star builds the network.
func star(t *testing.T, flows int, window int64) *loaded {
	t.Helper()
	none := law.Limit{N: 1 << 40}
	g := &experiment.Graph{
		Nodes: []experiment.Node{{Name: "switch", Kind: experiment.Switch}, {Name: "receiver", Kind: experiment.Guest, Attached: "switch"}},
		Links: []experiment.Link{{A: "receiver", B: "switch", Rate: starRate, Delay: law.Duration(starDelay), Buffer: none}},
	}
	l := &loaded{to: 1, fill: event.Time(int64(flows)*window) * starPacket}
	for i := range min(flows, starSenders) {
		name := fmt.Sprintf("sender%d", i+1)
		l.hosts = append(l.hosts, network.NodeID(len(g.Nodes)))
		g.Nodes = append(g.Nodes, experiment.Node{Name: name, Kind: experiment.Guest, Attached: "switch"})
		g.Links = append(g.Links, experiment.Link{A: name, B: "switch", Rate: 10 * starRate, Delay: law.Duration(starDelay), Buffer: none})
	}
	var err error
	if l.net, err = network.Build(event.NewQueue(), &experiment.Config{Graph: g}, network.Options{NICFrames: hostFrames}); err != nil {
		t.Fatal(err)
	}
	l.port = l.net.PortByName("switch->receiver")
	return l
}

// newLoaded returns a network with TCP, its windows full.
func newLoaded(t *testing.T, flows int, window int64) *loaded {
	t.Helper()
	l := star(t, flows, window)
	stack := tcp.NewStack(l.net.Queue, l.net, 1)
	l.net.Sink = stack
	c := tcp.Default("reno")
	c.InitialWindow, c.Buffer = uint32(2*window), window*1448 // so that the offered window is the limit
	const port = 5001
	stack.Listen(l.to, port, c, func(*tcp.Endpoint) tcp.App { return (*greedy)(l) })
	for i := range flows {
		stack.Dial(l.hosts[i%len(l.hosts)], l.to, uint16(10240+i/len(l.hosts)), port, c, (*greedy)(l))
	}
	l.settle()
	return l
}

// bareLoaded is the same without TCP. Every second packet is answered, as with delayed acknowledgements.
func bareLoaded(t *testing.T, flows int, window int64) *loaded {
	t.Helper()
	l := star(t, flows, window)
	b := newBare(l.net, 2)
	for i := range flows {
		b.add(l.hosts[i%len(l.hosts)], l.to)
	}
	b.begin(window)
	l.settle()
	return l
}

// settle waits for several windows, until the effects of the beginning are over.
func (l *loaded) settle() { l.net.Queue.Run(5*l.fill + 50*event.Millisecond) }

// time waits until that many packets have passed the bottleneck, which is always busy, and returns how many did.
func (l *loaded) time(packets int64) (took spent, moved int64) {
	before := l.port.Counters().Sent.Packets
	end := l.net.Queue.Now() + event.Time(packets)*starPacket
	took = stopwatch(func() { l.net.Queue.Run(end) })
	return took, l.port.Counters().Sent.Packets - before
}

// greedy is the programs of connections that send without end.
type greedy loaded

// Connected implements tcp.App.
func (g *greedy) Connected(e *tcp.Endpoint) {
	if e.Dialled() {
		e.Write(endlessBytes)
	}
}

// Received implements tcp.App.
func (g *greedy) Received(*tcp.Endpoint, int64) {}

// Finished implements tcp.App.
func (g *greedy) Finished(*tcp.Endpoint) {}

// Acknowledged implements tcp.App.
func (g *greedy) Acknowledged(*tcp.Endpoint) {}

// Failed implements tcp.App.
func (g *greedy) Failed(_ *tcp.Endpoint, why error) { g.failed = why }
