package agentd

import (
	"cmp"
	"container/heap"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"weir/bus/weirv1"
	"weir/deadline"
	"weir/internal/counts"
	"weir/law"
)

// deadlinesMost limits the declarations of a host, with quotas or without.
const deadlinesMost = 1 << 16

// Reasons for refusing a declaration.
const (
	refusedForm    = "malformed"
	refusedSource  = "source"    // of the flow: not an address of the VM
	refusedRate    = "rate"      // of declarations
	refusedLive    = "live"      // too many that are ahead
	refusedDemand  = "demand"    // more bytes a second than the VM or its tenant may ask for
	refusedFull    = "full"      // deadlinesMost
	refusedUnknown = "unknown"   // to delete: there is none
	refusedLeft    = "no_vm"     // the VM was removed
	tenantLabel    = "tenant"    // of a VM
	demandless     = law.Rate(0) // no limit
)

// Quota limits what a VM or a tenant declares. A field that is 0 limits nothing.
type Quota struct {
	Rate   float64  // declarations a second; a burst of as many
	Live   int      // whose deadline is ahead
	Demand law.Rate // the sum of bytes / time of those
}

// declarer is a VM or a tenant.
type declarer struct {
	quota  Quota
	tokens float64
	at     time.Duration // when tokens was right
	live   int
	demand float64 // bit/s
}

// declared is a declaration that is ahead.
type declared struct {
	deadline.Declared
	vm     law.VM
	ends   time.Duration // on the clock
	demand float64
	of     [2]*declarer // its VM and its tenant
	place  int          // in the heap of deadlines
}

// refusal is why a declaration is refused, for its program.
type refusal struct {
	reason string
	text   string
}

func (r *refusal) Error() string { return r.text }

// deadlines are what programs of this host declared. Any goroutine may call its methods.
type deadlines struct {
	cfg    *Deadlines
	most   law.Rate // of the uplink; 0: not known
	clock  func() time.Duration
	log    *slog.Logger
	wake   func()
	counts counts.Counts

	mu      sync.Mutex
	number  uint64 // of the last declaration
	vms     map[law.VM]VM
	byID    map[uint64]*declared
	byFlow  map[law.Flow]*declared
	of      map[law.VM]*declarer
	tenants map[string]*declarer
	refused map[law.VM]map[string]uint64
	unsent  map[law.Flow]uint64 // number; 0: it was taken back
	next    earliest
	swept   time.Duration // tenants, last
	taken   uint64
}

func newDeadlines(cfg *Deadlines, uplink law.Rate, clock func() time.Duration, log *slog.Logger) *deadlines {
	return &deadlines{
		cfg: cfg, most: uplink, clock: clock, log: log, wake: func() {}, number: uint64(time.Now().UnixMicro()),
		vms: map[law.VM]VM{}, byID: map[uint64]*declared{}, byFlow: map[law.Flow]*declared{}, of: map[law.VM]*declarer{},
		tenants: map[string]*declarer{}, refused: map[law.VM]map[string]uint64{}, unsent: map[law.Flow]uint64{},
	}
}

// become makes list the VMs that may declare. The declarations of others are taken back.
func (d *deadlines) become(list []VM) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.vms = map[law.VM]VM{}
	for _, v := range list {
		d.vms[v.Number] = v
	}
	for _, one := range d.byID {
		if _, still := d.vms[one.vm]; !still {
			d.remove(one, true)
		}
	}
	maps.DeleteFunc(d.of, func(vm law.VM, _ *declarer) bool { _, still := d.vms[vm]; return !still })
	maps.DeleteFunc(d.refused, func(vm law.VM, _ map[string]uint64) bool { _, still := d.vms[vm]; return !still })
}

// whose returns the VM and its tenant, of which the quotas are.
func (d *deadlines) whose(v *VM, now time.Duration) [2]*declarer {
	begin := func(q Quota) *declarer {
		if q.Demand == demandless {
			q.Demand = d.most
		}
		if d.cfg.NoQuotas {
			q = Quota{}
		}
		return &declarer{quota: q, tokens: q.Rate, at: now}
	}
	if d.of[v.Number] == nil {
		d.of[v.Number] = begin(d.cfg.VM)
	}
	tenant := v.Labels[tenantLabel]
	if tenant == "" { // a tenant of its own
		return [2]*declarer{d.of[v.Number], nil}
	}
	if d.tenants[tenant] == nil {
		d.tenants[tenant] = begin(d.cfg.Tenant)
	}
	return [2]*declarer{d.of[v.Number], d.tenants[tenant]}
}

