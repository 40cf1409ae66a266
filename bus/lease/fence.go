package lease

import (
	"fmt"
	"time"
)

// MaxAge is the largest age of the report that caused a command, on the agent's clock.
const MaxAge = time.Second

// Seen is the highest term of a bucket that the agent has seen.
type Seen struct {
	Term   uint64
	Holder Holder
}

// Header is what a command says of itself.
type Header struct {
	Bucket   uint32
	Term     uint64
	Holder   Holder
	Sequence uint64 // rises within the term
	// Announces: the command has no grants and answers no report.
	Announces bool
	// Incarnation and Echo are those of the report that caused the command.
	Incarnation uint64
	Echo        time.Duration // the agent's monotonic clock
}

// Reason is why a command is refused.
type Reason string

// The reasons, as they are counted.
const (
	Obeyed         Reason = ""
	OtherBucket    Reason = "bucket"      // not the agent's bucket
	StaleTerm      Reason = "stale_term"  // a higher one was seen
	OtherHolder    Reason = "other"       // another controller has this term
	OldSequence    Reason = "sequence"    // this or a later command of the term was seen
	OtherRun       Reason = "incarnation" // it answers a report of before the agent's restart
	Late           Reason = "late"        // the report is older than MaxAge
	FromFuture     Reason = "future"      // the agent never sent such a stamp
	CannotRemember Reason = "not_stored"  // the higher term could not be stored
)

// Fence decides which commands an agent obeys. Controllers may believe for a while that they hold a bucket which another holds
// already. Leases cannot prevent this, because clocks differ and messages are late. So the agent decides: it obeys the highest
// term it has seen, and within a term one run of one controller.
//
// It has no clock and no input or output, and must not be used by two goroutines at a time.
type Fence struct {
	incarnation uint64
	bucket      uint32
	seen        Seen
	sequence    uint64
	store       func(Seen) error
	checks      []check
}

// check is one rule: it returns why a command is refused.
type check struct {
	name   string
	refuse func(f *Fence, now time.Duration, o *Header) Reason
}

// allChecks are in the order of the reasons that an operator wants to see first.
func allChecks() []check {
	return []check{
		{"bucket", func(f *Fence, _ time.Duration, o *Header) Reason {
			return when(o.Bucket != f.bucket, OtherBucket)
		}},
		{"term", func(f *Fence, _ time.Duration, o *Header) Reason {
			return when(o.Term < f.seen.Term, StaleTerm)
		}},
		{"holder", func(f *Fence, _ time.Duration, o *Header) Reason {
			return when(o.Term == f.seen.Term && o.Holder != f.seen.Holder, OtherHolder)
		}},
		{"sequence", func(f *Fence, _ time.Duration, o *Header) Reason {
			return when(o.Term == f.seen.Term && o.Sequence <= f.sequence, OldSequence)
		}},
		{"incarnation", func(f *Fence, _ time.Duration, o *Header) Reason {
			return when(!o.Announces && o.Incarnation != f.incarnation, OtherRun)
		}},
		{"age", func(_ *Fence, now time.Duration, o *Header) Reason {
			return when(!o.Announces && o.Echo < now-MaxAge, Late)
		}},
		{"future", func(_ *Fence, now time.Duration, o *Header) Reason {
			return when(!o.Announces && o.Echo > now, FromFuture)
		}},
	}
}

func when(refused bool, why Reason) Reason {
	if refused {
		return why
	}
	return Obeyed
}

// NewFence returns the fence of an agent's bucket. store wrote seen last, maybe before a restart. The zero value means that nothing
// was stored.
// incarnation is in all reports of this run of the agent. store makes a higher term durable before the agent obeys it.
func NewFence(bucket uint32, incarnation uint64, seen Seen, store func(Seen) error) *Fence {
	return &Fence{bucket: bucket, incarnation: incarnation, seen: seen, store: store, checks: allChecks()}
}

// Seen returns the bucket's highest term, for the agent's reports.
func (f *Fence) Seen() Seen { return f.seen }

// Check decides about a command that arrives at now, on the agent's monotonic clock, and remembers it if it is obeyed.
//
// A command that is too old still shows that its term began. So its term counts, and earlier controllers are refused from
// then on.
func (f *Fence) Check(now time.Duration, o *Header) Reason {
	refused := Obeyed
	for _, c := range f.checks {
		if refused = c.refuse(f, now, o); refused != Obeyed {
			break
		}
	}
	switch refused {
	case Obeyed, OtherRun, Late, FromFuture: // of the newest term and its holder
	default:
		return refused
	}
	if o.Term != f.seen.Term || o.Holder != f.seen.Holder {
		next := Seen{o.Term, o.Holder}
		if err := f.store(next); err != nil {
			return CannotRemember
		}
		f.seen, f.sequence = next, 0
	}
	if refused == Obeyed {
		f.sequence = o.Sequence
	}
	return refused
}

func (s Seen) String() string { return fmt.Sprintf("term %d of %s", s.Term, s.Holder.Name) }
