// Package lease decides which buckets of agents a controller holds (Machine), and which controller an agent obeys (Fence). It
// has no clock, no randomness and no input or output: the caller passes what arrived, and carries out the orders that Step
// returns.
//
//	messages.go events and orders of a controller's machine
//	lease.go    the machine
//	fence.go    the agent's side
//
// A bucket is a part of the agents. A record in a key-value store has its owner and term, and changes by compare-and-set. The
// owner's heartbeats do not pass through the store, so it continues without the store. A bucket without a heartbeat for Silence is
// taken over: a higher term is stored, written to the record, announced to the agents, and then used.
//
// Leases alone do not keep two controllers from commanding one agent. A Fence in each agent does.
package lease

import (
	"cmp"
	"hash/fnv"
	"slices"
	"strconv"
	"time"
)

// Times of the protocol.
const (
	HeartbeatEvery = 250 * time.Millisecond
	Silence        = time.Second            // without a heartbeat; then another one takes over
	rankDelay      = 150 * time.Millisecond // so that two controllers rarely try at once
	retry          = 500 * time.Millisecond // after a write that failed or has no answer
	raiseEvery     = time.Second
)

// RaiseStep limits how far an agent's report can raise a term, and raiseEvery how often. A lying agent then cannot use up the
// terms: that would take 4 million years.
const RaiseStep = 1 << 16

// Holder is one run of a controller.
type Holder struct {
	Name string
	Run  uint64
}

// Record is the owner of a bucket in the store. Revision 0: there is none.
type Record struct {
	Holder   Holder
	Term     uint64
	Revision uint64
}

type phase uint8

const (
	following  phase = iota // another one holds the bucket, or nobody
	storing                 // a higher term becomes durable
	writing                 // the record is being replaced
	announcing              // the agents are notified
	holding
)

type bucket struct {
	phase  phase
	term   uint64 // ours, from storing on
	since  time.Duration
	record Record
	known  bool // the record was read since the last failure
	seen   bool // the record, or that there is none, was read at least once
	other  Holder
	heard  time.Duration // the last heartbeat of its holder

	highest  uint64 // of heartbeats and records
	reported uint64 // by agents
	raised   time.Duration
}

// Config is what a machine needs.
type Config struct {
	Self    Holder
	Buckets int
	// Term is the highest term that was made durable on this machine.
	Term uint64
	// Alone: a file lock makes this controller the only one, and there are no records.
	Alone bool
}

// Machine holds the leases of one controller.
type Machine struct {
	cfg     Config
	now     time.Duration
	buckets []bucket
	peers   map[Holder]time.Duration // others, and when they were heard last
	beacon  time.Duration
	sources []func(*Machine, *bucket) uint64
	out     []Order
}

// maxPeers limits the controllers that are remembered.
const maxPeers = 64

// New returns the machine of a controller that starts at now.
func New(cfg Config, now time.Duration) *Machine {
	m := &Machine{cfg: cfg, now: now, buckets: make([]bucket, cfg.Buckets), peers: map[Holder]time.Duration{}, sources: allSources()}
	for i := range m.buckets {
		m.buckets[i].heard = now
	}
	return m
}

// allSources are where a higher term may be known: a new term is above all of them.
func allSources() []func(*Machine, *bucket) uint64 {
	return []func(*Machine, *bucket) uint64{
		func(_ *Machine, b *bucket) uint64 { return b.record.Term },
		func(m *Machine, _ *bucket) uint64 { return m.cfg.Term },
		func(_ *Machine, b *bucket) uint64 { return b.reported },
		func(_ *Machine, b *bucket) uint64 { return b.highest },
	}
}

// Step takes an event at now, which never decreases, and returns what to do, in order. The result is valid until the next Step.
func (m *Machine) Step(now time.Duration, e Event) []Order {
	m.now, m.out = now, m.out[:0]
	switch e := e.(type) {
	case Tick:
		m.tick()
	case Heard:
		m.heard(e)
	case Reported:
		if b := m.bucket(e.Bucket); b != nil {
			m.reported(e, b)
		}
	case Read:
		if b := m.bucket(e.Bucket); b != nil {
			m.read(e, b)
		}
	case Stored:
		if b := m.bucket(e.Bucket); b != nil && b.phase == storing && b.term == e.Term {
			m.cfg.Term = max(m.cfg.Term, e.Term)
			m.write(e.Bucket, b)
		}
	case Written:
		if b := m.bucket(e.Bucket); b != nil && b.phase == writing && b.term == e.Term {
			m.written(e, b)
		}
	case Announced:
		if b := m.bucket(e.Bucket); b != nil && b.phase == announcing && b.term == e.Term {
			b.phase, b.since = holding, now
			m.add(Began{e.Bucket, b.term})
			m.sendBeacon()
		}
	}
	return m.out
}

// Holds returns the term with which the controller may command the bucket's agents, and whether it may.
func (m *Machine) Holds(n int) (term uint64, ok bool) {
	b := m.bucket(n)
	if b == nil || b.phase != holding {
		return 0, false
	}
	return b.term, true
}

func (m *Machine) add(o Order) { m.out = append(m.out, o) }

func (m *Machine) bucket(n int) *bucket {
	if n < 0 || n >= len(m.buckets) {
		return nil
	}
	return &m.buckets[n]
}