// spend takes a token, and reports whether there was one.
func (o *declarer) spend(now time.Duration) bool {
	if o.quota.Rate == 0 {
		return true
	}
	o.tokens = min(o.quota.Rate, o.tokens+(now-o.at).Seconds()*o.quota.Rate)
	o.at = now
	if o.tokens < 1 {
		return false
	}
	o.tokens--
	return true
}

// admits checks the rate before the text of a request is read. nil: it is within the quotas.
func (d *deadlines) admits(vm law.VM) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	v, there := d.vms[vm]
	if !there {
		return d.refuse(vm, refusedLeft, "this host has no such VM any more")
	}
	now := d.clock()
	for i, o := range d.whose(&v, now) {
		if o != nil && !o.spend(now) {
			return d.refuse(vm, refusedRate, fmt.Sprintf("%s may declare %v deadlines a second: declare fewer, larger messages", kindOf(i), o.quota.Rate))
		}
	}
	return nil
}

func kindOf(i int) string { return [...]string{"this VM", "its tenant"}[i] }

// declare takes a declaration of a VM. One for the same flow replaces the one before.
func (d *deadlines) declare(vm law.VM, what deadline.Declaration) (uint64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.clock()
	d.sweep(now)
	v, there := d.vms[vm]
	switch {
	case !there:
		return 0, d.refuse(vm, refusedLeft, "this host has no such VM any more")
	case !slices.ContainsFunc(v.Addresses, func(p netip.Prefix) bool { return p.Contains(what.Source.Addr()) }):
		return 0, d.refuse(vm, refusedSource, fmt.Sprintf("source: %v is no address of this VM", what.Source.Addr()))
	}
	one := &declared{vm: vm, ends: now + what.Within, of: d.whose(&v, now), demand: float64(what.Bytes) * 8 / what.Within.Seconds()}
	flow := flowOf(&what)
	before := d.byFlow[flow]
	if err := d.within(one, before); err != nil {
		return 0, err
	}
	if before == nil && len(d.byID) >= deadlinesMost {
		return 0, d.refuse(vm, refusedFull, fmt.Sprintf("this host has %d declarations, the most", deadlinesMost))
	}
	if before != nil {
		d.remove(before, false)
	}
	d.number++
	one.ID, one.Declaration = d.number, what
	for _, o := range one.of {
		if o != nil {
			o.live++
			o.demand += one.demand
		}
	}
	d.byID[one.ID], d.byFlow[flow], d.unsent[flow] = one, one, one.ID
	heap.Push(&d.next, one)
	d.taken++
	d.wake()
	return one.ID, nil
}

// within checks the quotas of live declarations and of demand. before: the one that is replaced.
func (d *deadlines) within(one, before *declared) error {
	for i, o := range one.of {
		if o == nil {
			continue
		}
		live, demand := o.live, o.demand
		if before != nil && before.of[i] == o {
			live, demand = live-1, demand-before.demand
		}
		switch {
		case o.quota.Live > 0 && live >= o.quota.Live:
			return d.refuse(one.vm, refusedLive, fmt.Sprintf("%s has %d deadlines ahead, and may have %d", kindOf(i), live, o.quota.Live))
		case o.quota.Demand > 0 && one.demand == 0: // laws would take it to have as much left as it has sent
			return d.refuse(one.vm, refusedDemand, fmt.Sprintf("bytes: needed, because %s may ask for %v in all", kindOf(i), o.quota.Demand))
		case o.quota.Demand > 0 && demand+one.demand > float64(o.quota.Demand):
			return d.refuse(one.vm, refusedDemand, fmt.Sprintf("%s asks for %v in all, and may ask for %v: bytes / within_ms is too much",
				kindOf(i), law.Rate(demand+one.demand), o.quota.Demand))
		}
	}
	return nil
}

// delete takes a declaration of a VM back.
func (d *deadlines) delete(vm law.VM, id uint64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sweep(d.clock())
	one := d.byID[id]
	if one == nil || one.vm != vm {
		return d.refuse(vm, refusedUnknown, fmt.Sprintf("there is no declaration %d: its deadline has passed, or it was replaced", id))
	}
	d.remove(one, true)
	d.wake()
	return nil
}

// list returns the declarations of a VM, and how many were refused.
func (d *deadlines) list(vm law.VM) *deadline.List {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.clock()
	d.sweep(now)
	l := &deadline.List{Deadlines: []deadline.Declared{}, Refused: maps.Clone(d.refused[vm])}
	for _, one := range d.byID {
		if one.vm == vm && one.ends > now {
			left := one.Declared
			left.Within = one.ends - now
			l.Deadlines = append(l.Deadlines, left)
		}
	}
	slices.SortFunc(l.Deadlines, func(a, b deadline.Declared) int { return cmp.Compare(a.ID, b.ID) })
	return l
}

