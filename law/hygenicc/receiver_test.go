package hygenicc

import (
	"net/netip"
	"testing"
	"time"

	"pgregory.net/rapid"

	"weir/law"
	"weir/law/lawtest"
	"weir/law/telemetry"
)

func newReceiver(t testing.TB, feedback string) (*Receiver, law.Law) {
	t.Helper()
	p := Default()
	p.Feedback = feedback
	r, err := NewReceiver(*p)
	if err != nil {
		t.Fatal(err)
	}
	twin, err := NewReceiver(*p)
	if err != nil {
		t.Fatal(err)
	}
	return r, lawtest.Checked(t, r, twin)
}

func source(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(n)}) }

// sent is the marks of the messages for a source.
func sent(actions []law.Action, n int) (marks []uint64) {
	for _, a := range actions {
		if g := a.(law.Grant); g.Kind == law.MarksGrant && g.Key.Peer == source(n) && g.Key.VM == 9 {
			marks = append(marks, g.Value/telemetry.OneMark)
		}
	}
	return marks
}

// Marks go back if there are more than 10, or more than 1 a millisecond after the last message. Each pair is counted apart.
func TestReceiver_Messages(t *testing.T) {
	r, l := newReceiver(t, Message)
	now := time.Second
	mark := func(n int) []law.Action {
		return l.Step(now, &telemetry.Came{VM: 9, Source: source(n), Marks: 1}, nil)
	}
	expect := func(what string, got []uint64, want ...uint64) {
		t.Helper()
		if len(got) != len(want) || len(got) > 0 && got[0] != want[0] {
			t.Errorf("%s: messages %v, want %v", what, got, want)
		}
	}
	expect("one mark", sent(mark(1), 1))
	expect("the second one", sent(mark(1), 1), 2)
	for range 10 {
		expect("ten marks, at once", sent(mark(1), 1))
	}
	expect("another pair has one", sent(mark(2), 2))
	expect("the eleventh one", sent(mark(1), 1), 11)
	expect("one mark", sent(mark(1), 1))
	now += ms
	expect("a millisecond later", sent(mark(1), 1), 2)
	expect("one mark", sent(mark(1), 1))
	expect("two marks", sent(mark(1), 1))
	if w := l.Wake(); w != now+ms {
		t.Fatalf("wakes at %v, want %v", w, now+ms)
	}
	now += ms
	expect("they go back although no further mark comes", sent(l.Step(now, law.Tick{}, nil), 1), 2)
	if w := l.Wake(); w != 0 {
		t.Errorf("wakes at %v", w)
	}
	if c := r.Counts(); c != (ReceiverCounts{Marks: 18, Messages: 4}) {
		t.Errorf("%+v", c)
	}
}

// With bits each mark goes back on a packet of its own.
func TestReceiver_Bits(t *testing.T) {
	_, l := newReceiver(t, Bit)
	for i := range 5 {
		if got := sent(l.Step(time.Duration(i), &telemetry.Came{VM: 9, Source: source(1), Marks: 1}, nil), 1); len(got) != 1 || got[0] != 1 {
			t.Errorf("mark %d: %v", i, got)
		}
	}
}

// A pair is forgotten 5 s after its last mark. Pairs over the limit are counted.
func TestReceiver_Forgets(t *testing.T) {
	r, l := newReceiver(t, Message)
	for i := range maxPairs + 1 {
		l.Step(0, &telemetry.Came{VM: law.VM(i + 1), Source: source(1), Marks: 1}, nil)
	}
	if len(r.pairs) != maxPairs || r.Counts().TooMany != 1 {
		t.Errorf("%d pairs, %+v", len(r.pairs), r.Counts())
	}
	l.Step(4*time.Second, &telemetry.Came{VM: 1, Source: source(1), Marks: 1}, nil)
	l.Step(8*time.Second, &telemetry.Came{VM: 2, Source: source(2), Marks: 1}, nil)
	if len(r.pairs) != 2 {
		t.Errorf("%d pairs, want those of the last 5 s", len(r.pairs))
	}
}

// Every mark is sent once. Messages are due when a model of each source says so.
func TestReceiver_Model(t *testing.T) {
	tb := t
	rapid.Check(t, func(t *rapid.T) {
		_, l := newReceiver(tb, Message)
		type state struct {
			waits uint64
			last  time.Duration
			any   bool
		}
		states := [3]state{}
		now := time.Duration(0)
		due := func(s *state) bool {
			return s.waits > 10 || s.waits > 1 && (!s.any || now-s.last >= ms)
		}
		check := func(actions []law.Action, n int, must bool) {
			s := &states[n]
			got := sent(actions, n)
			switch {
			case must != (len(got) == 1):
				t.Fatalf("at %v source %d with %d marks: messages %v", now, n, s.waits, got)
			case len(got) == 1 && got[0] != s.waits:
				t.Fatalf("at %v source %d: %v, want %d", now, n, got, s.waits)
			case len(got) == 1:
				*s = state{last: now, any: true}
			}
		}
		for range rapid.IntRange(1, 200).Draw(t, "marks") {
			next := now + time.Duration(rapid.IntRange(0, 700).Draw(t, "us"))*time.Microsecond
			for w := l.Wake(); w != 0 && w <= next; w = l.Wake() {
				now = w
				actions := l.Step(now, law.Tick{}, nil)
				for n := range states {
					check(actions, n, due(&states[n]))
				}
			}
			now = next
			n := rapid.IntRange(0, 2).Draw(t, "source")
			states[n].waits++
			check(l.Step(now, &telemetry.Came{VM: 9, Source: source(n), Marks: 1}, nil), n, due(&states[n]))
		}
	})
}

func TestReceiver_KeepsNothingBorrowed(t *testing.T) {
	lawtest.Keeps(t, func() law.Law {
		r, err := NewReceiver(*Default())
		if err != nil {
			t.Fatal(err)
		}
		return r
	}, func(t *rapid.T) law.Event {
		return &telemetry.Came{VM: law.VM(rapid.IntRange(1, 3).Draw(t, "vm")), Source: source(rapid.IntRange(1, 3).Draw(t, "source")), Marks: rapid.Uint64Range(0, 12).Draw(t, "marks")}
	})
}
