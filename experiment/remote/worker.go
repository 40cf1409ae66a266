package remote

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/time/rate"

	"weir/bus"
	"weir/bus/pki"
	"weir/experiment"
	"weir/experiment/store"
	"weir/internal/counts"
)

// WorkerConfig configures a worker.
type WorkerConfig struct {
	Client bus.ClientConfig // of an identity worker/NAME
	Weir   string           // version
	Codes  map[string]string
	Slots  int // how many runs at a time; a run in the lab is alone
	Laws   *experiment.Laws
	// Do carries out a run. When the context ends, its result is not used. With an error that is [ErrUnfit] another worker gets the run.
	Do  func(context.Context, *experiment.Run, experiment.Progress) (*store.Entry, error)
	Log *slog.Logger
}

// worker takes tasks and carries them out.
type worker struct {
	WorkerConfig
	conn     *bus.Conn
	js       jetstream.JetStream
	plans    plans
	refused  counts.Counts
	instance string
	changed  chan struct{} // a run began, or a message was refused: report it soon
	upload   chan struct{} // has room for one upload
	pace     *rate.Limiter // of the bytes of all uploads
	// alone is locked for reading by runs in the simulator, and for writing by one in the lab.
	alone sync.RWMutex

	mu      sync.Mutex
	running map[*attempt]struct{}
	ended   map[string]time.Time // jobs, and when that was learned
	foreign map[string]bool      // jobs of another build that were logged
	unfit   map[string]unfit     // by world
	heard   map[string]time.Time // jobs that go on, and when that was last heard
	up      time.Time            // since when the bus is there; zero: it is not
}

// ErrUnfit reports that this machine cannot carry out a run, and another one may.
var ErrUnfit = errors.New("this machine cannot carry it out")

// unfitFor is how long a worker takes no run of a world after one that it could not carry out, so that other workers get it.
const unfitFor = 10 * time.Second

// unfit is why a worker could not carry out a run.
type unfit struct {
	reason string
	since  time.Time
}

// Work takes tasks and carries them out until the context ends.
func Work(ctx context.Context, cfg WorkerConfig) error {
	conn, err := bus.Dial(cfg.Client)
	if err != nil {
		return err
	}
	defer conn.Close()
	if conn.Identity().Role != pki.Worker {
		return fmt.Errorf("the certificate is for %v, want worker/NAME: make one with 'weir bus enrol worker/NAME'", conn.Identity())
	}
	js, err := jetstream.New(conn.Client(), jetstream.WithDefaultTimeout(callTimeout))
	if err != nil {
		return err
	}
	w := &worker{
		WorkerConfig: cfg, conn: conn, js: js, plans: plans{laws: cfg.Laws}, instance: newID(), changed: make(chan struct{}, 1),
		upload: make(chan struct{}, 1), pace: rate.NewLimiter(uploadRate, chunk),
		running: map[*attempt]struct{}{}, ended: map[string]time.Time{}, foreign: map[string]bool{}, unfit: map[string]unfit{}, heard: map[string]time.Time{},
	}
	if _, err := conn.Client().Subscribe(bus.JobSubject("*"), w.notice); err != nil {
		return fmt.Errorf("listen for jobs: %w", err)
	}
	var all sync.WaitGroup
	for world, code := range cfg.Codes {
		slots := cfg.Slots
		if world == experiment.WorldLab {
			slots = 1
		}
		all.Go(func() { w.take(ctx, world, code, slots) })
	}
	all.Go(func() { w.report(ctx) })
	all.Wait()
	return conn.Client().FlushTimeout(callTimeout) // runs that it gives back
}

