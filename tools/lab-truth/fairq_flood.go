package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"weir/datapath/fairq"
	"weir/experiment"
	"weir/lab"
)

// The rate of the flood is the one of the requirement, with a margin: at 100,000 a second the two processors of a
// small machine are fully busy, and goodput falls with or without FairQ.
const (
	// Mbit/s of the port. With credits each segment of the active flows has an ACK that waits, and at 200 Mbit/s these alone take most of
	// the processors' time.
	floodPort, floodCreditPort = 200, 100

	activeFlows = 16
	halfOpen    = 10_000
	floodRate   = 55_000 // segments a second from strangers
	forgeRate   = 10_000 // segments a second with the active flows' addresses
	floodPairs  = 6      // pairs of a second without and a second with the flood
	floodSpan   = time.Second
	countEvery  = 5 * time.Millisecond

	attacker = "sender17"
	aside    = "sender18" // a server that is not behind the bottleneck

	openPort, closedPort, halfOpenPort = 7001, 7002, 7003
)

// flood compares active flows during floods with the same flows without floods: with FairQ, and without FairQ to see
// the machine's own losses. It also measures the effect of half-open connections alone on the paper's way of
// counting.
func flood(ctx context.Context) ([]row, error) {
	return floodsOf(ctx, floodPort, deluges(), "droptail", "fairq", "handshake")
}

// floodCredits does the same with credits: with room for one segment of each active flow, and without it, so that the port paces.
func floodCredits(ctx context.Context) ([]row, error) {
	return floodsOf(ctx, floodCreditPort, creditDeluges(), "droptail", lawCredits, lawPacing)
}

