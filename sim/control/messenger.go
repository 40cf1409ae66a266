// Package control is the control plane of the simulator. Laws step at sites (switches, hosts, controllers), and their
// actions are carried out there. A messenger carries events and actions between sites, with the delay, reordering and
// loss of a bus or of in-band frames.
//
//	messenger.go  delay, loss and queues of messages
//	box.go        a bounded queue in which the newest may replace an older item
//	site.go       a law that steps, an enforcer, and where actions go
//
// It draws its own random numbers, so the control plane does not change those of the rest of the run. Times are
// nanoseconds of the simulated clock.
package control

import (
	"fmt"
	"math/rand/v2"

	"weir/law"
	"weir/sim/event"
)

// Options apply to all messages of a Messenger.
type Options struct {
	Seed   int64        // for Jitter and Loss. Each pair of sites has its own source of random numbers
	Delay  law.Duration // from the end of a message on its sender's line to its arrival
	Jitter law.Duration // additional delay, uniform from 0 up to this
	Loss   float64      // probability that a message is lost, 0 to 1
	Rate   law.Rate     // of each site's line; 0: a message takes no time on it, and none waits
	// Ordered keeps the order of messages between two sites, as one TCP connection does: a later message waits. Without
	// it messages may overtake one another, as on a bus with several connections, or as in-band frames.
	Ordered bool
	// Queue is how many messages may wait for a site's line; 0: 1024. Further messages are dropped.
	Queue int
}

// Limits of Options.
const (
	maxTime   = law.Duration(100e9)
	maxRate   = law.Rate(1 << 53)
	maxQueue  = 1 << 20
	queueMost = 1024
)

func (o *Options) check() error {
	switch {
	case o.Delay < 0 || o.Delay > maxTime || o.Jitter < 0 || o.Jitter > maxTime:
		return fmt.Errorf("control: delay %v and jitter %v must be from 0 to %v each", o.Delay, o.Jitter, maxTime)
	case !(o.Loss >= 0 && o.Loss <= 1):
		return fmt.Errorf("control: loss %v must be from 0 to 1", o.Loss)
	case o.Rate < 0 || o.Rate > maxRate:
		return fmt.Errorf("control: rate %v must be from 0 to %v", o.Rate, maxRate)
	case o.Queue < 0 || o.Queue > maxQueue:
		return fmt.Errorf("control: queue of %d messages: set 1 to %d, or 0 for %d", o.Queue, maxQueue, queueMost)
	}
	return nil
}

// Messenger carries messages between sites. It belongs to the goroutine of its Queue.
type Messenger struct {
	queue    *event.Queue
	o        Options
	sites    []*Site
	names    map[string]bool // of sites
	pairs    map[[2]int]*pair
	free     []*message
	borrowed int64 // messages outside free
	counts   Counts
	err      error // the first error of an action or event
}

// Err returns an error for the first action or event that did not reach a site that accepts it; nil: none so far.
func (m *Messenger) Err() error { return m.err }

func (m *Messenger) fail(err error) {
	if m.err == nil {
		m.err = err
	}
}

// Counts counts messages by what became of them. Sent = Arrived + Lost + Full + Replaced + Waiting + OnTheWay at any time.
type Counts struct {
	Sent     int64
	Arrived  int64
	Lost     int64 // on the way
	Full     int64 // dropped: the queue of the sender's line was full
	Replaced int64 // by a newer one of the same key, before it was on the line
	Waiting  int64 // for their senders' lines now
	OnTheWay int64 // on a line, or between its end and the other site
}

// pair is the state of messages from one site to another.
type pair struct {
	random *rand.Rand
	last   event.Time // Ordered: arrival time of the latest message
}

// message is an event or an action on its way.
type message struct {
	arrival  event.Event
	m        *Messenger
	from, to *Site
	key      uint64
	bytes    int64
	event    law.Event
	action   law.Action
}

// New returns a messenger without sites. It returns an error if an option is out of range.
func New(q *event.Queue, o Options) (*Messenger, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.Queue == 0 {
		o.Queue = queueMost
	}
	return &Messenger{queue: q, o: o, pairs: map[[2]int]*pair{}, names: map[string]bool{}}, nil
}

// Counts returns the counts as of now.
func (m *Messenger) Counts() Counts {
	c := m.counts
	for _, s := range m.sites {
		c.Waiting += int64(s.out.len())
	}
	c.OnTheWay = m.borrowed - c.Waiting
	return c
}

// newMessage takes a message from the pool.
func (m *Messenger) newMessage() *message {
	m.borrowed++
	if n := len(m.free); n > 0 {
		g := m.free[n-1]
		m.free = m.free[:n-1]
		return g
	}
	g := &message{m: m}
	g.arrival.Init(g)
	return g
}

func (m *Messenger) release(g *message) {
	g.event, g.action = nil, nil
	m.free = append(m.free, g)
	m.borrowed--
}

// send queues a message, and begins it if the sender's line is free.
func (m *Messenger) send(g *message) {
	now := m.queue.Now()
	m.counts.Sent++
	if m.o.Rate == 0 {
		m.leave(g, now)
		return
	}
	s := g.from
	switch old, ok := s.out.put(g.key, g.to, g); {
	case !ok:
		m.counts.Full++
		m.release(g)
		return
	case old != nil:
		m.counts.Replaced++
		m.release(old)
	}
	if !s.line.Pending() {
		s.begin(now)
	}
}

// begin puts the next message of a site on its line.
func (s *Site) begin(now event.Time) {
	if s.out.len() == 0 {
		return
	}
	s.sending = s.out.take()
	units := s.sending.bytes * 8e9
	rate := int64(s.m.o.Rate)
	s.m.queue.Set(&s.line, now+event.Time((units+rate-1)/rate))
}

// sent is the end of a message on its site's line.
type sent Site

// Happen sends the message on its way, and begins the next one.
func (t *sent) Happen(_ *event.Event, now event.Time) {
	s := (*Site)(t)
	g := s.sending
	s.sending = nil
	s.m.leave(g, now)
	s.begin(now)
}

// leave schedules a message's arrival, or loses it.
func (m *Messenger) leave(g *message, now event.Time) {
	p := m.pair(g.from, g.to)
	at := now + event.Time(m.o.Delay)
	if m.o.Jitter > 0 {
		at += event.Time(p.random.Int64N(int64(m.o.Jitter) + 1))
	}
	if m.o.Loss > 0 && p.random.Float64() < m.o.Loss {
		m.counts.Lost++
		m.release(g)
		return
	}
	if m.o.Ordered {
		at = max(at, p.last)
		p.last = at
	}
	m.queue.Set(&g.arrival, at)
}

func (m *Messenger) pair(from, to *Site) *pair {
	k := [2]int{from.number, to.number}
	p := m.pairs[k]
	if p == nil {
		p = &pair{random: event.NewRandom(m.o.Seed, "control "+from.name+" to "+to.name)}
		m.pairs[k] = p
	}
	return p
}

// Happen is a message's arrival.
func (g *message) Happen(_ *event.Event, now event.Time) {
	m, to := g.m, g.to
	m.counts.Arrived++
	e, a, key := g.event, g.action, g.key
	from := g.from
	m.release(g)
	if a != nil {
		to.enforce(a, now)
		return
	}
	to.arrive(from, key, e, now)
}
