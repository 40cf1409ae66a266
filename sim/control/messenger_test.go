package control

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"weir/law"
	"weir/sim/event"
)

// said is an event of the tests.
type said struct{ N int }

func (said) LawEvent() {}

// listener is a law that notes the events it gets.
type listener struct {
	site  int
	heard *[]heard
}

type heard struct {
	at   event.Time
	site int
	n    int
}

func (l *listener) Step(now time.Duration, e law.Event, out []law.Action) []law.Action {
	*l.heard = append(*l.heard, heard{event.Time(now), l.site, e.(said).N})
	return out
}

func (*listener) Wake() time.Duration { return 0 }

// later runs a function at a time.
type later struct {
	ev event.Event
	do func(now event.Time)
}

func (l *later) Happen(_ *event.Event, now event.Time) { l.do(now) }

func at(q *event.Queue, t event.Time, do func(now event.Time)) {
	l := &later{do: do}
	l.ev.Init(l)
	q.Set(&l.ev, t)
}

// slowMessage is a message of the slow messenger.
type slowMessage struct {
	sent     event.Time
	from, to int
	bytes    int64
	key      uint64
	n        int
}

// slowMessenger computes what a messenger does from the list of messages: site by site, pair by pair, with nothing
// pending.
func slowMessenger(o Options, sites int, list []slowMessage) (got []heard, c Counts) {
	var left []slowMessage // sent is when they left their line
	for site := range sites {
		var waiting []slowMessage
		free, busy := event.Time(0), false
		// advance lets all messages leave whose line time is over before t. One that is over at t leaves after what is
		// sent at t.
		var on slowMessage
		advance := func(t event.Time) {
			for busy && free < t {
				on.sent = free
				left = append(left, on)
				if busy = len(waiting) > 0; busy {
					on, waiting = waiting[0], waiting[1:]
					free += lineTime(o, on.bytes)
				}
			}
		}
		for _, m := range list {
			if m.from != site {
				continue
			}
			c.Sent++
			if o.Rate == 0 {
				left = append(left, m)
				continue
			}
			advance(m.sent)
			if !busy {
				busy, on, free = true, m, m.sent+lineTime(o, m.bytes)
				continue
			}
			i := slices.IndexFunc(waiting, func(w slowMessage) bool { return m.key != 0 && w.key == m.key && w.to == m.to })
			switch {
			case i >= 0:
				waiting[i] = m
				c.Replaced++
			case len(waiting) >= o.Queue:
				c.Full++
			default:
				waiting = append(waiting, m)
			}
		}
		advance(1 << 60)
	}
	for from := range sites {
		for to := range sites {
			random := event.NewRandom(o.Seed, fmt.Sprintf("control %d to %d", from, to))
			last := event.Time(0)
			for _, m := range left {
				if m.from != from || m.to != to {
					continue
				}
				arrives := m.sent + event.Time(o.Delay)
				if o.Jitter > 0 {
					arrives += event.Time(random.Int64N(int64(o.Jitter) + 1))
				}
				if o.Loss > 0 && random.Float64() < o.Loss {
					c.Lost++
					continue
				}
				if o.Ordered {
					arrives = max(arrives, last)
					last = arrives
				}
				c.Arrived++
				got = append(got, heard{arrives, to, m.n})
			}
		}
	}
	return got, c
}

func lineTime(o Options, bytes int64) event.Time {
	at := event.Time(0)
	for done := int64(0); done < bytes*8e9; done += int64(o.Rate) { // a nanosecond after the other
		at++
	}
	return at
}

func byTime(a, b heard) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.n, b.n)) }

