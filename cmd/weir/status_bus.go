package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"weir/agent/agentd"
	"weir/bus"
	"weir/bus/pki"
	"weir/cmd/weir/laws"
	"weir/controller"
	"weir/policy"
	"weir/policy/store"
)

// systemStatus is the state of controllers, agents and policies, each list with what is wrong first.
type systemStatus struct {
	Wrong       int               `json:"wrong"` // controllers, agents and policies with a problem
	Controllers []controllerState `json:"controllers"`
	Agents      []agentState      `json:"agents"`
	Policies    []policyState     `json:"policies"`
	Problems    []string          `json:"problems"` // of the whole
}

type controllerState struct {
	Name     string            `json:"name"`
	Version  string            `json:"version,omitempty"`
	Up       int64             `json:"up_seconds"`
	Held     map[uint32]uint64 `json:"held"` // buckets, with their terms
	Agents   int               `json:"agents"`
	Laws     []string          `json:"laws"`
	Problems []string          `json:"problems"`
}

type agentState struct {
	Name     string   `json:"name"`
	Version  string   `json:"version"`
	Roles    []string `json:"roles"`
	HeardMs  int64    `json:"heard_ms"` // ago, by a controller
	HeldBy   string   `json:"held_by,omitempty"`
	Term     uint64   `json:"term,omitempty"`
	VMs      int      `json:"vms"`
	Ports    int      `json:"ports"`
	Live     int      `json:"grants_live"`
	Problems []string `json:"problems"`
}

type policyState struct {
	Name   string `json:"name"`
	State  string `json:"state"` // off, degraded, observed, enforced
	Hold   int    `json:"hold"`  // settings that hold
	Left   int    `json:"left"`  // that do not, or incompletely
	Reason string `json:"reason,omitempty"`
}

// runSystem asks everybody and prints the answers: once, or with --watch until the end.
func (o *statusOptions) runSystem(cmd *cobra.Command) error {
	ctx, out := cmd.Context(), cmd.OutOrStdout()
	c, err := o.operator.dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	read := func() (*systemStatus, error) {
		within, cancel := context.WithTimeout(ctx, policyTimeout)
		defer cancel()
		return readSystem(within, c)
	}
	if !o.watch {
		s, err := read()
		if err != nil {
			return err
		}
		if err := writeSystem(out, s, o.asJSON); err != nil {
			return err
		}
		if s.Wrong > 0 {
			return &exitCode{code: exitError}
		}
		return nil
	}
	if f, ok := screenOf(out); ok && !o.asJSON {
		return watchSystem(ctx, os.Stdin, f, read)
	}
	return watchSystemPlain(ctx, out, read, o.asJSON)
}

func writeSystem(w io.Writer, s *systemStatus, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(s)
	}
	return printSystem(w, s)
}

func readSystem(ctx context.Context, c *bus.Conn) (*systemStatus, error) {
	s := &systemStatus{Controllers: []controllerState{}, Agents: []agentState{}, Policies: []policyState{}, Problems: []string{}}
	holders, err := c.Controllers(ctx)
	if err != nil {
		return nil, err
	}
	if len(holders) == 0 {
		s.Problems = append(s.Problems, errNoController.Error())
	}
	s.readControllers(ctx, c, holders)
	s.askAgents(ctx, c)
	if err := s.readPolicies(ctx, c); err != nil {
		s.Problems = append(s.Problems, "policies: "+err.Error())
	}
	s.sort()
	return s, nil
}

// readControllers asks the controllers, which know the agents.
func (s *systemStatus) readControllers(ctx context.Context, c *bus.Conn, holders []bus.Holder) {
	var names []string
	for _, h := range holders {
		names = append(names, h.Name)
	}
	agents := map[string]*agentState{}
	for i, a := range bus.AskAll[controller.Brief](ctx, c, identities(pki.Controller, names), &bus.Question{What: bus.AskStatus}) {
		one := controllerState{
			Name: holders[i].Name, Held: holders[i].Held, Version: a.Answer.Version, Up: a.Answer.Up, Agents: len(a.Answer.Agents),
			Laws: slices.Concat([]string{}, a.Answer.Laws), Problems: slices.Concat([]string{}, a.Answer.Problems),
		}
		if a.Err != nil {
			one.Problems = append(one.Problems, a.Err.Error())
		}
		s.Controllers = append(s.Controllers, one)
		for _, k := range a.Answer.Agents {
			at := agents[k.Name]
			if at == nil {
				at = &agentState{Name: k.Name, Version: k.Version, HeardMs: k.HeardMs, VMs: k.VMs, Ports: k.Ports, Roles: []string{}, Problems: []string{}}
				agents[k.Name] = at
			}
			at.HeardMs = min(at.HeardMs, k.HeardMs)
			if k.Commands {
				if at.HeldBy != "" {
					at.Problems = append(at.Problems, fmt.Sprintf("controllers %s and %s both hold it", at.HeldBy, one.Name))
				}
				at.HeldBy, at.Term = one.Name, k.Term
			}
		}
	}
	for _, a := range agents {
		if a.HeldBy == "" {
			a.Problems = append(a.Problems, "no controller holds it")
		}
		s.Agents = append(s.Agents, *a)
	}
}

