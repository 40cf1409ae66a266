package record

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"

	"weir/internal/testseed"
	"weir/law"
	"weir/law/sicc"
)

func recorded(t testing.TB, intervals int) string {
	t.Helper()
	x := newWorld(t, Config{}, `{"mouse_duration": "15ms"}`, newSICC(t, nil))
	incasts(x, testseed.New(t), intervals)
	if x.grants < 30 {
		t.Fatalf("only %d grants", x.grants)
	}
	return x.close()
}

func replayed(t testing.TB, path string, o Options) *Result {
	t.Helper()
	o.Specs = specs
	res, err := Replay(open(t, path), o)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// The same law with the same parameters gives the same actions, to the byte.
func TestReplay_Same(t *testing.T) {
	res := replayed(t, recorded(t, 1500), Options{})
	if !res.Same() || !res.Ended || len(res.Laws) != 1 || res.Laws[0].First != nil || res.Entries < 1500 {
		t.Errorf("%+v", res)
	}
	l := &res.Laws[0]
	if l.Recorded.Grants["window"] == 0 || l.Recorded.Holds == 0 || l.Recorded.VMs < 2 || l.Recorded.HeldNs != l.Replayed.HeldNs || l.Recorded.Releases == 0 {
		t.Errorf("%+v", l)
	}
	if !strings.Contains(string(l.Params), `"mouse_duration":"15ms"`) {
		t.Errorf("%s", l.Params)
	}
}

// A controller whose law decides otherwise is found out, with the first event after which it does.
func TestReplay_AnotherLaw(t *testing.T) {
	x := newWorld(t, Config{}, "{}", newSICC(t, func(p *sicc.Params) { p.OnFraction = 1.5 })) // not the parameters that are noted
	incasts(x, testseed.New(t), 1500)
	res := replayed(t, x.close(), Options{})
	l := &res.Laws[0]
	if res.Same() || l.Equal || l.First == nil || l.First.Serial == 0 || len(l.First.Recorded) == len(l.First.Replayed) {
		t.Fatalf("%+v", res)
	}
}

// Each bit of a recorded action counts.
func TestReplay_ChangedByte(t *testing.T) {
	path := recorded(t, 200)
	for _, change := range []func(*law.Grant){
		func(g *law.Grant) { g.Cause++ }, func(g *law.Grant) { g.Owner++ }, func(g *law.Grant) { g.Value++ }, func(g *law.Grant) { g.Lease++ },
		func(g *law.Grant) { g.Key.VM++ }, func(g *law.Grant) { g.Key.Peer = g.Key.Peer.Next() }, func(g *law.Grant) { g.Key.Flow.Proto = 6 },
	} {
		done := false
		other := rewritten(t, path, func(e *Entry) {
			for i := range e.Steps {
				for j := range e.Steps[i].Actions {
					if g, is := e.Steps[i].Actions[j].Value.(law.Grant); is && !done {
						change(&g)
						e.Steps[i].Actions[j].Value, done = g, true
					}
				}
			}
		})
		if res := replayed(t, other, Options{}); res.Same() || res.Laws[0].Differ != 1 {
			t.Errorf("%+v", res)
		}
	}
	if same := rewritten(t, path, func(*Entry) {}); !replayed(t, same, Options{}).Same() {
		t.Error("a copy is another recording")
	}
}

// rewritten copies a recording with changes.
func rewritten(t testing.TB, path string, change func(*Entry)) string {
	t.Helper()
	r := open(t, path)
	b := headerOnly(t, &r.Header)
	for _, e := range all(t, r) {
		change(e)
		b = append(b, encoded(t, e)...)
	}
	out := filepath.Join(t.TempDir(), "copy")
	if err := os.WriteFile(out, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return out
}

func headerOnly(t testing.TB, h *Header) []byte {
	t.Helper()
	b, err := encode(new(bytes.Buffer), h)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A recording that lost entries cannot be said to be equal.
func TestReplay_NotWhole(t *testing.T) {
	path := recorded(t, 100)
	n := 0
	b, err := os.ReadFile(path + ".000001")
	if err != nil {
		t.Fatal(err)
	}
	var out []byte
	for rest := b; len(rest) > 0; n++ { // without item 50
		_, after, err := first(rest)
		if err != nil {
			t.Fatal(err)
		}
		if n != 50 {
			out = append(out, rest[:len(rest)-len(after)]...)
		}
		rest = after
	}
	other := filepath.Join(t.TempDir(), "gap")
	if err := os.WriteFile(other, out, 0o600); err != nil {
		t.Fatal(err)
	}
	if res := replayed(t, other, Options{}); res.Same() || len(res.Problems) != 1 || res.Problems[0] != "1 entries before entry 51 are missing" {
		t.Errorf("%+v", res)
	}
}

// first returns the first item, and what follows it.
func first(b []byte) (item cbor.RawMessage, after []byte, err error) {
	after, err = cbor.UnmarshalFirst(b, &item)
	return item, after, err
}

// Other parameters decide otherwise, and the difference is that of a law which runs with them.
func TestReplay_OtherParameters(t *testing.T) {
	path := recorded(t, 1500)
	res := replayed(t, path, Options{Set: []string{"sicc.mouse_duration=60ms", "sicc.off_rule=and"}})
	x := newWorld(t, Config{}, "{}", newSICC(t, func(p *sicc.Params) { p.MouseDuration, p.OffRule = 60e6, sicc.OffAnd }))
	incasts(x, testseed.New(t), 1500)
	want := replayed(t, x.close(), Options{Set: []string{"sicc.mouse_duration=60ms", "sicc.off_rule=and"}})
	l, w := &res.Laws[0], &want.Laws[0]
	if !res.Other || l.Equal || l.Replayed.HeldNs <= l.Recorded.HeldNs || l.Replayed.Longest <= l.Recorded.Longest {
		t.Errorf("%+v", l)
	}
	if !w.Equal || w.Recorded.HeldNs != l.Replayed.HeldNs || w.Recorded.Grants["window"] != l.Replayed.Grants["window"] {
		t.Errorf("a law with these parameters: %+v, the replay %+v", w, l)
	}
	if res := replayed(t, path, Options{Law: "sicc", Set: []string{"sicc.on_fraction=4", "sicc.initial_window=1"}}); res.Laws[0].Replayed.Holds >= l.Recorded.Holds {
		t.Errorf("%+v", res.Laws[0])
	}
}

func TestReplay_Refuses(t *testing.T) {
	path := recorded(t, 100)
	for _, row := range []struct {
		o    Options
		says string
	}{
		{Options{Law: "fairq"}, "this build has no law fairq of a controller"},
		{Options{Set: []string{"gcc.interval=1ms"}}, "--set gcc.interval=1ms: law gcc is not in the recording"},
		{Options{Set: []string{"sicc.speed=1"}}, "--set sicc.speed=1: law sicc has no parameter speed"},
		{Options{Set: []string{"sicc.queue_weight=7"}}, "--set sicc.queue_weight=7: "},
		{Options{Set: []string{"sicc.interval=0s"}}, "--set sicc.interval=0s: interval is 0, want more"},
		{Options{Set: []string{"sicc.interval"}}, "--set sicc.interval: want LAW.PARAMETER=VALUE"},
		{Options{Set: []string{"sicc.min_hold=20ms"}}, "--set sicc.min_hold=20ms: min_hold is longer"},
	} {
		row.o.Specs = specs
		_, err := Replay(open(t, path), row.o)
		if bad := (*OptionError)(nil); err == nil || !errors.As(err, &bad) || !strings.HasPrefix(err.Error(), row.says) {
			t.Errorf("%+v: %v", row.o, err)
		}
	}
}

// A law with ticks of its own gets them at the times that it asks for, in place of the recorded ones.
func TestReplay_Ticks(t *testing.T) {
	x := newWorld(t, Config{}, "{}", silent{})
	for range 10 {
		x.now += 10 * time.Millisecond
		x.step(law.Tick{})
	}
	path := x.close()
	ticking := law.Spec{
		Name: "ticking", Sites: []law.Site{law.Controller}, Params: func() any { return &struct{}{} },
		New: func(law.Site, any, *law.Topology) (law.Law, error) { return &ticker{}, nil },
	}
	res, err := Replay(open(t, path), Options{Law: "ticking", Specs: law.Specs{ticking}})
	if err != nil || res.Laws[0].Replayed.Grants["rate"] != 3 { // at 30, 60 and 90 ms
		t.Errorf("%v, %+v", err, res)
	}
}

type ticker struct{ due time.Duration }

func (l *ticker) Wake() time.Duration { return l.due + 30*time.Millisecond }

func (l *ticker) Step(now time.Duration, e law.Event, out []law.Action) []law.Action {
	if _, is := e.(law.Tick); is && now >= l.Wake() {
		l.due = l.Wake()
		return append(out, law.Grant{Kind: law.RateGrant, Value: 1, Lease: 1})
	}
	return out
}

// The time of a hold ends with the lease, the release, or the recording.
func TestHolds(t *testing.T) {
	h := newHolds()
	grant := func(now time.Duration, vm law.VM, lease time.Duration) {
		h.add(now, law.Grant{Key: law.Key{Pair: law.Pair{VM: vm}}, Value: 1, Lease: lease})
	}
	grant(0, 1, 10)
	grant(5, 1, 10) // to 15
	grant(7, 2, 100)
	grant(9, 2, 0)    // 2
	grant(20, 1, 0)   // had ended at 15
	grant(30, 1, 100) // to the end: 10
	s := h.end(40)
	if s.HeldNs != 15+2+10 || s.Longest != 15 || s.Holds != 3 || s.VMs != 2 || s.Keys != 2 || s.Releases != 2 || s.Grants["window"] != 4 {
		t.Errorf("%+v", s)
	}
}

// Reading and replaying a file end without a panic, for any bytes.
func FuzzReplay(f *testing.F) {
	b, err := os.ReadFile(recorded(f, 60) + ".000001")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(b[:len(b)/2])
	f.Add([]byte{})
	for _, e := range events {
		one := encoded(f, &Entry{Serial: 1, Event: Item[law.Event]{Value: drawn(testseed.New(f), e)}})
		f.Add(append(headerOnly(f, &Header{Format: format, Version: Version, Piece: 1}), one...))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := &Reader{}
		h, err := r.begin(bytes.NewReader(b))
		if err != nil {
			return
		}
		r.Header = *h
		if res, err := Replay(r, Options{Specs: specs}); err == nil && res.Entries > uint64(len(b)) {
			t.Errorf("%d entries of %d bytes", res.Entries, len(b))
		}
	})
}

// Spans that overlap or touch are one time, also if they are not in order.
func TestTimes(t *testing.T) {
	got := times([]edge{{50, 1}, {60, -1}, {10, 1}, {30, -1}, {20, 1}, {40, -1}, {40, 1}, {45, -1}})
	want := []Time{{From: 10, To: 45, Most: 2}, {From: 50, To: 60, Most: 1}}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if times(nil) != nil {
		t.Error("times without spans")
	}
}
