package agentd

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	"weir/agent/switchd"
)

// laws runs the laws of a file of kind: Switch in this process, as `weir switch -f` does.
type laws struct {
	file string
	o    *Options
	log  *slog.Logger
	stop context.CancelFunc
	idle string        // why no law runs without the file; "": the file must exist
	poke chan struct{} // ends the wait for the next attempt

	mu     sync.Mutex
	failed string // why they do not run
	name   string // of the switch in the file
	ending bool
	done   chan struct{} // closed when run has ended
	asked  chan chan<- switchd.Answer
	taken  bool               // another process takes over: no further attempt
	ended  chan struct{}      // closed when the attempt that runs has ended; nil: none runs
	cancel context.CancelFunc // of that attempt
}

// lawsAgain is the time between two attempts to run the laws.
const lawsAgain = 10 * time.Second

// takeOverLimit is how long the laws wait for the process that takes over.
const takeOverLimit = 30 * time.Second

func newLaws(file string, o *Options, log *slog.Logger) *laws {
	return &laws{file: file, o: o, log: log, done: make(chan struct{}), asked: make(chan chan<- switchd.Answer), poke: make(chan struct{}, 1)}
}

// run runs the laws until ctx is done or end is called. An error ends neither the agent nor the attempts.
func (l *laws) run(ctx context.Context) {
	defer close(l.done)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l.mu.Lock()
	l.stop = cancel
	if l.ending {
		cancel()
	}
	l.mu.Unlock()
	for ctx.Err() == nil {
		err := l.once(ctx)
		if l.idle != "" && err == nil && !l.isTaken() {
			err = errors.New(l.idle) // halted
		}
		if ctx.Err() != nil {
			if err != nil {
				l.log.Error("the laws of the switch", "error", err)
			}
			return
		}
		why := "another process has taken them over"
		if err != nil {
			why = remedy(err)
		}
		if l.fail(why) {
			return
		}
		select {
		case <-ctx.Done():
		case <-l.poke:
		case <-time.After(lawsAgain):
		}
	}
}

// again begins the next attempt at once.
func (l *laws) again() {
	select {
	case l.poke <- struct{}{}:
	default:
	}
}

// halt ends the laws that run, and waits until their windows are released. The next attempt follows as after an error.
func (l *laws) halt() {
	l.mu.Lock()
	cancel, ended := l.cancel, l.ended
	l.mu.Unlock()
	if ended != nil {
		cancel()
		<-ended
	}
}

// begins notes an attempt, and returns what ends it.
func (l *laws) begins(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	l.mu.Lock()
	l.cancel, l.ended = cancel, ended
	l.mu.Unlock()
	return ctx, func() {
		cancel()
		l.mu.Lock()
		l.cancel, l.ended = nil, nil
		if l.failed == "" {
			l.failed = "ended" // until run notes why
		}
		l.mu.Unlock()
		close(ended)
	}
}

func (l *laws) once(ctx context.Context) error {
	ctx, ends := l.begins(ctx)
	defer ends()
	c, err := l.o.Laws.Load(l.file)
	if l.idle != "" && errors.Is(err, fs.ErrNotExist) {
		return errors.New(l.idle)
	}
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.name, l.failed = c.Name, ""
	l.mu.Unlock()
	c.Options = switchd.Options{TakeOver: l.o.TakeOver, Wait: true, Version: l.o.Version, Log: l.log, Asked: l.asked}
	return switchd.Run(ctx, c)
}

func (l *laws) isTaken() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.taken
}

// fail notes why the laws do not run, and reports whether another process takes over.
func (l *laws) fail(why string) (taken bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed != why && why != l.idle {
		l.log.Warn("the laws of the switch do not run", "file", l.file, "reason", why)
	}
	l.failed = why
	return l.taken
}

// reload has the laws read their file again, if they run.
func (l *laws) reload() ([]string, error) {
	if _, err := l.o.Laws.Load(l.file); err != nil {
		return nil, err
	}
	if _, failed := l.status(); failed != "" {
		return nil, nil // they are tried again with the file of that time
	}
	answer := make(chan switchd.Answer, 1)
	busy := time.NewTimer(takeOverLimit)
	defer busy.Stop()
	select {
	case l.asked <- answer:
	case <-l.done:
		return nil, errors.New("the laws of the switch end")
	case <-busy.C:
		return nil, errors.New("the laws of the switch still begin, and read no file: try again")
	}
	a := <-answer // a reload ends
	if a.Refused != "" {
		return nil, errors.New(a.Refused)
	}
	return a.Changes, nil
}

// status returns the name of the switch, and why its laws do not run; "": they run.
func (l *laws) status() (name, failed string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.name, l.failed
}

// end ends the laws. It does not wait.
func (l *laws) end() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ending = true
	if l.stop != nil {
		l.stop()
	}
}

// leave waits until another process has taken the laws over. If none does, they end.
func (l *laws) leave() {
	if l == nil {
		return
	}
	l.mu.Lock()
	l.taken = true
	failed := l.failed != ""
	l.mu.Unlock()
	if !failed {
		select {
		case <-l.done:
		case <-time.After(takeOverLimit):
		}
	}
	l.end()
}
