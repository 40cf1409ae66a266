package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"weir/experiment/store"
)

// oneResult is a client that waits for a run, and the notice of its result.
func oneResult(t *testing.T) (c *Client, w *waiting, o *jetstream.ObjectInfo, object []byte) {
	t.Helper()
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
	w = &waiting{run: run, code: codeOfTests, refused: maxTries, result: make(chan answer, 1)}
	c = &Client{
		cfg: ClientConfig{Say: func(string) {}}, job: newID(), pending: map[string]*waiting{key: w}, did: map[string]int{},
		taking: map[string]bool{}, idle: map[string]time.Time{},
	}
	o = &jetstream.ObjectInfo{ObjectMeta: jetstream.ObjectMeta{Name: resultName{c.job, key, "w1", 1}.String()}}
	return c, w, o, b.Bytes()
}

// oneObject is a store with one object.
type oneObject struct {
	jetstream.ObjectStore
	info    *jetstream.ObjectInfo
	deleted atomic.Int32
}

func (s *oneObject) List(context.Context, ...jetstream.ListObjectsOpt) ([]*jetstream.ObjectInfo, error) {
	return []*jetstream.ObjectInfo{s.info}, nil
}

func (s *oneObject) Delete(context.Context, string) error {
	s.deleted.Add(1)
	return nil
}

// A result that takes long to read is read once, although it is listed again meanwhile.
func TestClient_ReadsAResultOnce(t *testing.T) {
	c, w, o, object := oneResult(t)
	c.objects = &oneObject{info: o}
	begun, release := make(chan struct{}), make(chan struct{})
	var read atomic.Bool
	c.get = func(context.Context, *jetstream.ObjectInfo) ([]byte, error) {
		if read.Swap(true) {
			return nil, errors.New("no such object")
		}
		close(begun)
		<-release
		return object, nil
	}
	done := make(chan struct{})
	go func() { c.take(t.Context(), o); close(done) }()
	select {
	case <-begun:
	case <-done:
		t.Fatal("the result was not read")
	}
	c.take(t.Context(), o)
	close(release)
	<-done
	if a := <-w.result; a.err != nil || c.Refused()["result"] != 0 {
		t.Errorf("%v; refused: %v", a.err, c.Refused())
	}
}

// A result that the bus does not give at first is no wrong one: it stays in the store, and is read again a little later.
func TestClient_ReadsAResultAgain(t *testing.T) {
	c, w, o, object := oneResult(t)
	w.seen = time.Now()
	objects := &oneObject{info: o}
	c.objects = objects
	var reads int
	c.get = func(context.Context, *jetstream.ObjectInfo) ([]byte, error) {
		if reads++; reads == 1 {
			return nil, fmt.Errorf("%w: no answer", errUnread)
		}
		return object, nil
	}
	c.take(t.Context(), o)
	if len(w.result) > 0 || objects.deleted.Load() > 0 || w.refused != maxTries || len(c.Refused()) > 0 {
		t.Fatalf("the result counts as a wrong one: deleted %d, refused %v", objects.deleted.Load(), c.Refused())
	}
	if _, look := c.lost(time.Now()); look {
		t.Error("it is read again at once")
	}
	if _, look := c.lost(time.Now().Add(2 * readAgainAfter)); !look {
		t.Fatal("nothing looks for it again")
	}
	c.list(t.Context())
	if a := <-w.result; a.err != nil || a.entry == nil || objects.deleted.Load() != 1 {
		t.Errorf("%v; deleted %d", a.err, objects.deleted.Load())
	}
	if _, look := c.lost(time.Now().Add(4 * readAgainAfter)); look {
		t.Error("it is looked for although it was read")
	}
}
