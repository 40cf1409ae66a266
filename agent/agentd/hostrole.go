package agentd

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	"weir/agent/switchd"
	"weir/bus/weirv1"
	"weir/datapath/attach"
	"weir/datapath/host"
	"weir/law"
	"weir/law/inventory"
)

// hostRole carries out grants for the VMs of this hypervisor. The goroutine of the agent owns it. Grants, heartbeats and status
// come from other goroutines and use only what mu guards.
type hostRole struct {
	cfg   *Host
	pin   string
	log   *slog.Logger
	alive func() // called while something long makes progress
	again retry
	added map[law.VM]addedVM // to h
	wrong problems           // VMs that cannot be added
	at    int                // ifindex of the uplink
	half  *half              // of a law at this host; nil: none

	deadlines *deadlines // nil: programs cannot declare any
	sockets   *sockets
	metadata  *metadataRole   // nil: no address
	known     *inventory.Host // that half has

	mu     sync.Mutex
	h      *host.Host        // nil: nothing is enforced
	why    string            // why not
	plan   uint64            // serial number of the last one; 0: none came
	shares bool              // it has rates or weights, which a law must keep
	excess map[law.VM]string // of it
	grants *Grants

	excessMu sync.Mutex // of setExcess
}

func vmName(n law.VM) string { return fmt.Sprintf("VM %d", n) }

// addedVM is what a VM was added with.
type addedVM struct {
	VM
	ifindex int
	mtu     int // of the port
}

func newHostRole(cfg *Host, pin string, log *slog.Logger, alive func()) *hostRole {
	log = log.With("host", cfg.Number)
	return &hostRole{cfg: cfg, pin: pin, log: log, alive: alive, added: map[law.VM]addedVM{}, wrong: newProblems(log), why: "not begun", grants: NewGrants(log, clock)}
}

// host returns the open host; nil: none, and why.
func (r *hostRole) host() (*host.Host, string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.h, r.why
}

func (r *hostRole) set(h *host.Host, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.h, r.why = h, why
}

// follow opens the host as soon as the uplink exists, and adds VMs whose ports exist.
func (r *hostRole) follow(devices map[string]switchd.Device, o *Options) {
	uplink, there := devices[r.cfg.Uplink]
	h, _ := r.host()
	if h != nil && there && uplink.Ifindex != r.at {
		r.log.Warn("the uplink is another device now: enforcement begins anew", "uplink", r.cfg.Uplink)
		if err := h.Purge(); err != nil {
			r.log.Warn("cannot leave the uplink before", "error", err)
		}
		r.set(nil, "the uplink was replaced")
		h, r.added, r.again = nil, map[law.VM]addedVM{}, retry{}
	}
	if h == nil {
		if h = r.open(uplink.Ifindex, there, o); h == nil {
			return
		}
	}
	wrong := r.apply(h, r.cfg.VMs, devices)
	if err := h.KeepLimiter(); err != nil {
		wrong["the limiter of "+r.cfg.Uplink] = err.Error()
	}
	r.wrong.report(wrong)
	r.answer()
	r.learn()
}

// answer has the VMs' programs answered.
func (r *hostRole) answer() {
	r.sockets.follow(r.added, r.cfg.VMs)
	r.metadata.follow(r.added)
}

// learn passes the half which VMs there are, if that changed.
func (r *hostRole) learn() {
	if r.half == nil {
		return
	}
	has := &inventory.Host{At: r.cfg.Number, Rate: r.cfg.Rate}
	for _, number := range slices.Sorted(maps.Keys(r.added)) {
		has.VMs = append(has.VMs, inventory.VM{Number: number, Addresses: r.added[number].Addresses})
	}
	if !reflect.DeepEqual(has, r.known) {
		r.known = has
		r.half.set(law.Own(has))
	}
}

// promise takes the guarantees of VMs. It may be called by any goroutine.
func (r *hostRole) promise(plan *weirv1.HostPlan) {
	if r.half != nil {
		r.half.promise(plan)
	}
	excess, shares := map[law.VM]string{}, false
	for _, g := range plan.GetGuests() {
		if text := g.GetExcess().Law(); text != "" {
			excess[law.VM(g.GetVm())] = text
		}
		shares = shares || g.GetRate() > 0 || g.GetWeight() > 1
	}
	r.mu.Lock()
	same := maps.Equal(excess, r.excess)
	r.plan, r.shares, r.excess = plan.GetSerial(), shares, excess
	h := r.h
	r.mu.Unlock()
	if h != nil && !same {
		r.setExcess(h)
	}
}

