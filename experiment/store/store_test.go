package store

import (
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/cmd/weir/laws"
	"weir/experiment"
	"weir/experiment/result"
)

const small = `id: small
duration: 2s
worlds: [lab]
topology: {kind: dumbbell, senders: 2, receivers: 1, hypervisors: false}
network: {rate: 50Mbit, rtt: 200us, buffer: 60KB}
traffic: [{name: long, from: "sender*", to: receiver1, pattern: bulk, start: 0s, stop: 1s}]
schemes: [{name: droptail}, {name: fairq}]
vary: [{key: guests.cc, as: guest_cc, values: [cubic, reno]}]
measure: {ports: {bottleneck: "switch->receiver1"}, windows: {early: [0s, 1s]}}
`

// keys returns the key of every run of a file, in the order of its plan.
func keys(t *testing.T, file string, o experiment.Options) []string {
	t.Helper()
	o.AssumeAll = true
	plan, err := (&Asked{Name: "small.yaml", File: file, Options: o}).Plan(laws.All())
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, r := range plan.Runs {
		k, err := Key(r)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, k)
	}
	return out
}

// A run has another key when anything that determines it changes, and only then.
func TestKey(t *testing.T) {
	before := keys(t, small, experiment.Options{})
	seen := map[string]bool{}
	for _, k := range before {
		seen[k] = true
	}
	if len(before) != 4 || len(seen) != 4 {
		t.Fatalf("%d runs have %d keys, want 4 of each", len(before), len(seen))
	}
	tests := []struct {
		name, from, to string
		set            []string
		same           []bool // droptail cubic, reno, fairq cubic, reno
	}{
		{name: "nothing", same: []bool{true, true, true, true}},
		{name: "a window only sums up otherwise", from: "early: [0s, 1s]", to: "late: [1s, 2s]", same: []bool{true, true, true, true}},
		{name: "a claim asks for nothing", from: "measure:", to: "claims: [\"fairq.long.flows == 2\"]\nmeasure:", same: []bool{true, true, true, true}},
		{name: "a parameter of one scheme", set: []string{"schemes.fairq.params.target_fraction=0.3"}, same: []bool{true, true, false, false}},
		{name: "the traffic", from: "stop: 1s", to: "stop: 1500ms", same: []bool{false, false, false, false}},
		{name: "the buffer", set: []string{"network.buffer=61KB"}, same: []bool{false, false, false, false}},
		{name: "another value of an axis", from: "[cubic, reno]", to: "[cubic, bbr]", same: []bool{true, false, true, false}},
		{name: "other ports are sampled", from: "switch->receiver1", to: "switch->sender1", same: []bool{false, false, false, false}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			after := keys(t, strings.Replace(small, tt.from, tt.to, 1), experiment.Options{Set: tt.set})
			for i := range before {
				if (before[i] == after[i]) != tt.same[i] {
					t.Errorf("run %d: the same key: %v, want %v", i, before[i] == after[i], tt.same[i])
				}
			}
		})
	}
	if other := keys(t, small, experiment.Options{Seeds: []int64{2}}); other[0] == before[0] {
		t.Error("two seeds have one key")
	}
}

func entry() *Entry {
	at := netip.MustParseAddrPort("10.0.1.1:5001")
	return &Entry{
		Weir: "v1", Kernel: "6.18", Ended: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Took: 90 * time.Second,
		Raw: &result.Raw{
			RTT: 100 * time.Microsecond, Duration: time.Minute, Bin: 10 * time.Millisecond, Unmet: result.UnmetTexts("k", result.Fatal, "x"), LostRecords: 3,
			Flows: []result.Flow{
				{Group: "mice", Src: "a", Dst: "b", Key: result.Key{Proto: 6, Src: at, Dst: at}, Start: 1, End: 2, Done: true, Bytes: 11500,
					Timeouts: -1, Delivered: []result.Delivery{{Bin: 0, Bytes: 7}, {Bin: 3, Bytes: 0}}},
				{}, // all zero: no key at all
			},
			Ports: []result.Port{{Name: "a->b", Labels: []string{"bottleneck"}, RateBps: 1e6, Samples: []result.Sample{{}, {At: 1, Count: 9}}}},
			Drops: []result.Drop{{Port: "a->b", Reason: "tail"}, {At: 5, Key: result.Key{Src: at}}},
			Busy:  []float64{0, 0.5},
		},
	}
}

// filed is entry as Save stores it.
func filed() *Entry {
	e := entry()
	e.Form = form
	return e
}

var addrs = cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })

