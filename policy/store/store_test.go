package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"weir/internal/testseed"
	"weir/law"
	"weir/policy"
)

// memory is a KV without a bus.
type memory struct {
	mu     sync.Mutex
	next   uint64
	values map[string]value
	// before, unless nil, runs before each write without the lock. An error is returned in place of the write.
	before func(key string) error
}

type value struct {
	b        []byte
	revision uint64
}

func newMemory() *memory { return &memory{values: map[string]value{}} }

func (m *memory) Get(_ context.Context, key string) ([]byte, uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, has := m.values[key]
	if !has {
		return nil, 0, ErrNoKey
	}
	return v.b, v.revision, nil
}

func (m *memory) write(key string, b []byte, allowed func(value) bool) error {
	if m.before != nil {
		if err := m.before(key); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !allowed(m.values[key]) {
		return ErrChanged
	}
	m.next++
	m.values[key] = value{slices.Clone(b), m.next}
	return nil
}

func (m *memory) Update(_ context.Context, key string, b []byte, revision uint64) error {
	return m.write(key, b, func(v value) bool { return v.revision == revision })
}

func (m *memory) Put(_ context.Context, key string, b []byte) error {
	return m.write(key, b, func(value) bool { return true })
}

func (m *memory) Delete(_ context.Context, key string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.values, key)
	return nil
}

func (m *memory) Keys(_ context.Context, prefix string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []string
	for key := range m.values {
		if strings.HasPrefix(key, prefix) {
			out = append(out, key)
		}
	}
	return out, nil
}

var (
	ctx   = context.Background()
	alice = Author{"operator/alice", "root"}
	bob   = Author{"operator/bob", "bob"}
)

func mustRead(t testing.TB, s *Store) *Snapshot {
	t.Helper()
	snap, err := s.Read(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return snap
}

func mustSet(t testing.TB, s *Store, name, text string) {
	t.Helper()
	if _, err := s.Commit(ctx, mustRead(t, s), Apply, []Text{{name, []byte(text)}}, nil); err != nil {
		t.Fatal(err)
	}
}

// model is what the store must be: every version of every policy, and the log.
type model struct {
	versions map[string][]string
	since    map[string]uint64
	live     map[string]bool
	log      []string
}

// TestStore_IsItsModel runs random changes by two operators, and compares the store with its model after each.
func TestStore_IsItsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kv := newMemory()
		who := []*Store{New(kv, alice), New(kv, bob)}
		m := model{map[string][]string{}, map[string]uint64{}, map[string]bool{}, nil}
		names := []string{"a", "b", "c"}
		var seen map[string]bool
		for step := range rapid.IntRange(1, 12).Draw(t, "steps") {
			s := who[rapid.IntRange(0, 1).Draw(t, "who")]
			snap, err := s.Read(ctx)
			if err != nil {
				t.Fatal(err)
			}
			var set []Text
			var remove []string
			for _, name := range names {
				switch rapid.SampledFrom([]string{"keep", "set", "set", "delete"}).Draw(t, name) {
				case "set":
					text := fmt.Sprintf("%s %d", name, step)
					set = append(set, Text{name, []byte(text)})
					m.versions[name] = append(m.versions[name], text)
					if !m.live[name] {
						m.since[name] = uint64(len(m.log) + 1)
					}
				case "delete":
					if m.live[name] {
						remove = append(remove, name)
					}
				}
			}
			if len(set)+len(remove) == 0 {
				continue
			}
			c, err := s.Commit(ctx, snap, Apply, set, remove)
			if err != nil {
				t.Fatal(err)
			}
			for _, text := range set {
				m.live[text.Name] = true
			}
			for _, name := range remove {
				m.live[name] = false
			}
			m.log = append(m.log, fmt.Sprintf("%d %s %d", c.Number, s.who.Identity, len(set)+len(remove)))
			if rapid.Bool().Draw(t, "prune") {
				if seen, err = s.Prune(ctx, seen); err != nil {
					t.Fatal(err)
				}
			}
			m.compare(t, s)
		}
	})
}

