package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"weir/datapath"
	"weir/experiment"
	"weir/lab"
)

// The flood. Its rate is the one that the requirement names, with a margin: at 100 000 a second the two
// processors of a small machine have nothing left, and goodput falls with or without FairQ.
const (
	portBps    = 200e6
	liveFlows  = 16
	halfOpen   = 10_000
	floodRate  = 55_000 // segments a second from strangers
	forgeRate  = 10_000 // segments a second in the live flows' names
	floodPairs = 6      // seconds without and with the flood, in turn
	floodSpan  = time.Second
	countEvery = 5 * time.Millisecond

	attacker = "sender17"
	aside    = "sender18" // a server that is not behind the bottleneck

	openPort, closedPort, halfOpenPort = 7001, 7002, 7003
)

var synOptions = []byte{2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7} // MSS, SACK, timestamps, scale

// deluge is one kind of flood.
type deluge struct {
	name string
	rate int
	// node is whom it is sent to. By default it has a port of its own on the switch, so that the flood's
	// bytes take nothing from the bottleneck.
	node    string
	cookies string // net.ipv4.tcp_syncookies there; "": 1
	forges  bool   // in the live flows' names: the count may be off while it lasts
	// fill makes a segment to `to` (its port to be set), of the live flows' ends if it forges.
	fill func(r *rand.Rand, s *forged, to netip.Addr, live []liveEnds)
}

// liveEnds are the two ends of a live flow.
type liveEnds struct{ client, server netip.AddrPort }

// fromStranger makes a fill of segments from random ends to a port; 0: any.
func fromStranger(port uint16, change func(s *forged)) func(*rand.Rand, *forged, netip.Addr, []liveEnds) {
	return func(r *rand.Rand, s *forged, to netip.Addr, _ []liveEnds) {
		p := port
		if p == 0 {
			p = uint16(1024 + r.IntN(64000))
		}
		s.from, s.to = stranger(r), netip.AddrPortFrom(to, p)
		change(s)
	}
}

// forLiveFlow makes a fill of segments in the name of either end of a live flow.
func forLiveFlow(flags byte) func(*rand.Rand, *forged, netip.Addr, []liveEnds) {
	return func(r *rand.Rand, s *forged, _ netip.Addr, live []liveEnds) {
		e := live[r.IntN(len(live))]
		s.from, s.to, s.flags = e.client, e.server, flags
		if r.IntN(2) == 0 {
			s.from, s.to = e.server, e.client
		}
		if flags&flagSYN != 0 {
			s.options = synOptions
		}
	}
}

func syn(s *forged) { s.flags, s.ack, s.options = flagSYN, 0, synOptions }

func deluges() []deluge {
	return []deluge{
		{name: "SYNs, open port, cookies", rate: floodRate, cookies: "2", fill: fromStranger(openPort, syn)},
		{name: "SYNs, open port, no cookies", rate: floodRate, cookies: "0", fill: fromStranger(openPort, syn)},
		{name: "SYNs, closed port", rate: floodRate, fill: fromStranger(closedPort, syn)},
		{name: "SYNs through the bottleneck", rate: floodRate, node: "receiver1", cookies: "2", fill: fromStranger(openPort, syn)},
		{name: "ACKs of no connection", rate: floodRate, fill: fromStranger(0, func(s *forged) { s.flags = flagACK })},
		{name: "data of no connection", rate: floodRate, fill: fromStranger(0, func(s *forged) { s.flags, s.payload = flagACK|flagPSH, make([]byte, 16) })},
		{name: "SYN-ACKs without a SYN", rate: floodRate, fill: fromStranger(0, func(s *forged) { s.flags, s.options = flagACK|flagSYN, synOptions })},
		{name: "live flows' RSTs", rate: forgeRate, forges: true, fill: forLiveFlow(flagRST)},
		{name: "live flows' FINs", rate: forgeRate, forges: true, fill: forLiveFlow(flagFIN | flagACK)},
		{name: "live flows' SYNs", rate: forgeRate, forges: true, fill: forLiveFlow(flagSYN)},
	}
}

