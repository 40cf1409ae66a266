package store

import (
	"errors"
	"strings"
	"testing"
)

// A change that is under way loses nothing to Prune: its texts are stored, and the head does not refer to them yet.
func TestPrune_DuringAChange(t *testing.T) {
	kv := newMemory()
	s, controller := New(kv, alice), New(kv, Author{"controller/c1", ""})
	mustSet(t, s, "gold", "1")
	var seen map[string]bool
	kv.before = func(key string) error {
		if key != headKey {
			return nil
		}
		var err error
		seen, err = controller.Prune(ctx, nil)
		return err
	}
	mustSet(t, s, "gold", "2")
	kv.before = nil
	if len(seen) != 1 {
		t.Errorf("%d keys can be removed next time, want that of the new text", len(seen))
	}
	if _, err := controller.Prune(ctx, seen); err != nil {
		t.Fatal(err)
	}
	if p := mustRead(t, s).Policies[0]; p.Fault != "" || string(p.Text) != "2" {
		t.Errorf("%+v", p)
	}
}

// Versions and changes that are too old are removed, and others stay.
func TestPrune_RemovesOldOnes(t *testing.T) {
	kv := newMemory()
	s := New(kv, alice)
	for range MaxVersions + 5 {
		mustSet(t, s, "gold", "x")
	}
	kv.values[changePrefix+logKey(1, "old", "operator.bob")] = value{[]byte("x"), 1}
	head, revision, err := s.head(ctx)
	if err != nil {
		t.Fatal(err)
	}
	head.Change = MaxChanges + 2 // as after many more changes
	head.Log = logKey(head.Change, "x", "operator.alice")
	b, err := encode(&head)
	if err == nil {
		err = kv.Update(ctx, headKey, b, revision)
	}
	if err != nil {
		t.Fatal(err)
	}
	seen, err := s.Prune(ctx, nil)
	if err == nil {
		_, err = s.Prune(ctx, seen)
	}
	texts, _ := kv.Keys(ctx, textPrefix)
	changes, _ := kv.Keys(ctx, changePrefix)
	if err != nil || len(texts) != MaxVersions+1 || len(changes) != MaxVersions+3 { // changes 3 and later of 37
		t.Errorf("%v, %d texts, %d changes", err, len(texts), len(changes))
	}
}

// An entry of the log that names another author than its key is not shown as that author's.
func TestLog_AForgedEntry(t *testing.T) {
	kv := newMemory()
	s := New(kv, alice)
	mustSet(t, s, "gold", "1")
	head, _, err := s.head(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for says, c := range map[string]Change{
		"it is change 1 by operator/bob":   {Number: 1, By: "operator/bob", Action: Apply},
		"it is change 2 by operator/alice": {Number: 2, By: "operator/alice", Action: Apply, Before: head.Log},
	} {
		b, err := encode(&c)
		if err == nil {
			err = kv.Put(ctx, changePrefix+head.Log, b)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Log(ctx, 1); !errors.Is(err, ErrRecord) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %s", err, says)
		}
	}
}
