package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"weir/law"
)

// Limits of a Live.
const (
	MaxProblems = 4096
	MaxGrants   = 4096
	liveFor     = 10 * time.Second // a controller writes its state more often
)

// Live is what a controller reports about the policies that it enforces. It writes it to the policy store.
type Live struct {
	Controller string    `json:"controller"`
	Time       time.Time `json:"time"`           // by its clock
	Change     uint64    `json:"change"`         // the change whose policies it enforces
	File       []Setting `json:"file,omitempty"` // laws of its own file: they run everywhere
	Nodes      []string  `json:"nodes"`          // agents that it commands, sorted
	// Problems are settings that hold incompletely, or not. All others of these nodes hold as compiled.
	Problems     []Problem     `json:"problems,omitempty"`
	MoreProblems int           `json:"more_problems,omitempty"`
	Grants       []TargetGrant `json:"grants,omitempty"` // valid at Time
	MoreGrants   int           `json:"more_grants,omitempty"`
}

// Problem is why a setting does not hold completely at a target.
type Problem struct {
	Target string `json:"target"` // as Target.String prints it
	Law    string `json:"law"`    // "": the guarantee
	Off    bool   `json:"off,omitempty"`
	Reason string `json:"reason"`
}

// TargetGrant is a grant for a VM.
type TargetGrant struct {
	Target string `json:"target"`
	LiveGrant
}

// Check returns an error for a Live that is outside the limits.
func (l *Live) Check() error {
	if !ValidNode(l.Controller) || len(l.Nodes) > MaxNodes || len(l.Problems) > MaxProblems || len(l.Grants) > MaxGrants || len(l.File) > MaxLaws {
		return fmt.Errorf("the state of controller %.80q: %d nodes, %d problems, %d grants", l.Controller, len(l.Nodes), len(l.Problems), len(l.Grants))
	}
	if !slices.IsSorted(l.Nodes) {
		return fmt.Errorf("the state of controller %s: its nodes are not sorted", l.Controller)
	}
	for _, p := range l.Problems {
		if !shown(p.Target) || !shown(p.Reason) || !shown(p.Law) {
			return fmt.Errorf("the state of controller %s: a problem at %.80q", l.Controller, p.Target)
		}
	}
	for _, g := range l.Grants {
		if !shown(g.Target) || !shown(g.Law) || !shown(g.For) || g.Kind > law.PauseGrant {
			return fmt.Errorf("the state of controller %s: a grant at %.80q", l.Controller, g.Target)
		}
	}
	return nil
}

// shown reports whether a text is short, and can be shown.
func shown(s string) bool { return len(s) <= 512 && printable(s) }

// OfFile returns the laws of controllers' files as policies: older than all others, and at all targets. So another policy that
// contradicts a file is refused by name, or degraded.
func OfFile(lives []Live) []Policy {
	var out []Policy
	for i := range lives {
		if p := FilePolicy(lives[i].Controller, lives[i].File); p != nil {
			out = append(out, *p)
		}
	}
	return out
}

// FilePolicy returns the laws of a controller's file as a policy; nil: there are none.
func FilePolicy(controller string, settings []Setting) *Policy {
	if len(settings) == 0 {
		return nil
	}
	all := func() *Selector { return &Selector{Names: []string{"*"}} }
	return &Policy{
		Name: filePrefix + controller + ")", Since: 1, Laws: settings, Percent: 100,
		Select: map[Kind]*Selector{Port: all(), Host: all(), VM: all()},
	}
}

// filePrefix begins the name of a file's policy. It sorts before the names of all other policies, so the file's is the oldest.
const filePrefix = "(the file of controller "

// IsFile reports whether a policy is made of a controller's file.
func IsFile(policy string) bool { return strings.HasPrefix(policy, filePrefix) }