func (m *Machine) tick() {
	if m.now-m.beacon >= HeartbeatEvery {
		m.sendBeacon()
	}
	for i := range m.buckets {
		b := &m.buckets[i]
		switch b.phase {
		case following:
			if m.now-b.heard < m.patience(i) {
				continue
			}
			if b.since != 0 && m.now-b.since < retry {
				continue
			}
			b.since = m.now
			if b.known || m.cfg.Alone {
				m.begin(i, b)
			} else {
				m.add(Ask{i})
			}
		case writing:
			// Without an answer nobody knows whose the record is: read it.
			if m.now-b.since >= retry {
				b.phase, b.known, b.since = following, false, m.now
				m.add(Ask{i})
			}
		}
	}
}

// patience is how long this controller waits before it takes the bucket over. The controllers that run are ranked for each
// bucket by a hash, so that they share the buckets, and try one after the other.
func (m *Machine) patience(n int) time.Duration {
	if m.cfg.Alone {
		return 0
	}
	mine, before := rank(n, m.cfg.Self.Name), 0
	for p, heard := range m.peers {
		if m.now-heard < Silence && cmp.Or(cmp.Compare(rank(n, p.Name), mine), cmp.Compare(p.Name, m.cfg.Self.Name)) < 0 {
			before++
		}
	}
	return Silence + time.Duration(before)*rankDelay
}

func rank(bucket int, name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name + "/" + strconv.Itoa(bucket)))
	x := h.Sum64() // its high bits differ little for names that differ in their ends
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	return x ^ x>>33
}

// begin takes the bucket over, or raises its term.
func (m *Machine) begin(n int, b *bucket) {
	term := uint64(0)
	for _, known := range m.sources {
		term = max(term, known(m, b))
	}
	b.phase, b.term, b.since = storing, term+1, m.now
	m.add(Store{n, b.term})
}

func (m *Machine) write(n int, b *bucket) {
	if m.cfg.Alone {
		m.announce(n, b)
		return
	}
	b.phase, b.since = writing, m.now
	m.add(Write{n, b.term, b.record.Revision})
}

func (m *Machine) announce(n int, b *bucket) {
	b.phase, b.since = announcing, m.now
	m.add(Announce{n, b.term})
}

func (m *Machine) written(e Written, b *bucket) {
	if !e.OK {
		b.phase, b.known, b.since = following, false, m.now
		m.add(Ask{e.Bucket})
		return
	}
	b.record = Record{m.cfg.Self, b.term, e.Revision}
	m.announce(e.Bucket, b)
}

func (m *Machine) heard(e Heard) {
	if e.Holder == m.cfg.Self {
		return
	}
	if _, known := m.peers[e.Holder]; known || len(m.peers) < maxPeers {
		m.peers[e.Holder] = m.now
	}
	for p, heard := range m.peers {
		if m.now-heard > time.Minute {
			delete(m.peers, p)
		}
	}
	b := m.bucket(e.Bucket)
	if b == nil || e.Term < max(b.highest, b.record.Term) { // a holder that does not know yet that it is none
		return
	}
	if b.phase != following && e.Term < b.term {
		return
	}
	b.highest = e.Term
	// An equal term of another holder: the store lost its records. Agents obey the first one that they met. Both step down,
	// and the next term decides.
	m.stepDown(e.Bucket, b, "another controller has the same or a higher term")
	b.other, b.heard = e.Holder, m.now
}

func (m *Machine) stepDown(n int, b *bucket, why string) {
	if b.phase == holding {
		m.add(Ended{n, b.term, why})
	}
	if b.phase != following {
		b.phase, b.known, b.since = following, false, 0
		b.heard = m.now
	}
}

func (m *Machine) read(e Read, b *bucket) {
	// A record that was overtaken on its way does no harm: the write of its revision fails.
	if b.phase == following {
		b.since = 0 // the next tick may begin
		if b.seen && b.record.Revision != e.Record.Revision && e.Record.Holder != m.cfg.Self {
			b.heard = m.now // a new owner has not sent its heartbeat yet
		}
	}
	b.record, b.known, b.seen = e.Record, true, true
	if b.phase == following || e.Record.Holder == m.cfg.Self || e.Record.Term < b.term {
		return
	}
	m.stepDown(e.Bucket, b, "the record names another controller")
}

// reported raises the term if agents know one that is as high and not ours: the store and the file lost it, or a controller
// commands that this one does not hear. The record decides whether this controller still has the bucket.
func (m *Machine) reported(e Reported, b *bucket) {
	if e.Holder == m.cfg.Self && e.Term <= b.term {
		return
	}
	known := max(b.term, b.record.Term, b.highest, m.cfg.Term)
	b.reported = max(b.reported, min(e.Term, known+RaiseStep))
	if b.phase != holding || e.Term < b.term || b.raised != 0 && m.now-b.raised < raiseEvery {
		return
	}
	b.raised = m.now
	m.add(Ended{e.Bucket, b.term, "an agent has seen the same or a higher term of another controller"})
	m.begin(e.Bucket, b)
}

func (m *Machine) sendBeacon() {
	m.beacon = m.now
	var held []Held
	for i := range m.buckets {
		if b := &m.buckets[i]; b.phase == holding {
			held = append(held, Held{i, b.term})
		}
	}
	m.add(Beacon{slices.Clip(held)})
}

// Bucket returns the bucket of an agent.
func Bucket(agent string, buckets int) int { return int(rank(0, agent) % uint64(buckets)) }
