package host

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"weir/datapath/attach"
	"weir/law"
)

// The classes of HTB at the uplink. One parent has the uplink's rate. Below it are the relaxed class, which takes what the
// others leave, and a limited class for each VM that has had a rate grant.
//
//	root HTB -> parent, the uplink's rate -> relaxed (default)   a twentieth of it, up to all of it
//	                                      -> limited, by VM      the grant, and not more
//
// Each of these classes has a queue with a limit in bytes.
const (
	rootHandle   = 0x57480000 // "WH", shows that the HTB is this package's
	classParent  = rootHandle + 1
	classRelaxed = rootHandle + 2
	classFirst   = rootHandle + 16 // of the VM with index 0

	relaxedShare = 20

	// ChangesPerSecond is how many changes of rates are made at most. A change takes 16 us. The first class of a VM is made
	// at once.
	ChangesPerSecond = 10_000
	changesAtOnce    = ChangesPerSecond / 4 // a heartbeat's
)

func classOf(id uint32) uint32 { return classFirst + id }

// UplinkBusy is the error for an uplink whose queue discipline belongs to somebody else.
type UplinkBusy struct{ Port, Kind string }

func (e *UplinkBusy) Error() string {
	return fmt.Sprintf("port %s has a queue discipline of its own (%s), which Weir does not replace: remove it, or set no rate for the uplink: then there are no rate grants", e.Port, e.Kind)
}

// limiter is HTB at the uplink.
type limiter struct {
	port   attach.PortRef
	net    *netlink.Handle
	own    map[int]*nl.SocketHandle // for requests that the library does not have
	found  bool                     // an earlier process made it
	budget float64
	last   uint64 // when the budget was last filled, ns
}

// openLimiter puts HTB at the root of the uplink, or finds that of an earlier process. bps: rate of the uplink, bit/s.
func openLimiter(p attach.PortRef, bps uint64) (l *limiter, err error) {
	l = &limiter{port: p, budget: changesAtOnce, last: attach.MonotonicNs()}
	err = p.In(func() (err error) {
		if l.net, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
			return fmt.Errorf("open netlink: %w", err)
		}
		socket, err := nl.GetNetlinkSocketAt(netns.None(), netns.None(), unix.NETLINK_ROUTE)
		if err != nil {
			return fmt.Errorf("open netlink: %w", err)
		}
		l.own = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: socket}}
		if l.found, err = l.find(); err != nil {
			return err
		}
		return l.create(bps)
	})
	if err != nil && l.net != nil {
		if !l.found && !errors.As(err, new(*UplinkBusy)) {
			err = errors.Join(err, l.remove())
		}
		l.close()
	}
	if err != nil {
		return nil, fmt.Errorf("limiter at %s: %w", p.Name, err)
	}
	return l, nil
}

// removeLimiter removes this package's HTB from a port that has one. Any other queue discipline stays.
func removeLimiter(p attach.PortRef) error {
	l := &limiter{port: p}
	err := p.In(func() (err error) {
		if l.net, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
			return fmt.Errorf("open netlink: %w", err)
		}
		return l.remove()
	})
	l.close()
	if errors.As(err, new(*UplinkBusy)) {
		return nil
	}
	return err
}

// find reports whether the root is this package's HTB. A queue discipline that the kernel made by itself has no handle, and is
// replaced; the kernel puts it back when the HTB is removed.
func (l *limiter) find() (bool, error) {
	list, err := attach.Again(netlink.ErrDumpInterrupted, func() ([]netlink.Qdisc, error) { return l.net.QdiscList(nil) })
	if err != nil {
		return false, fmt.Errorf("list queue disciplines: %w", err)
	}
	for _, q := range list {
		a := q.Attrs()
		switch {
		case a.LinkIndex != l.port.Ifindex || a.Parent != netlink.HANDLE_ROOT:
		case q.Type() == "htb" && a.Handle == rootHandle:
			return true, nil
		case a.Handle != 0:
			return false, &UplinkBusy{l.port.Name, q.Type()}
		}
	}
	return false, nil
}

func (l *limiter) create(bps uint64) error {
	if !l.found {
		htb := netlink.NewHtb(netlink.QdiscAttrs{LinkIndex: l.port.Ifindex, Parent: netlink.HANDLE_ROOT, Handle: rootHandle})
		htb.Defcls = classRelaxed & 0xffff
		if err := l.net.QdiscAdd(htb); err != nil {
			return fmt.Errorf("put HTB at the root (it needs CONFIG_NET_SCH_HTB): %w", err)
		}
	}
	if err := l.class(rootHandle, classParent, bps, bps); err != nil {
		return err
	}
	if err := l.class(classParent, classRelaxed, bps/relaxedShare, bps); err != nil {
		return err
	}
	return l.leaf(classRelaxed, "bfifo", bucketLimit(bps))
}