// setExcess has the kernel do what the last plan says. Two calls at a time come one after the other, so that the last one has that plan.
func (r *hostRole) setExcess(h *host.Host) {
	r.excessMu.Lock()
	defer r.excessMu.Unlock()
	r.mu.Lock()
	excess := r.excess
	r.mu.Unlock()
	if err := h.SetExcess(excess); err != nil && !errors.Is(err, host.ErrClosed) {
		r.log.Warn("cannot set what happens to packets above a rate", "error", err)
	}
}

// promised returns what became of the last plan.
func (r *hostRole) promised() *weirv1.PlanState {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &weirv1.PlanState{Serial: r.plan}
	switch {
	case r.half == nil && r.shares:
		s.Problem = "its host has no law that shares the uplink: set host.laws in the agent's file. Of the guarantee only the cap is enforced"
	case r.h == nil:
		s.Problem = weirv1.Reason(r.why)
	}
	return s
}

// open opens the host, unless a recent attempt failed.
func (r *hostRole) open(uplink int, there bool, o *Options) *host.Host {
	if !there {
		r.off(fmt.Sprintf("there is no device %s: waiting for it", r.cfg.Uplink))
		return nil
	}
	if !r.again.due() {
		return nil
	}
	c := host.Config{
		Uplink: attach.PortRef{Name: r.cfg.Uplink, Ifindex: uplink}, Rate: r.cfg.Rate, PauseZero: r.cfg.PauseZero,
		ECN: r.half.ecn(), Excess: r.half.excess(), Marks: r.half != nil && r.half.pairs != nil, Pin: r.pin, TakeOver: o.TakeOver, Version: o.Version,
	}
	h, err := host.Open(c)
	if err != nil {
		r.again.failed()
		r.off(remedy(err))
		return nil
	}
	r.again, r.at = retry{}, uplink
	for vm := range h.VMs() { // of an earlier process
		if !slices.ContainsFunc(r.cfg.VMs, func(v VM) bool { return v.Number == vm }) {
			if err := h.RemoveVM(vm); err != nil {
				r.log.Warn("cannot remove a VM of an earlier process", "vm", vm, "error", err)
			}
		}
	}
	r.set(h, "")
	r.setExcess(h)
	r.log.Info("grants are enforced", "uplink", r.cfg.Uplink, "rate", r.cfg.Rate, "pinned", r.pin)
	return h
}

// off notes why nothing is enforced, and logs it once.
func (r *hostRole) off(why string) {
	if _, before := r.host(); before != why {
		r.log.Warn("no grant is enforced", "reason", why)
	}
	r.set(nil, why)
}

// remedy adds to an error of the kernel what to do about it.
func remedy(err error) string {
	if missing := (*attach.MissingFeature)(nil); errors.As(err, &missing) {
		return err.Error() + "; weir doctor lists what this kernel lacks"
	}
	return err.Error()
}

// apply makes the VMs of h those of the list whose ports exist. It returns what is wrong with the others, by VM.
func (r *hostRole) apply(h *host.Host, list []VM, devices map[string]switchd.Device) map[string]string {
	wrong := map[string]string{}
	note := func(vm law.VM, why string) { wrong[vmName(vm)] = why }
	wanted := map[law.VM]addedVM{}
	holder := map[int]law.VM{} // by ifindex
	for _, v := range list {
		d, there := devices[v.Port]
		if !there {
			note(v.Number, fmt.Sprintf("there is no device %s: waiting for it", v.Port))
		}
		wanted[v.Number] = addedVM{v, d.Ifindex, d.MTU}
		holder[d.Ifindex] = v.Number
	}
	for vm, was := range maps.Clone(r.added) {
		now, kept := wanted[vm]
		other, taken := holder[was.ifindex]
		if kept && now.ifindex != 0 && (now.ifindex == was.ifindex || !taken || other == vm) {
			continue // AddVM changes it without a gap
		}
		if err := h.RemoveVM(vm); err != nil {
			note(vm, err.Error())
			continue
		}
		delete(r.added, vm)
		r.log.Info("VM removed", "vm", vm, "port", was.Port)
	}
	for _, v := range list {
		now := wanted[v.Number]
		was, on := r.added[v.Number]
		if now.ifindex == 0 || on && reflect.DeepEqual(was, now) {
			continue
		}
		r.alive()
		err := h.AddVM(host.VM{Number: v.Number, Port: attach.PortRef{Name: v.Port, Ifindex: now.ifindex}, MAC: v.MAC, Addresses: v.Addresses})
		if err != nil {
			note(v.Number, err.Error())
			continue
		}
		r.added[v.Number] = now
		r.log.Info("VM added", "vm", v.Number, "port", v.Port, "changed", on)
	}
	return wrong
}

