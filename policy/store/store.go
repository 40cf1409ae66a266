// Package store keeps the policies in the key-value store of the bus: versions, a log of changes, and the inventory that
// controllers write.
//
//	kv.go        the key-value store
//	record.go    what is in it
//	store.go     read
//	commit.go    change
//	log.go       earlier versions, the log
//	inventory.go nodes; removal of what is not needed any more
package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"weir/policy"
)

// Author is who makes changes.
type Author struct {
	Identity string // ROLE/NAME of the certificate
	User     string // local user; "": not known
}

// Store is the policies of a fabric.
type Store struct {
	kv  KV
	who Author
	now func() time.Time
	id  func() string // of a new pack
}

// New returns the policies in a KV.
func New(kv KV, who Author) *Store {
	who.User = who.User[:min(len(who.User), maxUser)]
	return &Store{kv: kv, who: who, now: time.Now, id: func() string { return strings.ToLower(rand.Text()) }}
}

// key returns the author as a part of keys.
func (a Author) key() string { return strings.Replace(a.Identity, "/", ".", 1) }

// Stored is a policy as it was applied.
type Stored struct {
	Name    string
	Version int
	Since   uint64 // number of the change that applied it first
	Text    []byte
	Fault   string // why the text cannot be read; "": it can

	text ref
	past []ref
}

// Snapshot is the policies after a change.
type Snapshot struct {
	Change   uint64 // 0: nothing was ever changed
	Policies []Stored
	deleted  []headEntry
	log      string // key of the change
	revision uint64
}

// Find returns a policy of the snapshot.
func (s *Snapshot) Find(name string) (*Stored, bool) {
	i, found := slices.BinarySearchFunc(s.Policies, name, func(p Stored, name string) int { return strings.Compare(p.Name, name) })
	if !found {
		return nil, false
	}
	return &s.Policies[i], true
}

// Next returns the versions of a policy before and after it is applied.
func (s *Snapshot) Next(name string) ChangedPolicy {
	if p, has := s.Find(name); has {
		return ChangedPolicy{name, p.Version, p.Version + 1}
	}
	for _, d := range s.deleted { // its versions continue
		if d.Name == name {
			return ChangedPolicy{name, 0, d.Version + 1}
		}
	}
	return ChangedPolicy{name, 0, 1}
}

// Parse reads the policies of the snapshot. One that this build cannot read is Broken.
func (s *Snapshot) Parse(r *policy.Reader) []policy.Policy {
	var out []policy.Policy
	for i := range s.Policies {
		stored := &s.Policies[i]
		var p *policy.Policy
		err := errors.New(stored.Fault)
		if stored.Fault == "" {
			p, err = r.Parse(stored.Name, stored.Text)
		}
		if err == nil && p.Name != stored.Name {
			err = fmt.Errorf("its text is for the policy %s", p.Name)
		}
		if err != nil {
			first, _, _ := strings.Cut(err.Error(), "\n")
			p = &policy.Policy{Broken: "this build cannot read it: " + first}
		}
		p.Name, p.Since, p.Version = stored.Name, stored.Since, stored.Version
		out = append(out, *p)
	}
	return out
}

// parallel is how many values are read at once.
const parallel = 16

// Read returns the policies of now. A policy whose text cannot be read has a Fault.
func (s *Store) Read(ctx context.Context) (*Snapshot, error) {
	const tries = 5
	for try := 1; ; try++ {
		snap, missing, err := s.read(ctx)
		// A pack that is missing was removed after the head was read: read both again.
		if err != nil || !missing || try == tries {
			return snap, err
		}
	}
}

func (s *Store) read(ctx context.Context) (snap *Snapshot, missing bool, err error) {
	head, revision, err := s.head(ctx)
	if err != nil {
		return nil, false, err
	}
	snap = &Snapshot{Change: head.Change, log: head.Log, revision: revision}
	need := map[string]bool{}
	for _, e := range head.Policies {
		if e.Deleted {
			snap.deleted = append(snap.deleted, e)
		} else {
			need[e.Text.Pack] = true
		}
	}
	packs, err := s.packs(ctx, need)
	if err != nil {
		return nil, false, err
	}
	for _, e := range head.Policies {
		if e.Deleted {
			continue
		}
		p := Stored{Name: e.Name, Version: e.Version, Since: e.Since, text: e.Text}
		text, err := packs[e.Text.Pack].entry(e.Text, e.Name, e.Version)
		if err != nil {
			p.Fault = err.Error()
			missing = missing || errors.Is(err, ErrNoKey)
		} else {
			p.Text, p.past = []byte(text.Text), text.Past
		}
		snap.Policies = append(snap.Policies, p)
	}
	return snap, missing, nil
}

// head returns the head and its revision. Without a head both are zero.
func (s *Store) head(ctx context.Context) (headRecord, uint64, error) {
	var h headRecord
	b, revision, err := s.kv.Get(ctx, headKey)
	if errors.Is(err, ErrNoKey) {
		return h, 0, nil
	}
	if err == nil {
		err = decode(b, &h)
	}
	return h, revision, err
}

// readPack is a pack, or why it cannot be used.
type readPack struct {
	pack
	fault error
}

// entry returns a text of the pack. It must be the one that the reference is for.
func (p *readPack) entry(r ref, name string, version int) (*packEntry, error) {
	if p.fault != nil {
		return nil, p.fault
	}
	if r.At >= len(p.Texts) || p.Texts[r.At].Name != name || p.Texts[r.At].Version != version {
		return nil, fmt.Errorf("%w: %s has no version %d of the policy %s at %d", ErrRecord, r.Pack, version, name, r.At)
	}
	return &p.Texts[r.At], nil
}

// packs reads packs, several at once. One that is missing or not valid has a fault.
func (s *Store) packs(ctx context.Context, need map[string]bool) (map[string]*readPack, error) {
	keys := make([]string, 0, len(need))
	out := map[string]*readPack{}
	for key := range need {
		keys = append(keys, key)
		out[key] = &readPack{}
	}
	err := each(len(keys), func(i int) error {
		p := out[keys[i]]
		b, _, err := s.kv.Get(ctx, textPrefix+keys[i])
		if err == nil {
			p.fault = decode(b, &p.pack)
		} else if errors.Is(err, ErrNoKey) {
			p.fault, err = err, nil
		}
		return err
	})
	return out, err
}

// each runs f for 0 to n-1, some at once, and returns the first error by number.
func each(n int, f func(int) error) error {
	errs := make([]error, n)
	var run sync.WaitGroup
	places := make(chan struct{}, parallel)
	for i := range n {
		places <- struct{}{}
		run.Go(func() {
			errs[i] = f(i)
			<-places
		})
	}
	run.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
