package remote

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"weir/bus"
	"weir/bus/pki"
	"weir/experiment"
	"weir/experiment/store"
)

// A task that went from hand to hand while the bus was away does not end its run: the first worker still carries it out.
func TestRun_TriesDoNotOvertakeAResult(t *testing.T) {
	k := newKit(t)
	begun, release := make(chan struct{}), make(chan struct{})
	k.worker("w1", func(_ context.Context, r *experiment.Run, _ experiment.Progress) (*store.Entry, error) {
		close(begun)
		<-release
		return entryOf(r), nil
	})
	asked, plan := planOf(t)
	c := k.client()
	defer c.Close()
	done := make(chan error, 1)
	go func() {
		_, err := submit(t.Context(), c, asked, plan.Runs[:1])
		done <- err
	}()
	<-begun
	key, err := store.Key(plan.Runs[0])
	if err != nil {
		t.Fatal(err)
	}
	pending := func() *waiting { c.mu.Lock(); defer c.mu.Unlock(); return c.pending[key] }
	k.until("report of w1", func() bool { w := pending(); c.mu.Lock(); defer c.mu.Unlock(); return w.worker == "w1" })
	if err := c.send(t.Context(), pending()); err != nil { // as if the bus had lost the worker's messages
		t.Fatal(err)
	}
	_, js := k.raw(pki.Worker, "w0")
	queue, err := js.Consumer(t.Context(), bus.WorkStream, bus.WorkConsumer(experiment.WorldSim, codeOfTests))
	if err != nil {
		t.Fatal(err)
	}
	for range maxTries {
		msg, err := queue.Next(jetstream.FetchMaxWait(30 * time.Second))
		if err != nil {
			t.Fatal(err)
		}
		if err := msg.Nak(); err != nil {
			t.Fatal(err)
		}
	}
	k.worker("w2", func(context.Context, *experiment.Run, experiment.Progress) (*store.Entry, error) {
		t.Error("it is begun once more")
		return nil, nil
	})
	k.until("end of the second task", func() bool {
		s, err := c.js.Stream(t.Context(), bus.WorkStream)
		if err != nil {
			return false
		}
		list, _ := c.objects.List(t.Context())
		return s.CachedInfo().State.Msgs == 1 && len(list) == 0
	})
	close(release)
	if err := <-done; err != nil || c.Did() != "w1 1" {
		t.Errorf("%v, %q", err, c.Did())
	}
}

// Workers that are stopped in order do not count as ones that a run ended.
func TestRun_StopsAreNoTries(t *testing.T) {
	k := newKit(t)
	asked, plan := planOf(t)
	c := k.client()
	defer c.Close()
	done := make(chan error, 1)
	go func() {
		_, err := submit(t.Context(), c, asked, plan.Runs[:1])
		done <- err
	}()
	begun := make(chan struct{})
	for i := range maxTries + 1 {
		stop := k.worker(fmt.Sprintf("w%d", i), func(ctx context.Context, _ *experiment.Run, _ experiment.Progress) (*store.Entry, error) {
			begun <- struct{}{}
			<-ctx.Done()
			return nil, nil
		})
		select {
		case <-begun:
		case err := <-done:
			t.Fatalf("after %d workers: %v", i, err)
		}
		stop()
	}
	k.worker("good", func(_ context.Context, r *experiment.Run, _ experiment.Progress) (*store.Entry, error) {
		return entryOf(r), nil
	})
	if err := <-done; err != nil || c.Did() != "good 1" {
		t.Errorf("%v, %q", err, c.Did())
	}
}
