package remote

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"weir/bus"
	"weir/bus/pki"
)

// A result whose upload did not end leaves the store, and so do those of a job that is silent. Others stay.
func TestStrays_AreRemoved(t *testing.T) {
	k := newKit(t)
	c := k.client()
	defer c.Close()
	dead, alive := newID(), newID()
	conn, err := bus.Dial(k.config(pki.Worker, "w1"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.New(conn.Client())
	if err != nil {
		t.Fatal(err)
	}
	objects, err := js.ObjectStore(t.Context(), bus.WorkStore)
	if err == nil {
		_, err = objects.PutBytes(t.Context(), "whole", []byte("whole"))
	}
	if err == nil {
		_, err = js.Publish(t.Context(), "$O."+bus.WorkStore+".C.STRAY", []byte("half"))
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, job := range []string{dead, alive} {
		if _, err := objects.PutBytes(t.Context(), resultName{job, codeOfTests, "w1", 1}.String(), []byte("a result")); err != nil {
			t.Fatal(err)
		}
	}
	left := func() (n uint64) {
		s, err := c.objects.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return s.(*jetstream.ObjectBucketStatus).StreamInfo().State.Msgs
	}
	var s strays
	for i, want := range []uint64{7, 5, 5} { // a chunk and a notice of each of three results, and the stray; a result that is removed leaves a notice
		if err := s.sweep(t.Context(), c.js, c.objects, func(job string) bool { return job == dead }); err != nil {
			t.Fatal(err)
		}
		if n := left(); n != want {
			t.Errorf("after %d looks: %d messages, want %d", i+1, n, want)
		}
	}
	list, err := c.objects.List(t.Context())
	if err != nil || len(list) != 2 {
		t.Errorf("%d results (%v), want two", len(list), err)
	}
	if b, err := c.objects.GetBytes(t.Context(), "whole"); err != nil || string(b) != "whole" {
		t.Errorf("%q, %v", b, err)
	}
}

// A job is silent if others are heard meanwhile. A submitter that hears nothing knows nothing of others.
func TestClient_SilentJobs(t *testing.T) {
	k := newKit(t)
	c, other := k.client(), k.client()
	defer c.Close()
	k.until("notice of the other job", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return !c.jobs[other.job].IsZero() && !c.jobs[c.job].IsZero()
	})
	other.Close()
	now := time.Now()
	for name, row := range map[string]struct {
		own, hears, job time.Duration // ago
		want            bool
	}{
		"a job that announces itself":       {0, silentJob, 0, false},
		"a job that was not heard":          {0, silentJob, time.Hour, true},
		"a job that is silent":              {0, silentJob, silentJob * 3 / 4, true},
		"nothing is heard any more":         {silentJob, time.Hour, time.Hour, false},
		"something is heard since just now": {0, time.Second, time.Hour, false},
	} {
		c := &Client{job: "own", jobs: map[string]time.Time{"own": now.Add(-row.own), "job": now.Add(-row.job)}, hears: now.Add(-row.hears)}
		if got := c.silent("job", now); got != row.want {
			t.Errorf("%s: silent %v, want %v", name, got, row.want)
		}
	}
}

// ended is a task that notes the reason of its end.
type ended struct {
	jetstream.Msg
	reason string
}

func (m *ended) TermWithReason(reason string) error {
	m.reason = reason
	return nil
}

// A worker ends the runs of a job that is silent, but not while the bus is away: it may be there, and the run is needed.
func TestWorker_EndsRunsOfASilentJob(t *testing.T) {
	begin := time.Now()
	w := &worker{WorkerConfig: WorkerConfig{Log: slog.New(slog.DiscardHandler)}, running: map[*attempt]struct{}{}, heard: map[string]time.Time{}}
	ctx, cancel := context.WithCancelCause(t.Context())
	a := &attempt{task: &Task{Job: "j"}, began: begin, cancel: cancel}
	w.running[a] = struct{}{}
	at := func(after time.Duration, connected, want bool) {
		t.Helper()
		if w.endSilent(begin.Add(after), connected); (ctx.Err() != nil) != want {
			t.Errorf("after %v, connected %v: ended %v", after, connected, ctx.Err() != nil)
		}
	}
	at(0, true, false)
	at(silentJob-time.Second, true, false)
	w.heard["j"] = begin.Add(silentJob - time.Second)
	at(silentJob+time.Second, true, false)
	at(2*silentJob, false, false) // the bus is away
	at(4*silentJob, true, false)
	at(5*silentJob-time.Second, true, false)
	at(5*silentJob+time.Second, true, true)
	msg := &ended{}
	if w.giveBack(ctx, msg, a); msg.reason != errJobSilent.Error() {
		t.Errorf("the task is ended for %q", msg.reason)
	}
}
