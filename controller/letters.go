package controller

import (
	"sync"

	"weir/bus/weirv1"
)

// letters are messages that wait for the laws, those of each agent in their order, agents in turn.
type letters struct {
	mu      sync.Mutex
	byAgent map[string]*queue[*weirv1.Events]
	ring    queue[string] // agents in byAgent, each once; of leaves empty queues there
	dropped uint64
}

// arrived queues a message of an agent, and wakes the laws. It may be called by any goroutine.
func (a *agents) arrived(name string, e *weirv1.Events) {
	l := &a.mail
	l.mu.Lock()
	q := l.byAgent[name]
	switch {
	case q == nil:
		q = &queue[*weirv1.Events]{}
		l.byAgent[name] = q
		l.ring.push(name)
	case q.len() >= eventsWaiting:
		l.dropped++
		l.mu.Unlock()
		return
	}
	q.push(e)
	l.mu.Unlock()
	a.core.turns.nudge()
}

func (l *letters) next() (name string, e *weirv1.Events, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.ring.len() > 0 {
		name = l.ring.pop()
		q := l.byAgent[name]
		if q.len() > 0 {
			e, ok = q.pop(), true
		}
		if q.len() > 0 {
			l.ring.push(name)
		} else {
			delete(l.byAgent, name)
		}
		if ok {
			return name, e, true
		}
	}
	return "", nil, false
}

// waits reports whether messages of an agent wait.
func (l *letters) waits(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.byAgent[name]
	return q != nil && q.len() > 0
}

// of takes the messages of an agent that wait.
func (l *letters) of(name string) (list []*weirv1.Events) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.byAgent[name]
	if q == nil {
		return nil
	}
	for q.len() > 0 {
		list = append(list, q.pop())
	}
	return list
}
