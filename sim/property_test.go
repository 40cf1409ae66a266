package sim

// A property test over random experiments. With any network, traffic and troubles, some properties are true at any
// time, and all flows end.
//
//	property_test.go          seeds, replays, what must be true in the end
//	property_gen_test.go      the experiment of a seed
//	property_trouble_test.go  its troubles: losses, flaps, reordering, programs that stop reading, odd settings of TCP
//	property_chat_test.go     connections whose programs do anything
//	property_end_test.go      every run ends: limits on its events
//	property_ledger_test.go   packets and ports: nothing is made, lost or changed without a reason
//	property_stream_test.go   sequence numbers and windows of a connection, as seen on the wire
//	property_guard_test.go    guards between hosts and network: guests do not notice them
//	property_mutants_test.go  bugs that all this must find

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"weir/cmd/weir/laws"
	"weir/experiment"
	"weir/experiment/result"
	"weir/sim/event"
)

var (
	onlySeed  = flag.Int64("seed", 0, "TestRandom: the experiment of this seed alone, reported at length")
	trials    = flag.Int("trials", 500, "TestRandom: so many experiments")
	firstSeed = flag.Int64("first", 1, "TestRandom: the seed of the first")
)

// mostFailures is the number of failing seeds after which the test stops.
const mostFailures = 3

// Random experiments with random troubles. Packets and bytes are conserved, no queue is longer than its buffer, and
// time and acknowledgements never go back. No end sends beyond a window or gets data that was not sent. Every flow ends
// once the network has healed. The same seed gives the same bytes, with or without the ledger.
func TestRandom(t *testing.T) {
	if *onlySeed > 0 {
		tr := newTrial(*onlySeed)
		err := tr.carryOut()
		t.Logf("%s\ntroubles:\n%s\n%+v", tr.text, tr.troubles, tr.tally)
		if err != nil {
			t.Fatal(tr.report(err))
		}
		return
	}
	count := int64(*trials)
	if testing.Short() {
		count = min(count, 50)
	}
	var next, failures atomic.Int64
	var wg sync.WaitGroup
	var mu sync.Mutex
	var all tally
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for failures.Load() < mostFailures {
				n := next.Add(1) - 1
				if n >= count {
					return
				}
				tr := newTrial(*firstSeed + n)
				if err := tr.carryOut(); err != nil {
					failures.Add(1)
					t.Error(tr.report(err))
				}
				mu.Lock()
				all.add(&tr.tally)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	t.Logf("%d experiments: %+v", count, all)
	if missing := all.missing(); count >= 200 && failures.Load() == 0 && missing != "" {
		t.Errorf("no experiment had %s: the generator does not reach what the test is about", missing)
	}
}

// tally counts what happened, so that a test which tests nothing is noticed.
type tally struct {
	Packets, Datagrams, Flows, Looks                            int64
	Marked, TailDrops, LawDrops, DownDrops, Lost                int64
	Retransmitted, Timeouts, SYNTimeouts, FastRetransmits       int64
	OutOfOrder, WindowProbes, Wrapped, Paused, SACKed, Sprayed  int64
	GivenUp, Connections, Resets, LongestQueue, Marks, Unscaled int64
	Chats, Acked, HalfOpen, Jittered, Narrowed, Pods, Feedback  int64
	Limited, Flagged                                            int64
}

func (a *tally) fields() []struct {
	name  string
	value *int64
} {
	return []struct {
		name  string
		value *int64
	}{
		{"packets", &a.Packets}, {"datagrams", &a.Datagrams}, {"flows", &a.Flows}, {"looks", &a.Looks},
		{"marked packets", &a.Marked}, {"drops at the tail", &a.TailDrops}, {"drops by a law", &a.LawDrops},
		{"drops by a flap", &a.DownDrops}, {"losses", &a.Lost}, {"retransmissions", &a.Retransmitted},
		{"timeouts", &a.Timeouts}, {"lost handshakes", &a.SYNTimeouts}, {"fast retransmits", &a.FastRetransmits},
		{"segments out of order", &a.OutOfOrder}, {"window probes", &a.WindowProbes},
		{"sequence numbers that wrap", &a.Wrapped}, {"paused programs", &a.Paused}, {"SACK blocks", &a.SACKed},
		{"packets on other paths than their flow", &a.Sprayed}, {"flows that were given up", &a.GivenUp},
		{"connections", &a.Connections}, {"resets", &a.Resets}, {"queues", &a.LongestQueue},
		{"marks that a receiver saw", &a.Marks}, {"connections without window scale", &a.Unscaled},
		{"chats", &a.Chats}, {"writes of chats that were acknowledged", &a.Acked}, {"hosts with jitter", &a.Jittered},
		{"windows that FairQ narrowed", &a.Narrowed}, {"fat trees of pods", &a.Pods},
		{"feedback in packets of its own", &a.Feedback}, {"windows that AC/DC limited", &a.Limited},
		{"lost acknowledgements with a flag for the edge", &a.Flagged},
		{"half-open connections", &a.HalfOpen}, // last: missing lets it be
	}
}

func (a *tally) add(b *tally) {
	from := b.fields()
	for i, f := range a.fields() {
		*f.value += *from[i].value
	}
}

// missing names something that never happened; "" if there is none.
func (a *tally) missing() string {
	all := a.fields()
	for _, f := range all[:len(all)-1] {
		if *f.value == 0 {
			return f.name
		}
	}
	return ""
}

// trial is the experiment of one seed.
type trial struct {
	draft
	run      *experiment.Run
	troubles string     // its troubles
	late     event.Time // network.DelayHosts
	tally
}

func newTrial(seed int64) *trial { return &trial{draft: drawExperiment(seed)} }

// violation is what a check panics with: it may be deep within an event.
type violation string

func broken(format string, args ...any) { panic(violation(fmt.Sprintf(format, args...))) }

// carryOut runs the experiment twice, once watched. It returns the first violation.
func (tr *trial) carryOut() (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case violation:
			err = fmt.Errorf("%s", p)
		default:
			err = fmt.Errorf("panic: %v\n%.2500s", p, debug.Stack())
		}
	}()
	if tr.run, err = tr.planned(); err != nil {
		return err
	}
	tr.late = drawJitter(tr.seed, tr.window)
	if err := (&World{Laws: laws.Sim()}).Check(tr.run); err != nil {
		return fmt.Errorf("refused: %w", err)
	}
	watched, err := tr.watched()
	if err != nil {
		return err
	}
	alone, err := tr.unwatched()
	if err != nil {
		return err
	}
	if a, b := Digest(watched), Digest(alone); a != b {
		broken("the same seed gave %s when it was watched and %s when it was not: %s", a, b, differ(watched, alone))
	}
	return nil
}