// become applies another list of VMs, completely or not at all.
func (r *hostRole) become(next *Host, devices map[string]switchd.Device) ([]string, error) {
	was := r.cfg
	h, _ := r.host()
	if h != nil {
		var errs []error
		wrong := r.apply(h, next.VMs, devices)
		for who, why := range wrong {
			if r.wrong.of(who) != why && !isMissing(who, next, devices) { // what was wrong before may stay so
				errs = append(errs, fmt.Errorf("%s: %s", who, why))
			}
		}
		if err := errors.Join(errs...); err != nil {
			for who, why := range r.apply(h, was.VMs, devices) {
				r.log.Warn("after the refused reload", "of", who, "reason", why)
			}
			return nil, err
		}
		r.wrong.report(wrong)
	}
	r.cfg = next
	r.answer()
	r.learn()
	r.half.setPeers(next.Peers)
	changes := differences(was.VMs, next.VMs, func(v *VM) (string, any) { return vmName(v.Number), *v })
	return append(changes, differences(was.Peers, next.Peers, func(p *Peer) (string, any) { return "peer " + p.Agent, *p })...), nil
}

// isMissing reports whether the VM's port does not exist. It is waited for.
func isMissing(who string, cfg *Host, devices map[string]switchd.Device) bool {
	return slices.ContainsFunc(cfg.VMs, func(v VM) bool {
		_, there := devices[v.Port]
		return vmName(v.Number) == who && !there
	})
}

// guests lists the VMs that grants are carried out for.
func (r *hostRole) guests() (out []*weirv1.Guest) {
	for _, number := range slices.Sorted(maps.Keys(r.added)) {
		v := r.added[number]
		g := &weirv1.Guest{Vm: uint32(number), Name: v.Name, Port: v.Port, Labels: v.Labels}
		for _, p := range v.Addresses {
			g.Addresses = append(g.Addresses, weirv1.NewRange(p))
		}
		out = append(out, g)
	}
	return out
}

// obey carries out a command. stamp is when the report that it answers was sent.
func (r *hostRole) obey(term uint64, stamp time.Duration, list []law.Grant) {
	if r.half != nil {
		if list = r.half.take(list); len(list) == 0 {
			return
		}
	}
	var to Enforcer
	if h, _ := r.host(); h != nil {
		to = h
	}
	r.grants.Obey(to, term, stamp, list)
}

// has returns the VM that the law's half knows by an address.
func (r *hostRole) has(a netip.Addr) (law.VM, bool) {
	if r.half == nil {
		return 0, false
	}
	r.half.mu.Lock()
	defer r.half.mu.Unlock()
	return r.half.vms.of(a)
}

// heartbeats keeps the owners of grants alive until stop. Nothing slow runs on its goroutine.
func (r *hostRole) heartbeats(stop <-chan struct{}) {
	every := time.NewTicker(host.HeartbeatInterval)
	defer every.Stop()
	for {
		select {
		case <-stop:
			return
		case <-every.C:
		}
		if h, _ := r.host(); h != nil {
			r.grants.Heartbeat(h)
		}
	}
}

// leave closes what this process has open. Programs continue for the process that takes over.
func (r *hostRole) leave() error {
	r.sockets.end(false)
	r.metadata.end()
	h, _ := r.host()
	r.set(nil, "ended")
	if h == nil {
		return nil
	}
	return h.Close()
}

// end releases all grants, and then removes everything.
func (r *hostRole) end() error {
	r.sockets.end(true)
	r.metadata.end()
	h, _ := r.host()
	if h == nil {
		return nil
	}
	r.log.Info("releasing grants")
	err := r.grants.release(h)
	r.set(nil, "ended")
	return errors.Join(err, h.Purge())
}
