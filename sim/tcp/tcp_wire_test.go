package tcp

import (
	"errors"
	"testing"

	"weir/sim/event"
	"weir/sim/network"
)

// pair is two hosts and the wire between them: a line with rate and delay in each direction, and losses and delays set
// by a test. After every packet both ends are checked.
type pair struct {
	t     testing.TB
	q     *event.Queue
	net   *network.Network
	stack *Stack
	delay event.Time // one way
	perKB event.Time // line time of 1000 bytes
	free  [2]event.Time
	sent  [2]int // packets by direction: 0 to the acceptor, 1 to the dialler
	flown int    // now on their way
	spare *flight

	unchecked bool

	lose func(direction, n int, pk *network.Packet) bool
	late func(direction, n int, pk *network.Packet) event.Time
	see  func(direction int, pk *network.Packet)
	ends []*Endpoint // passed to OnEnd, with their counters
	last map[uint8]Counters
}

const (
	left  network.NodeID = 0
	right network.NodeID = 1
)

func newPair(t testing.TB) *pair {
	t.Helper()
	q := event.NewQueue()
	p := &pair{t: t, q: q, net: &network.Network{Queue: q}, delay: 50 * event.Microsecond, perKB: 8 * event.Microsecond, last: map[uint8]Counters{}}
	p.stack = NewStack(q, p.net, 1)
	p.stack.Wire = p.carry
	p.stack.OnEnd = func(e *Endpoint) {
		p.ends = append(p.ends, e)
		p.last[e.side] = e.Counters()
	}
	return p
}

// flight is a packet on its way. Flights are reused, so that a test can see what the stack allocates.
type flight struct {
	p    *pair
	pk   *network.Packet
	ev   event.Event
	next *flight
}

func (p *pair) fly(pk *network.Packet, at event.Time) {
	f := p.spare
	if f == nil {
		f = &flight{p: p}
		f.ev.Init(f)
	} else {
		p.spare = f.next
	}
	f.pk = pk
	p.flown++
	p.q.Set(&f.ev, at)
}

func (p *pair) carry(from network.NodeID, pk *network.Packet) {
	direction := int(from)
	if from != pk.Src() || pk.Dst() != 1-from {
		p.t.Fatalf("a packet from %d: %+v", from, pk)
	}
	if pk.Bytes() != network.HeaderBytes+pk.Payload() && pk.Bytes() < network.HeaderBytes+pk.Payload()+2 {
		p.t.Fatalf("a packet of %d bytes with %d of payload", pk.Bytes(), pk.Payload())
	}
	if p.see != nil {
		p.see(direction, pk)
	}
	n := p.sent[direction]
	p.sent[direction]++
	if p.lose != nil && p.lose(direction, n, pk) {
		p.net.Free(pk)
		return
	}
	at := max(p.free[direction], p.q.Now()) + event.Time(pk.Bytes())*p.perKB/1000
	p.free[direction] = at
	at += p.delay
	if p.late != nil {
		at += p.late(direction, n, pk)
	}
	p.fly(pk, at)
}

func (f *flight) Happen(_ *event.Event, now event.Time) {
	p, pk := f.p, f.pk
	p.flown--
	f.next, p.spare = p.spare, f
	p.stack.Deliver(pk.Dst(), pk, now)
	if !p.unchecked {
		p.check()
	}
}

// check fails at the first violated condition.
func (p *pair) check() {
	for i := range p.stack.conns {
		for _, e := range p.stack.conns[i].ends {
			if e == nil {
				continue
			}
			if err := e.Check(); err != nil {
				p.t.Fatalf("at %d ns: %v", p.q.Now(), err)
			}
		}
	}
}

// run continues until a time, and checks.
func (p *pair) run(until event.Time) {
	p.t.Helper()
	p.q.Run(until)
	p.check()
}

