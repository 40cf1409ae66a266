package sim

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"weir/experiment"
	"weir/experiment/result"
	"weir/experiment/workload"
	"weir/law"
	"weir/sim/event"
	"weir/sim/laws"
	"weir/sim/network"
	"weir/sim/tcp"
)

const (
	// messageBytes is the size of a request (pull), and of the answer to a push on a persistent connection. These bytes
	// travel against the data, or before it, and do not count in a flow.
	messageBytes = 64
	// endlessBytes is the size of a flow without a size: more than any run can transfer.
	endlessBytes = 1 << 50
	// unsentBytes is what an endless sender has written and not sent when it is stopped, as in the lab
	// (TCP_NOTSENT_LOWAT).
	unsentBytes = 128 << 10
	// openAhead is how long before its first request a persistent connection opens, so that it is ready.
	openAhead = law.Duration(100 * time.Millisecond)
	// drainTime is how long connections may take to end after the last flow, and after a stopped flow.
	drainTime = event.Second
	// failurePause is how long a closed loop waits after a request that failed early.
	failurePause = 10 * event.Millisecond
	// paceStep is how often a paced sender over TCP writes the bytes that are due.
	paceStep = 2 * event.Millisecond
	// firstServerPort is the first port that accepts connections, on every host: one port for each setting of TCP.
	firstServerPort = 5001
)

// traffic makes the flows of a run at their times: the same flows as lab/traffic, with figures of the same meaning. A
// flow starts with connect(), or on a persistent connection with its first byte. It is complete when the receiving
// program has its last byte.
//
// Programs are App of package tcp: they are called within an event and never wait. A goroutine of the lab's programs is
// here a conn (both ends of a connection), a session (a persistent connection, or one connection of a closed loop) or a
// datagrams (a UDP sender).
type traffic struct {
	queue *event.Queue
	net   *network.Network
	stack *tcp.Stack
	cfg   *experiment.Config
	work  *workload.Workload
	items []item
	hosts []host  // by NodeID
	conns []*conn // by the stack's index; nil: both programs are done
	udp   []*datagrams

	t0, end event.Time // of the traffic; end: every flow has stopped
	bin     event.Time // of delivered bytes
	over    bool       // no flow may start any more
	left    int64      // what the run waits for: open-loop flows, connections of closed loops, the dispatcher
	open    int64      // connections that their programs still use
	ended   int64      // flows
	results []result.Flow
	bins    int64 // of delivered bytes, of all flows
	present presentBin
	broken  error // an error that stops the run
	alive   *flow // list of the flows that have not ended
	errs    map[string]int
	// declared gets what programs declare for flows with a deadline; nil: nobody wants to know.
	declared func(laws.Declaration)

	most               int // flows of a run
	mostOpen, mostBins int64

	// The dispatcher: it starts flows at their times.
	start  event.Event
	flows  []workload.Flow
	events []opening
	lines  map[line]*session
	loops  []*loop // by index into work.Loops; nil: not begun
}

// item is the common state of all flows of one traffic item.
type item struct {
	*experiment.Item
	ends             [][2]network.NodeID // of its pairs: client, server
	tcp              *tcp.Config
	port             uint16 // of its servers
	pull, persistent bool
	udp              bool
}

// host is the state of one host: the ports of its clients.
type host struct {
	used map[uint16]bool
	next uint16
}

const firstClientPort, lastClientPort = 10240, 65535 // as in the lab

// opening is a start at a time that is not of an open-loop flow.
type opening struct {
	at   law.Duration
	loop int32 // index into work.Loops; -1: session
	n    int32 // connection of the loop
	s    *session
}

// line identifies a persistent connection of open-loop flows.
type line struct{ item, mouse int32 }

// newTraffic prepares the traffic. Nothing happens before begin.
func newTraffic(net *network.Network, stack *tcp.Stack, cfg *experiment.Config, work *workload.Workload) (*traffic, error) {
	t := &traffic{
		queue: net.Queue, net: net, stack: stack, cfg: cfg, work: work, bin: event.Time(cfg.Series),
		hosts: make([]host, len(cfg.Graph.Nodes)), errs: map[string]int{}, lines: map[line]*session{},
		results: make([]result.Flow, 0, len(work.Flows)), most: workload.MaxFlows, mostOpen: maxOpen, mostBins: maxBins,
	}
	if t.bin <= 0 {
		t.bin = 10 * event.Millisecond
	}
	t.start.Init(t)
	if err := t.prepare(); err != nil {
		return nil, err
	}
	net.Sink = stack
	if slices.ContainsFunc(t.items, func(it item) bool { return it.udp }) {
		both := &transports{t, stack, net.Left}
		net.Sink, net.Left = both, both.Left
	}
	t.openings()
	return t, nil
}