// newID returns 16 random hexadecimal digits.
func newID() string {
	var b [8]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// take takes tasks of a build and carries them out, a number of them at a time.
func (w *worker) take(ctx context.Context, world, code string, slots int) {
	var queue jetstream.Consumer
	free := make(chan struct{}, slots)
	var runs sync.WaitGroup
	defer runs.Wait()
	for ctx.Err() == nil {
		if queue == nil {
			found, err := w.js.Consumer(ctx, bus.WorkStream, bus.WorkConsumer(world, code))
			if err != nil { // nobody has submitted anything for this build yet, or the bus is down
				pause(ctx, time.Second)
				continue
			}
			queue = found
		}
		if w.rests(world) {
			pause(ctx, time.Second)
			continue
		}
		select {
		case <-ctx.Done():
			return
		case free <- struct{}{}:
		}
		msg, err := next(queue)
		if msg == nil {
			<-free
			if err != nil {
				queue = nil
				pause(ctx, time.Second/2)
			}
			continue
		}
		runs.Go(func() {
			defer func() { <-free }()
			w.handle(ctx, world, code, msg)
		})
	}
}

// next waits a second or two for a task. Without one it returns nil.
func next(queue jetstream.Consumer) (jetstream.Msg, error) {
	batch, err := queue.Fetch(1, jetstream.FetchMaxWait(2*time.Second))
	if err != nil {
		return nil, err
	}
	for msg := range batch.Messages() {
		return msg, nil
	}
	return nil, batch.Error()
}

// notice notes that a job ended, and logs once that one is of another build.
func (w *worker) notice(m *nats.Msg) {
	n, err := decodeNotice(m.Data)
	if err != nil {
		w.refuse("notice", err)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if n.Ended {
		w.ended[n.Job] = time.Now()
		delete(w.foreign, n.Job)
		delete(w.heard, n.Job)
		for a := range w.running {
			if a.task.Job == n.Job {
				a.cancel(errJobEnded)
			}
		}
		maps.DeleteFunc(w.ended, func(_ string, at time.Time) bool { return time.Since(at) > keepFor })
		return
	}
	maps.DeleteFunc(w.heard, func(_ string, at time.Time) bool { return time.Since(at) > 2*silentJob })
	w.heard[n.Job] = time.Now()
	for world, code := range n.Codes {
		if w.Codes[world] == code || w.foreign[n.Job] || len(w.foreign) > 1000 {
			continue
		}
		w.foreign[n.Job] = true
		if w.Codes[world] == "" {
			w.Log.Warn("a job has runs that this worker does not run: start it with --lab", "job", n.Job, "world", world)
		} else {
			w.Log.Warn("a job is of another build, so this worker gets none of its runs: install the same build here",
				"job", n.Job, "world", world, "weir", n.Weir, "code", code, "this", w.Weir, "this_code", w.Codes[world])
		}
	}
}

// endSilent ends the runs of jobs that have been silent for silentJob while the bus was there: their submitter died.
func (w *worker) endSilent(now time.Time, connected bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !connected {
		w.up = time.Time{}
		return
	}
	if w.up.IsZero() {
		w.up = now
	}
	for a := range w.running {
		if now.Sub(w.up) > silentJob && now.Sub(a.began) > silentJob && now.Sub(w.heard[a.task.Job]) > silentJob {
			a.cancel(errJobSilent)
		}
	}
}

// fit notes whether the worker could carry out a run of a world.
func (w *worker) fit(world string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if errors.Is(err, ErrUnfit) {
		w.unfit[world] = unfit{plain(err.Error()), time.Now()}
	} else {
		delete(w.unfit, world)
	}
}

// rests reports whether the worker leaves the runs of a world to others for the moment.
func (w *worker) rests(world string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	u, is := w.unfit[world]
	return is && time.Since(u.since) < unfitFor
}

func (w *worker) jobEnded(job string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, ended := w.ended[job]
	return ended
}

// refuse counts a message that is refused, and logs the first of its reason, the second, the fourth, and so on.
func (w *worker) refuse(reason string, err error) {
	if n := w.refused.Add(reason); n&(n-1) == 0 {
		w.Log.Warn("a message is refused", "reason", reason, "times", n, "error", plain(err.Error()))
	}
	w.change()
}

// change has the state reported soon.
func (w *worker) change() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// report publishes the worker's state.
func (w *worker) report(ctx context.Context) {
	every := time.NewTicker(stateEvery)
	defer every.Stop()
	for {
		w.endSilent(time.Now(), w.conn.Connected())
		b, err := json.Marshal(w.state())
		if err == nil {
			err = w.conn.Client().Publish(bus.WorkerSubject(w.conn.Identity().Name), b)
		}
		if err != nil && !errors.Is(err, nats.ErrReconnectBufExceeded) {
			w.Log.Debug("cannot report", "error", err) // the next one replaces it
		}
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		case <-w.changed:
			pause(ctx, stateEvery/10) // for several changes
		}
	}
}

func (w *worker) state() *State {
	s := &State{Version: version, Instance: w.instance, Weir: w.Weir, Codes: w.Codes, Slots: w.Slots, Running: []Running{}, Refused: w.refused.All(), Unfit: map[string]string{}}
	w.mu.Lock()
	defer w.mu.Unlock()
	for a := range w.running {
		if len(s.Running) < maxRunning {
			s.Running = append(s.Running, a.now())
		}
	}
	for world, u := range w.unfit {
		s.Unfit[world] = u.reason
	}
	return s
}
