package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"weir/bus"
	"weir/bus/pki"
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

// notices is a watcher with a number of notices.
type notices struct{ updates chan *jetstream.ObjectInfo }

func (n *notices) Updates() <-chan *jetstream.ObjectInfo { return n.updates }
func (n *notices) Stop() error                           { return nil }

// However many results are there at once and processors, few are read at a time: each one waits for a connection whose bytes are limited.
func TestClient_ReadsFewAtATime(t *testing.T) {
	if (reads+1)*bus.MaxMessage > bus.MaxPending {
		t.Errorf("%d reads of %d bytes can wait for a connection, at most %d bytes", reads+1, bus.MaxMessage, bus.MaxPending)
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(128))
	_, _, o, object := oneResult(t)
	synctest.Test(t, func(t *testing.T) {
		c, _, _, _ := oneResult(t)
		c.objects = &oneObject{info: o}
		release := make(chan struct{})
		var now, most, all atomic.Int32
		c.get = func(context.Context, *jetstream.ObjectInfo) ([]byte, error) {
			n := now.Add(1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			<-release
			now.Add(-1)
			all.Add(1)
			return object, nil
		}
		const n = 80
		results := &notices{make(chan *jetstream.ObjectInfo, n)}
		name, _ := parseResultName(o.Name)
		name.job = c.job
		for try := range uint64(n) {
			name.try = try + 1
			results.updates <- &jetstream.ObjectInfo{ObjectMeta: jetstream.ObjectMeta{Name: name.String()}}
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { c.collect(ctx, results); close(done) }()
		synctest.Wait()
		if m := most.Load(); m != reads {
			t.Errorf("%d results are read at a time, want %d", m, reads)
		}
		close(release)
		synctest.Wait()
		if all.Load() != n {
			t.Errorf("%d of %d results were read", all.Load(), n)
		}
		cancel()
		<-done
	})
}

// A result of many chunks is read whole, and takes no subscription. One that is not what its notice says is wrong, not unread.
func TestClient_ReadsChunks(t *testing.T) {
	k := newKit(t)
	c := k.client()
	defer c.Close()
	_, js := k.raw(pki.Worker, "w1")
	objects, err := js.ObjectStore(t.Context(), bus.WorkStore)
	if err != nil {
		t.Fatal(err)
	}
	content := make([]byte, 3*chunk+1)
	for i := range content {
		content[i] = byte(i * i >> 8)
	}
	subscriptions := c.conn.Client().NumSubscriptions()
	o, err := objects.Put(t.Context(), jetstream.ObjectMeta{Name: "x", Opts: &jetstream.ObjectMetaOptions{ChunkSize: chunk}}, bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	if b, err := c.get(t.Context(), o); err != nil || !bytes.Equal(b, content) {
		t.Errorf("%d bytes (%v), want %d", len(b), err, len(content))
	}
	if n := c.conn.Client().NumSubscriptions(); n > subscriptions+1 { // one for all replies
		t.Errorf("%d subscriptions, %d before", n, subscriptions)
	}
	for name, change := range map[string]func(*jetstream.ObjectInfo){
		"more chunks":     func(o *jetstream.ObjectInfo) { o.Chunks++ },
		"fewer chunks":    func(o *jetstream.ObjectInfo) { o.Chunks-- },
		"too many chunks": func(o *jetstream.ObjectInfo) { o.Chunks = 1 << 20 },
		"another digest":  func(o *jetstream.ObjectInfo) { o.Digest = "SHA-256=" },
	} {
		other := *o
		change(&other)
		if _, err := c.get(t.Context(), &other); err == nil || errors.Is(err, errUnread) {
			t.Errorf("%s: %v", name, err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.get(ended, o); !errors.Is(err, errUnread) {
		t.Errorf("without an answer: %v", err)
	}
}
