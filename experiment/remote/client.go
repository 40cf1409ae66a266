package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"weir/bus"
	"weir/bus/pki"
	"weir/experiment"
	"weir/experiment/store"
	"weir/internal/counts"
)

const (
	// silentAfter is how old a worker's state can be.
	silentAfter = ackWait
	// noWorkerAfter is how long a submitter waits before it reports that no worker answers.
	noWorkerAfter = 2 * time.Second
	// lostAfter is how long no worker has a run before its task is sent again.
	lostAfter = time.Minute
	// readAgainAfter is how long a submitter waits before it reads a result again that it could not read.
	readAgainAfter = 2 * time.Second
	// maxJobs limits the jobs that a submitter knows. With more it removes no results of others.
	maxJobs = 4096
	// maxWorkers limits the workers that a submitter knows.
	maxWorkers = 1024
)

// ClientConfig configures a submitter.
type ClientConfig struct {
	Client bus.ClientConfig // of an identity operator/NAME
	Weir   string           // version
	// Say shows a line to the user. Calls come from several goroutines.
	Say func(string)
}

// Client submits runs and collects their results. One client is one job.
type Client struct {
	cfg     ClientConfig
	conn    *bus.Conn
	js      jetstream.JetStream
	objects jetstream.ObjectStore
	job     string
	refused counts.Counts
	stop    context.CancelFunc
	done    sync.WaitGroup
	listing atomic.Bool
	get     func(context.Context, *jetstream.ObjectInfo) ([]byte, error) // fetch

	mu      sync.Mutex
	codes   map[string]string    // of the builds of its runs, by world
	pending map[string]*waiting  // by key
	workers map[string]*known    // by instance
	room    chan struct{}        // closed and replaced when another run may be submitted
	taken   int                  // places
	sent    int                  // tasks
	did     map[string]int       // results, by worker
	taking  map[string]bool      // results that are being read, by name
	unread  time.Time            // when a result could last not be read; zero: none waits
	alone   time.Time            // since when no worker of the build answers; zero: one does
	jobs    map[string]time.Time // jobs that go on, and when that was last heard
	hears   time.Time            // since when this one hears itself
	idle    map[string]time.Time // since when workers have room for runs of a world
	said    string               // what was said about workers
}

// known is a worker that reported itself.
type known struct {
	name  string
	state *State
	seen  time.Time
}

// Watcher follows a run.
type Watcher interface {
	experiment.Progress
	// Began reports that a worker began the run: for the first time, or because before, another one, did not finish it.
	Began(worker, before string)
}

// waiting is a run without a result.
type waiting struct {
	run     *experiment.Run
	code    string
	task    []byte
	refused int             // results
	unfit   map[string]bool // workers that cannot carry it out
	worker  string
	seen    time.Time // when it was sent, or a worker reported it
	watcher Watcher
	result  chan answer
}

type answer struct {
	entry *store.Entry
	err   error
}