func (m *model) compare(t *rapid.T, s *Store) {
	snap, err := s.Read(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var live []string
	for _, p := range snap.Policies {
		live = append(live, p.Name)
		all := m.versions[p.Name]
		if p.Version != len(all) || string(p.Text) != all[len(all)-1] || p.Since != m.since[p.Name] {
			t.Fatalf("%+v, want version %d, %q, since %d", p, len(all), all[len(all)-1], m.since[p.Name])
		}
	}
	want := slices.DeleteFunc(slices.Sorted(maps.Keys(m.live)), func(n string) bool { return !m.live[n] })
	if !slices.Equal(live, want) {
		t.Fatalf("policies %v, want %v", live, want)
	}
	for name, all := range m.versions {
		for i, text := range all {
			if got, err := s.Version(ctx, snap, name, i+1); err != nil || string(got) != text {
				t.Fatalf("%s version %d: %q, %v; want %q", name, i+1, got, err, text)
			}
		}
	}
	log, err := s.Log(ctx, 100)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range slices.Backward(log) {
		got = append(got, fmt.Sprintf("%d %s %d", c.Number, c.By, len(c.Policies)))
	}
	if !slices.Equal(got, m.log) {
		t.Fatalf("log %q, want %q", got, m.log)
	}
}

// Of two operators who change the policies at once, one gets an error that says who was first, and what to do.
func TestCommit_TwoWritersAtOnce(t *testing.T) {
	kv := newMemory()
	a, b := New(kv, alice), New(kv, bob)
	mustSet(t, a, "gold", "1")
	base := mustRead(t, b)
	mustSet(t, a, "silver", "1")
	_, err := b.Commit(ctx, base, Apply, []Text{{"bronze", []byte("1")}}, nil)
	var conflict *ConflictError
	const says = "operator/alice changed the policies (change 2, apply silver) at the same time, so nothing was changed: look at 'weir policy log', and run the command again"
	if !errors.As(err, &conflict) || err.Error() != says {
		t.Errorf("%v", err)
	}
	if snap := mustRead(t, b); len(snap.Policies) != 2 || snap.Change != 2 {
		t.Errorf("%+v", snap)
	}
	// Two who begin at the same moment: the other's whole change happens before the head is replaced.
	first := true
	kv.before = func(key string) error {
		if key == headKey && first {
			first = false
			mustSet(t, a, "copper", "1")
		}
		return nil
	}
	if _, err = b.Commit(ctx, mustRead(t, b), Apply, []Text{{"bronze", []byte("1")}}, nil); !errors.As(err, &conflict) {
		t.Errorf("%v", err)
	}
	if log, err := a.Log(ctx, 10); err != nil || len(log) != 3 || log[0].Policies[0].Name != "copper" {
		t.Errorf("%v, %+v", err, log)
	}
}

// Many writers at once: each change is made by one, and nothing is lost.
func TestCommit_ManyWriters(t *testing.T) {
	kv := newMemory()
	const writers, changes = 8, 10
	err := each(writers, func(i int) error {
		s := New(kv, Author{fmt.Sprintf("operator/o%d", i%2), ""}) // some have the same identity
		for n := 0; n < changes; {
			snap, err := s.Read(ctx)
			if err != nil {
				return err
			}
			_, err = s.Commit(ctx, snap, Apply, []Text{{"p", fmt.Appendf(nil, "%d.%d", i, n)}}, nil)
			var conflict *ConflictError
			switch {
			case err == nil:
				n++
			case !errors.As(err, &conflict):
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	s := New(kv, alice)
	snap := mustRead(t, s)
	if p := snap.Policies[0]; snap.Change != writers*changes || p.Version != writers*changes {
		t.Errorf("change %d, version %d", snap.Change, p.Version)
	}
	log, err := s.Log(ctx, 1000)
	if err != nil || len(log) != writers*changes {
		t.Errorf("%v, %d changes", err, len(log))
	}
}

// TestCommit_Killed: a process that ends between any two writes changes nothing, or everything.
func TestCommit_Killed(t *testing.T) {
	killed := errors.New("killed")
	for writes := range 4 {
		kv := newMemory()
		s := New(kv, alice)
		mustSet(t, s, "gold", "1")
		left := writes
		kv.before = func(string) error {
			if left--; left < 0 {
				return killed
			}
			return nil
		}
		_, err := s.Commit(ctx, mustRead(t, s), Apply, []Text{{"gold", []byte("2")}, {"silver", []byte("1")}}, nil)
		kv.before = nil
		snap := mustRead(t, s)
		whole := len(snap.Policies) == 2 && string(snap.Policies[0].Text) == "2"
		none := len(snap.Policies) == 1 && string(snap.Policies[0].Text) == "1"
		if whole != (err == nil) || none != (err != nil) || !whole && !none {
			t.Errorf("after %d writes: %v, %+v", writes, err, snap.Policies)
		}
		mustSet(t, s, "gold", "3")
		seen, err := s.Prune(ctx, nil)
		if err == nil {
			_, err = s.Prune(ctx, seen)
		}
		texts, _ := kv.Keys(ctx, textPrefix)
		if want := 2 + len(mustRead(t, s).Policies)/2; err != nil || len(texts) != want {
			t.Errorf("after %d writes: %v, %d packs, want %d", writes, err, len(texts), want)
		}
	}
}

// A lost answer to the write of the head is no conflict: the head is this change's.
func TestCommit_ALostAnswer(t *testing.T) {
	kv := newMemory()
	s := New(kv, alice)
	again := false
	s.kv = &twice{kv, &again}
	if _, err := s.Commit(ctx, mustRead(t, s), Apply, []Text{{"gold", []byte("1")}}, nil); err != nil || !again {
		t.Errorf("%v, %v", err, again)
	}
}

// twice writes the head twice, as a client that did not get the answer to its first attempt.
type twice struct {
	KV
	again *bool
}

func (w *twice) Update(ctx context.Context, key string, b []byte, revision uint64) error {
	err := w.KV.Update(ctx, key, b, revision)
	if key == headKey && err == nil {
		*w.again = true
		return w.KV.Update(ctx, key, b, revision)
	}
	return err
}

func TestVersion_RefusesWhatIsNotThere(t *testing.T) {
	s := New(newMemory(), alice)
	for i := range MaxVersions + 3 {
		mustSet(t, s, "gold", fmt.Sprint(i+1))
	}
	mustSet(t, s, "old", "1")
	if _, err := s.Commit(ctx, mustRead(t, s), Delete, nil, []string{"old"}); err != nil {
		t.Fatal(err)
	}
	snap := mustRead(t, s)
	for _, row := range []struct {
		name    string
		version int
		want    string
	}{
		{"gold", 0, "35"}, {"gold", 35, "35"}, {"gold", 3, "3"}, {"old", 1, "1"},
		{"gold", 2, "policy gold has no version 2: it has versions 3 to 35"},
		{"gold", 36, "policy gold has no version 36: it has versions 3 to 35"},
		{"old", 0, "policy old is deleted: 'weir policy log' lists its versions, and rollback brings one back"},
		{"golt", 0, `there is no policy "golt"; allowed: gold`},
	} {
		text, err := s.Version(ctx, snap, row.name, row.version)
		if got := string(text); got != row.want && (err == nil || err.Error() != row.want) {
			t.Errorf("%s %d: %q, %v", row.name, row.version, got, err)
		}
	}
	if _, err := s.Commit(ctx, snap, Delete, nil, []string{"old"}); err == nil || err.Error() != "there is no policy old" {
		t.Error(err)
	}
}

// Large changes are split into several values, and too many policies are refused.
func TestCommit_Large(t *testing.T) {
	kv := newMemory()
	s := New(kv, alice)
	r := testseed.New(t)
	var set []Text
	for i := range 100 {
		b := make([]byte, 8000)
		for k := range b {
			b[k] = byte('a' + r.IntN(16)) // 4 bits each: a value takes 30 texts
		}
		set = append(set, Text{fmt.Sprintf("p%d", i), b})
	}
	if _, err := s.Commit(ctx, mustRead(t, s), Apply, set, nil); err != nil {
		t.Fatal(err)
	}
	snap := mustRead(t, s)
	for _, want := range set {
		if p, has := snap.Find(want.Name); !has || string(p.Text) != string(want.Text) {
			t.Errorf("%s is not as it was applied", want.Name)
		}
	}
	packs, _ := kv.Keys(ctx, textPrefix)
	for key, v := range kv.values {
		if len(v.b) > maxValue || len(packs) < 4 {
			t.Errorf("%s has %d bytes; %d packs", key, len(v.b), len(packs))
		}
	}
	set = nil
	for i := range policy.MaxPolicies {
		set = append(set, Text{fmt.Sprintf("q%d", i), []byte("x")})
	}
	if _, err := s.Commit(ctx, snap, Apply, set, nil); err == nil || !strings.HasPrefix(err.Error(), "there would be 2100 policies, and the limit is 2000") {
		t.Error(err)
	}
}

// The policies that were deleted first are forgotten.
func TestCommit_ForgetsDeletedPolicies(t *testing.T) {
	s := New(newMemory(), alice)
	for round := range 4 {
		var set []Text
		var names []string
		for i := range 100 {
			names = append(names, fmt.Sprintf("p%d-%d", round, i))
			set = append(set, Text{names[i], []byte("x")})
		}
		if _, err := s.Commit(ctx, mustRead(t, s), Apply, set, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Commit(ctx, mustRead(t, s), Delete, nil, names); err != nil {
			t.Fatal(err)
		}
	}
	snap := mustRead(t, s)
	if _, err := s.Version(ctx, snap, "p0-3", 1); err == nil || len(snap.deleted) != MaxDeleted {
		t.Errorf("%v, %d deleted", err, len(snap.deleted))
	}
	if _, err := s.Version(ctx, snap, "p1-3", 1); err != nil {
		t.Error(err)
	}
}

// A text that cannot be read makes one policy faulty, which can be replaced or deleted.
func TestRead_AFaultyText(t *testing.T) {
	kv := newMemory()
	s := New(kv, alice)
	mustSet(t, s, "gold", "1")
	mustSet(t, s, "silver", "1")
	gold, _ := mustRead(t, s).Find("gold")
	for _, spoil := range []func(){
		func() { kv.values[textPrefix+gold.text.Pack] = value{[]byte("rubbish"), 1} },
		func() { delete(kv.values, textPrefix+gold.text.Pack) },
	} {
		spoil()
		snap := mustRead(t, s)
		parsed := snap.Parse(policy.NewReader(law.Specs{}))
		if snap.Policies[0].Fault == "" || snap.Policies[1].Fault != "" || !strings.HasPrefix(parsed[0].Broken, "this build cannot read it: ") {
			t.Errorf("%+v", snap.Policies)
		}
	}
	mustSet(t, s, "gold", "2")
	if snap := mustRead(t, s); snap.Policies[0].Fault != "" || snap.Policies[0].Version != 2 {
		t.Errorf("%+v", snap.Policies)
	}
}

func TestInventory(t *testing.T) {
	kv := newMemory()
	s := New(kv, Author{"controller/c1", ""})
	n := policy.Node{Name: "h1", Host: &policy.NodeHost{ID: 1, Rate: 10e9}}
	r := testseed.New(t)
	for i := range policy.MaxTargets { // the most that a host may have fit into a value
		n.Host.VMs = append(n.Host.VMs, policy.NodeVM{
			ID: law.VM(i + 1), Name: fmt.Sprintf("instance-%08x", r.Uint32()), Port: fmt.Sprintf("tap%d", i),
			Labels: map[string]string{"tenant": fmt.Sprintf("t-%d", r.IntN(1000)), "tier": fmt.Sprint("tier", i%3), "zone": "north", "app": fmt.Sprintf("app-%d", r.IntN(100))},
		})
	}
	if err := s.PutNode(ctx, &n); err != nil {
		t.Fatal(err)
	}
	if err := s.PutNode(ctx, &policy.Node{Name: "a b"}); err == nil {
		t.Error("a node with a wrong name is stored")
	}
	t.Logf("%d bytes", len(kv.values[inventoryPrefix+"h1"].b))
	kv.values[inventoryPrefix+"h2"] = value{[]byte("rubbish"), 1}
	kv.values[inventoryPrefix+"h3"] = kv.values[inventoryPrefix+"h1"]
	nodes, problems, err := s.Inventory(ctx)
	if err != nil || len(nodes) != 1 || len(problems) != 2 || !reflect.DeepEqual(nodes[0], n) {
		t.Errorf("%v, %v, %d nodes", err, problems, len(nodes))
	}
	if err := s.DeleteNode(ctx, "h1"); err != nil {
		t.Fatal(err)
	}
	if nodes, _, err := s.Inventory(ctx); err != nil || len(nodes) != 0 {
		t.Errorf("%v, %d nodes", err, len(nodes))
	}
}
