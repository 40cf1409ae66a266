package lab

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// errGone is the error of Enter after Down.
var errGone = errors.New("the lab is down")

// errEnded is the error of Enter when its function ended the goroutine that it ran on.
var errEnded = errors.New("a function that ran in a namespace of the lab ended its goroutine: it must return")

// worker is one operating system thread in one network namespace.
type worker struct {
	jobs chan func()
	quit chan struct{}
	done chan struct{} // closed when the goroutine has ended; its thread ends directly after
}

// startWorker runs enter on a new thread and keeps that thread for do. The thread changes only its network
// namespace: a new mount namespace would lose /sys/fs/cgroup and bpffs.
func startWorker(enter func() error) (*worker, error) {
	w := &worker{jobs: make(chan func()), quit: make(chan struct{}), done: make(chan struct{})}
	started := make(chan error, 1)
	go w.loop(enter, started)
	if err := <-started; err != nil {
		<-w.done
		return nil, err
	}
	return w, nil
}

func (w *worker) loop(enter func() error, started chan<- error) {
	runtime.LockOSThread()
	if unix.Gettid() == os.Getpid() {
		// The main thread cannot end, so it would keep the namespace for ever, and /proc/self/ns/net would be the
		// lab's. While this goroutine occupies it, the next goroutine gets another thread.
		moved := make(chan error, 1)
		go w.loop(enter, moved)
		started <- <-moved
		runtime.UnlockOSThread()
		return
	}
	// Never unlocked: when the goroutine ends, so does the thread, and with it its namespace.
	defer close(w.done)
	if err := enter(); err != nil {
		started <- err
		return
	}
	started <- nil
	for {
		select {
		case f := <-w.jobs:
			f()
		case <-w.quit:
			return
		}
	}
}

// do runs f on the worker's thread and waits for it.
func (w *worker) do(f func() error) error {
	result := make(chan error, 1)
	select {
	case w.jobs <- func() { result <- f() }:
	case <-w.done:
		return errGone
	}
	select {
	case err := <-result:
		return err
	case <-w.done: // f has ended the goroutine, as t.Skip and t.Fatal do; or it was the last before stop
		select {
		case err := <-result:
			return err
		default:
			return errEnded
		}
	}
}

// stop ends the thread once it is idle. It must be called once.
func (w *worker) stop() {
	close(w.quit)
	<-w.done
}

// enterNamespace moves the calling thread into the network namespace of the open file f.
func enterNamespace(f *os.File) error {
	if err := unix.Setns(int(f.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter namespace %s: %w", f.Name(), err)
	}
	return nil
}