// Observe leaves out of a compiled state what controllers do not enforce, as they report it. change is the last change of the policies.
func (s *State) Observe(lives []Live, change uint64, now time.Time) {
	o := newObserver(s, lives, change, now)
	for i := range s.Targets {
		h := &s.Targets[i]
		if len(h.Laws) == 0 && h.Guarantee == nil {
			continue
		}
		why := o.unheld(h.Target.Node)
		kept := h.Laws[:0]
		for _, a := range h.Laws {
			p, wrong := o.problem(&h.Target, a.Law, why)
			if wrong {
				o.leave(h, a.Policies, p)
			}
			if !wrong || !p.Off {
				kept = append(kept, a)
			}
		}
		h.Laws = kept
		if g := h.Guarantee; g != nil {
			if p, wrong := o.problem(&h.Target, "", why); wrong {
				o.leave(h, g.Policies, p)
				if p.Off {
					h.Guarantee = nil
				}
			}
		}
	}
	s.Policies = slices.DeleteFunc(s.Policies, func(p Status) bool { return IsFile(p.Name) })
	for i := range s.Policies {
		s.Policies[i].weaken()
	}
}

type observer struct {
	status   map[string]*Status
	holder   map[string]*Live                // by node
	problems map[*Live]map[[2]string]Problem // by target and law
	change   uint64
	now      time.Time
	any      bool
}

func newObserver(s *State, lives []Live, change uint64, now time.Time) *observer {
	o := &observer{status: map[string]*Status{}, holder: map[string]*Live{}, problems: map[*Live]map[[2]string]Problem{}, change: change, now: now, any: len(lives) > 0}
	for i := range s.Policies {
		o.status[s.Policies[i].Name] = &s.Policies[i]
	}
	for i := range lives {
		l := &lives[i]
		for _, n := range l.Nodes {
			if other := o.holder[n]; other == nil || other.Time.Before(l.Time) {
				o.holder[n] = l
			}
		}
	}
	for i := range lives {
		of := map[[2]string]Problem{}
		for _, p := range lives[i].Problems {
			of[[2]string{p.Target, p.Law}] = p
		}
		o.problems[&lives[i]] = of
	}
	return o
}

// unheld returns why nothing is enforced at a node; "": a controller enforces there.
func (o *observer) unheld(node string) string {
	l := o.holder[node]
	switch {
	case !o.any:
		return "no controller enforces policies"
	case l == nil:
		return fmt.Sprintf("no controller reaches the agent %s", node)
	case o.now.Sub(l.Time) > liveFor:
		return fmt.Sprintf("controller %s reported last %v ago", l.Controller, o.now.Sub(l.Time).Round(time.Second))
	case l.Change < o.change:
		return fmt.Sprintf("controller %s has not applied change %d yet", l.Controller, o.change)
	}
	return ""
}

// problem returns what is wrong with a setting at a target.
func (o *observer) problem(t *Target, law, why string) (p Problem, wrong bool) {
	if why != "" {
		return Problem{Target: t.String(), Law: law, Off: true, Reason: why}, true
	}
	p, wrong = o.problems[o.holder[t.Node]][[2]string{t.String(), law}]
	return p, wrong
}

// leave records a problem for each policy that wants the setting.
func (o *observer) leave(h *Here, policies []string, p Problem) {
	for _, name := range policies {
		l := Left{Policy: name, Law: p.Law, Cause: Reported, Detail: p.Reason}
		if s := o.status[name]; s != nil {
			if s.Left++; p.Off {
				s.Hold--
			}
			if s.Reason == "" {
				s.Reason = fmt.Sprintf("at %s: %s", p.Target, p.Reason)
			}
		}
		if len(h.Left) < MaxLeft {
			h.Left = append(h.Left, l)
		} else {
			h.MoreLeft++
		}
	}
}

// grantsAt returns the grants at a target, as the controller of its node reported them last.
func grantsAt(lives []Live, t *Target, now time.Time) (out []LiveGrant) {
	o := newObserver(&State{}, lives, 0, now)
	l := o.holder[t.Node]
	if l == nil || now.Sub(l.Time) > liveFor {
		return nil
	}
	at := t.String()
	for _, g := range l.Grants {
		if g.Target == at {
			g.Age = max(now.Sub(l.Time), 0)
			out = append(out, g.LiveGrant)
		}
	}
	return out
}
