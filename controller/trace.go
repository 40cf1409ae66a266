package controller

import (
	"time"

	"weir/bus/weirv1"
	"weir/internal/ring"
	"weir/law"
	"weir/law/inventory"
	"weir/law/telemetry"
)

// Limits of the trace of decisions.
const (
	decisionsKept  = 512 // newest
	grantsTraced   = 8   // of a decision
	commandsTraced = 8
	whyBytes       = 160
	decisionsAsked = 64 // in one answer
)

// decision is one event whose step granted something. It has a fixed size: nothing is allocated for it.
type decision struct {
	serial   uint64
	unix     int64
	event    string
	agent    string // that reported
	origin   originOf
	came     time.Duration // when the report arrived, on the core's clock; 0: not known
	began    time.Duration // the step
	decided  time.Duration
	law      string // the first that granted
	why      [whyBytes]byte
	whyLen   int
	total    int
	granted  [grantsTraced]law.Grant
	commands [commandsTraced]sentCommand
	sent     int
}

type originOf struct{ incarnation, sequence, stamp uint64 }

// sentCommand is a command of a decision.
type sentCommand struct {
	agent  string
	term   uint64
	grants int
	at     time.Duration // when it was sent
	held   time.Duration // how long the controller had the agent's last message, which the command answers
	result string
}

// tracer keeps the newest decisions. The laws' goroutine uses it.
type tracer struct {
	kept *ring.Ring[decision]
	took latencies
	now  *decision // of the step that runs; nil: it granted nothing yet

	serial uint64 // of the step that runs
	began  time.Duration
	event  law.Event // borrowed
	law    *namedLaw

	agent  string // of the report that the step is about
	origin originOf
	came   time.Duration
}

// report notes whose report the next steps are about.
func (t *tracer) report(agent string, o *weirv1.Origin, came time.Duration) {
	t.agent, t.came = agent, came
	t.origin = originOf{o.GetIncarnation(), o.GetSequence(), o.GetStampNs()}
}

// done ends a step: its commands are sent.
func (t *tracer) done(now func() time.Duration) {
	if t.now != nil && t.now.came > 0 {
		t.took.add(now() - t.now.came)
	}
	t.now = nil
}

// idle notes that the next steps are about no report.
func (t *tracer) idle() { t.agent, t.origin, t.came = "", originOf{}, 0 }

// step notes the step that runs, and its law.
func (t *tracer) step(serial uint64, began time.Duration, e law.Event, l *namedLaw) {
	t.serial, t.began, t.event, t.law = serial, began, e, l
}

// grant notes a grant of the step.
func (t *tracer) grant(g *law.Grant) {
	d := t.now
	if d == nil {
		if t.kept == nil {
			t.kept = ring.New[decision](decisionsKept)
		}
		d = t.kept.Next()
		t.now = d
		d.serial, d.began, d.unix, d.event, d.law = t.serial, t.began, time.Now().UnixNano(), eventName(t.event), t.law.name
		d.agent, d.origin, d.came = t.agent, t.origin, t.came
		d.whyLen, d.total, d.sent, d.decided = 0, 0, 0, 0
		if x, is := t.law.Law.(law.Explainer); is {
			d.whyLen = copy(d.why[:], x.Explain(d.why[:0]))
		}
	}
	if d.total < grantsTraced {
		d.granted[d.total] = *g
	}
	d.total++
}

// decided notes that all laws have decided.
func (t *tracer) decided(now func() time.Duration) {
	if t.now != nil {
		t.now.decided = now()
	}
}

func eventName(e law.Event) string {
	switch e.(type) {
	case *telemetry.Telemetry:
		return "telemetry"
	case *telemetry.Arrivals:
		return "arrivals"
	case *inventory.Switch, *inventory.Host:
		return "inventory"
	case *inventory.SwitchLeft, *inventory.HostLeft:
		return "an agent is silent"
	case law.Tick:
		return "tick"
	}
	return "openflow"
}

