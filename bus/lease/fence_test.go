package lease

import (
	"errors"
	"testing"
	"time"
)

var (
	c1 = Holder{"c1", 11}
	c2 = Holder{"c2", 22}
)

// Orders at an agent of bucket 3 that has incarnation 7 and obeyed command 10 of c1 in term 5; its clock shows one minute.
func TestFence(t *testing.T) {
	const now = time.Minute
	good := Header{Bucket: 3, Term: 5, Holder: c1, Sequence: 11, Incarnation: 7, Echo: now - time.Second}
	for _, row := range []struct {
		name   string
		change func(*Header)
		want   Reason
		seen   Seen
	}{
		{"the next", func(*Header) {}, Obeyed, Seen{5, c1}},
		{"another bucket", func(o *Header) { o.Bucket = 4 }, OtherBucket, Seen{5, c1}},
		{"a lower term", func(o *Header) { o.Term = 4 }, StaleTerm, Seen{5, c1}},
		{"a lower term with a high number", func(o *Header) { o.Term, o.Sequence = 4, 1e9 }, StaleTerm, Seen{5, c1}},
		{"another holder", func(o *Header) { o.Holder = c2 }, OtherHolder, Seen{5, c1}},
		{"another run of the holder", func(o *Header) { o.Holder.Run++ }, OtherHolder, Seen{5, c1}},
		{"the same number", func(o *Header) { o.Sequence = 10 }, OldSequence, Seen{5, c1}},
		{"another incarnation", func(o *Header) { o.Incarnation = 8 }, OtherRun, Seen{5, c1}},
		{"late by a nanosecond", func(o *Header) { o.Echo-- }, Late, Seen{5, c1}},
		{"of now", func(o *Header) { o.Echo = now }, Obeyed, Seen{5, c1}},
		{"of the future", func(o *Header) { o.Echo = now + 1 }, FromFuture, Seen{5, c1}},
		{"a higher term, number 1", func(o *Header) { o.Term, o.Holder, o.Sequence = 6, c2, 1 }, Obeyed, Seen{6, c2}},
		{"a higher term, late", func(o *Header) { o.Term, o.Holder, o.Echo = 6, c2, 0 }, Late, Seen{6, c2}},
		{"an announcement", func(o *Header) { *o = Header{Bucket: 3, Term: 6, Holder: c2, Sequence: 1, Announces: true} }, Obeyed, Seen{6, c2}},
		{"an announcement of a lower term", func(o *Header) { *o = Header{Bucket: 3, Term: 4, Holder: c2, Sequence: 1, Announces: true} }, StaleTerm, Seen{5, c1}},
	} {
		stored := Seen{5, c1}
		f := NewFence(3, 7, stored, func(s Seen) error { stored = s; return nil })
		if why := f.Check(now, &Header{Bucket: 3, Term: 5, Holder: c1, Sequence: 10, Incarnation: 7, Echo: now}); why != Obeyed {
			t.Fatalf("refused with %q", why)
		}
		o := good
		row.change(&o)
		if why := f.Check(now, &o); why != row.want {
			t.Errorf("%s: %q, want %q", row.name, why, row.want)
		}
		if f.Seen() != row.seen || stored != row.seen {
			t.Errorf("%s: it has seen %v, and stored %v, want %v", row.name, f.Seen(), stored, row.seen)
		}
		if row.want == Obeyed && f.Check(now, &o) != OldSequence {
			t.Errorf("%s: obeyed twice", row.name)
		}
	}
}

// A term that cannot be stored is not obeyed: after a restart the agent would obey the earlier one.
func TestFence_StoresFirst(t *testing.T) {
	full := errors.New("no space")
	f := NewFence(0, 7, Seen{5, c1}, func(Seen) error { return full })
	o := &Header{Term: 6, Holder: c2, Sequence: 1, Incarnation: 7}
	if why := f.Check(0, o); why != CannotRemember || f.Seen() != (Seen{5, c1}) {
		t.Errorf("%q, and it has seen %v", why, f.Seen())
	}
	full = nil
	if why := f.Check(0, o); why != Obeyed {
		t.Errorf("%q once there is space", why)
	}
}

// A lying agent raises the term by a step a second, and no further.
func TestMachine_LimitsAgents(t *testing.T) {
	m := New(Config{Self: c1, Buckets: 1, Alone: true}, 0)
	var began []uint64
	var run func(now time.Duration, e Event)
	run = func(now time.Duration, e Event) {
		for _, o := range append([]Order(nil), m.Step(now, e)...) {
			switch o := o.(type) {
			case Store:
				run(now, Stored(o))
			case Announce:
				run(now, Announced(o))
			case Began:
				began = append(began, o.Term)
			}
		}
	}
	for now := time.Duration(0); now < 10*time.Second; now += 50 * time.Millisecond {
		run(now, Tick{})
		run(now, Reported{0, c2, 1 << 61})
	}
	if len(began) < 10 || len(began) > 12 {
		t.Errorf("it began %d terms in 10 s: %v", len(began), began)
	}
	if last := began[len(began)-1]; last > 12*(RaiseStep+1) {
		t.Errorf("the term is %d", last)
	}
}
