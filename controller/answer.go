package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"weir/bus"
	"weir/law"
	"weir/law/forward"
	"weir/law/poll"
)

// answerMost is how long an operator's question may take.
const answerMost = 2 * time.Second

var errBusy = errors.New("the controller is busy, or ends")

// Brief is a controller's state in short: its answer to an operator.
type Brief struct {
	Name     string        `json:"name"` // on the bus
	Version  string        `json:"version"`
	Up       int64         `json:"up_seconds"`
	Agents   []AgentStatus `json:"agents"`
	Laws     []string      `json:"laws"` // in addition to its own
	Problems []string      `json:"problems"`
}

// answer answers an operator. It runs on the bus's goroutine.
func (a *agents) answer(q *bus.Question) (out any, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), answerMost)
	defer cancel()
	if q.What == bus.AskForget {
		return a.forget(ctx, q.Agent)
	}
	var f func()
	switch q.What {
	case bus.AskTrace:
		f = func() { out = a.core.trace(law.VM(q.VM), q.Last) }
	case bus.AskStatus:
		f = func() { out = a.brief() }
	default:
		return nil, fmt.Errorf("a controller has no answer about %.40q", q.What)
	}
	if !a.core.Do(ctx, f) {
		return nil, errBusy
	}
	return out, nil
}

// Forgotten is the answer to an operator who wants an agent removed from the inventory.
type Forgotten struct {
	Controller string `json:"controller"`
	HeardMs    *int64 `json:"heard_ms,omitempty"` // ago; then nothing was removed. None: it was removed
}

// forget removes an agent that reports no more from the inventory.
func (a *agents) forget(ctx context.Context, name string) (*Forgotten, error) {
	out := &Forgotten{Controller: a.bus.Self().Name}
	asked := a.core.Do(ctx, func() {
		if ag := a.known[name]; ag != nil {
			ms := (a.core.now() - ag.heard).Milliseconds()
			out.HeardMs = &ms
		}
	})
	switch {
	case !asked:
		return nil, errBusy
	case out.HeardMs != nil:
		return out, nil
	}
	return out, a.link.nodes.forget(ctx, name)
}

func (a *agents) brief() *Brief {
	c := a.core
	b := &Brief{
		Name: a.bus.Self().Name, Version: a.version, Up: int64(time.Since(c.begun).Seconds()), Agents: a.status().Agents, Laws: []string{}, Problems: []string{},
	}
	for i := range c.laws {
		switch c.laws[i].Law.(type) {
		case *forward.Law, *poll.Law: // each controller has them
		default:
			b.Laws = append(b.Laws, c.laws[i].name)
		}
	}
	problem := func(n uint64, text string) {
		if n > 0 {
			b.Problems = append(b.Problems, fmt.Sprintf(text, n))
		}
	}
	problem(a.results[grantFailed], "%d grants could not be sent")
	problem(a.results[grantNowhere], "%d grants are for VMs that no agent has")
	problem(a.mail.lost(), "%d messages of agents were dropped, because the laws did not follow")
	problem(uint64(len(c.refused)), "%d switches are connected and not managed")
	problem(c.counts.ordersRefused.Load(), "switches refused %d orders")
	if s := c.record.Status(); s != nil {
		problem(s.Lost, "%d events are missing in the recording")
		if s.Error != "" {
			b.Problems = append(b.Problems, "recording: "+s.Error)
		}
	}
	return b
}

// lost returns how many messages were dropped.
func (l *letters) lost() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dropped
}
