package hygenicc

import (
	"net/netip"
	"slices"
	"time"

	"weir/law"
	"weir/law/telemetry"
)

const (
	manyMarks = 10              // more are sent at once (published code)
	pairLife  = 5 * time.Second // without marks, then a pair is forgotten
	maxPairs  = 1 << 16         // of a host. Marks of further pairs are lost, and counted
)

// Receiver is the half at the host that gets marked packets. It counts the marks of each pair of a source and a VM. A count goes back to
// the source if it has more than 10 marks, or more than 1 and a millisecond has passed since the last. With feedback: evil_bit each mark
// goes back on a packet of its own. Make one with NewReceiver.
type Receiver struct {
	p       Config
	pairs   map[pairKey]*pair
	waiting []*pair // with marks that were not sent
	sweep   time.Duration
	wake    time.Duration // 0: none
	counts  ReceiverCounts
}

// ReceiverCounts is what a receiving host did.
type ReceiverCounts struct {
	Marks    uint64 // packets with a mark
	Messages uint64
	TooMany  uint64 // of Marks: pairs over the limit
}

type pairKey struct {
	source netip.Addr
	vm     law.VM
}

// pair is the marks of packets from a source to a VM.
type pair struct {
	key     pairKey
	marks   uint64
	sent    time.Duration // the last message
	seen    time.Duration // the last mark
	waits   bool
	counted bool // a message was sent
}

// NewReceiver returns the half at a host. The error says which parameter is wrong.
func NewReceiver(p Config) (*Receiver, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	return &Receiver{p: p, pairs: map[pairKey]*pair{}, sweep: pairLife}, nil
}

// Counts returns what it did so far.
func (r *Receiver) Counts() ReceiverCounts { return r.counts }

// Wake returns when the marks that wait are looked at again.
func (r *Receiver) Wake() time.Duration { return r.wake }

// Step takes marked packets, and ticks. Its actions are law.MarksGrant for the pair: VM is the receiver, and Peer the source.
func (r *Receiver) Step(now time.Duration, e law.Event, out []law.Action) []law.Action {
	if now >= r.sweep {
		r.forget(now)
	}
	if came, is := e.(*telemetry.Came); is && came.Marks > 0 {
		out = r.came(now, came, out)
	}
	if r.wake != 0 && r.wake <= now {
		out = r.look(now, out)
	}
	if r.wake == 0 && len(r.waiting) > 0 {
		r.wake = now + messageEvery
	}
	return out
}

func (r *Receiver) came(now time.Duration, e *telemetry.Came, out []law.Action) []law.Action {
	r.counts.Marks += e.Marks
	key := pairKey{e.Source, e.VM}
	p := r.pairs[key]
	if p == nil {
		if len(r.pairs) >= maxPairs {
			r.counts.TooMany += e.Marks
			return out
		}
		p = &pair{key: key}
		r.pairs[key] = p
	}
	p.marks += e.Marks
	p.seen = now
	if r.due(now, p) {
		return r.send(now, p, out)
	}
	if !p.waits && p.marks > 1 {
		p.waits = true
		r.waiting = append(r.waiting, p)
	}
	return out
}

// due reports whether the marks of a pair go back now.
func (r *Receiver) due(now time.Duration, p *pair) bool {
	if r.p.Feedback == Bit {
		return true
	}
	return p.marks > manyMarks || p.marks > 1 && (!p.counted || now-p.sent >= messageEvery)
}

func (r *Receiver) send(now time.Duration, p *pair, out []law.Action) []law.Action {
	marks := min(p.marks, telemetry.MaxMarks)
	p.marks, p.sent, p.counted = 0, now, true
	r.counts.Messages++
	return append(out, law.Grant{
		Kind: law.MarksGrant, Key: law.Key{Pair: law.Pair{VM: p.key.vm, Peer: p.key.source}}, Value: marks * telemetry.OneMark, Lease: time.Second,
	})
}

// look sends the marks that have waited long enough.
func (r *Receiver) look(now time.Duration, out []law.Action) []law.Action {
	r.wake = 0
	for _, p := range r.waiting {
		if p.marks > 1 && r.due(now, p) {
			out = r.send(now, p, out)
		}
	}
	r.waiting = slices.DeleteFunc(r.waiting, func(p *pair) bool {
		p.waits = p.marks > 1
		return !p.waits
	})
	return out
}

// forget removes the pairs without a mark for 5 s.
func (r *Receiver) forget(now time.Duration) {
	for k, p := range r.pairs {
		if now-p.seen >= pairLife && !p.waits {
			delete(r.pairs, k)
		}
	}
	r.sweep = now + pairLife
}