// class makes a class, or changes its rate.
func (l *limiter) class(parent, handle uint32, bps, ceil uint64) error {
	bps, ceil = bucketRate(bps), bucketRate(ceil)
	c := netlink.NewHtbClass(netlink.ClassAttrs{LinkIndex: l.port.Ifindex, Parent: parent, Handle: handle}, netlink.HtbClassAttrs{
		Rate: bps, Ceil: ceil, Buffer: bucketBurst(bps), Cbuffer: bucketBurst(ceil), Quantum: bucketQuantum(bps),
	})
	if err := l.net.ClassReplace(c); err != nil {
		return fmt.Errorf("set class %x to %d bit/s: %w", handle&0xffff, bps, err)
	}
	return nil
}

// leaf gives a class a queue: kind is bfifo, with a limit in bytes, or pfifo, in packets. The netlink library has no bfifo.
func (l *limiter) leaf(class uint32, kind string, limit uint32) error {
	req := nl.NewNetlinkRequest(unix.RTM_NEWQDISC, unix.NLM_F_CREATE|unix.NLM_F_REPLACE|unix.NLM_F_ACK)
	req.AddData(&nl.TcMsg{Family: nl.FAMILY_ALL, Ifindex: int32(l.port.Ifindex), Parent: class})
	req.AddData(nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated(kind)))
	req.AddData(nl.NewRtAttr(nl.TCA_OPTIONS, binary.LittleEndian.AppendUint32(nil, limit)))
	req.Sockets = l.own
	if _, err := req.Execute(unix.NETLINK_ROUTE, 0); err != nil {
		return fmt.Errorf("put a %s of %d below class %x: %w", kind, limit, class&0xffff, err)
	}
	return nil
}

// class is the kernel's class of a VM.
type class struct {
	bps   uint64
	drops uint64 // packets without room in its queue; a GSO packet counts once
}

// classes returns the VMs' classes, by index.
func (l *limiter) classes() (map[uint32]class, error) {
	device := &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: l.port.Ifindex}}
	list, err := attach.Again(netlink.ErrDumpInterrupted, func() ([]netlink.Class, error) { return l.net.ClassList(device, 0) })
	if err != nil {
		return nil, fmt.Errorf("list the classes of %s: %w", l.port.Name, err)
	}
	all := map[uint32]class{}
	for _, c := range list {
		if htb, ok := c.(*netlink.HtbClass); ok && htb.Handle >= classFirst && htb.Handle < classFirst+MaxVMs {
			one := class{bps: htb.Rate * 8}
			if s := htb.Statistics; s != nil && s.Queue != nil {
				one.drops = uint64(s.Queue.Drops)
			}
			all[htb.Handle-classFirst] = one
		}
	}
	return all, nil
}

// allow takes a change from the budget, if there is one.
func (l *limiter) allow(now uint64) bool {
	if since := int64(now - l.last); since > 0 { // a caller's reading of the clock may be older than the last
		l.budget = min(l.budget+float64(since)/1e9*ChangesPerSecond, changesAtOnce)
		l.last = now
	}
	if l.budget < 1 {
		return false
	}
	l.budget--
	return true
}

func (l *limiter) removeClass(id uint32) error {
	c := netlink.NewHtbClass(netlink.ClassAttrs{LinkIndex: l.port.Ifindex, Parent: classParent, Handle: classOf(id)}, netlink.HtbClassAttrs{})
	if err := l.net.ClassDel(c); err != nil {
		return fmt.Errorf("remove class %x: %w", classOf(id)&0xffff, err)
	}
	return nil
}

// remove removes the HTB. A device that is gone is no error.
func (l *limiter) remove() error {
	ours, err := l.find()
	if err != nil || !ours {
		return err
	}
	err = l.net.QdiscDel(netlink.NewHtb(netlink.QdiscAttrs{LinkIndex: l.port.Ifindex, Parent: netlink.HANDLE_ROOT, Handle: rootHandle}))
	if err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("remove HTB from %s: %w", l.port.Name, err)
	}
	return nil
}

func (l *limiter) close() {
	if l.net != nil {
		l.net.Close()
		l.net = nil
	}
	for _, s := range l.own {
		s.Close()
	}
	l.own = nil
}

// findClasses reads which VMs have a class, and removes classes of VMs that are gone.
func (h *Host) findClasses() error {
	all, err := h.limiter.classes()
	if err != nil {
		return err
	}
	for _, v := range h.vms {
		v.class = all[v.id].bps
		delete(all, v.id)
	}
	for id := range all {
		if err := h.limiter.removeClass(id); err != nil {
			return err
		}
	}
	return nil
}