// remove forgets a declaration. back: laws learn about it.
func (d *deadlines) remove(one *declared, back bool) {
	flow := flowOf(&one.Declaration)
	heap.Remove(&d.next, one.place)
	delete(d.byID, one.ID)
	delete(d.byFlow, flow)
	delete(d.unsent, flow)
	if back && len(d.unsent) < deadlinesMost {
		d.unsent[flow] = 0
	}
	for _, o := range one.of {
		if o != nil {
			o.live--
			o.demand -= one.demand
		}
	}
}

// sweep forgets declarations whose deadline has passed. Laws know the deadline.
func (d *deadlines) sweep(now time.Duration) {
	for len(d.next) > 0 && d.next[0].ends <= now {
		d.remove(d.next[0], false)
	}
	if now-d.swept >= time.Second {
		d.swept = now
		maps.DeleteFunc(d.tenants, func(_ string, o *declarer) bool { return o.live == 0 && now-o.at >= time.Second }) // its tokens are full
	}
}

// refuse counts a refusal.
func (d *deadlines) refuse(vm law.VM, reason, text string) error {
	if d.refused[vm] == nil {
		d.refused[vm] = map[string]uint64{}
	}
	d.refused[vm][reason]++
	d.counts.Refuse(d.log, "a deadline is refused", reason, "vm", vm, "error", text)
	return &refusal{reason, text}
}

// malformed counts a request that cannot be read.
func (d *deadlines) malformed(vm law.VM, err error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.refuse(vm, refusedForm, err.Error())
}

// again has all declarations sent again: a controller began a term.
func (d *deadlines) again() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, one := range d.byID {
		d.unsent[flowOf(&one.Declaration)] = id
	}
}

func (d *deadlines) status() *DeadlinesStatus {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sweep(d.clock())
	s := &DeadlinesStatus{Live: len(d.byID), Taken: d.taken, Refused: map[string]uint64{}}
	for _, why := range []string{refusedForm, refusedSource, refusedRate, refusedLive, refusedDemand, refusedFull, refusedUnknown, refusedLeft} {
		s.Refused[why] = 0
	}
	maps.Copy(s.Refused, d.counts.All())
	return s
}

// message returns what was not sent yet, as much as fits into a message; nil: nothing.
func (d *deadlines) message() (out []*weirv1.Deadline) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.clock()
	for flow, id := range d.unsent {
		if len(out) == weirv1.MaxDeadlines {
			break
		}
		delete(d.unsent, flow)
		m := &weirv1.Deadline{Flow: weirv1.NewFlow(flow)}
		if one := d.byID[id]; one != nil {
			if one.ends <= now {
				continue
			}
			m.SizeBytes, m.WithinNs, m.Value, m.Number = one.Bytes, uint64(one.ends-now), one.Value, id
		} else {
			d.number++
			m.Number = d.number
		}
		out = append(out, m)
	}
	return out
}

// lost has the declarations of a message that could not be sent sent later.
func (d *deadlines) lost(all []*weirv1.Deadline) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, m := range all {
		flow := m.GetFlow().Law()
		if _, newer := d.unsent[flow]; !newer && (d.byFlow[flow] == nil) == (m.GetWithinNs() == 0) {
			d.unsent[flow] = 0
			if m.GetWithinNs() > 0 {
				d.unsent[flow] = m.GetNumber()
			}
		}
	}
}

func flowOf(d *deadline.Declaration) law.Flow {
	return law.Flow{Src: d.Source, Dst: d.Destination, Proto: 6}
}

// reasonOf returns the reason and the text of a refusal.
func reasonOf(err error) (reason, text string) {
	if r := (*refusal)(nil); errors.As(err, &r) {
		return r.reason, r.text
	}
	return "failed", err.Error()
}

// earliest is a heap of declarations, the earliest deadline first.
type earliest []*declared

func (h earliest) Len() int           { return len(h) }
func (h earliest) Less(i, j int) bool { return h[i].ends < h[j].ends }
func (h earliest) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

// Push implements heap.Interface.
func (h *earliest) Push(v any) {
	one := v.(*declared)
	one.place = len(*h)
	*h = append(*h, one)
}

// Pop implements heap.Interface.
func (h *earliest) Pop() any {
	last := len(*h) - 1
	one := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return one
}