func floodsOf(ctx context.Context, mbps float64, all []deluge, laws ...string) (rows []row, err error) {
	left := map[string]float64{}
	for _, law := range laws {
		err := withLab(ctx, "truth-flood", oneFlow, func(l *lab.Lab, _ *experiment.Run) error {
			b, err := newFloodBench(ctx, l, law)
			if err != nil {
				return err
			}
			b.port, b.left = mbps, left
			if law == "handshake" {
				got, err := b.paper(ctx)
				rows = append(rows, got...)
				return errors.Join(err, b.close())
			}
			got, err := b.run(ctx, law, all)
			rows = append(rows, got...)
			return errors.Join(err, b.close())
		}, "topology.senders=18", fmt.Sprintf("network.rate=%.0fMbit", mbps))
		if err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// Laws of floodBench.
const (
	lawCredits = "credits"
	lawPacing  = "credits, pacing"
)

// floodLaw returns the law of each port; nil: startFairQ's.
func floodLaw(law string) func(p *lab.Port) (fairq.Law, bool) {
	if law != lawCredits && law != lawPacing {
		return nil
	}
	return func(p *lab.Port) (fairq.Law, bool) {
		l := fairqLaw(p.Rate, p.Buffer)
		l.RateBps, l.PipeBytes = uint64(p.Rate), uint32(float64(p.Rate)/8*labRTT.Seconds())
		if law == lawPacing { // a segment of each of the active flows is more than BDP and target
			l.TargetBytes /= 5
			l.CapBytes = l.PipeBytes + l.TargetBytes
		}
		return l, true
	}
}

// floodBench is the network with its active flows and its half-open connections.
type floodBench struct {
	l         *lab.Lab
	fairq     *running // nil: drop-tail
	flows     *streams
	ends      []flowEnds
	forger    *forger
	listeners []int
	port      float64            // Mbit/s of the port
	left      map[string]float64 // the share of the goodput that each flood leaves under drop-tail
}

// newFloodBench builds them under drop-tail, under FairQ, or under FairQ with count: handshake.
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
			sysctl(l, node, "net/ipv4/tcp_synack_retries", "10"), // half an hour: half-open connections stay half-open
			b.listen(node, openPort, 128), b.listen(node, halfOpenPort, 2*halfOpen),
		); err != nil {
			return b, err
		}
	}
	if law != "droptail" {
		c := fairq.Config{Count: fairq.CountOpening} // the product's default
		if law == "handshake" {
			c.Count = fairq.CountHandshake
		}
		if law == lawCredits || law == lawPacing {
			c.Credit = fairq.CreditPaces
		}
		if b.fairq, err = startFairQ(l, c, floodLaw(law)); err != nil {
			return b, err
		}
	}
	if b.forger, err = newForger(l, attacker); err != nil {
		return b, err
	}
	var nodes []string
	for i := range activeFlows {
		nodes = append(nodes, fmt.Sprintf("sender%d", i+1))
	}
	if b.flows, err = openStreams(l, nodes); err != nil {
		return b, err
	}
	for _, c := range b.flows.clients {
		b.ends = append(b.ends, flowEnds{addrPort(c.LocalAddr()), addrPort(c.RemoteAddr())})
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

// listen opens a listener on a node, with a backlog for this many connections that no program accepts.
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

// openHalf begins connections to the receiver of the active flows, through the bottleneck, that are never
// acknowledged.
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

// halfOpen returns how many half-open connections the receiver of the active flows has.
func (b *floodBench) halfOpen() (n int, err error) {
	err = b.l.Enter("receiver1", func() error {
		data, err := os.ReadFile("/proc/thread-self/net/tcp")
		n = strings.Count(string(data), fmt.Sprintf(":%04X ", halfOpenPort)) - 1 // the listener has a line too
		return err
	})
	return n, err
}

// run runs each of these floods.
func (b *floodBench) run(ctx context.Context, law string, all []deluge) (rows []row, err error) {
	for _, d := range all {
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
	if law == lawCredits || law == lawPacing {
		got, err := b.waits()
		return append(rows, got...), err
	}
	r, err := b.most(ctx, law)
	return append(rows, r), err
}

// most returns how many SYNs a second one thread of this machine sends through the switch. It describes the
// machine: at this rate nothing is left for the active flows.
func (b *floodBench) most(ctx context.Context, law string) (row, error) {
	d := deluges()[2]
	d.rate, d.node = 0, aside
	s, err := b.span(ctx, &d)
	if err != nil {
		return row{}, err
	}
	return row{
		what: law + ": most SYNs a second, closed port", ours: float64(s.sent) / floodSpan.Seconds(), reference: floodRate, unit: "/s",
		note: fmt.Sprintf("active flows get %.0f Mbit/s", s.mbps),
	}, nil
}

// paper returns the effect of the half-open connections alone if SYN-ACKs are counted.
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
		what: "count: handshake, half-open only: flows counted", ours: mean(counts), reference: activeFlows,
		note: fmt.Sprintf("as in the paper; the attacker's port gets a share; goodput %.0f Mbit/s, mean queue %.0f KB", s.mbps, mean(s.queue)/1e3),
	}}, nil
}

// span has the measurements of one second.
type span struct {
	mbps   float64 // of the active flows together
	busy   float64 // share of all processors
	sent   int     // by the flood
	share  float64 // of the bottleneck's capacity that the flood took
	counts []uint32
	queue  []float64
}

// deluge compares seconds with the flood and without.
func (b *floodBench) deluge(ctx context.Context, law string, d *deluge) ([]row, error) {
	before, err := b.activeEntries()
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

// span measures the active flows for a second, during a flood if d is not nil.
func (b *floodBench) span(ctx context.Context, d *deluge) (*span, error) {
	s := &span{}
	over, cancel := context.WithTimeout(ctx, floodSpan)
	defer cancel()
	done := make(chan error, 1)
	cpuBefore, err := lab.ReadProcessors()
	if err != nil {
		return nil, err
	}
	start, before := time.Now(), b.flows.totals()
	go func() { done <- b.forge(over, d, s) }()
	err = b.watch(over, s)
	cancel()
	err = errors.Join(err, <-done)
	took, after := time.Since(start), b.flows.totals()
	cpuAfter, e := lab.ReadProcessors()
	if err := errors.Join(err, e, ctx.Err()); err != nil {
		return nil, err
	}
	_, s.mbps = rates(before, after, took)
	s.busy = cpuAfter.BusySince(cpuBefore)
	return s, nil
}

// forge sends the flood until over is done.
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
	s.share = float64(bytes) * 8 / floodSpan.Seconds() / (1e6 * b.port)
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
		port, err := b.fairq.PortStats(bottleneck)
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
