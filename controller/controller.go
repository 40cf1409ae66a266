// Package controller is Weir's SDN controller. It has the OpenFlow connections to switches, passes their events to the laws
// (law.Law), and carries out the laws' actions. One goroutine runs the laws. Messages of switches wait for it in bounded
// queues, which it serves in turn, so that a switch that floods does not delay others.
//
//	controller.go the goroutine of the laws
//	turns.go      what waits for it
//	session.go    one connection, from its first question to its end
//	read.go       what a switch has, and becoming its master
//	refusal.go    switches that refuse an order
//	carry.go      actions as OpenFlow messages
//	agents.go     reports of agents on the bus
//	claims.go     which agent has a switch, host, VM or address
//	grants.go     grants of laws, to the agents
//	link.go       the connection to the bus
//	policies.go   policies: what follows from them and from what agents have
//	plans.go      laws of switches' ports
//	apply.go      laws of policies begin, change and end
//	instance.go   one of them: what it sees, and which of its grants hold
//	caps.go       caps of guarantees
//	enforced.go   what holds, for weir policy
//	translate.go  flows, groups and meters in OpenFlow's form and back
//	config.go     kind: Controller
//	laws.go       laws that a file names
//	run.go        the process: listening, status, metrics
//	standby.go    which of several controllers is active
//	fence.go      its generation id
package controller

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"weir/controller/record"
	"weir/law"
	"weir/law/fabric"
	"weir/openflow/channel"
)

// refusedMax limits the list of switches that are not managed: peers choose their ids.
const refusedMax = 256

// Core runs laws over OpenFlow connections. It is the channel's handler.
type Core struct {
	laws    []namedLaw
	log     *slog.Logger
	clock   func() time.Time
	begun   time.Time
	turns   *turns
	agents  *agents // nil: there is no bus
	record  *record.Writer
	tracer  tracer
	byConn  sync.Map // *channel.Conn -> *session
	ask     chan func()
	ended   chan struct{}
	reading sync.Mutex // for reading the tables of switches, one at a time
	later   []event    // used by the laws' own goroutine

	fence    *fence
	flowsMax int                     // limit for a switch that joins
	sessions map[law.Switch]*session // that the laws know; used by the laws' goroutine
	serial   uint64                  // of the last event for the laws; a grant names it as its cause
	out      []law.Action
	refused  map[law.Switch]string // switches that are not managed, and why
	ignored  map[ignored]uint64    // actions that were not carried out

	patience     patience
	counts       counts
	overRateSaid uint64 // used by the laws' goroutine
}

// counts holds figures of the core, which many goroutines write.
type counts struct {
	frames, framesDropped  atomic.Uint64
	eventsDropped          atomic.Uint64 // before the switch joined
	overRate               atomic.Uint64 // packets above the rate, of connections that have ended
	orders, ordersRefused  atomic.Uint64
	actionsLate            atomic.Uint64 // for a switch that had left
	changes                atomic.Uint64
	joined, left, lawNanos atomic.Int64
	slowestStepNanos       atomic.Int64
	notManaged, steps      atomic.Uint64
}

// event is an event for the laws from one connection.
type event struct {
	from *session
	e    law.Event
}

// namedLaw is a law and its name in logs and status.
type namedLaw struct {
	name  string
	owner law.Owner // of its grants
	law.Law
}

// newCore makes a core that requests roles with the fence's generation id.
func newCore(f *fence, log *slog.Logger, laws ...namedLaw) *Core {
	return &Core{
		laws: laws, log: log, clock: time.Now, begun: time.Now(), fence: f,
		flowsMax: 1 << 18, turns: newTurns(), ask: make(chan func()), ended: make(chan struct{}),
		sessions: map[law.Switch]*session{}, refused: map[law.Switch]string{},
		ignored: map[ignored]uint64{},
	}
}

