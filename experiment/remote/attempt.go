package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime/debug"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/time/rate"

	"weir/bus"
	"weir/experiment"
	"weir/experiment/store"
	"weir/law"
)

const (
	// chunk is the size of a part of a result: a message, with room for headers.
	chunk = bus.MaxMessage - 8<<10
	// uploadRate limits the bytes of results per second to half of what the bus allows.
	uploadRate = bus.MaxBytes / 2
	// MaxResult limits the bytes of a result, compressed.
	MaxResult = 64 << 20
)

var (
	errJobEnded  = errors.New("the job ended")
	errJobSilent = errors.New("the submitter has been silent for a minute")
)

// attempt is a task at this worker. It is the run's Progress.
type attempt struct {
	task   *Task
	try    uint64
	began  time.Time
	cancel context.CancelCauseFunc

	mu       sync.Mutex
	progress Running
}

// Phase notes the present phase of the run.
func (a *attempt) Phase(text string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.progress.Phase = text
}

// At notes the progress of the traffic.
func (a *attempt) At(now, total law.Duration, flowsDone int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.progress.Now, a.progress.Total, a.progress.Flows = now, total, flowsDone
}

func (a *attempt) now() Running {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.progress
	r.Job, r.Key, r.Try = a.task.Job, a.task.Key, a.try
	return r
}

// handle carries out a task, unless it must be refused.
func (w *worker) handle(ctx context.Context, world, code string, msg jetstream.Msg) {
	meta, err := msg.Metadata()
	if err != nil {
		w.refuse("malformed", err)
		return
	}
	task, err := decodeTask(msg.Data())
	switch {
	case err != nil:
		w.end(msg, "malformed", err)
		return
	case task.World != world || msg.Subject() != bus.WorkSubject(task.World, code, task.Job):
		w.end(msg, "subject", fmt.Errorf("a task of world %s has the subject %s", task.World, msg.Subject()))
		return
	}
	runCtx, cancel := context.WithCancelCause(ctx)
	a := &attempt{task: task, try: meta.NumDelivered, began: time.Now(), cancel: cancel}
	var kept sync.WaitGroup
	defer kept.Wait()
	defer cancel(nil)
	kept.Go(func() { w.keep(runCtx, msg) })
	defer w.begin(a)()
	if w.jobEnded(task.Job) {
		_ = msg.TermWithReason("the job ended") // the submitter removes its tasks, too
		return
	}
	if task.Code != code {
		err := fmt.Errorf("the task is of the build %s, and this is %s: install the same build on both machines", task.Code, code)
		w.refuse("build", err)
		w.fail(runCtx, msg, a, err)
		return
	}
	run, err := w.plans.find(task)
	if err != nil {
		w.refuse("run", err)
		w.fail(runCtx, msg, a, err)
		return
	}
	if a.try > maxTries {
		text := fmt.Sprintf("%d workers began it, and none finished it: perhaps it needs more memory than they have", maxTries)
		w.instead(runCtx, msg, a, map[string]string{metaError: text, metaKind: kindTries})
		return
	}
	w.run(runCtx, msg, a, run)
}

// end removes a task that no worker can carry out.
func (w *worker) end(msg jetstream.Msg, reason string, err error) {
	w.refuse(reason, err)
	_ = msg.TermWithReason("refused: " + reason) // if it is lost, the task is refused once more
}

// keep keeps the task for this worker while the context lasts.
func (w *worker) keep(ctx context.Context, msg jetstream.Msg) {
	for pause(ctx, ackEvery) {
		_ = msg.InProgress() // while the bus is down, the next one counts
	}
}

// begin adds the attempt to those that the worker reports. The function that it returns removes it.
func (w *worker) begin(a *attempt) func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running[a] = struct{}{}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.running, a)
	}
}

// run carries out the run of a task.
func (w *worker) run(ctx context.Context, msg jetstream.Msg, a *attempt, run *experiment.Run) {
	a.Phase("waiting for other runs of this machine")
	if run.World == experiment.WorldLab {
		w.alone.Lock()
		defer w.alone.Unlock()
	} else {
		w.alone.RLock()
		defer w.alone.RUnlock()
	}
	a.Phase("running")
	w.change()
	log := w.Log.With("job", a.task.Job, "run", a.task.Key, "scheme", run.Scheme, "seed", run.Seed, "try", a.try)
	log.Info("a run begins", "experiment", run.Experiment, "world", run.World)
	began := time.Now()
	e, err := w.do(ctx, run, a)
	switch {
	case ctx.Err() != nil:
		w.giveBack(ctx, msg, a)
		return
	case errors.Is(err, ErrUnfit):
		log.Warn("a run is given back", "error", plain(err.Error()))
		w.fit(run.World, err)
		w.instead(ctx, msg, a, map[string]string{metaError: plain(err.Error()), metaKind: kindUnfit})
		return
	case err == nil && (e == nil || e.Raw == nil || e.Raw.Partial):
		err = errors.New("it ended before its measurements were complete")
	}
	w.fit(run.World, nil)
	var b bytes.Buffer
	if err == nil {
		err = store.Encode(&b, e)
	}
	if err == nil && b.Len() > MaxResult {
		err = fmt.Errorf("its result has %d bytes, at most %d: measure fewer ports, or run it without --on", b.Len(), MaxResult)
	}
	if err != nil {
		log.Warn("a run failed", "error", plain(err.Error()))
		w.fail(ctx, msg, a, err)
		return
	}
	if !w.put(ctx, msg, a, b.Bytes(), nil) {
		w.giveBack(ctx, msg, a)
		return
	}
	log.Info("a run is finished", "took", time.Since(began).Round(time.Millisecond), "bytes", b.Len())
}