// limiterLook is the time between two looks whether the limiter is still there, in ns.
const limiterLook = 1e9

// KeepLimiter makes the limiter again if somebody has removed it, as Open vSwitch does when it adds the port. A queue discipline that somebody
// else has put there stays: rate grants are refused then, and each call returns why. It looks once a second. The kernel may let it wait, so do
// not call it where heartbeats are sent. One goroutine may call it while others call the rest, until Close.
func (h *Host) KeepLimiter() error {
	l, err := h.looksNow()
	if l == nil {
		return err
	}
	ours, err := l.find()
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.closed:
		return ErrClosed
	case ours:
		h.lost = nil
		return nil
	case err == nil:
		err = h.remakeLimiter()
	case !errors.As(err, new(*UplinkBusy)): // nothing is known
		return err
	}
	h.lost = err
	return err
}

// looksNow returns the limiter if it is time to look whether it is there; nil: it is not, with what the last look found.
func (h *Host) looksNow() (*limiter, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := attach.MonotonicNs()
	if h.closed || h.limiter == nil || int64(now-h.looked) < limiterLook {
		return nil, h.lost
	}
	h.looked = now
	return h.limiter, nil
}

// remakeLimiter puts HTB at the uplink, with the classes that VMs had. After an error it is not there, and the next look tries again.
func (h *Host) remakeLimiter() error {
	h.limiter.found = false
	err := h.limiter.create(uint64(h.cfg.Rate))
	for _, v := range h.vms {
		if err == nil && v.class != 0 {
			err = h.makeClass(v, v.class)
		}
	}
	if err != nil {
		return errors.Join(err, h.limiter.remove())
	}
	return nil
}

// limits reports whether the limiter is there.
func (h *Host) limits() bool { return h.limiter != nil && h.lost == nil }

// setRate sets the rate grant of a VM. The class exists before packets are sent to it.
func (h *Host) setRate(v *vm, set grant, now uint64) error {
	if h.limiter == nil {
		return because{NoLimiter, errors.New("the uplink has no limiter: set the uplink's rate")}
	}
	if h.lost != nil {
		return because{NoLimiter, h.lost}
	}
	if v.class == 0 {
		if err := h.makeClass(v, set.Value); err != nil {
			return err
		}
	}
	v.dirty = true
	return h.changeGrants(v, func(e *hostHostGrants) error { return put(&e.Rate, set, now) })
}

func (h *Host) makeClass(v *vm, bps uint64) error {
	if err := h.limiter.class(classParent, classOf(v.id), bps, bps); err != nil {
		return err
	}
	if err := h.makeLeaf(v, bps); err != nil {
		return errors.Join(err, h.limiter.removeClass(v.id))
	}
	var entry hostHostVm
	if err := h.maps.Vms.Lookup(v.id, &entry); err != nil {
		return err
	}
	entry.Class = classOf(v.id)
	if err := h.maps.Vms.Put(v.id, entry); err != nil {
		return err
	}
	v.class = bucketRate(bps)
	return nil
}

// rate returns the smallest valid rate grant of a VM in bit/s; 0: none.
func (h *Host) rate(v *vm, now uint64) (bps uint64, err error) {
	var e hostHostGrants
	if err := h.maps.VmGrants.Lookup(v.id, &e); err != nil {
		return 0, fmt.Errorf("read the grants of VM %d: %w", v.number, err)
	}
	for i := range e.Rate.Grant {
		g := &e.Rate.Grant[i]
		if g.Flags&grantSet == 0 || int64(now-g.ExpiresNs) >= 0 {
			continue
		}
		alive, err := h.ownerRuns(law.Owner(g.Owner), now)
		if err != nil {
			return 0, err
		}
		if alive && (bps == 0 || g.Value < bps) {
			bps = max(g.Value, 1)
		}
	}
	return bps, nil
}

// flush changes the classes whose rate has changed by more than 2 %, as many as the budget allows. The others wait for the next
// call. A VM without a valid rate keeps its class: packets no longer take it.
func (h *Host) flush(now uint64) error {
	if !h.limits() {
		return nil
	}
	for _, v := range h.vms {
		if !v.dirty {
			continue
		}
		bps, err := h.rate(v, now)
		if err != nil {
			return err
		}
		if bps != 0 && bucketChanges(v.class, bps) {
			if !h.limiter.allow(now) {
				return nil
			}
			if err := h.limiter.class(classParent, classOf(v.id), bps, bps); err != nil {
				return err
			}
			if bucketLimit(bps) != bucketLimit(v.class) {
				if err := h.makeLeaf(v, bps); err != nil {
					return err
				}
			}
			v.class = bucketRate(bps)
		}
		v.dirty = false
	}
	return nil
}