// built builds the simulation with its troubles, ready to run.
func (tr *trial) built() (*simulation, *troubles, error) {
	s, err := build(tr.run)
	if err != nil {
		return nil, nil, err
	}
	if err := s.warm(); err != nil {
		s.close()
		return nil, nil, err
	}
	if err := s.net.DelayHosts(tr.seed, tr.late); err != nil {
		s.close()
		return nil, nil, err
	}
	tb := disturb(tr.seed, s, tr.window)
	if tr.late > 0 {
		tb.say("hosts send up to %d ns behind their lines, all the time", tr.late)
	}
	tr.troubles = tb.text()
	return s, tb, nil
}

// unwatched runs as World.Run does, but waits for the end of the last connection, which watched needs.
func (tr *trial) unwatched() (*result.Raw, error) {
	s, _, err := tr.built()
	if err != nil {
		return nil, err
	}
	defer s.close()
	s.begin()
	t, background := s.traffic, context.Background()
	nobody := func(event.Time) {}
	toEnd(t, func(end event.Time) { s.until(background, end, func() bool { return t.left == 0 }, nobody) })
	s.until(background, s.queue.Now()+lastCalm, func() bool { return t.open == 0 }, nobody)
	t.finish(true)
	return s.raw(false), nil
}

// watched runs with the ledger.
func (tr *trial) watched() (*result.Raw, error) {
	s, tb, err := tr.built()
	if err != nil {
		return nil, err
	}
	defer s.close()
	l := newLedger(s, tb, &tr.tally, tr.run)
	s.begin()
	t := s.traffic
	toEnd(t, func(end event.Time) { l.drive(end, func() bool { return t.left == 0 }) })
	if t.left > 0 {
		broken("%d flows or loops have not ended %d ns after the network healed:\n%s", t.left, s.queue.Now()-tb.heals, stuck(t))
	}
	l.drive(s.queue.Now()+lastCalm, func() bool { return t.open == 0 })
	if t.open > 0 {
		broken("%d connections have not been left %d ns after the last flow", t.open, lastCalm)
	}
	t.finish(true)
	raw := l.s.raw(false)
	tr.ended(s, raw)
	tr.Paused += tb.paused
	if tr.late > 0 {
		tr.Jittered++
	}
	if tr.pods {
		tr.Pods++
	}
	s.queue.Stop(&s.rec.tick)                         // its samples are in raw
	l.drive(tb.heals+1, func() bool { return false }) // chats may begin until then
	l.drive(s.queue.Now()+lastCalm, func() bool { return s.stack.Open() == 0 && s.net.Borrowed() == 0 })
	l.quiet()
	return raw, nil
}