// flood holds live flows beside floods against the same flows without, with FairQ and, to see what the
// machine itself loses, without; and what half-open connections alone do to the paper's way of counting.
func flood(ctx context.Context) (rows []row, err error) {
	for _, law := range []string{"droptail", "fairq", "handshake"} {
		err := withLab(ctx, "truth-flood", oneFlow, func(l *lab.Lab, _ *experiment.Run) error {
			b, err := newFloodBench(ctx, l, law)
			if err != nil {
				return err
			}
			if law == "handshake" {
				got, err := b.paper(ctx)
				rows = append(rows, got...)
				return errors.Join(err, b.close())
			}
			got, err := b.run(ctx, law)
			rows = append(rows, got...)
			return errors.Join(err, b.close())
		}, "topology.senders=18")
		if err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// floodBench is the network with its live flows and its half-open connections.
type floodBench struct {
	l         *lab.Lab
	fairq     *running // nil: drop-tail
	flows     *streams
	ends      []liveEnds
	forger    *forger
	listeners []int
}

// newFloodBench makes them under drop-tail, under FairQ, or under FairQ with count: handshake.
func newFloodBench(ctx context.Context, l *lab.Lab, law string) (b *floodBench, err error) {
	b = &floodBench{l: l}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	for _, node := range []string{"receiver1", aside} {
		if err := errors.Join(
			answerStrangers(l, node, attacker),
			sysctl(l, node, "net/ipv4/tcp_synack_retries", "10"), // half an hour: half-open ones stay half-open
			b.listen(node, openPort, 128), b.listen(node, halfOpenPort, 2*halfOpen),
		); err != nil {
			return b, err
		}
	}
	if law != "droptail" {
		var c datapath.FairQConfig
		if law == "handshake" {
			c.Count = datapath.FairQCountHandshake
		}
		if b.fairq, err = startFairQ(l, c, nil); err != nil {
			return b, err
		}
	}
	if b.forger, err = newForger(l, attacker); err != nil {
		return b, err
	}
	var nodes []string
	for i := range liveFlows {
		nodes = append(nodes, fmt.Sprintf("sender%d", i+1))
	}
	if b.flows, err = openStreams(l, nodes); err != nil {
		return b, err
	}
	for _, c := range b.flows.clients {
		b.ends = append(b.ends, liveEnds{addrPort(c.LocalAddr()), addrPort(c.RemoteAddr())})
	}
	return b, b.openHalf(ctx)
}

func (b *floodBench) close() error {
	var errs []error
	if b.flows != nil {
		errs = append(errs, b.flows.close())
	}
	if b.forger != nil {
		errs = append(errs, b.forger.close())
	}
	if b.fairq != nil {
		errs = append(errs, b.fairq.stop())
	}
	for _, fd := range b.listeners {
		errs = append(errs, unix.Close(fd))
	}
	b.listeners = nil
	return errors.Join(errs...)
}

// listen has a node listen, for so many connections that nobody accepts.
func (b *floodBench) listen(node string, port uint16, backlog int) error {
	return b.l.Enter(node, func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
		if err != nil {
			return err
		}
		b.listeners = append(b.listeners, fd)
		if err := unix.Bind(fd, &unix.SockaddrInet4{Port: int(port), Addr: b.l.Addr(node, 0).As4()}); err != nil {
			return err
		}
		return unix.Listen(fd, backlog)
	})
}

// openHalf begins connections to the receiver of the live flows, through the bottleneck, that nobody
// acknowledges.
func (b *floodBench) openHalf(ctx context.Context) error {
	to := netip.AddrPortFrom(b.l.Addr("receiver1", 0), halfOpenPort)
	for range 5 { // some may be lost in a full queue
		n, err := b.halfOpen()
		if err != nil {
			return err
		}
		if n >= halfOpen {
			return nil
		}
		if _, err := b.forger.flood(ctx, forgeRate, halfOpen-n, func(r *rand.Rand, s *forged) {
			syn(s)
			s.from, s.to = stranger(r), to
		}); err != nil {
			return err
		}
	}
	return nil
}

// halfOpen counts the connections that the receiver of the live flows waits for.
func (b *floodBench) halfOpen() (n int, err error) {
	err = b.l.Enter("receiver1", func() error {
		data, err := os.ReadFile("/proc/thread-self/net/tcp")
		n = strings.Count(string(data), fmt.Sprintf(":%04X ", halfOpenPort)) - 1 // the listener has a line too
		return err
	})
	return n, err
}

// run lets each kind of flood loose.
func (b *floodBench) run(ctx context.Context, law string) (rows []row, err error) {
	for _, d := range deluges() {
		if d.node == "" {
			d.node = aside
		}
		if d.cookies == "" {
			d.cookies = "1"
		}
		if err := sysctl(b.l, d.node, "net/ipv4/tcp_syncookies", d.cookies); err != nil {
			return rows, err
		}
		got, err := b.deluge(ctx, law, &d)
		if err != nil {
			return rows, fmt.Errorf("%s: %w", d.name, err)
		}
		rows = append(rows, got...)
	}
	r, err := b.most(ctx, law)
	return append(rows, r), err
}

// most is how many SYNs a second one thread of this machine brings through the switch: an information of
// the machine, at which nothing is left for the live flows.
func (b *floodBench) most(ctx context.Context, law string) (row, error) {
	d := deluges()[2]
	d.rate, d.node = 0, aside
	s, err := b.span(ctx, &d)
	if err != nil {
		return row{}, err
	}
	return row{
		what: law + ": most SYNs a second, closed port", ours: float64(s.sent) / floodSpan.Seconds(), reference: floodRate, unit: "/s",
		note: fmt.Sprintf("live flows have %.0f Mbit/s", s.mbps),
	}, nil
}

// paper is what the half-open connections alone do where SYN-ACKs are counted.
func (b *floodBench) paper(ctx context.Context) ([]row, error) {
	s, err := b.span(ctx, nil)
	if err != nil {
		return nil, err
	}
	var counts []float64
	for _, c := range s.counts {
		counts = append(counts, float64(c))
	}
	return []row{{
		what: "count: handshake, half-open ones alone: flows counted", ours: mean(counts), reference: liveFlows,
		note: fmt.Sprintf("as in the paper; the attacker's port has its share; goodput %.0f Mbit/s, mean queue %.0f KB", s.mbps, mean(s.queue)/1e3),
	}}, nil
}

// span is what was seen in one second.
type span struct {
	mbps   float64 // of the live flows together
	busy   float64 // share of all processors
	sent   int     // by the flood
	share  float64 // of the bottleneck's capacity that the flood took
	counts []uint32
	queue  []float64
}

// deluge compares seconds with the flood and without.
func (b *floodBench) deluge(ctx context.Context, law string, d *deluge) ([]row, error) {
	before, err := b.liveEntries()
	if err != nil {
		return nil, err
	}
	var spans [2][]*span
	for range floodPairs {
		for i, with := range []*deluge{nil, d} {
			s, err := b.span(ctx, with)
			if err != nil {
				return nil, err
			}
			spans[i] = append(spans[i], s)
		}
	}
	rows := []row{b.goodput(law, d, spans)}
	if b.fairq == nil {
		return rows, nil
	}
	state, err := b.state(d, spans, before)
	return append(rows, state...), err
}

func (b *floodBench) goodput(law string, d *deluge, spans [2][]*span) row {
	var goodput, busy, sent, share, queue [2][]float64
	for i := range spans {
		for _, s := range spans[i] {
			goodput[i], busy[i], queue[i] = append(goodput[i], s.mbps), append(busy[i], s.busy), append(queue[i], s.queue...)
			sent[i], share[i] = append(sent[i], float64(s.sent)/floodSpan.Seconds()), append(share[i], s.share)
		}
	}
	took := median(share[1])
	r := row{
		what: law + ", " + d.name, ours: median(goodput[1]), reference: median(goodput[0]) * (1 - took), unit: "Mbit/s",
		note: fmt.Sprintf("%.0f/s; CPUs busy %.0f %%, without %.0f %%", median(sent[1]), 100*median(busy[1]), 100*median(busy[0])),
	}
	if took > 0 {
		r.note += fmt.Sprintf("; less %.1f %% that the flood's own bytes take", 100*took)
	}
	if b.fairq != nil {
		r.limit = 0.05
		r.note += fmt.Sprintf("; mean queue %.0f KB, without %.0f", mean(queue[1])/1e3, mean(queue[0])/1e3)
	}
	return r
}

// state says what the flood left of the kernel's tables.
func (b *floodBench) state(d *deluge, spans [2][]*span, before map[liveEnds]datapath.FairQConnection) ([]row, error) {
	var counts []uint32
	for _, s := range spans[1] {
		counts = append(counts, s.counts...)
	}
	right := 0
	for _, c := range counts {
		if c == liveFlows {
			right++
		}
	}
	after, err := b.liveEntries()
	if err != nil {
		return nil, err
	}
	intact := 0
	for ends, c := range before {
		if sameEntry(c, after[ends]) {
			intact++
		}
	}
	all, err := b.fairq.Connections()
	if err != nil {
		return nil, err
	}
	pending, limit, err := b.fairq.Pending()
	if err != nil {
		return nil, err
	}
	half, err := b.halfOpen()
	if err != nil {
		return nil, err
	}
	last, err := b.settled()
	if err != nil {
		return nil, err
	}
	count := row{
		what: "   samples with the right count of flows", ours: float64(right), reference: float64(len(counts)), limit: 0.99, atLeast: true,
		note: fmt.Sprintf("%d to %d of %d", slices.Min(counts), slices.Max(counts), liveFlows),
	}
	if d.forges {
		count.limit, count.note = 0, count.note+": off while it lasts"
	}
	return []row{
		count,
		{what: "   flows counted within a second after", ours: float64(last), reference: liveFlows, limit: 0.001},
		{what: "   live entries as before", ours: float64(intact), reference: float64(len(before)), limit: 0.001},
		{what: "   connections in the flow table", ours: float64(len(all)), reference: liveFlows, limit: 0.001,
			note: fmt.Sprintf("%d half-open ones wait at the receiver", half)},
		{what: "   half-open ones remembered, of at most", ours: float64(pending), reference: float64(limit), limit: 1, atMost: true},
	}, nil
}

// settled is the count of flows when it is right, or a second after.
func (b *floodBench) settled() (uint32, error) {
	for end := time.Now().Add(time.Second); ; {
		s, err := b.fairq.read()
		if err != nil || s.Flows == liveFlows || time.Now().After(end) {
			return s.Flows, err
		}
		time.Sleep(countEvery)
	}
}

// liveEntries are the live flows' entries.
func (b *floodBench) liveEntries() (map[liveEnds]datapath.FairQConnection, error) {
	if b.fairq == nil {
		return nil, nil
	}
	all, err := b.fairq.Connections()
	if err != nil {
		return nil, err
	}
	found := map[liveEnds]datapath.FairQConnection{}
	for _, c := range all {
		for _, e := range b.ends {
			if c.End[0].Addr == e.client && c.End[1].Addr == e.server || c.End[1].Addr == e.client && c.End[0].Addr == e.server {
				found[e] = c
			}
		}
	}
	if len(found) != len(b.ends) {
		return nil, fmt.Errorf("%d of %d live flows are in the flow table", len(found), len(b.ends))
	}
	return found, nil
}

// sameEntry says whether what the law uses of an entry is the same.
func sameEntry(a, b datapath.FairQConnection) bool {
	for i := range a.End {
		a.End[i].Ended, b.End[i].Ended = false, false
	}
	a.Reset, b.Reset = false, false
	return a == b
}

// span watches the live flows for a second, beside a flood if there is one.
func (b *floodBench) span(ctx context.Context, d *deluge) (*span, error) {
	s := &span{}
	over, cancel := context.WithTimeout(ctx, floodSpan)
	defer cancel()
	done := make(chan error, 1)
	cpuBefore, err := cpuTimes()
	if err != nil {
		return nil, err
	}
	start, before := time.Now(), b.flows.totals()
	go func() { done <- b.forge(over, d, s) }()
	err = b.watch(over, s)
	cancel()
	err = errors.Join(err, <-done)
	took, after := time.Since(start), b.flows.totals()
	cpuAfter, e := cpuTimes()
	if err := errors.Join(err, e, ctx.Err()); err != nil {
		return nil, err
	}
	_, s.mbps = rates(before, after, took)
	s.busy = 1 - (cpuAfter.idle-cpuBefore.idle)/(cpuAfter.total-cpuBefore.total)
	return s, nil
}

// forge floods until over is done.
func (b *floodBench) forge(over context.Context, d *deluge, s *span) (err error) {
	if d == nil {
		return nil
	}
	to, bytes := b.l.Addr(d.node, 0), 0
	s.sent, err = b.forger.flood(over, d.rate, 0, func(r *rand.Rand, f *forged) {
		d.fill(r, f, to, b.ends)
		if f.to.Addr() == b.l.Addr("receiver1", 0) {
			bytes += 54 + len(f.options) + len(f.payload)
		}
	})
	s.share = float64(bytes) * 8 / floodSpan.Seconds() / portBps
	return err
}

// watch samples the bottleneck until over is done.
func (b *floodBench) watch(over context.Context, s *span) error {
	ticker := time.NewTicker(countEvery)
	defer ticker.Stop()
	for {
		select {
		case <-over.Done():
			return nil
		case <-ticker.C:
		}
		if b.fairq == nil {
			continue
		}
		port, err := b.fairq.read()
		if err != nil {
			return err
		}
		s.counts = append(s.counts, port.Flows)
		s.queue = append(s.queue, float64(port.QueueBytes))
	}
}

func sysctl(l *lab.Lab, node, name, value string) error {
	return l.Enter(node, func() error { return os.WriteFile("/proc/sys/"+name, []byte(value), 0) })
}