// askAgents asks the agents that controllers know.
func (s *systemStatus) askAgents(ctx context.Context, c *bus.Conn) {
	var names []string
	for i := range s.Agents {
		names = append(names, s.Agents[i].Name)
	}
	for i, a := range bus.AskAll[agentd.Brief](ctx, c, identities(pki.Agent, names), &bus.Question{What: bus.AskStatus}) {
		at := &s.Agents[i]
		if a.Err != nil {
			at.Problems = append(at.Problems, a.Err.Error())
			continue
		}
		at.Roles, at.Live, at.VMs, at.Ports = slices.Concat([]string{}, a.Answer.Roles), a.Answer.Live, a.Answer.VMs, a.Answer.Ports
		at.Problems = append(at.Problems, a.Answer.Problems...)
		if a.Answer.More > 0 {
			at.Problems = append(at.Problems, fmt.Sprintf("and %d more", a.Answer.More))
		}
		if a.Answer.Controller != "" && at.HeldBy != "" && a.Answer.Controller != at.HeldBy {
			at.Problems = append(at.Problems, fmt.Sprintf("it obeys %s, and %s holds it", a.Answer.Controller, at.HeldBy))
		}
	}
}

// readPolicies reads what holds of the policies, as `weir policy get` does.
func (s *systemStatus) readPolicies(ctx context.Context, c *bus.Conn) error {
	kv, err := store.Bus(ctx, c, 0)
	if err != nil {
		return err
	}
	st := store.New(kv, store.Author{Identity: c.Identity().String()})
	snap, err := st.Read(ctx)
	if err != nil {
		return err
	}
	p := &policySession{reader: policy.NewReader(laws.All().Specs()), store: st, snap: snap}
	if err := p.inventory(ctx); err != nil {
		return err
	}
	s.Problems = append(s.Problems, p.warnings...)
	for _, one := range p.view().State().Policies {
		s.Policies = append(s.Policies, policyState{Name: one.Name, State: string(one.Condition), Hold: one.Hold, Left: one.Left, Reason: one.Reason})
	}
	return nil
}

// sort sorts each list, what is wrong first, and counts it.
func (s *systemStatus) sort() {
	wrong := func(problems []string) int {
		if len(problems) > 0 {
			s.Wrong++
			return 0
		}
		return 1
	}
	for range s.Problems {
		s.Wrong++
	}
	order := map[string]int{}
	for i := range s.Controllers {
		order["c "+s.Controllers[i].Name] = wrong(s.Controllers[i].Problems)
	}
	for i := range s.Agents {
		order["a "+s.Agents[i].Name] = wrong(s.Agents[i].Problems)
	}
	states := []string{string(policy.Off), string(policy.Degraded), string(policy.Observed), string(policy.Enforced)}
	for i := range s.Policies {
		at := max(slices.Index(states, s.Policies[i].State), 0)
		order["p "+s.Policies[i].Name] = at
		if at < 2 {
			s.Wrong++
		}
	}
	by := func(kind, a, b string) int {
		return cmp.Or(cmp.Compare(order[kind+a], order[kind+b]), cmp.Compare(a, b))
	}
	slices.SortFunc(s.Controllers, func(a, b controllerState) int { return by("c ", a.Name, b.Name) })
	slices.SortFunc(s.Agents, func(a, b agentState) int { return by("a ", a.Name, b.Name) })
	slices.SortFunc(s.Policies, func(a, b policyState) int { return by("p ", a.Name, b.Name) })
}

func printSystem(w io.Writer, s *systemStatus) error {
	if s.Wrong == 0 {
		fmt.Fprintln(w, "all is well")
	} else {
		fmt.Fprintf(w, "%d wrong\n", s.Wrong)
	}
	for _, p := range s.Problems {
		fmt.Fprintf(w, "  %s\n", printable(p))
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	state := func(problems []string) string {
		if len(problems) == 0 {
			return "ok"
		}
		return "wrong: " + printable(strings.Join(problems[:min(len(problems), 3)], "; ")) + more(len(problems)-3)
	}
	if len(s.Controllers) > 0 {
		fmt.Fprintln(t, "\nCONTROLLER\tVERSION\tUP\tHOLDS\tTERM\tAGENTS\tLAWS\tSTATE")
	}
	for i := range s.Controllers {
		c := &s.Controllers[i]
		term := uint64(0)
		for _, n := range c.Held {
			term = max(term, n)
		}
		fmt.Fprintf(t, "%s\t%s\t%v\t%d buckets\t%d\t%d\t%s\t%s\n", printable(c.Name), printable(cmp.Or(c.Version, "-")), time.Duration(c.Up)*time.Second, len(c.Held), term, c.Agents,
			printable(cmp.Or(strings.Join(c.Laws, " "), "-")), state(c.Problems))
	}
	if len(s.Agents) > 0 {
		fmt.Fprintln(t, "\nAGENT\tVERSION\tROLE\tHEARD\tHELD BY\tTERM\tVMS\tPORTS\tGRANTS\tSTATE")
	}
	for i := range s.Agents {
		a := &s.Agents[i]
		fmt.Fprintf(t, "%s\t%s\t%s\t%d ms ago\t%s\t%d\t%d\t%d\t%d\t%s\n", printable(a.Name), printable(cmp.Or(a.Version, "-")),
			printable(cmp.Or(strings.Join(a.Roles, " "), "-")), a.HeardMs, printable(cmp.Or(a.HeldBy, "-")), a.Term, a.VMs, a.Ports, a.Live, state(a.Problems))
	}
	if len(s.Policies) > 0 {
		fmt.Fprintln(t, "\nPOLICY\tSTATE\tHOLD\tLEFT\tREASON")
	}
	for i := range s.Policies {
		p := &s.Policies[i]
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%s\n", printable(p.Name), p.State, p.Hold, p.Left, printable(p.Reason))
	}
	return t.Flush()
}

func more(n int) string {
	if n <= 0 {
		return ""
	}
	return fmt.Sprintf("; and %d more", n)
}
