package remote

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"weir/bus"
	"weir/experiment"
	"weir/experiment/store"
)

// reads is how many results are read at a time. One more is read if its notice was lost.
const reads = 3

// collect takes the results of the job from the object store.
func (c *Client) collect(ctx context.Context, results jetstream.ObjectWatcher) {
	var group errgroup.Group
	group.SetLimit(reads)
	defer func() {
		_ = results.Stop()
		_ = group.Wait()
	}()
	for {
		select {
		case <-ctx.Done():
			return
		case o, open := <-results.Updates():
			if !open {
				return
			}
			if o != nil { // nil: those that were there before are through
				group.Go(func() error {
					c.take(ctx, o)
					return nil
				})
			}
		}
	}
}

// list looks for results whose notice was lost, or that could not be read before.
func (c *Client) list(ctx context.Context) {
	callCtx, cancel := context.WithTimeout(ctx, callTimeout)
	list, err := c.objects.List(callCtx)
	cancel()
	if err != nil {
		return // the next look tries again
	}
	for _, o := range list {
		c.take(ctx, o)
	}
}

// take reads a result and passes it on, if it belongs to a run of this job. One that cannot be read stays in the store, for list.
func (c *Client) take(ctx context.Context, o *jetstream.ObjectInfo) {
	name, ok := parseResultName(o.Name)
	if !ok || name.job != c.job || o.Deleted {
		return
	}
	c.mu.Lock()
	w, twice := c.pending[name.key], c.taking[o.Name]
	c.taking[o.Name] = true
	c.mu.Unlock()
	if twice { // its notice came, and list found it, too
		return
	}
	defer func() {
		c.mu.Lock()
		delete(c.taking, o.Name)
		c.mu.Unlock()
	}()
	if w == nil { // a second result
		c.drop(ctx, o.Name)
		return
	}
	read, again := c.use(ctx, o, name, w)
	if read {
		c.drop(ctx, o.Name) // before the run is sent again: its next result may have the same name
	}
	if again {
		if err := c.send(ctx, w); err != nil {
			w.answer(answer{err: err})
		}
	}
}

// use reads a result and passes it on. read is false if the result could not be read: that does not make it a wrong one. again asks for
// another worker.
func (c *Client) use(ctx context.Context, o *jetstream.ObjectInfo, name resultName, w *waiting) (read, again bool) {
	if text := o.Metadata[metaError]; text != "" {
		return true, c.failed(o.Metadata[metaKind], name, w, plain(text))
	}
	entry, err := c.read(ctx, o, w)
	if errors.Is(err, errUnread) {
		c.mu.Lock()
		c.unread = time.Now()
		c.mu.Unlock()
		if ctx.Err() == nil {
			c.cfg.Say(fmt.Sprintf("cannot read a result of worker %s; this is tried again: %v", name.worker, err))
		}
		return false, false
	}
	if err == nil {
		c.mu.Lock()
		c.did[name.worker]++
		c.mu.Unlock()
		w.answer(answer{entry: entry})
		return true, false
	}
	c.refused.Add("result")
	c.mu.Lock()
	w.refused++
	tries := w.refused
	c.mu.Unlock()
	if tries >= maxTries {
		w.answer(answer{err: fmt.Errorf("%d results of workers are refused, the last one of %s: %w", tries, name.worker, err)})
		return true, false
	}
	c.cfg.Say(fmt.Sprintf("a result of worker %s is refused, and the run is sent again: %v", name.worker, err))
	return true, true
}

// failed handles what a worker reports instead of a result. It returns true if another worker is to carry out the run.
func (c *Client) failed(kind string, name resultName, w *waiting, text string) (again bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch kind {
	case kindStopped:
		return true
	case kindTries:
		if c.inHand(name) {
			return false
		}
	case kindUnfit:
		if w.unfit == nil {
			w.unfit = map[string]bool{}
		}
		w.unfit[name.worker] = true
		for _, k := range c.workers {
			if time.Since(k.seen) < silentAfter && k.state.Codes[w.run.World] == w.code && !w.unfit[k.name] {
				return true
			}
		}
	}
	w.answer(answer{err: fmt.Errorf("worker %s: %s", name.worker, text)})
	return false
}

