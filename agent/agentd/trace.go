package agentd

import (
	"slices"
	"sync"
	"time"

	"weir/bus/weirv1"
	"weir/internal/ring"
	"weir/law"
)

// Limits of the trace of commands.
const (
	obeyedKept  = 512 // newest
	obeyedVMs   = 8   // of a command
	obeyedAsked = 64  // in one answer
	// One VM at a time is watched: its counter of limited ACKs is read so soon after a grant, after twice the time, and so on.
	watchFirst = time.Millisecond
	watchMost  = 600 * time.Millisecond
)

// obeyed is a command that was carried out. It has a fixed size: nothing is allocated for it.
type obeyed struct {
	controller string
	run        uint64
	term       uint64
	sequence   uint64
	cause      uint64        // of its first grant
	came       time.Duration // on the machine's clock, as all times
	echo       time.Duration // the stamp of the message that it answers
	set        time.Duration // the kernel had its grants
	grants     int
	vms        [obeyedVMs]law.VM
	known      int // of vms
	watch      watched
}

// watched holds the counter of limited ACKs of a VM, before a grant and after it.
type watched struct {
	vm     law.VM        // 0: none was watched
	before uint64        // the counter before the grant
	unseen time.Duration // the last time at which it had not moved
	seen   time.Duration // the first time at which it had; 0: it did not
}

// tracer keeps the newest commands. All methods may be called by any goroutine.
type tracer struct {
	limited func(law.VM) (uint64, bool) // the counter of a VM
	clock   func() time.Duration

	mu    sync.Mutex
	kept  *ring.Ring[obeyed]
	timer *time.Timer // of the VM that is watched; nil: none
	ended bool
}

// begins notes a VM before its grant is set; the zero value if another one is watched, or the grant limits no window.
func (t *tracer) begins(grants []law.Grant) (w watched) {
	at := slices.IndexFunc(grants, func(g law.Grant) bool { return g.Kind != law.RateGrant && g.Lease > 0 })
	if at < 0 {
		return w
	}
	t.mu.Lock()
	busy := t.timer != nil || t.ended
	t.mu.Unlock()
	if busy {
		return w
	}
	if n, ok := t.limited(grants[at].Key.VM); ok {
		w.vm, w.before = grants[at].Key.VM, n
	}
	return w
}

// obeyed notes a command, whose grants the kernel has since set.
func (t *tracer) obeyed(c *weirv1.Command, grants []law.Grant, came, set time.Duration, w watched) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return
	}
	if t.kept == nil {
		t.kept = ring.New[obeyed](obeyedKept)
	}
	o := t.kept.Next()
	*o = obeyed{
		controller: c.GetController().GetName(), run: c.GetController().GetRun(), term: c.GetTerm(), sequence: c.GetSequence(),
		came: came, echo: time.Duration(c.GetEchoNs()), set: set, grants: len(grants),
	}
	if len(grants) > 0 {
		o.cause = grants[0].Cause
	}
	for i := range grants {
		o.add(grants[i].Key.VM)
	}
	if w.vm == 0 || t.timer != nil {
		return
	}
	o.watch = w
	o.watch.unseen = came
	t.follow(o, *o, watchFirst)
}

func (o *obeyed) add(vm law.VM) {
	if o.known < obeyedVMs && !slices.Contains(o.vms[:o.known], vm) {
		o.vms[o.known] = vm
		o.known++
	}
}

// follow reads the counter after a time, and again, until it moves. at is the place of the command in the ring, unless it was
// overwritten by then. The caller has the lock.
func (t *tracer) follow(at *obeyed, was obeyed, after time.Duration) {
	t.timer = time.AfterFunc(after, func() {
		n, ok := t.limited(was.watch.vm)
		now := t.clock()
		t.mu.Lock()
		defer t.mu.Unlock()
		t.timer = nil
		if t.ended || at.sequence != was.sequence || at.came != was.came {
			return
		}
		switch {
		case !ok:
		case n != was.watch.before:
			at.watch.seen = now
		default:
			at.watch.unseen = now
			if after < watchMost {
				t.follow(at, was, 2*after)
			}
		}
	})
}

// end stops watching.
func (t *tracer) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	if t.timer != nil {
		t.timer.Stop()
		t.timer = nil
	}
}

// Obeyed is a command that an agent carried out. Times are on the clock of its machine.
type Obeyed struct {
	Controller string        `json:"controller"`
	Run        uint64        `json:"run"`
	Term       uint64        `json:"term"`
	Sequence   uint64        `json:"sequence"`
	Cause      uint64        `json:"cause"` // serial number of the decision
	EchoNs     time.Duration `json:"echo_ns"`
	CameNs     time.Duration `json:"came_ns"`
	SetNs      time.Duration `json:"set_ns"` // the kernel had the grants
	Grants     int           `json:"grants"`
	VMs        []law.VM      `json:"vms"` // at most 8
	Watched    law.VM        `json:"watched,omitempty"`
	UnseenNs   time.Duration `json:"unseen_ns,omitempty"` // no ACK of Watched had been limited since
	SeenNs     time.Duration `json:"seen_ns,omitempty"`   // one had
}

// trace returns the newest commands: of one VM, of some decisions, or all.
func (t *tracer) trace(vm law.VM, causes []uint64, limit int) []Obeyed {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := []Obeyed{}
	if t.kept == nil {
		return out
	}
	keep := func(o *obeyed) bool {
		return (vm == 0 || slices.Contains(o.vms[:o.known], vm)) && (len(causes) == 0 || slices.Contains(causes, o.cause))
	}
	for _, o := range t.kept.Last(min(max(limit, 1), obeyedAsked), keep) {
		out = append(out, Obeyed{
			Controller: o.controller, Run: o.run, Term: o.term, Sequence: o.sequence, Cause: o.cause, EchoNs: o.echo, CameNs: o.came, SetNs: o.set,
			Grants: o.grants, VMs: slices.Clone(o.vms[:o.known]), Watched: o.watch.vm, UnseenNs: o.watch.unseen, SeenNs: o.watch.seen,
		})
	}
	return out
}
