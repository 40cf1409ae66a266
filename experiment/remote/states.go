package remote

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"weir/bus"
	"weir/experiment"
)

// Slots returns how many runs the workers of this build carry out at a time.
func (c *Client) Slots() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.slots()
}

func (c *Client) slots() int {
	n := 0
	for _, k := range c.workers {
		if c.useful(k) {
			n += k.state.Slots
		}
	}
	return n
}

// useful reports whether a worker answers and carries out runs of some world of the job.
func (c *Client) useful(k *known) bool {
	for world := range c.codes {
		if c.fits(k, world) {
			return time.Since(k.seen) < silentAfter
		}
	}
	return false
}

// fits reports whether a worker is of the build of a world, and could carry out its latest run of it.
func (c *Client) fits(k *known, world string) bool {
	return k.state.Codes[world] == c.codes[world] && k.state.Unfit[world] == ""
}

// heard takes the state of a worker.
func (c *Client) heard(m *nats.Msg) {
	s, err := decodeState(m.Data)
	if err != nil {
		c.refused.Add("state")
		return
	}
	name := bus.WorkerOf(m.Subject)
	c.mu.Lock()
	var after []func()
	defer func() {
		c.mu.Unlock()
		for _, f := range after {
			f()
		}
	}()
	if c.workers[s.Instance] == nil && len(c.workers) >= maxWorkers {
		return
	}
	c.workers[s.Instance] = &known{name, s, time.Now()}
	for i := range s.Running {
		r := &s.Running[i]
		w := c.pending[r.Key]
		if w == nil || r.Job != c.job {
			continue
		}
		if before := w.worker; before != name {
			w.worker = name
			after = append(after, func() { w.watcher.Began(name, before) })
		}
		w.seen = time.Now()
		after = append(after, func() {
			if r.Total > 0 {
				w.watcher.At(r.Now, r.Total, r.Flows)
			} else {
				w.watcher.Phase(r.Phase)
			}
		})
	}
	c.moreRoom()
}

// announcements announces the job each second, whatever else takes time: a silent job counts as dead.
func (c *Client) announcements(ctx context.Context) {
	for pause(ctx, stateEvery) {
		c.announce(false)
	}
}

// announced notes that a job goes on, this one or another.
func (c *Client) announced(m *nats.Msg) {
	n, err := decodeNotice(m.Data)
	if err != nil {
		c.refused.Add("notice")
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if n.Job == c.job && now.Sub(c.jobs[c.job]) > 5*stateEvery {
		c.hears = now
	}
	maps.DeleteFunc(c.jobs, func(_ string, at time.Time) bool { return now.Sub(at) > silentJob })
	if _, known := c.jobs[n.Job]; known || len(c.jobs) < maxJobs {
		c.jobs[n.Job] = now
	}
}

// silent reports whether a job has been silent for half of silentJob while this one heard itself, so that others would have been heard.
func (c *Client) silent(job string, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	const long = silentJob / 2
	hears := now.Sub(c.jobs[c.job]) < 5*stateEvery && now.Sub(c.hears) > long
	return hears && len(c.jobs) < maxJobs && now.Sub(c.jobs[job]) > long
}

// tick reports missing workers, removes what nobody will read, and sends tasks again that are lost.
func (c *Client) tick(ctx context.Context) {
	every := time.NewTicker(stateEvery / 2)
	defer every.Stop()
	var left strays
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		if n%int(straysEvery/(stateEvery/2)) == 0 {
			_ = left.sweep(ctx, c.js, c.objects, func(job string) bool { return c.silent(job, time.Now()) }) // the next look tries again
		}
		for _, text := range c.missing() {
			c.cfg.Say(text)
		}
		c.look(ctx)
	}
}

// missing returns what to say about workers that do not answer or cannot run the job's runs.
func (c *Client) missing() (out []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.workers, func(_ string, k *known) bool { return time.Since(k.seen) > 10*silentAfter })
	if len(c.pending) == 0 || c.slots() > 0 {
		c.alone, c.said = time.Now(), ""
		return nil
	}
	if time.Since(c.alone) < noWorkerAfter {
		return nil
	}
	for _, k := range c.workers {
		if time.Since(k.seen) < silentAfter {
			out = append(out, c.unfit(k))
		}
	}
	slices.Sort(out)
	lab := ""
	if c.codes[experiment.WorldLab] != "" {
		lab = " --lab"
	}
	out = append(out, fmt.Sprintf("no worker of this build answers; start 'weir worker --bus %s%s'; waiting for one", c.cfg.Client.URLs[0], lab))
	text := strings.Join(out, "\n")
	if text == c.said {
		return nil
	}
	c.said = text
	return out
}

// unfit returns the reason why a worker gets none of the job's runs.
func (c *Client) unfit(k *known) string {
	for world := range c.codes {
		if k.state.Codes[world] == "" {
			return fmt.Sprintf("worker %s does not run the %s: start it with --lab", k.name, world)
		}
		if reason := k.state.Unfit[world]; reason != "" && k.state.Codes[world] == c.codes[world] {
			return fmt.Sprintf("worker %s: %s", k.name, reason)
		}
	}
	return fmt.Sprintf("worker %s is of another build (weir %s), so it gets no runs of this one (weir %s): install the same build on both", k.name, k.state.Weir, c.cfg.Weir)
}

// look finds runs that no worker has. Perhaps the notice of the result was lost, or the task.
func (c *Client) look(ctx context.Context) {
	again, lost := c.lost(time.Now())
	if lost && c.listing.CompareAndSwap(false, true) {
		c.done.Go(func() { // the job must be announced meanwhile
			defer c.listing.Store(false)
			c.list(ctx)
		})
	}
	for _, w := range again {
		c.cfg.Say(fmt.Sprintf("no worker has the run of scheme %s with seed %d: it is sent again", w.run.Scheme, w.run.Seed))
		if err := setUpConsumer(ctx, c.js, w.run.World, w.code); err == nil && ctx.Err() == nil {
			callCtx, cancel := context.WithTimeout(ctx, callTimeout)
			_ = c.send(callCtx, w) // the next look tries again
			cancel()
		}
	}
}

// lost returns the runs whose task must be sent again, and whether to look for results: a notice may be lost, or one could not be read. A task is lost if workers have had
// room for it for some time and none took it.
func (c *Client) lost(now time.Time) (again []*waiting, notice bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for world := range c.codes {
		if !c.hasRoom(world) {
			delete(c.idle, world)
		} else if c.idle[world].IsZero() {
			c.idle[world] = now
		}
	}
	if !c.unread.IsZero() && now.Sub(c.unread) > readAgainAfter {
		notice, c.unread = true, time.Time{}
	}
	for _, w := range c.pending {
		silent, idle := now.Sub(w.seen), c.idle[w.run.World]
		notice = notice || w.worker != "" && silent > 2*ackWait
		if silent > lostAfter && !idle.IsZero() && now.Sub(idle) > ackWait {
			again = append(again, w)
			w.seen = now
		}
	}
	return again, notice
}

// hasRoom reports whether a worker of the build can take one more run of a world. A run in the lab is alone on its worker. The caller
// holds mu.
func (c *Client) hasRoom(world string) bool {
	for _, k := range c.workers {
		most := k.state.Slots
		if world == experiment.WorldLab {
			most = 1
		}
		if time.Since(k.seen) < silentAfter && c.fits(k, world) && len(k.state.Running) < most {
			return true
		}
	}
	return false
}