// inHand reports whether the run has a result that is being read, or another attempt that goes on: outages of the bus count as tries, too.
// A worker that was killed is silent for longer before its task goes to another one. The caller holds mu.
func (c *Client) inHand(name resultName) bool {
	for text := range c.taking {
		if n, _ := parseResultName(text); n.key == name.key && n != name {
			return true
		}
	}
	for _, k := range c.workers {
		if time.Since(k.seen) > 3*stateEvery {
			continue
		}
		for i := range k.state.Running {
			r := &k.state.Running[i]
			if r.Job == c.job && r.Key == name.key && (k.name != name.worker || r.Try != name.try) {
				return true
			}
		}
	}
	return false
}

// answer passes the first answer on.
func (w *waiting) answer(a answer) {
	select {
	case w.result <- a:
	default:
	}
}

// drop removes a result from the store.
func (c *Client) drop(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_ = c.objects.Delete(ctx, name) // it expires
}

// read reads a result, and checks that it belongs to the run.
func (c *Client) read(ctx context.Context, o *jetstream.ObjectInfo, w *waiting) (*store.Entry, error) {
	if o.Size > MaxResult {
		return nil, fmt.Errorf("it has %d bytes, at most %d", o.Size, MaxResult)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout+time.Minute)
	defer cancel()
	b, err := c.get(ctx, o)
	if err != nil {
		return nil, err
	}
	return decodeResult(b, w.run, w.code)
}

// errUnread reports that the bus did not give a result, whatever its content.
var errUnread = errors.New("read a result")

// fetch reads the bytes of a result, one chunk after the other, so that the bus never keeps more than a chunk of it for this connection.
func (c *Client) fetch(ctx context.Context, o *jetstream.ObjectInfo) ([]byte, error) {
	if o.Chunks > MaxResult/chunk+1 {
		return nil, fmt.Errorf("it has %d chunks, at most %d", o.Chunks, MaxResult/chunk+1)
	}
	stream, err := c.js.Stream(ctx, "OBJ_"+bus.WorkStore)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUnread, err)
	}
	var b []byte
	next := uint64(1)
	for range o.Chunks {
		m, err := stream.GetMsg(ctx, next, jetstream.WithGetMsgSubject("$O."+bus.WorkStore+".C."+o.NUID))
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound):
			return nil, errors.New("a chunk of it is missing")
		case err != nil:
			return nil, fmt.Errorf("%w: %w", errUnread, err)
		case len(b)+len(m.Data) > MaxResult:
			return nil, fmt.Errorf("it has more than %d bytes", MaxResult)
		}
		b, next = append(b, m.Data...), m.Sequence+1
	}
	sum := sha256.Sum256(b)
	if want, err := jetstream.DecodeObjectDigest(o.Digest); err != nil || !bytes.Equal(sum[:], want) {
		return nil, errors.New("its digest is not that of its bytes")
	}
	return b, nil
}

// decodeResult reads a result and checks it.
func decodeResult(b []byte, run *experiment.Run, code string) (*store.Entry, error) {
	if len(b) > MaxResult {
		return nil, fmt.Errorf("it has %d bytes, at most %d", len(b), MaxResult)
	}
	e, err := store.Receive(b)
	if err != nil {
		return nil, err
	}
	if e.Code != code {
		return nil, fmt.Errorf("it is of the build %.40q, and was asked of %s", e.Code, code)
	}
	if !plainText(e.Weir) || !plainText(e.Kernel) || e.Took < 0 || e.Took > keepFor {
		return nil, errors.New("its version, kernel or time is malformed")
	}
	if d := time.Since(e.Ended); d > maxClock || d < -maxClock {
		return nil, fmt.Errorf("it ended at %v: check the clocks of both machines", e.Ended)
	}
	if err := belongs(run, e.Raw); err != nil {
		return nil, fmt.Errorf("it does not belong to the run: %w", err)
	}
	return e, nil
}
