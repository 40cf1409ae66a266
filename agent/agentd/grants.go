package agentd

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"weir/bus/weirv1"
	"weir/datapath/host"
	"weir/law"
)

const (
	// leaseMax is the longest lease of a grant, from when the agent sent the report that the command answers. The controller was
	// alive then. So a grant has ended a second after its controller did, also if the command was late.
	leaseMax = law.LeaseMost
	// aliveFor is how long an owner's heartbeats continue after its last grant: its grants have ended by then.
	aliveFor = 2 * leaseMax
	// releaseFor is how long the kernel releases windows for.
	releaseFor = 500 * time.Millisecond
)

// Reasons of this agent for refusing grants. Others are those of package host.
const (
	notOpen host.Reason = "off"  // nothing is enforced
	tooLate host.Reason = "late" // the report that the command answers is older than leaseMax
)

// Enforcer carries out grants: a host.Host.
type Enforcer interface {
	SetGrantsAt(now uint64, grants []law.Grant) error
	Heartbeat(law.Owner) error
	Sweep() error
	Leave(law.Owner) error
}

// Grants decides how long grants are valid, and passes them on to the kernel.
type Grants struct {
	log   *slog.Logger
	clock func() time.Duration // the kernel's monotonic clock

	mu      sync.Mutex
	last    [host.Owners]time.Duration // when each owner granted last; 0: never
	terms   [host.Owners]uint64        // of that command
	set     uint64
	capped  uint64 // of set: those whose lease was shortened
	refused map[host.Reason]uint64
	recent  map[refusedGrant]recentRefusal
	said    string // the last error of a heartbeat; "": it had none
	ended   bool
}

// refusedGrant is a VM and an owner whose grant was refused.
type refusedGrant struct {
	vm    law.VM
	owner law.Owner
}

type recentRefusal struct {
	at  time.Duration
	why host.Reason
}

// refusedFor is how long a refused grant is reported.
const refusedFor = time.Second

// NewGrants returns those of an agent with this monotonic clock.
func NewGrants(log *slog.Logger, clock func() time.Duration) *Grants {
	return &Grants{log: log, clock: clock, refused: map[host.Reason]uint64{}, recent: map[refusedGrant]recentRefusal{}}
}

// Obey sets the grants of a command. stamp is when the report that it answers was sent; h is nil while nothing is enforced. The
// process may be stopped at any line: so leases count from one reading of the clock, and end in time although they begin late.
func (g *Grants) Obey(h Enforcer, term uint64, stamp time.Duration, list []law.Grant) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.clock()
	age := now - stamp
	switch {
	case h == nil || g.ended:
		g.refuse(notOpen, uint64(len(list)), errors.New("this agent enforces nothing at present"))
		for i := range list {
			g.note(&list[i], notOpen)
		}
		return
	case age >= leaseMax: // it was in time for the fence
		g.refuse(tooLate, uint64(len(list)), fmt.Errorf("the report that they answer is %v old", age))
		for i := range list {
			g.note(&list[i], tooLate)
		}
		return
	}
	for i := range list {
		if capLease(&list[i], age) {
			g.capped++
		}
		g.wake(h, now, list[i].Owner, term)
	}
	err := h.SetGrantsAt(uint64(now), list)
	g.set += uint64(len(list))
	for _, e := range leaves(err) {
		why := host.Failed
		if r := (*host.Refused)(nil); errors.As(e, &r) {
			why = r.Why
			g.set--
			g.note(&r.Grant, why)
		}
		g.refuse(why, 1, e)
	}
}

// Own sets rates that a law at this host decided, whose process is this one. It returns how many were set.
func (g *Grants) Own(h Enforcer, list []law.Grant) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		return 0
	}
	now := g.clock()
	for i := range list {
		g.wake(h, now, list[i].Owner, 0)
	}
	err := h.SetGrantsAt(uint64(now), list)
	set := len(list)
	for _, e := range leaves(err) {
		why := host.Failed
		if r := (*host.Refused)(nil); errors.As(e, &r) {
			why = r.Why
			set--
		}
		g.refuse(why, 1, e)
	}
	g.set += uint64(set)
	return set
}

