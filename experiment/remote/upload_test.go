package remote

import (
	"context"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/time/rate"
)

// uploads is a store that notes when its uploads begin and end, and when they must end.
type uploads struct {
	jetstream.ObjectStore
	mu    sync.Mutex
	now   int
	most  int
	bytes int64
	left  []time.Duration // time limit of each, when it began
}

func (u *uploads) Put(ctx context.Context, _ jetstream.ObjectMeta, r io.Reader) (*jetstream.ObjectInfo, error) {
	u.mu.Lock()
	u.now++
	u.most = max(u.most, u.now)
	end, _ := ctx.Deadline()
	u.left = append(u.left, time.Until(end))
	u.mu.Unlock()
	n, err := io.Copy(io.Discard, r)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.now--
	u.bytes += n
	return nil, err
}

// The uploads of a worker share the rate that the bus allows its identity, however many runs end at once. Each one's time limit begins
// when its turn comes.
func TestWorker_UploadsShareARate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &uploads{}
		w := &worker{js: &uploadsOf{store: store}, upload: make(chan struct{}, 1), pace: rate.NewLimiter(uploadRate, chunk)}
		const n, size = 4, 8 << 20
		began := time.Now()
		var all sync.WaitGroup
		for range n {
			all.Go(func() {
				if err := w.putOnce(t.Context(), jetstream.ObjectMeta{}, make([]byte, size)); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if store.most != 1 || store.bytes != n*size {
			t.Errorf("%d uploads at a time, %d bytes", store.most, store.bytes)
		}
		if took, least := time.Since(began), time.Duration(n*size-chunk)*time.Second/uploadRate; took < least-time.Millisecond {
			t.Errorf("%d bytes took %v, at least %v at the rate", n*size, took, least)
		}
		for i, left := range store.left {
			if want := callTimeout + size*2*time.Second/uploadRate; left != want {
				t.Errorf("upload %d has %v, want %v", i, left, want)
			}
		}
	})
}

// uploadsOf is a bus with that store.
type uploadsOf struct {
	jetstream.JetStream
	store *uploads
}

func (u *uploadsOf) ObjectStore(context.Context, string) (jetstream.ObjectStore, error) {
	return u.store, nil
}