// Messages arrive, and are lost, replaced and dropped, as in the slow messenger. At any time each message is counted
// once.
func TestMessengerIsTheSlowOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := Options{
			Seed:    rapid.Int64().Draw(t, "seed"),
			Delay:   rapid.SampledFrom([]law.Duration{0, 1, 50_000, 1_000_000}).Draw(t, "delay"),
			Jitter:  rapid.SampledFrom([]law.Duration{0, 1, 100_000}).Draw(t, "jitter"),
			Loss:    rapid.SampledFrom([]float64{0, 0.3, 1}).Draw(t, "loss"),
			Rate:    rapid.SampledFrom([]law.Rate{0, 1e9, 999_999_937, 10e9}).Draw(t, "rate"),
			Ordered: rapid.Bool().Draw(t, "ordered"),
			Queue:   rapid.SampledFrom([]int{1, 2, 100}).Draw(t, "queue"),
		}
		q := event.NewQueue()
		m, err := New(q, o)
		if err != nil {
			t.Fatal(err)
		}
		var got []heard
		const sites = 3
		for i := range sites {
			if _, err := m.Add(SiteOptions{Name: fmt.Sprint(i), Law: &listener{i, &got}}); err != nil {
				t.Fatal(err)
			}
		}
		var list []slowMessage
		now := event.Time(0)
		for n := range rapid.IntRange(1, 60).Draw(t, "messages") {
			now += event.Time(rapid.SampledFrom([]int64{0, 0, 1, 512, 1000, 40_000}).Draw(t, "gap"))
			g := slowMessage{
				sent: now, from: rapid.IntRange(0, sites-1).Draw(t, "from"), to: rapid.IntRange(0, sites-1).Draw(t, "to"),
				bytes: rapid.SampledFrom([]int64{1, 64, 125, 1500}).Draw(t, "bytes"), key: rapid.Uint64Range(0, 2).Draw(t, "key"), n: n,
			}
			list = append(list, g)
			at(q, now, func(event.Time) {
				m.sites[g.from].Report(m.sites[g.to], int(g.bytes), g.key, said{g.n})
				if c := m.Counts(); c.Sent != c.Arrived+c.Lost+c.Full+c.Replaced+c.Waiting+c.OnTheWay || c.OnTheWay < 0 {
					t.Fatalf("%+v", c)
				}
			})
		}
		q.Run(event.Second)
		want, counts := slowMessenger(o, sites, list)
		if !slices.IsSortedFunc(got, func(a, b heard) int { return cmp.Compare(a.at, b.at) }) {
			t.Fatalf("the clock went back: %v", got)
		}
		if o.Ordered && o.Rate == 0 {
			inOrder(t, got, list)
		}
		slices.SortFunc(got, byTime)
		slices.SortFunc(want, byTime)
		if !slices.Equal(got, want) || m.Counts() != counts || m.Err() != nil {
			t.Fatalf("%v\n%+v, %v; want\n%v\n%+v", got, m.Counts(), m.Err(), want, counts)
		}
	})
}

// inOrder checks that messages of a pair come in the order of their numbers.
func inOrder(t *rapid.T, got []heard, list []slowMessage) {
	last := map[[2]int]int{}
	for _, h := range got {
		k := [2]int{list[h.n].from, list[h.n].to}
		if before, any := last[k]; any && before > h.n {
			t.Fatalf("message %d overtook %d", before, h.n)
		}
		last[k] = h.n
	}
}

// Other messages change nothing for a pair of sites, because each pair draws its own random numbers.
func TestMessenger_PairsAreIndependent(t *testing.T) {
	run := func(others int) (got []heard) {
		q := event.NewQueue()
		m, err := New(q, Options{Seed: 7, Delay: 1000, Jitter: 100_000, Loss: 0.2})
		if err != nil {
			t.Fatal(err)
		}
		var all []heard
		for i := range 3 {
			if _, err := m.Add(SiteOptions{Name: fmt.Sprint(i), Law: &listener{i, &all}}); err != nil {
				t.Fatal(err)
			}
		}
		for n := range 200 {
			m.sites[0].Report(m.sites[1], 100, 0, said{n})
			for range others {
				m.sites[0].Report(m.sites[2], 100, 0, said{-1})
			}
		}
		q.Run(event.Second)
		for _, h := range all {
			if h.site == 1 {
				got = append(got, h)
			}
		}
		return got
	}
	alone, beside := run(0), run(3)
	if len(alone) < 130 || len(alone) > 190 || !slices.Equal(alone, beside) {
		t.Errorf("%d arrived alone, %d with others", len(alone), len(beside))
	}
}

// Options and sites that are out of range are refused, and the error says why.
func TestMessenger_Refuses(t *testing.T) {
	q := event.NewQueue()
	for _, o := range []Options{{Delay: -1}, {Jitter: maxTime + 1}, {Loss: 1.1}, {Loss: -0.1}, {Rate: -1}, {Queue: -1}} {
		if _, err := New(q, o); err == nil || !strings.Contains(err.Error(), "0 to") && !strings.Contains(err.Error(), "1 to") {
			t.Errorf("%+v: %v", o, err)
		}
	}
	m, err := New(q, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Add(SiteOptions{Name: "a"}); err != nil {
		t.Fatal(err)
	}
	for _, o := range []SiteOptions{{}, {Name: "a"}, {Name: "b", Service: -1}, {Name: "b", Inbox: -1}, {Name: "b", CommandBytes: maxMessage + 1}} {
		if _, err := m.Add(o); err == nil {
			t.Errorf("%+v was taken", o)
		}
	}
}
