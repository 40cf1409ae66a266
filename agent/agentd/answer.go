package agentd

import (
	"context"
	"fmt"
	"time"

	"weir/bus"
	"weir/law"
)

// answerMost is how long an operator's question may take.
const answerMost = 2 * time.Second

// Brief is an agent's state in short: its answer to an operator.
type Brief struct {
	Name       string   `json:"name"`
	Version    string   `json:"version"`
	UpSeconds  int64    `json:"up_seconds"`
	Roles      []string `json:"roles"`
	Term       uint64   `json:"term"`
	Controller string   `json:"controller,omitempty"` // that is obeyed
	Live       int      `json:"grants_live"`
	VMs        int      `json:"vms"`
	Ports      int      `json:"ports"`
	Problems   []string `json:"problems"` // what does not work, at most 32
	More       int      `json:"more_problems,omitempty"`
}

const problemsAsked = 32

// answer answers an operator. It runs on the bus's goroutine, so it does not delay commands for long.
func (a *agent) answer(q *bus.Question) (any, error) {
	switch q.What {
	case bus.AskTrace:
		if a.host == nil {
			return []Obeyed{}, nil
		}
		return a.link.tracer.trace(law.VM(q.VM), q.Of, q.Last), nil
	case bus.AskStatus:
		ctx, cancel := context.WithTimeout(context.Background(), answerMost)
		defer cancel()
		var s *Status
		if err := a.ask(ctx, func(a *agent) { s = a.status(true) }); err != nil {
			return nil, fmt.Errorf("the agent is busy: %w", err)
		}
		return brief(s), nil
	}
	return nil, fmt.Errorf("an agent has no answer about %.40q", q.What)
}

func brief(s *Status) *Brief {
	b := &Brief{Name: s.Name, Version: s.Version, UpSeconds: s.UpSeconds, Term: s.Bus.Term, Controller: s.Bus.Controller, Roles: []string{}, Problems: s.Well()}
	if s.Host != nil {
		b.Roles, b.Live, b.VMs = append(b.Roles, "host"), s.Host.Live, len(s.Host.VMs)
	}
	if s.Switch != nil {
		b.Roles, b.Ports = append(b.Roles, "switch"), len(s.Switch.Ports)
	}
	if n := len(b.Problems) - problemsAsked; n > 0 {
		b.Problems, b.More = b.Problems[:problemsAsked], n
	}
	return b
}