func TestSaveLoad(t *testing.T) {
	dir := t.TempDir()
	d, killed, err := Open(dir)
	if err != nil || killed != 0 {
		t.Fatal(killed, err)
	}
	if _, err := d.Load("k"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v; want that it does not exist", err)
	}
	for range 2 { // the second replaces the first
		if err := d.Save("k", entry()); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Read(dir).Load("k")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(filed(), got, addrs); diff != "" {
		t.Errorf("-saved +loaded:\n%s", diff)
	}
	partial := entry()
	partial.Raw.Partial = true
	if err := d.Save("half", partial); err == nil {
		t.Error("a run that was cut short was filed as finished")
	}
	if _, err := d.Load("half"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a run that was cut short: %v", err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "runs", ".weir-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}

// A file that is truncated, or has one changed byte, is not accepted as a run.
func TestLoad_Damaged(t *testing.T) {
	dir := t.TempDir()
	d, _, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Save("k", entry()); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(d.file("k"))
	if err != nil {
		t.Fatal(err)
	}
	try := func(what string, data []byte) {
		if err := os.WriteFile(d.file("k"), data, 0o600); err != nil {
			t.Fatal(err)
		}
		e, err := d.Load("k")
		if err == nil && cmp.Diff(filed(), e, addrs) == "" {
			return // a bit of the header that has no effect
		}
		if err == nil || !strings.Contains(err.Error(), "remove it to run it again") {
			t.Errorf("%s: %v", what, err)
		}
	}
	for n := range whole {
		try("cut short", whole[:n])
	}
	for n := range whole {
		bad := append([]byte{}, whole...)
		bad[n] ^= 0x55
		try("one byte is another", bad)
	}
}

// Two processes cannot run one experiment; the error names the process. A process that died without closing is
// reported to the next one.
func TestOpen_OneAtATime(t *testing.T) {
	dir := t.TempDir()
	first, _, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = Open(dir)
	var inUse *InUseError
	if !errors.As(err, &inUse) || inUse.Pid != os.Getpid() {
		t.Fatalf("%v; want that process %d has it", err, os.Getpid())
	}
	if err := first.lock.Close(); err != nil { // like kill: the file keeps its process id
		t.Fatal(err)
	}
	second, killed, err := Open(dir)
	if err != nil || killed != os.Getpid() {
		t.Fatalf("killed: %d, %v; want %d", killed, err, os.Getpid())
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	third, killed, err := Open(dir)
	if err != nil || killed != 0 {
		t.Fatalf("killed: %d, %v; the one before closed it", killed, err)
	}
	if err := third.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestAsked(t *testing.T) {
	dir := t.TempDir()
	if _, err := Read(dir).Asked(); err == nil || !strings.Contains(err.Error(), "weir run FILE --out") {
		t.Errorf("%v; want what to do", err)
	}
	d, _, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	a := &Asked{Name: "small.yaml", File: small, Options: experiment.Options{Schemes: []string{"droptail"}, Seeds: []int64{7}, Set: []string{"guests.cc=reno"}}}
	if err := d.Ask(a); err != nil {
		t.Fatal(err)
	}
	back, err := Read(dir).Asked()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(a, back); diff != "" {
		t.Error(diff)
	}
	plan, err := back.Plan(laws.All())
	if err != nil || len(plan.Runs) == 0 || plan.Runs[0].Seed != 7 {
		t.Errorf("%+v, %v", plan, err)
	}
}

// testdata/texts.run was written by a build whose unmet settings were a list of texts (weir 0822ffa).
func TestLoad_TextsOfUnmet(t *testing.T) {
	dir := t.TempDir()
	d, _, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	old, err := os.ReadFile("testdata/texts.run")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(d.file("k"), old, 0o600); err != nil {
		t.Fatal(err)
	}
	e, err := d.Load("k")
	if err != nil {
		t.Fatal(err)
	}
	want := []result.Unmet{{Key: "traffic", Severity: result.Warning, Text: "traffic: 1 flows failed: connection timed out"}}
	if diff := cmp.Diff(want, e.Raw.Unmet); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if e.Weir != "0822ffa" || len(e.Raw.Flows) != 4 || e.Raw.Flows[0].Opening != result.OpeningUnknown || e.Raw.Duration != 60*time.Millisecond || len(e.Raw.Drops) == 0 {
		t.Errorf("weir %s, %d flows, opening %v, %v, %d drops", e.Weir, len(e.Raw.Flows), e.Raw.Flows[0].Opening, e.Raw.Duration, len(e.Raw.Drops))
	}
}