// command notes a command that was sent, or was not.
func (t *tracer) command(c sentCommand) {
	if t.now == nil {
		return
	}
	if t.now.sent < commandsTraced {
		t.now.commands[t.now.sent] = c
	}
	t.now.sent++
}

// Decision is an event whose step granted something.
type Decision struct {
	Controller  string          `json:"controller"`
	Run         uint64          `json:"run"`
	Serial      uint64          `json:"serial"` // the cause in its grants
	Unix        int64           `json:"unix_ns"`
	Event       string          `json:"event"`
	Reporter    string          `json:"reporter,omitempty"` // the agent
	StampNs     uint64          `json:"stamp_ns,omitempty"` // of the report, on the agent's clock
	Sequence    uint64          `json:"sequence,omitempty"`
	CameNs      time.Duration   `json:"came_ns,omitempty"` // the report arrived; this and the next two on the controller's clock
	BeganNs     time.Duration   `json:"began_ns"`
	DecidedNs   time.Duration   `json:"decided_ns"`
	Law         string          `json:"law"`
	Why         string          `json:"why,omitempty"` // in the law's words
	Grants      int             `json:"grants"`
	First       []TracedGrant   `json:"first_grants"` // of Grants, at most 8
	Commands    int             `json:"commands"`
	FirstOrders []TracedCommand `json:"first_commands"`
}

// TracedGrant is a grant of a decision.
type TracedGrant struct {
	Kind  string        `json:"kind"`
	VM    law.VM        `json:"vm"`
	Peer  string        `json:"peer,omitempty"`
	Value uint64        `json:"value"`
	Lease time.Duration `json:"lease_ns"` // 0: released
}

// TracedCommand is a command of a decision.
type TracedCommand struct {
	Agent  string        `json:"agent"`
	Term   uint64        `json:"term"`
	Grants int           `json:"grants"`
	SentNs time.Duration `json:"sent_ns"` // on the controller's clock
	HeldNs time.Duration `json:"held_ns"` // since the agent's message arrived that it answers
	Result string        `json:"result"`
}

// trace returns the newest decisions: of one VM, or all.
func (c *Core) trace(vm law.VM, limit int) []Decision {
	out := []Decision{}
	if c.agents == nil || c.tracer.kept == nil {
		return out
	}
	self := c.agents.bus.Self()
	for _, d := range c.tracer.kept.Last(min(max(limit, 1), decisionsAsked), func(d *decision) bool { return vm == 0 || d.has(vm) }) {
		one := Decision{
			Controller: self.Name, Run: self.Run, Serial: d.serial, Unix: d.unix, Event: d.event, Reporter: d.agent, StampNs: d.origin.stamp,
			Sequence: d.origin.sequence, CameNs: d.came, BeganNs: d.began, DecidedNs: d.decided, Law: d.law, Why: string(d.why[:d.whyLen]),
			Grants: d.total, First: []TracedGrant{}, Commands: d.sent, FirstOrders: []TracedCommand{},
		}
		for _, g := range d.granted[:min(d.total, grantsTraced)] {
			t := TracedGrant{Kind: g.Kind.String(), VM: g.Key.VM, Value: g.Value, Lease: g.Lease}
			if g.Key.Peer.IsValid() {
				t.Peer = g.Key.Peer.String()
			}
			one.First = append(one.First, t)
		}
		for _, s := range d.commands[:min(d.sent, commandsTraced)] {
			one.FirstOrders = append(one.FirstOrders, TracedCommand{s.agent, s.term, s.grants, s.at, s.held, s.result})
		}
		out = append(out, one)
	}
	return out
}

// has reports whether a grant of the decision that was kept is for a VM.
func (d *decision) has(vm law.VM) bool {
	for i := range d.granted[:min(d.total, grantsTraced)] {
		if d.granted[i].Key.VM == vm {
			return true
		}
	}
	return false
}