// finished fails unless every connection is over and every packet is back in the pool.
func (p *pair) finished() {
	p.t.Helper()
	if n := p.stack.Open(); n != 0 {
		for i := range p.stack.conns {
			for _, e := range p.stack.conns[i].ends {
				if e != nil {
					p.t.Errorf("side %d: %v, %v, out %d, unsent %d, cwnd %d, counters %+v", e.side, e.state, e.recovery, e.board.len(), e.unsent, e.win.Cwnd, e.counters)
				}
			}
		}
		p.t.Fatalf("%d connections are open", n)
	}
	if n := p.net.Borrowed() - int64(p.flown); n != 0 {
		p.t.Fatalf("%d packets are lost to the pool", n)
	}
}

// program is an App that counts.
type program struct {
	e            *Endpoint
	got          int64
	connected    int
	finished     int
	acknowledged int
	failed       error
	doneAt       event.Time // of the last byte

	whenConnected func(e *Endpoint)
	whenReceived  func(e *Endpoint)
	whenFinished  func(e *Endpoint)
}

func (a *program) Connected(e *Endpoint) {
	a.e = e
	a.connected++
	if a.whenConnected != nil {
		a.whenConnected(e)
	}
}

func (a *program) Received(e *Endpoint, n int64) {
	a.got += n
	a.doneAt = e.stack.Queue.Now()
	if a.whenReceived != nil {
		a.whenReceived(e)
	}
}

func (a *program) Finished(e *Endpoint) {
	a.finished++
	if a.whenFinished != nil {
		a.whenFinished(e)
	}
}

func (a *program) Acknowledged(*Endpoint) { a.acknowledged++ }

func (a *program) Failed(_ *Endpoint, cause error) {
	a.failed = errors.Join(a.failed, cause)
}

// connect dials, with a program at each end. The acceptor closes after the dialler.
func (p *pair) connect(a, b *Config) (*program, *program) {
	client, server := &program{}, &program{}
	server.whenFinished = func(e *Endpoint) { e.Close() }
	p.stack.Listen(right, 80, b, func(*Endpoint) App { return server })
	client.e = p.stack.Dial(left, right, 1000, 80, a, client)
	return client, server
}

// transfer sends n bytes from the dialler, and closes.
func (p *pair) transfer(a, b *Config, n int64) (*program, *program) {
	client, server := p.connect(a, b)
	client.e.Write(n)
	client.e.Close()
	return client, server
}

// through fails unless n bytes arrived exactly once and both ends are over.
func (p *pair) through(client, server *program, n int64) {
	p.t.Helper()
	p.finished()
	if client.failed != nil || server.failed != nil {
		p.t.Fatalf("failed: %v, %v", client.failed, server.failed)
	}
	if server.got != n || server.finished != 1 || client.finished != 1 || client.connected != 1 || server.connected != 1 {
		p.t.Fatalf("of %d bytes %d came; connected %d %d, finished %d %d", n, server.got, client.connected, server.connected, client.finished, server.finished)
	}
}

// plain returns a Config without Linux's timestamps, so that segments carry a whole MSS.
func plain(control string) *Config {
	c := Default(control)
	c.Timestamps = false
	return c
}

// variants returns all ways of recovery.
func variants() map[string]*Config {
	m := map[string]*Config{}
	for _, name := range []string{"reno", "newreno", "sack", "cubic", "dctcp", "d2tcp"} {
		m[name] = Default(name)
	}
	noSACK := Default("reno")
	noSACK.SACK, noSACK.DSACK, noSACK.RACK, noSACK.TLP = false, false, false, false
	m["reno without sack"] = noSACK
	noPRR := Default("reno")
	noPRR.PRR, noPRR.Timestamps = false, false
	m["rack without prr"] = noPRR
	bare := Default("newreno")
	bare.LimitedTransmit, bare.DelayedACK, bare.Impatient = false, 0, false
	m["bare newreno"] = bare
	sackPRR := Default("sack")
	sackPRR.PRR, sackPRR.FRTO, sackPRR.DSACK, sackPRR.Undo = true, true, true, true
	m["sack, prr, frto, undo"] = sackPRR
	return m
}

func eachVariant(t *testing.T, f func(t *testing.T, c *Config)) {
	m := variants()
	for _, name := range []string{"reno", "newreno", "sack", "cubic", "dctcp", "d2tcp", "reno without sack", "rack without prr", "bare newreno", "sack, prr, frto, undo"} {
		t.Run(name, func(t *testing.T) { f(t, m[name]) })
	}
}