// ended checks the results of the flows.
func (tr *trial) ended(s *simulation, raw *result.Raw) {
	type name struct {
		item         string
		mouse, epoch int
	}
	sizes := map[name]int64{}
	for _, f := range s.traffic.work.Flows {
		sizes[name{s.traffic.items[f.Item].Name, int(f.Mouse), int(f.Epoch)}] = int64(f.Size)
	}
	items := map[string]*item{}
	for i := range s.traffic.items {
		items[s.traffic.items[i].Name] = &s.traffic.items[i]
	}
	tr.Flows += int64(len(raw.Flows))
	for i := range raw.Flows {
		f := &raw.Flows[i]
		it := items[f.Item]
		size, open := sizes[name{f.Item, f.Mouse, f.Epoch}]
		if !open {
			size = int64(it.Size) // of a closed loop; 0: by distribution
		}
		what := fmt.Sprintf("flow %s %s -> %s, mouse %d, epoch %d, of %d bytes", f.Item, f.Src, f.Dst, f.Mouse, f.Epoch, size)
		switch {
		case f.End < f.Start:
			broken("%s ended at %v and began at %v", what, f.End, f.Start)
		case size > 0 && f.Bytes > size:
			broken("%s: %d bytes reached the program", what, f.Bytes)
		case f.Done && size > 0 && f.Bytes != size:
			broken("%s is done with %d bytes", what, f.Bytes)
		case !f.Done && it.GiveUp > 0:
			tr.GivenUp++
		case !f.Done && !it.udp:
			broken("%s was never complete: %d bytes when it ended at %v; %v", what, f.Bytes, f.End, raw.Unmet)
		}
		arrived := int64(0)
		for _, d := range f.Delivered {
			arrived += int64(d.Bytes)
		}
		if arrived != f.Bytes {
			broken("%s: %d bytes over time, %d in all", what, arrived, f.Bytes)
		}
	}
	if want := len(s.traffic.work.Flows); len(raw.Flows) < want {
		broken("there were %d flows, %d were to be", len(raw.Flows), want)
	}
}

// differ returns the first difference of two results.
func differ(a, b *result.Raw) string {
	for i := range min(len(a.Flows), len(b.Flows)) {
		if x, y := fmt.Sprintf("%+v", a.Flows[i]), fmt.Sprintf("%+v", b.Flows[i]); x != y {
			return fmt.Sprintf("flow %d: %.600s\nand %.600s", i, x, y)
		}
	}
	for i := range min(len(a.Drops), len(b.Drops)) {
		if a.Drops[i] != b.Drops[i] {
			return fmt.Sprintf("drop %d: %+v and %+v", i, a.Drops[i], b.Drops[i])
		}
	}
	for i := range min(len(a.Ports), len(b.Ports)) {
		x, y := a.Ports[i].Samples, b.Ports[i].Samples
		for k := range min(len(x), len(y)) {
			if x[k] != y[k] {
				return fmt.Sprintf("%s, sample %d: %+v and %+v", a.Ports[i].Name, k, x[k], y[k])
			}
		}
		if len(x) != len(y) {
			return fmt.Sprintf("%s: %d and %d samples", a.Ports[i].Name, len(x), len(y))
		}
	}
	return fmt.Sprintf("%v, %v and %v, %v; %d and %d flows, %d and %d drops", a.Duration, a.Unmet, b.Duration, b.Unmet, len(a.Flows), len(b.Flows), len(a.Drops), len(b.Drops))
}

// report returns the text for a failing seed: what was wrong, and how to repeat it.
func (tr *trial) report(err error) string {
	path := filepath.Join(os.TempDir(), fmt.Sprintf("weir-random-%d.yaml", tr.seed))
	where := path
	text := "# " + strings.Join(splitLines(tr.troubles), "\n# ") + "\n" + tr.text
	if werr := os.WriteFile(path, []byte(text), 0o600); werr != nil {
		where = werr.Error()
	}
	return fmt.Sprintf("seed %d: %v\nagain: go test ./sim -run 'TestRandom$' -args -seed %d\nits experiment: %s\nits troubles:\n%s",
		tr.seed, err, tr.seed, where, tr.troubles)
}