// prepare resolves the items and opens the servers.
func (t *traffic) prepare() error {
	configs := []*tcp.Config{}
	type place struct {
		host network.NodeID
		port uint16
	}
	listening := map[place]bool{}
	for i := range t.cfg.Items {
		it := &t.cfg.Items[i]
		one := item{Item: it, pull: workload.Pulls(&it.Traffic), persistent: workload.Persistent(&it.Traffic), udp: workload.UDP(&it.Traffic)}
		if !one.udp {
			cfg, err := tcpConfig(&t.cfg.Profiles[it.Profile])
			if err != nil {
				return fmt.Errorf("traffic %s: %w", it.Name, err)
			}
			k := slices.IndexFunc(configs, func(c *tcp.Config) bool { return *c == *cfg })
			if k < 0 {
				k = len(configs)
				configs = append(configs, cfg)
			}
			one.tcp, one.port = configs[k], firstServerPort+uint16(k)
		}
		for _, pair := range it.Pairs {
			client, server := workload.Ends(&it.Traffic, pair)
			from, ok1 := t.net.Node(client)
			to, ok2 := t.net.Node(server)
			if !ok1 || !ok2 {
				return fmt.Errorf("traffic %s: there is no node %q or %q", it.Name, client, server)
			}
			one.ends = append(one.ends, [2]network.NodeID{from, to})
			if at := (place{to, one.port}); !one.udp && !listening[at] {
				listening[at] = true
				t.stack.Listen(to, one.port, one.tcp, t.accept)
			}
		}
		t.items = append(t.items, one)
	}
	return nil
}

// openings lists the starts in addition to open-loop flows: connections of closed loops, and persistent ones.
func (t *traffic) openings() {
	for i := range t.work.Loops {
		for n, at := range t.work.Loops[i].Starts {
			t.events = append(t.events, opening{at: at, loop: int32(i), n: int32(n)})
			t.left++
		}
	}
	for i := range t.work.Flows {
		w := &t.work.Flows[i]
		if !t.items[w.Item].persistent {
			continue
		}
		l := line{w.Item, w.Mouse}
		s := t.lines[l]
		if s == nil {
			s = newSession(t, w.Item, w.Pair)
			t.lines[l] = s
			t.events = append(t.events, opening{at: max(0, w.Start-openAhead), loop: -1, s: s})
		}
		s.toCome++
	}
	slices.SortStableFunc(t.events, func(a, b opening) int { return cmp.Compare(a.at, b.at) })
	t.flows = t.work.Flows
}

// begin sets t = 0 to the clock's present, and starts the dispatcher.
func (t *traffic) begin() {
	t.t0 = t.queue.Now()
	t.end = t.t0 + event.Time(t.cfg.Duration)
	t.left += int64(len(t.work.Flows)) + 1 // the dispatcher itself, so that an empty schedule ends
	t.queue.Set(&t.start, t.t0)
}

// Happen is the dispatcher: it starts everything that is due, in the order of time.
func (t *traffic) Happen(_ *event.Event, now event.Time) {
	for {
		at, isOpening, more := t.nextStart()
		switch {
		case !more:
			t.oneLess()
			return
		case at > now:
			t.queue.Set(&t.start, at)
			return
		case isOpening:
			o := t.events[0]
			t.events = t.events[1:]
			t.openUp(o)
		default:
			w := &t.flows[0]
			t.flows = t.flows[1:]
			t.startFlow(w)
		}
	}
}

func (t *traffic) nextStart() (at event.Time, isOpening, more bool) {
	isOpening = len(t.events) > 0 && (len(t.flows) == 0 || t.events[0].at <= t.flows[0].Start)
	switch {
	case isOpening:
		return t.t0 + event.Time(t.events[0].at), true, true
	case len(t.flows) > 0:
		return t.t0 + event.Time(t.flows[0].Start), false, true
	}
	return 0, false, false
}

func (t *traffic) openUp(o opening) {
	if o.loop < 0 {
		o.s.open() // if it fails, the first flow tries again and reports it
		return
	}
	l := &t.work.Loops[o.loop]
	s := newSession(t, l.Item, l.Pair)
	s.loop, s.n = t.loopUnderWay(o.loop), o.n
	s.next()
}

// startFlow starts one open-loop flow.
func (t *traffic) startFlow(w *workload.Flow) {
	f := t.newFlow(w.Item, w.Pair, w.Mouse, w.Epoch, int64(w.Size))
	f.counted, f.rate = true, int64(w.Rate)
	if w.Stop > 0 {
		f.stop = t.t0 + event.Time(w.Stop)
	}
	switch it := &t.items[w.Item]; {
	case it.udp:
		t.startDatagrams(f, w.Pair)
	case it.persistent:
		s := t.lines[line{w.Item, w.Mouse}]
		s.toCome--
		s.carry(f)
	default:
		if c := t.dial(w.Item, w.Pair, f); c != nil {
			c.exchangeAfter(f, event.Time(w.Wrote))
		}
	}
}

// oneLess counts the end of one thing that the run waits for.
func (t *traffic) oneLess() {
	if t.left--; t.left == 0 {
		t.queue.Halt()
	}
}

// clientPort returns a port of a host that none of its connections uses; 0: there is none.
func (t *traffic) clientPort(id network.NodeID) uint16 {
	h := &t.hosts[id]
	if h.used == nil {
		h.used, h.next = map[uint16]bool{}, firstClientPort
	}
	if len(h.used) > lastClientPort-firstClientPort {
		return 0
	}
	for h.used[h.next] {
		h.advance()
	}
	port := h.next
	h.used[port] = true
	h.advance()
	return port
}

func (h *host) advance() {
	if h.next++; h.next < firstClientPort { // past 65535
		h.next = firstClientPort
	}
}

// finish ends the flows that still run: at the end of the run, or when it is cut short (planned is false).
func (t *traffic) finish(planned bool) {
	t.over = true
	now := min(t.queue.Now(), t.end)
	for t.alive != nil {
		f := t.alive
		if s := t.lines[line{f.item, int32(f.result().Mouse)}]; s != nil && !f.begun {
			s.neverBegan(f)
		}
		f.end(planned && f.size == 0, now)
	}
	for _, c := range t.conns {
		if c != nil {
			c.settle()
		}
	}
}
