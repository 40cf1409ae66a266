package remote

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"weir/experiment/store"
)

// slowStore has one object. The first read of it waits; it is gone for others.
type slowStore struct {
	jetstream.ObjectStore
	object  []byte
	read    atomic.Bool
	begun   chan struct{}
	release chan struct{}
}

func (s *slowStore) GetBytes(context.Context, string, ...jetstream.GetObjectOpt) ([]byte, error) {
	if s.read.Swap(true) {
		return nil, errors.New("no such object")
	}
	close(s.begun)
	<-s.release
	return s.object, nil
}

func (*slowStore) Delete(context.Context, string) error { return nil }

// A result that takes long to read is read once, although it is listed again meanwhile.
func TestClient_ReadsAResultOnce(t *testing.T) {
	_, plan := planOf(t)
	run := plan.Runs[0]
	key, err := store.Key(run)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := store.Encode(&b, entryOf(run)); err != nil {
		t.Fatal(err)
	}
	objects := &slowStore{object: b.Bytes(), begun: make(chan struct{}), release: make(chan struct{})}
	w := &waiting{run: run, code: codeOfTests, refused: maxTries, result: make(chan answer, 1)}
	c := &Client{job: newID(), objects: objects, pending: map[string]*waiting{key: w}, did: map[string]int{}, taking: map[string]bool{}}
	o := &jetstream.ObjectInfo{ObjectMeta: jetstream.ObjectMeta{Name: resultName{c.job, key, "w1", 1}.String()}}
	done := make(chan struct{})
	go func() { c.take(t.Context(), o); close(done) }()
	select {
	case <-objects.begun:
	case <-done:
		t.Fatal("the result was not read")
	}
	c.take(t.Context(), o)
	close(objects.release)
	<-done
	if a := <-w.result; a.err != nil || c.Refused()["result"] != 0 {
		t.Errorf("%v; refused: %v", a.err, c.Refused())
	}
}