// Dial connects to the bus and makes the work queue, if it is missing.
func Dial(ctx context.Context, cfg ClientConfig) (*Client, error) {
	conn, err := bus.Dial(cfg.Client)
	if err != nil {
		return nil, err
	}
	c := &Client{
		cfg: cfg, conn: conn, job: newID(), codes: map[string]string{}, pending: map[string]*waiting{}, workers: map[string]*known{},
		room: make(chan struct{}), did: map[string]int{}, taking: map[string]bool{}, alone: time.Now(), idle: map[string]time.Time{}, jobs: map[string]time.Time{},
	}
	c.get = c.fetch
	if err := c.open(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	return c, nil
}

func (c *Client) open(ctx context.Context) error {
	if c.conn.Identity().Role != pki.Operator {
		return fmt.Errorf("the certificate is for %v, want operator/NAME: make one with 'weir bus enrol operator/NAME'", c.conn.Identity())
	}
	for end := time.Now().Add(callTimeout); !c.conn.Connected(); {
		if !pause(ctx, 20*time.Millisecond) {
			return ctx.Err()
		}
		if time.Now().After(end) {
			return fmt.Errorf("%w at %s: start one with 'weir bus serve', or check --on and --keys", errNoServer, strings.Join(c.cfg.Client.URLs, ", "))
		}
	}
	var err error
	if c.js, err = jetstream.New(c.conn.Client(), jetstream.WithDefaultTimeout(callTimeout)); err != nil {
		return err
	}
	if c.objects, err = setUp(ctx, c.js); err != nil {
		return err
	}
	ctx, c.stop = context.WithCancel(context.WithoutCancel(ctx))
	if _, err := c.conn.Client().Subscribe(bus.WorkerSubject("*"), c.heard); err != nil {
		return fmt.Errorf("listen for workers: %w", err)
	}
	if _, err := c.conn.Client().Subscribe(bus.JobSubject("*"), c.announced); err != nil {
		return fmt.Errorf("listen for jobs: %w", err)
	}
	results, err := c.objects.Watch(ctx, jetstream.IgnoreDeletes())
	if err != nil {
		return fmt.Errorf("listen for results: %w", err)
	}
	c.done.Go(func() { c.collect(ctx, results) })
	c.done.Go(func() { c.tick(ctx) })
	c.done.Go(func() { c.announcements(ctx) })
	return nil
}

// Close ends the job: its tasks and results are removed from the bus, and workers stop its runs.
func (c *Client) Close() {
	c.announce(true)
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	if s, err := c.js.Stream(ctx, bus.WorkStream); err == nil {
		_ = s.Purge(ctx, jetstream.WithPurgeSubject(bus.WorkSubject("*", "*", c.job))) // if it fails they expire
	}
	if list, err := c.objects.List(ctx); err == nil {
		for _, o := range list {
			if n, ok := parseResultName(o.Name); ok && n.job == c.job {
				_ = c.objects.Delete(ctx, o.Name) // it expires
			}
		}
	}
	c.stop()
	c.conn.Close()
	c.done.Wait()
}

// Packed is an experiment as tasks carry it.
type Packed []byte

// Pack prepares an experiment. Its size is limited.
func Pack(a *store.Asked) (Packed, error) { return packAsked(a) }

// Run submits a run and waits for its result. code is the digest of the sources of its world. The entry's measurements are those
// that Do of a worker of the same build returned.
func (c *Client) Run(ctx context.Context, asked Packed, run *experiment.Run, code string, watcher Watcher) (*store.Entry, error) {
	key, err := store.Key(run)
	if err != nil {
		return nil, err
	}
	task := &Task{Version: version, Job: c.job, World: run.World, Code: code, Key: key, Scheme: run.Scheme, Seed: run.Seed, Asked: asked}
	w := &waiting{run: run, code: code, seen: time.Now(), watcher: watcher, result: make(chan answer, 1)}
	if w.task, err = task.encode(); err != nil {
		return nil, err
	}
	if err := c.add(ctx, key, w); err != nil {
		return nil, err
	}
	defer c.remove(key)
	if err := c.send(ctx, w); err != nil {
		return nil, err
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case a := <-w.result:
		return a.entry, a.err
	}
}

// add notes a run, and makes the queue of its build if it is the first.
func (c *Client) add(ctx context.Context, key string, w *waiting) error {
	c.mu.Lock()
	first := c.codes[w.run.World] == ""
	if c.pending[key] != nil {
		c.mu.Unlock()
		return fmt.Errorf("the run %s is submitted twice", key)
	}
	c.codes[w.run.World], c.pending[key] = w.code, w
	c.mu.Unlock()
	if !first {
		return nil
	}
	c.announce(false)
	if err := setUpConsumer(ctx, c.js, w.run.World, w.code); err != nil {
		c.remove(key)
		return err
	}
	return nil
}

func (c *Client) remove(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pending, key)
}

// send puts the run's task into the queue. It repeats this until the bus has it.
func (c *Client) send(ctx context.Context, w *waiting) error {
	c.mu.Lock()
	c.sent++
	w.seen = time.Now()
	id := fmt.Sprintf("%s.%d", c.job, c.sent) // the bus keeps the first message with an id
	c.mu.Unlock()
	for {
		callCtx, cancel := context.WithTimeout(ctx, callTimeout)
		_, err := c.js.Publish(callCtx, bus.WorkSubject(w.run.World, w.code, c.job), w.task, jetstream.WithMsgID(id))
		cancel()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		}
		c.cfg.Say(fmt.Sprintf("cannot submit a run; this is tried again: %v", err))
		if !pause(ctx, time.Second) {
			return ctx.Err()
		}
	}
}

// Take waits until another run may be submitted: twice as many as workers can run. So an experiment that is stopped, or a submitter
// that dies, leaves few tasks. Give gives the place back.
func (c *Client) Take() {
	for {
		c.mu.Lock()
		if c.taken < max(2, 2*c.slots()) {
			c.taken++
			c.mu.Unlock()
			return
		}
		room := c.room
		c.mu.Unlock()
		<-room
	}
}

// Give gives back a place of Take.
func (c *Client) Give() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.taken--
	c.moreRoom()
}

func (c *Client) moreRoom() {
	close(c.room)
	c.room = make(chan struct{})
}

// Did describes which workers finished how many runs; "" if none did.
func (c *Client) Did() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(c.did)) {
		parts = append(parts, fmt.Sprintf("%s %d", name, c.did[name]))
	}
	return strings.Join(parts, ", ")
}

// Refused returns how many messages and results were refused, by reason.
func (c *Client) Refused() map[string]uint64 { return c.refused.All() }

// announce publishes that the job goes on, or that it ended.
func (c *Client) announce(ended bool) {
	c.mu.Lock()
	b, err := json.Marshal(&Notice{Job: c.job, Weir: c.cfg.Weir, Codes: c.codes, Ended: ended})
	c.mu.Unlock()
	if err != nil {
		return
	}
	_ = c.conn.Client().Publish(bus.JobSubject(c.conn.Identity().Name), b) // the next one replaces it
	if ended {
		_ = c.conn.Client().FlushTimeout(callTimeout) // workers finish the runs that they have
	}
}