// work runs the laws until ctx is done.
func (c *Core) work(ctx context.Context) {
	defer close(c.ended)
	defer c.turns.end()
	wake := time.NewTimer(0)
	defer wake.Stop()
	for ctx.Err() == nil {
		c.takeLater()
		busy := c.agents != nil && c.agents.step(c.now())
		s, e, ok := c.turns.next()
		if !ok && busy {
			c.overdue()
			c.answer()
			continue
		}
		if !ok {
			c.sleep(wake)
			select {
			case <-ctx.Done():
			case <-c.turns.wake:
			case f := <-c.ask:
				f()
			case <-wake.C:
				c.overdue()
			}
			continue
		}
		begun := time.Now()
		c.take(event{s, e})
		c.turns.spent(s, e, time.Since(begun))
		c.overdue()
		c.answer()
	}
}

// takeLater passes to the laws the events that came up during a step. Their steps may add further ones, which wait for the next call.
func (c *Core) takeLater() {
	later := c.later
	c.later = nil
	for _, e := range later {
		c.take(e)
	}
}

// now is the time on the laws' clock.
func (c *Core) now() time.Duration { return c.clock().Sub(c.begun) }

// overdue gives the laws a tick whose time has come. A law may act on ticks alone, and events may come without a pause.
func (c *Core) overdue() {
	if next := c.lawsWake(); next > 0 && next <= c.now() {
		c.step(law.Tick{})
	}
}

// answer carries out one call of Do, if there is one.
func (c *Core) answer() {
	select {
	case f := <-c.ask:
		f()
	default:
	}
}

// wake returns the first time at which there is something to do without an event; 0: none.
func (c *Core) wake() time.Duration {
	next := c.lawsWake()
	if c.agents != nil && (next == 0 || c.agents.wake() < next) {
		next = c.agents.wake()
	}
	return next
}

// lawsWake returns the first time at which a law wants a tick; 0: none.
func (c *Core) lawsWake() time.Duration {
	next := time.Duration(0)
	for _, l := range c.laws {
		if w := l.Wake(); w > 0 && (next == 0 || w < next) {
			next = w
		}
	}
	return next
}

// sleep sets the timer to the first time at which there is something to do.
func (c *Core) sleep(wake *time.Timer) {
	next := c.wake()
	if next == 0 {
		wake.Stop()
		return
	}
	wake.Reset(max(next-time.Since(c.begun), 0))
}

// take passes one event to the laws, if its connection is the one that they know.
func (c *Core) take(e event) {
	switch in := e.e.(type) {
	case *fabric.Joined:
		c.sessions[in.Switch] = e.from
		delete(c.refused, in.Switch)
		c.counts.joined.Add(1)
		e.from.conn.Log(slog.LevelInfo, "switch joined", "switch", in.Switch, "ports", len(in.Ports),
			"flows", len(in.Found.Flows), "groups", len(in.Found.Groups))
	case *fabric.Left:
		if c.sessions[in.Switch] != e.from {
			return
		}
		delete(c.sessions, in.Switch)
		c.counts.left.Add(1)
	default:
		if c.sessions[e.from.id] != e.from {
			return
		}
	}
	c.step(e.e)
	if p, is := e.e.(*fabric.PortStats); is {
		e.from.spare.Store(p)
	}
}

func (c *Core) step(e law.Event) {
	begun := time.Now()
	c.serial++
	c.record.Cause(c.serial)
	for i := range c.laws {
		c.stepLaw(&c.laws[i], e)
	}
	if c.agents != nil {
		c.tracer.decided(c.now)
		c.agents.send()
		c.tracer.done(c.now)
	}
	c.counts.steps.Add(1)
	took := int64(time.Since(begun))
	c.counts.lawNanos.Add(took)
	if took > c.counts.slowestStepNanos.Load() {
		c.counts.slowestStepNanos.Store(took)
	}
}

// stepLaw passes an event to one law.
func (c *Core) stepLaw(l *namedLaw, e law.Event) {
	now := c.now()
	c.tracer.step(c.serial, now, e, l)
	c.out = l.Step(now, e, c.out[:0])
	for i, a := range c.out {
		c.carry(l, a)
		c.out[i] = nil
	}
}

// Do runs f on the laws' goroutine, between two steps. False: the context or the core ended first.
func (c *Core) Do(ctx context.Context, f func()) bool {
	done := make(chan struct{})
	select {
	case c.ask <- func() { f(); close(done) }:
		<-done
		return true
	case <-ctx.Done():
	case <-c.ended:
	}
	return false
}

var _ channel.Handler = (*Core)(nil)
