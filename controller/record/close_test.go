package record

import (
	"path/filepath"
	"testing"
	"testing/synctest"
)

// While the last entries wait for the files, the goroutine that writes can still take the lock, as it does four times a second. Otherwise
// neither goes on until Close gives the entries up.
func TestClose_WaitsWithoutTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, err := New(Config{Path: filepath.Join(t.TempDir(), "rec")})
		if err != nil {
			t.Fatal(err)
		}
		close(w.stop) // the test writes in its place
		w.done.Wait()
		w.stop, w.full = make(chan struct{}), make(chan chunk, 1)
		w.full <- chunk{entries: 1}
		closed := make(chan error, 1)
		go func() { closed <- w.Close() }()
		synctest.Wait() // Close waits: the queue is full
		if w.mu.TryLock() {
			w.mu.Unlock()
		} else {
			t.Error("Close has the lock while it waits")
		}
		w.put(<-w.full)
		w.put(<-w.full)
		if err := <-closed; err != nil || w.lost.Load() != 0 {
			t.Errorf("%v, %d entries lost", err, w.lost.Load())
		}
	})
}