// giveBack ends an attempt that was stopped. A stop must not count as one of maxTries, so the submitter is asked to send the task anew. If
// the bus does not take that, the task itself goes back.
func (w *worker) giveBack(ctx context.Context, msg jetstream.Msg, a *attempt) {
	log := w.Log.With("job", a.task.Job, "run", a.task.Key)
	if cause := context.Cause(ctx); errors.Is(cause, errJobEnded) || errors.Is(cause, errJobSilent) {
		log.Info("a run is stopped: " + cause.Error())
		_ = msg.TermWithReason(cause.Error()) // a submitter that is there after all sends it again
		return
	}
	log.Info("a run is stopped: another worker gets it")
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	if !w.put(last, msg, a, nil, map[string]string{metaError: "it was stopped", metaKind: kindStopped}) {
		_ = msg.Nak()
	}
}

// do carries out the run. A panic of a law is an error of this run only.
func (w *worker) do(ctx context.Context, run *experiment.Run, a *attempt) (e *store.Entry, err error) {
	defer func() {
		if p := recover(); p != nil {
			w.Log.Error("a run panicked", "run", a.task.Key, "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return w.Do(ctx, run, a)
}

// fail reports the error of a run instead of its result.
func (w *worker) fail(ctx context.Context, msg jetstream.Msg, a *attempt, err error) {
	w.instead(ctx, msg, a, map[string]string{metaError: plain(err.Error())})
}

// instead reports something instead of a result.
func (w *worker) instead(ctx context.Context, msg jetstream.Msg, a *attempt, meta map[string]string) {
	if !w.put(ctx, msg, a, nil, meta) {
		w.giveBack(ctx, msg, a)
	}
}

// Keys of a result's metadata.
const (
	metaCode  = "code"
	metaError = "error" // of the run; there is no result
	metaKind  = "kind"  // of the error, if it does not end the run
)

// Kinds of errors.
const (
	kindUnfit   = "unfit"   // this worker cannot carry out the run
	kindStopped = "stopped" // the worker was stopped
	kindTries   = "tries"   // too many workers began the run
)

// put stores a result, or what meta reports instead, and removes the task. It repeats this until it succeeds, since the work of minutes would
// be lost, or until the context ends: then it returns false.
func (w *worker) put(ctx context.Context, msg jetstream.Msg, a *attempt, b []byte, meta map[string]string) bool {
	a.Phase("storing the result")
	name := resultName{a.task.Job, a.task.Key, w.conn.Identity().Name, a.try}
	object := jetstream.ObjectMeta{Name: name.String(), Opts: &jetstream.ObjectMetaOptions{ChunkSize: chunk}, Metadata: map[string]string{metaCode: a.task.Code}}
	maps.Copy(object.Metadata, meta)
	for {
		err := w.putOnce(ctx, object, b)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return false
		}
		w.Log.Warn("cannot store a result; this is tried again", "run", a.task.Key, "error", err)
		pause(ctx, time.Second)
	}
	// If this fails, another worker repeats the run, and the submitter ignores the second result.
	ackCtx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := msg.DoubleAck(ackCtx); err != nil {
		w.Log.Warn("cannot remove a task that is done: another worker repeats it", "run", a.task.Key, "error", err)
	}
	return true
}

// putOnce stores a result. One upload at a time: the bus limits the bytes of an identity, and an upload's time begins with its turn.
func (w *worker) putOnce(ctx context.Context, object jetstream.ObjectMeta, b []byte) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case w.upload <- struct{}{}:
	}
	defer func() { <-w.upload }()
	ctx, cancel := context.WithTimeout(ctx, callTimeout+time.Duration(len(b))*2*time.Second/uploadRate)
	defer cancel()
	objects, err := w.js.ObjectStore(ctx, bus.WorkStore)
	if err != nil {
		return err
	}
	_, err = objects.Put(ctx, object, &paced{ctx, bytes.NewReader(b), w.pace})
	return err
}

// paced reads at a rate.
type paced struct {
	ctx   context.Context
	r     io.Reader
	limit *rate.Limiter
}

func (p *paced) Read(b []byte) (int, error) {
	n, err := p.r.Read(b[:min(len(b), chunk)])
	if n > 0 {
		if e := p.limit.WaitN(p.ctx, n); e != nil {
			return n, e
		}
	}
	return n, err
}
