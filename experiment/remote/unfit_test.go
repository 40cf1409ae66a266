package remote

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"weir/experiment"
	"weir/experiment/store"
)

// unfitWorker begins w1, which refuses all runs. The channel is closed when it has refused one.
func (k *kit) unfitWorker() <-chan struct{} {
	refused := make(chan struct{})
	once := sync.OnceFunc(func() { close(refused) })
	k.worker("w1", func(context.Context, *experiment.Run, experiment.Progress) (*store.Entry, error) {
		once()
		return nil, fmt.Errorf("%w: no such kernel", ErrUnfit)
	})
	return refused
}

// A worker that cannot carry out runs gives them to those that can, and no longer counts as one that takes some. Without another worker the
// run fails with its reason.
func TestRun_UnfitWorker(t *testing.T) {
	k := newKit(t)
	refused := k.unfitWorker()
	asked, plan := planOf(t)
	c := k.client()
	defer c.Close()
	if _, err := submit(t.Context(), c, asked, plan.Runs[:1]); err == nil || !strings.Contains(err.Error(), "worker w1: "+ErrUnfit.Error()+": no such kernel") {
		t.Errorf("%v", err)
	}
	<-refused
	k.until("worker that reports itself unfit", func() bool { return c.Slots() == 0 })
	k.until("reason", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, w := range c.workers {
			return strings.Contains(c.unfit(w), "worker w1: "+ErrUnfit.Error()+": no such kernel")
		}
		return false
	})
}

func TestRun_UnfitWorkerAndAnother(t *testing.T) {
	k := newKit(t)
	refused := k.unfitWorker()
	k.worker("w2", func(_ context.Context, r *experiment.Run, _ experiment.Progress) (*store.Entry, error) {
		<-refused
		return entryOf(r), nil
	})
	asked, plan := planOf(t)
	c := k.client()
	defer c.Close()
	k.until("two workers", func() bool { c.mu.Lock(); defer c.mu.Unlock(); return len(c.workers) == 2 })
	var all sync.WaitGroup
	for _, r := range plan.Runs {
		all.Go(func() {
			if _, err := submit(t.Context(), c, asked, []*experiment.Run{r}); err != nil {
				t.Errorf("%s %d: %v", r.Scheme, r.Seed, err)
			}
		})
	}
	all.Wait()
	if c.Did() != "w2 6" {
		t.Errorf("runs by worker: %s", c.Did())
	}
	k.until("worker that reports itself unfit", func() bool { return c.Slots() == 1 })
}
