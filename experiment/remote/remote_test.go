package remote

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"weir/bus"
	"weir/bus/pki"
	"weir/experiment"
	"weir/experiment/result"
	"weir/experiment/store"
)

var addresses = cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })

// A run at a worker gives the entry that the worker made, and nothing stays on the bus.
func TestRun_GivesTheWorkersEntry(t *testing.T) {
	k := newKit(t)
	k.worker("w1", func(_ context.Context, r *experiment.Run, _ experiment.Progress) (*store.Entry, error) {
		return entryOf(r), nil
	})
	asked, plan := planOf(t)
	c := k.client()
	got, err := submit(t.Context(), c, asked, plan.Runs)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range plan.Runs {
		want := entryOf(r)
		want.Form = got[i].Form
		if diff := cmp.Diff(want, got[i], addresses); diff != "" {
			t.Errorf("%s %d: -want +got\n%s", r.Scheme, r.Seed, diff)
		}
	}
	if c.Did() != "w1 6" || len(c.Refused()) > 0 {
		t.Errorf("%q, refused %v", c.Did(), c.Refused())
	}
	c.Close()
	_, js := k.raw(pki.Operator, "ann")
	k.empty(js)
}

// The error of a run, a panic and a partial result reach the submitter, with the worker's name. No other worker tries again.
func TestRun_FailureIsReported(t *testing.T) {
	k := newKit(t)
	calls := atomic.Int32{}
	k.worker("w1", func(_ context.Context, r *experiment.Run, _ experiment.Progress) (*store.Entry, error) {
		calls.Add(1)
		switch r.Seed {
		case 1:
			return nil, errors.New("the world\x1b[31m broke")
		case 2:
			panic("a law is wrong")
		}
		e := entryOf(r)
		e.Raw.Partial = true
		return e, nil
	})
	asked, plan := planOf(t)
	c := k.client()
	defer c.Close()
	for i, want := range []string{"worker w1: the world [31m broke", "worker w1: panic: a law is wrong", "worker w1: it ended before its measurements were complete"} {
		if _, err := submit(t.Context(), c, asked, plan.Runs[i:i+1]); err == nil || err.Error() != want {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if n := calls.Load(); n != 3 {
		t.Errorf("%d calls, want 3", n)
	}
}

// A worker that is stopped gives its run back, and another one gets it at once.
func TestRun_StoppedWorker(t *testing.T) {
	k := newKit(t)
	begun := make(chan struct{}, 1)
	stop := k.worker("w1", func(ctx context.Context, _ *experiment.Run, _ experiment.Progress) (*store.Entry, error) {
		begun <- struct{}{}
		<-ctx.Done()
		return nil, nil
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
	k.worker("w2", func(_ context.Context, r *experiment.Run, _ experiment.Progress) (*store.Entry, error) {
		return entryOf(r), nil
	})
	stop()
	began := time.Now()
	if err := <-done; err != nil || c.Did() != "w2 1" {
		t.Errorf("%v, %q", err, c.Did())
	}
	if d := time.Since(began); d > ackWait-time.Second {
		t.Errorf("it took %v, as if the worker had been killed", d)
	}
}

// When a job ends, workers stop its runs, and the bus has nothing of it.
func TestClose_StopsRuns(t *testing.T) {
	k := newKit(t)
	begun, stopped := make(chan struct{}, 1), make(chan struct{}, 1)
	k.worker("w1", func(ctx context.Context, _ *experiment.Run, _ experiment.Progress) (*store.Entry, error) {
		begun <- struct{}{}
		<-ctx.Done()
		stopped <- struct{}{}
		return nil, nil
	})
	asked, plan := planOf(t)
	c := k.client()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 2)
	for i := range 2 { // one begins, and one waits
		go func() {
			_, err := submit(ctx, c, asked, plan.Runs[i:i+1])
			done <- err
		}()
	}
	<-begun
	cancel()
	for range 2 {
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	}
	c.Close()
	k.until("stop of the run", func() bool { return len(stopped) == 1 })
	_, js := k.raw(pki.Operator, "ann")
	k.empty(js)
	if !k.log.Has("a run is stopped: the job ended") || len(begun) > 0 {
		t.Error("the worker began another run of the job, or does not say that it stopped")
	}
}

// A run that ends its workers is given up after maxTries of them.
func TestRun_EndsItsWorkers(t *testing.T) {
	k := newKit(t)
	asked, plan := planOf(t)
	c := k.client()
	defer c.Close()
	done := make(chan error, 1)
	go func() {
		_, err := submit(t.Context(), c, asked, plan.Runs[:1])
		done <- err
	}()
	_, js := k.raw(pki.Worker, "w1")
	var queue jetstream.Consumer
	k.until("queue", func() bool {
		var err error
		queue, err = js.Consumer(t.Context(), bus.WorkStream, bus.WorkConsumer(experiment.WorldSim, codeOfTests))
		return err == nil
	})
	for range maxTries { // each takes the task and dies
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
	if err := <-done; err == nil || !strings.Contains(err.Error(), "worker w2: 4 workers began it, and none finished it") {
		t.Errorf("%v", err)
	}
}

// packed compresses any bytes.
func packed(b []byte) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, _ = z.Write(b)
	_ = z.Close()
	return out.Bytes()
}

// A worker refuses and counts messages that are malformed, of another build, or name no run. It then works on.
func TestWorker_Refuses(t *testing.T) {
	k := newKit(t)
	calls := atomic.Int32{}
	k.worker("w1", func(_ context.Context, r *experiment.Run, _ experiment.Progress) (*store.Entry, error) {
		calls.Add(1)
		return entryOf(r), nil
	})
	asked, plan := planOf(t)
	c := k.client()
	if _, err := submit(t.Context(), c, asked, plan.Runs[:1]); err != nil { // the queue is there
		t.Fatal(err)
	}
	text, err := Pack(asked)
	if err != nil {
		t.Fatal(err)
	}
	key, err := store.Key(plan.Runs[0])
	if err != nil {
		t.Fatal(err)
	}
	good := Task{Version: version, Job: newID(), World: experiment.WorldSim, Code: codeOfTests, Key: key, Scheme: plan.Runs[0].Scheme, Seed: plan.Runs[0].Seed, Asked: text}
	encoded := func(change func(*Task)) []byte {
		task := good
		change(&task)
		b, err := json.Marshal(&task)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	whole := encoded(func(*Task) {})
	conn, js := k.raw(pki.Operator, "ben")
	states, err := conn.Client().SubscribeSync(bus.WorkerSubject("*"))
	if err != nil {
		t.Fatal(err)
	}
	refused := map[string]uint64{}
	for _, row := range []struct {
		name, reason string
		data         []byte
	}{
		{"no JSON", "malformed", []byte("\xff\xfe")},
		{"empty", "malformed", nil},
		{"cut", "malformed", whole[:len(whole)/2]},
		{"two values", "malformed", append(bytes.Clone(whole), '1')},
		{"an unknown key", "malformed", append([]byte(`{"x":1,`), whole[1:]...)},
		{"another version", "malformed", encoded(func(t *Task) { t.Version = 2 })},
		{"no job", "malformed", encoded(func(t *Task) { t.Job = "../../etc/passwd" })},
		{"the lab, in the simulator's queue", "subject", encoded(func(t *Task) { t.World = experiment.WorldLab })},
		{"another job than the subject's", "subject", encoded(func(t *Task) { t.Job = newID() })},
		{"another build", "build", encoded(func(t *Task) { t.Code = otherOfTests })},
		{"another seed", "run", encoded(func(t *Task) { t.Seed = 9 })},
		{"another key", "run", encoded(func(t *Task) { t.Key = otherOfTests })},
		{"no experiment", "run", encoded(func(t *Task) { t.Asked = []byte("x") })},
		{"a large experiment, compressed", "run", encoded(func(t *Task) { t.Asked = packed(make([]byte, 50<<20)) })},
		{"a broken file", "run", encoded(func(t *Task) { t.Asked = packed([]byte(`{"name":"a","file":"id: [","options":{}}`)) })},
	} {
		before := refused[row.reason]
		if _, err := js.Publish(t.Context(), bus.WorkSubject(experiment.WorldSim, codeOfTests, good.Job), row.data); err != nil {
			t.Fatal(err)
		}
		for n := 0; refused[row.reason] != before+1; n++ {
			if n > 40 { // one each second, or more
				t.Fatalf("%s: it is not refused: %v", row.name, refused)
			}
			msg, err := states.NextMsg(30 * time.Second)
			if err != nil {
				t.Fatalf("%s: %v, refused %v", row.name, err, refused)
			}
			s, err := decodeState(msg.Data)
			if err != nil || bus.WorkerOf(msg.Subject) != "w1" {
				t.Fatalf("%s: %v", msg.Subject, err)
			}
			refused = s.Refused
		}
	}
	if n := calls.Load(); n != 1 {
		t.Errorf("it ran %d, want 1", n)
	}
	for _, reason := range []string{"malformed", "subject", "build", "run"} {
		if !k.log.Has("a message is refused\" worker=w1 reason=" + reason + " times=1 ") {
			t.Errorf("the first refusal of reason %s is not logged", reason)
		}
	}
	if _, err := submit(t.Context(), c, asked, plan.Runs[1:2]); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	c.Close()
}

// A submitter refuses and counts results that do not belong to their run, and sends the run again; after maxTries it gives up.
func TestClient_RefusesResults(t *testing.T) {
	k := newKit(t)
	asked, plan := planOf(t)
	run := plan.Runs[0]
	encode := func(change func(*store.Entry)) []byte {
		e := entryOf(run)
		change(e)
		var b bytes.Buffer
		if err := store.Encode(&b, e); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	conn, js := k.raw(pki.Worker, "evil")
	c := k.client()
	defer c.Close()
	done := make(chan error, 1)
	go func() {
		_, err := submit(t.Context(), c, asked, plan.Runs[:1])
		done <- err
	}()
	key, err := store.Key(run)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := js.ObjectStore(t.Context(), bus.WorkStore)
	if err != nil {
		t.Fatal(err)
	}
	put := func(name string, b []byte) {
		t.Helper()
		meta := jetstream.ObjectMeta{Name: name, Opts: &jetstream.ObjectMetaOptions{ChunkSize: chunk}}
		if _, err := objects.Put(t.Context(), meta, bytes.NewReader(b)); err != nil {
			t.Fatal(err)
		}
	}
	k.until("run", func() bool { c.mu.Lock(); defer c.mu.Unlock(); return c.pending[key] != nil })
	good := encode(func(*store.Entry) {})
	// These are ignored: of another job, without a run, of no form.
	put(resultName{newID(), key, "evil", 1}.String(), good)
	put(resultName{c.job, otherOfTests, "evil", 1}.String(), good)
	put("x", good)
	for i, row := range []struct {
		name string
		b    []byte
	}{
		{"no gzip", []byte("x")},
		{"another build", encode(func(e *store.Entry) { e.Code = otherOfTests })},
		{"another node", encode(func(e *store.Entry) { e.Raw.Flows[0].Src = "sender9" })},
		{"cut", good[:len(good)/2]},
	} {
		if i > 0 && len(done) > 0 {
			t.Fatalf("%s: it gave up after %d: %v", row.name, i, <-done)
		}
		put(resultName{c.job, key, "evil", uint64(i + 1)}.String(), row.b)
		k.until(row.name, func() bool { return c.Refused()["result"] == uint64(i+1) })
	}
	if err := <-done; err == nil || !strings.Contains(err.Error(), "4 results of workers are refused, the last one of evil") {
		t.Errorf("%v", err)
	}
	if c.Did() != "" || conn.Refused() > 0 {
		t.Errorf("did %q; the bus refused %d", c.Did(), conn.Refused())
	}
}

// Measurements that cannot be those of the run are refused, each for one reason.
func TestBelongs(t *testing.T) {
	_, plan := planOf(t)
	run := plan.Runs[0]
	if err := belongs(run, entryOf(run).Raw); err != nil {
		t.Fatal(err)
	}
	nan := 0.0
	nan /= nan
	for name, change := range map[string]func(*result.Raw){
		"partial":           func(r *result.Raw) { r.Partial = true },
		"a long run":        func(r *result.Raw) { r.Duration = time.Hour },
		"no bins":           func(r *result.Raw) { r.Bin = 0 },
		"another group":     func(r *result.Raw) { r.Flows[0].Group = "mice" },
		"a negative bin":    func(r *result.Raw) { r.Flows[0].Delivered[0].Bin = -1 },
		"a late bin":        func(r *result.Raw) { r.Flows[0].Delivered[1].Bin = 202 },
		"bins in disorder":  func(r *result.Raw) { r.Flows[0].Delivered[1].Bin = 0 },
		"a huge mouse":      func(r *result.Raw) { r.Flows[0].Mouse = 1 << 30 },
		"a late flow":       func(r *result.Raw) { r.Flows[0].End = time.Hour },
		"no step":           func(r *result.Raw) { r.Ports[0].Samples[0].Step = 0 },
		"many samples":      func(r *result.Raw) { r.Ports[0].Samples[0].Count = 1 << 62 },
		"a very short step": func(r *result.Raw) { r.Ports[0].Samples[0].Step, r.Ports[0].Samples[0].Count = 1, 1e10 },
		"very many samples": func(r *result.Raw) {
			s := result.Sample{Step: time.Microsecond, Count: maxSamples/2 + 1, Backlog: 9}
			r.Ports[0].Samples = []result.Sample{s, s}
		},
		"another port":        func(r *result.Raw) { r.Ports[0].Name = "switch->sender9" },
		"another label":       func(r *result.Raw) { r.Ports[0].Labels[0] = "x" },
		"a drop elsewhere":    func(r *result.Raw) { r.Drops[0].Port = "x" },
		"no number":           func(r *result.Raw) { r.Busy[0] = nan },
		"a control character": func(r *result.Raw) { r.Unmet[0].Text = "\x1b[2J" },
		"no severity":         func(r *result.Raw) { r.Unmet[0].Severity = "x" },
	} {
		raw := entryOf(run).Raw
		change(raw)
		if err := belongs(run, raw); err == nil {
			t.Errorf("%s: it is accepted", name)
		}
	}
}

// The time of a worker's clock is near ours. JSON has no year above 9999, so one such result would end the report of all runs.
func TestDecodeResult_Ended(t *testing.T) {
	_, plan := planOf(t)
	run := plan.Runs[0]
	for ended, good := range map[time.Time]bool{
		time.Now(): true, time.Now().Add(time.Hour): true, time.Now().Add(-time.Hour): true,
		time.Now().Add(25 * time.Hour): false, time.Now().Add(-25 * time.Hour): false, {}: false, time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC): false,
	} {
		e := entryOf(run)
		e.Ended = ended
		var b bytes.Buffer
		if err := store.Encode(&b, e); err != nil {
			t.Fatal(err)
		}
		if _, err := decodeResult(b.Bytes(), run, codeOfTests); (err == nil) != good {
			t.Errorf("%v: %v", ended, err)
		}
	}
}

// Names of results are read back only in the form in which they are written.
func TestResultName(t *testing.T) {
	n := resultName{newID(), codeOfTests, "w1", 3}
	if got, ok := parseResultName(n.String()); !ok || got != n {
		t.Errorf("%v, %v", got, ok)
	}
	for _, text := range []string{"", "x", strings.ToUpper(n.String()), n.String() + ".1", strings.Replace(n.String(), ".3", ".03", 1), strings.Replace(n.String(), "w1", "../w1", 1), fmt.Sprintf("%s.%s.w1.99999999999", n.job, n.key)} {
		if got, ok := parseResultName(text); ok {
			t.Errorf("%q is %v", text, got)
		}
	}
}