// note keeps a refused grant for the next reports. There are at most as many as a report lists.
func (g *Grants) note(of *law.Grant, why host.Reason) {
	k := refusedGrant{of.Key.VM, of.Owner}
	if _, known := g.recent[k]; known || len(g.recent) < weirv1.MaxRefused {
		g.recent[k] = recentRefusal{g.clock(), why}
	}
}

// refusals lists the grants that were refused lately.
func (g *Grants) refusals() (out []*weirv1.RefusedGrant) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for k, r := range g.recent {
		if g.clock()-r.at > refusedFor {
			delete(g.recent, k)
			continue
		}
		out = append(out, &weirv1.RefusedGrant{Vm: uint32(k.vm), Owner: uint32(k.owner), Reason: string(r.why)})
	}
	return out
}

// capLease shortens a lease that is too long, and reports whether it did. age is the time since the report that the command
// answers.
func capLease(g *law.Grant, age time.Duration) bool {
	most := max(leaseMax-age, 0)
	if g.Lease <= most {
		return false
	}
	g.Lease = most
	return true
}

// wake notes that an owner grants, and begins its heartbeats.
func (g *Grants) wake(h Enforcer, now time.Duration, o law.Owner, term uint64) {
	if o >= host.Owners {
		return // refused by h
	}
	if !g.alive(o, now) {
		if err := h.Heartbeat(o); err != nil {
			g.trouble(err)
		}
	}
	g.last[o], g.terms[o] = now, term
}

func (g *Grants) alive(o law.Owner, now time.Duration) bool {
	return g.last[o] != 0 && now-g.last[o] < aliveFor
}

// Heartbeat keeps the grants of all owners valid that granted lately, and removes those that have ended.
func (g *Grants) Heartbeat(h Enforcer) {
	g.mu.Lock()
	now := g.clock()
	var owners []law.Owner
	for o := range law.Owner(host.Owners) {
		if g.alive(o, now) && !g.ended {
			owners = append(owners, o)
		}
	}
	g.mu.Unlock()
	var errs []error
	for _, o := range owners {
		errs = append(errs, h.Heartbeat(o))
	}
	errs = append(errs, h.Sweep())
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := errors.Join(errs...); err == nil {
		g.said = ""
	} else if !errors.Is(err, host.ErrClosed) {
		g.trouble(err)
	}
}

// trouble logs an error of a heartbeat, unless the one before was the same.
func (g *Grants) trouble(err error) {
	if text := err.Error(); text != g.said {
		g.said = text
		g.log.Warn("grants may end early, or stay in the tables: their owner's heartbeat failed", "error", err)
	}
}

// refuse counts refusals, and logs the first of its reason, the second, the fourth, and so on: a flood must not fill the log.
func (g *Grants) refuse(why host.Reason, n uint64, err error) {
	before := g.refused[why]
	g.refused[why] += n
	if now := g.refused[why]; before == 0 || bits(now) != bits(before) {
		g.log.Warn("grants are refused", "reason", string(why), "times", now, "error", err)
	}
}

// release lets the kernel release all grants, and waits until it has.
func (g *Grants) release(h Enforcer) error {
	g.mu.Lock()
	g.ended = true
	owners := g.last
	g.mu.Unlock()
	var errs []error
	some := false
	for o, last := range owners {
		if last != 0 {
			some = some || g.clock()-last < aliveFor
			errs = append(errs, h.Leave(law.Owner(o)))
		}
	}
	if some {
		time.Sleep(releaseFor)
	}
	return errors.Join(errs...)
}

// leaves returns the errors that err joins.
func leaves(err error) []error {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}

// bits returns the number of bits of n.
func bits(n uint64) (b int) {
	for ; n > 0; n >>= 1 {
		b++
	}
	return b
}

// termsOf returns the term of each owner's last command.
func (g *Grants) termsOf() [host.Owners]uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.terms
}
