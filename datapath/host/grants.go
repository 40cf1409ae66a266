package host

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"weir/datapath/attach"
	"weir/law"
)

// Flags of core/grant.h.
const (
	grantSet   = 1
	grantPause = 2
)

// Levels of enum host_windows.
const (
	windowsVM    = 1
	windowsPairs = 2
	windowsFlows = 4
)

// keyed is a pair or a flow that has grants.
type keyed struct {
	index uint32 // in the kernel's table of their grants; from 1
	end   uint64 // of the lease that ends last
}

// indexes are those of the kernel's table that no key has.
type indexes struct {
	next uint32
	free []uint32
}

func (x *indexes) take() uint32 {
	if n := len(x.free); n > 0 {
		i := x.free[n-1]
		x.free = x.free[:n-1]
		return i
	}
	x.next++
	return x.next
}

func (x *indexes) give(i uint32) { x.free = append(x.free, i) }

// SetGrant sets one grant, as SetGrants does.
func (h *Host) SetGrant(g law.Grant) error { return h.SetGrants([]law.Grant{g}) }

// SetGrants sets grants, or replaces those of the same owner, kind and key. For a flow, a window also replaces the owner's pause,
// and a pause its window. A grant is valid until its lease or its owner's
// heartbeat ends; a lease of 0 releases it from now on. At most MaxLease. Keys: the VM alone, with Peer, or with Flow (Src is
// the VM's). A rate is for a VM alone; its class is changed at once, or by a later Sweep if many change. Grants that are
// refused are in the error, which joins a *Refused for each; the others are set. A grant is refused for an unknown VM, for an owner without a heartbeat, for a
// full table, and if there are GrantsAKey grants for the same key.
func (h *Host) SetGrants(grants []law.Grant) error {
	return h.SetGrantsAt(attach.MonotonicNs(), grants)
}

// SetGrantsAt is SetGrants with leases that count from now, a recent reading of the monotonic clock, in ns. A process that was
// stopped after the reading then sets no grant for longer than it had decided.
func (h *Host) SetGrantsAt(now uint64, grants []law.Grant) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return ErrClosed
	}
	var errs []error
	for i := range grants {
		if err := h.setGrant(&grants[i], now); err != nil {
			errs = append(errs, refused(&grants[i], err))
		}
	}
	return errors.Join(append(errs, h.flush(now))...)
}

func (h *Host) setGrant(g *law.Grant, now uint64) error {
	v := h.vms[g.Key.VM]
	switch {
	case v == nil:
		return because{NoVM, errors.New("there is no such VM here")}
	case g.Owner >= Owners:
		return because{BadOwner, fmt.Errorf("owner %d: 0 to %d", g.Owner, Owners-1)}
	case g.Kind > law.PauseGrant:
		return because{BadKey, fmt.Errorf("kind %d is unknown", g.Kind)}
	case g.Lease < 0 || g.Lease > MaxLease:
		return because{BadLease, fmt.Errorf("a lease of %v: 0 to %v", g.Lease, MaxLease)}
	}
	alive, err := h.ownerRuns(g.Owner, now)
	if err != nil {
		return err
	}
	if !alive {
		return because{BadOwner, fmt.Errorf("owner %d has sent no heartbeat for %v", g.Owner, OwnerLease)}
	}
	set := grant{Value: g.Value, ExpiresNs: now + uint64(g.Lease), Owner: uint32(g.Owner), Flags: grantSet}
	if g.Kind == law.PauseGrant {
		set.Flags |= grantPause
	}
	peer, flow, err := keyOf(v.id, g)
	switch {
	case err != nil:
		return because{BadKey, err}
	case g.Kind == law.RateGrant:
		return h.setRate(v, set, now)
	case flow != nil:
		return setKey(h, v, h.maps.FlowGrants, h.flows, *flow, set, now)
	case peer != nil:
		return setKey(h, v, h.maps.Pairs, h.pairs, *peer, set, now)
	}
	return h.changeGrants(v, func(e *hostHostGrants) error {
		e.Windows |= windowsVM
		return put(&e.Window, set, now)
	})
}

// keyOf returns the key of a grant in the tables: of a pair, of a flow, or neither for the VM as a whole.
func keyOf(id uint32, g *law.Grant) (*hostHostPair, *hostHostFlow, error) {
	f, peer := g.Key.Flow, g.Key.Peer
	if f != (law.Flow{}) {
		switch {
		case g.Kind == law.RateGrant:
			return nil, nil, errors.New("a rate is for a VM, not for a flow")
		case f.Proto != 0 && f.Proto != 6:
			return nil, nil, fmt.Errorf("protocol %d has no window: only TCP (6) has", f.Proto)
		case !f.Src.IsValid() || !f.Dst.IsValid() || f.Src.Addr().Unmap().Is4() != f.Dst.Addr().Unmap().Is4():
			return nil, nil, fmt.Errorf("flow from %v to %v: both ends are needed, of one family", f.Src, f.Dst)
		case peer.IsValid() && peer.Unmap() != f.Dst.Addr().Unmap():
			return nil, nil, fmt.Errorf("peer %v is not the destination %v of the flow", peer, f.Dst)
		}
		return nil, &hostHostFlow{Vm: id, Ports: wirePorts(f.Dst.Port(), f.Src.Port()), Peer: words(f.Dst.Addr()), Own: words(f.Src.Addr())}, nil
	}
	if !peer.IsValid() {
		return nil, nil, nil
	}
	if g.Kind == law.RateGrant {
		return nil, nil, errors.New("a rate is for a VM, not for a pair")
	}
	return &hostHostPair{Vm: id, Peer: words(peer)}, nil, nil
}

// wirePorts returns two ports as the first word of a TCP header has them.
func wirePorts(from, to uint16) uint32 {
	swap := func(p uint16) uint32 { return uint32(p>>8 | p<<8) }
	return swap(from) | swap(to)<<16
}

// grant is one grant of the tables.
type grant = struct {
	Value     uint64
	ExpiresNs uint64
	Owner     uint32
	Flags     uint32
}

// putFlow sets a grant among those of a flow. A window ends the pause of its owner, and a pause its window: the law says with each
// grant what the flow may send from now on.
func putFlow(all *hostGrants, set grant, now uint64) error {
	clearEnded(all, func(g *grant) bool { return g.Owner == set.Owner && g.Flags != set.Flags })
	return put(all, set, now)
}

// put sets a grant among those of one key. It replaces the owner's grant of the same kind. The kernel reads them up to the first
// that is not set.
func put(all *hostGrants, set grant, now uint64) error {
	at := -1
	for i := range all.Grant {
		g := &all.Grant[i]
		if g.Flags == set.Flags && g.Owner == set.Owner {
			at = i
			break
		}
		if at < 0 && (g.Flags&grantSet == 0 || int64(now-g.ExpiresNs) > int64(releaseTime)) {
			at = i
		}
	}
	if at < 0 {
		return because{Full, fmt.Errorf("there are %d grants for the same already, the most: wait until one has ended", GrantsAKey)}
	}
	g := &all.Grant[at]
	g.Value, g.ExpiresNs, g.Owner, g.Flags = set.Value, set.ExpiresNs, set.Owner, set.Flags
	return nil
}

// releaseTime is more than a window needs to be released.
const releaseTime = 500 * time.Millisecond

// lastEnd returns the latest end of the leases of a key.
func lastEnd(all *hostGrants) (end uint64) {
	for i := range all.Grant {
		if g := &all.Grant[i]; g.Flags&grantSet != 0 {
			end = max(end, g.ExpiresNs)
		}
	}
	return end
}

// table is a map of the kernel.
type table interface {
	Lookup(key, valueOut any) error
	Put(key, value any) error
	Delete(key any) error
}

// setKey sets a grant for a pair or a flow. A new key is written before the filter that leads to it. The VM's generation
// makes connections look the key up.
func setKey[K comparable](h *Host, v *vm, t table, known map[K]*keyed, key K, set grant, now uint64) error {
	var all hostGrants
	put := put
	if _, flow := any(key).(hostHostFlow); flow {
		put = putFlow
	}
	k := known[key]
	if k != nil {
		if err := h.maps.Keyed.Lookup(k.index, &all); err != nil {
			return fmt.Errorf("read the grants: %w", err)
		}
		if err := put(&all, set, now); err != nil {
			return err
		}
		k.end = lastEnd(&all)
		return h.maps.Keyed.Put(k.index, all)
	}
	k = &keyed{index: h.indexes.take(), end: set.ExpiresNs}
	err := put(&all, set, now)
	if err == nil {
		err = h.maps.Keyed.Put(k.index, all)
	}
	if err == nil {
		err = t.Put(key, k.index)
	}
	if err != nil {
		h.indexes.give(k.index)
		return because{Full, fmt.Errorf("the table is full, or cannot be written (%d entries): %w", len(known), err)}
	}
	known[key] = k
	return h.changeGrants(v, func(e *hostHostGrants) error {
		e.Generation++
		filter(e, any(key))
		return nil
	})
}

// filter sets the level and the bit of a key.
func filter(e *hostHostGrants, key any) {
	switch k := key.(type) {
	case hostHostPair:
		bit := grantBit(k.Peer[3], 0)
		e.Windows |= windowsPairs
		e.Peers[bit>>6] |= 1 << (bit & 63)
	case hostHostFlow:
		bit := grantBit(k.Peer[3], k.Ports)
		e.Windows |= windowsFlows
		e.Flows[bit>>6] |= 1 << (bit & 63)
	}
}

// grantBit is grant_bit of core/grant.h.
func grantBit(word, ports uint32) uint32 { return ((word ^ ports) * 0x9e3779b1) >> 24 }

// changeGrants changes the entry of a VM's grants.
func (h *Host) changeGrants(v *vm, change func(e *hostHostGrants) error) error {
	var e hostHostGrants
	if err := h.maps.VmGrants.Lookup(v.id, &e); err != nil {
		return fmt.Errorf("read the grants: %w", err)
	}
	e.Zero = h.zero()
	if err := change(&e); err != nil {
		return err
	}
	return h.maps.VmGrants.Put(v.id, e)
}

// ownerRuns reports whether the owner's last heartbeat is recent.
func (h *Host) ownerRuns(o law.Owner, now uint64) (bool, error) {
	var e hostGrantOwner
	if err := h.maps.Owners.Lookup(uint32(o), &e); err != nil {
		return false, fmt.Errorf("read owner %d: %w", o, err)
	}
	return e.runs(now), nil
}

func (e *hostGrantOwner) runs(now uint64) bool {
	return e.HeartbeatNs != 0 && e.LeftNs == 0 && int64(now-e.HeartbeatNs) < int64(OwnerLease)
}

// Heartbeat shows that an owner runs, and keeps its grants valid for OwnerLease. The first heartbeat after a longer silence
// removes what the owner had granted before: those grants have been released meanwhile, and must not limit again.
func (h *Host) Heartbeat(o law.Owner) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.closed:
		return ErrClosed
	case o >= Owners:
		return fmt.Errorf("host: owner %d: 0 to %d", o, Owners-1)
	}
	alive, err := h.ownerRuns(o, attach.MonotonicNs())
	if err == nil && !alive {
		err = h.removeOwner(o)
	}
	if err == nil {
		err = h.maps.Owners.Put(uint32(o), hostGrantOwner{HeartbeatNs: attach.MonotonicNs()})
	}
	if err != nil {
		return fmt.Errorf("host: heartbeat of owner %d: %w", o, err)
	}
	return nil
}

// Leave releases an owner's grants from now on.
func (h *Host) Leave(o law.Owner) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var e hostGrantOwner
	switch {
	case h.closed:
		return ErrClosed
	case o >= Owners:
		return fmt.Errorf("host: owner %d: 0 to %d", o, Owners-1)
	}
	err := h.maps.Owners.Lookup(uint32(o), &e)
	if err == nil && e.LeftNs == 0 {
		e.LeftNs = attach.MonotonicNs()
		err = h.maps.Owners.Put(uint32(o), e)
	}
	if err != nil {
		return fmt.Errorf("host: owner %d leaves: %w", o, err)
	}
	return nil
}

// Granted is a grant as the kernel has it.
type Granted struct {
	law.Grant
	Valid  bool          // its lease and its owner's heartbeat have not ended
	Expiry time.Duration // until the end of its own lease; 0: over
}

// Grants reads the grants of a VM from the kernel; 0: those of all VMs. Grants that have ended stay until the next Sweep.
func (h *Host) Grants(number law.VM) ([]Granted, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, ErrClosed
	}
	r := reader{h: h, now: attach.MonotonicNs(), of: number, vms: map[uint32]law.VM{}}
	for _, v := range h.vms {
		r.vms[v.id] = v.number
		var e hostHostGrants
		if err := h.maps.VmGrants.Lookup(v.id, &e); err != nil {
			return nil, fmt.Errorf("host: grants of VM %d: %w", v.number, err)
		}
		r.add(v.id, &e.Window, law.WindowGrant, law.Key{})
		r.add(v.id, &e.Rate, law.RateGrant, law.Key{})
	}
	for key, k := range h.pairs {
		var g hostGrants
		if err := h.maps.Keyed.Lookup(k.index, &g); err != nil {
			return nil, fmt.Errorf("host: grants of a pair: %w", err)
		}
		r.add(key.Vm, &g, law.WindowGrant, law.Key{Pair: law.Pair{Peer: address(key.Peer)}})
	}
	for key, k := range h.flows {
		var g hostGrants
		if err := h.maps.Keyed.Lookup(k.index, &g); err != nil {
			return nil, fmt.Errorf("host: grants of a flow: %w", err)
		}
		swap := func(p uint32) uint16 { return uint16(p)>>8 | uint16(p)<<8 }
		r.add(key.Vm, &g, law.WindowGrant, law.Key{Pair: law.Pair{Peer: address(key.Peer)}, Flow: law.Flow{
			Src: netip.AddrPortFrom(address(key.Own), swap(key.Ports>>16)), Dst: netip.AddrPortFrom(address(key.Peer), swap(key.Ports)), Proto: 6,
		}})
	}
	return r.out, r.err
}

// reader collects grants.
type reader struct {
	h   *Host
	now uint64
	of  law.VM
	vms map[uint32]law.VM // by index
	out []Granted
	err error
}

func (r *reader) add(id uint32, all *hostGrants, kind law.Kind, key law.Key) {
	key.VM = r.vms[id]
	if r.of != 0 && key.VM != r.of {
		return
	}
	for i := range all.Grant {
		g := &all.Grant[i]
		if g.Flags&grantSet == 0 {
			continue
		}
		alive, err := r.h.ownerRuns(law.Owner(g.Owner), r.now)
		r.err = errors.Join(r.err, err)
		left := max(0, time.Duration(g.ExpiresNs-r.now))
		one := Granted{law.Grant{Owner: law.Owner(g.Owner), Kind: kind, Key: key, Value: g.Value}, alive && left > 0, left}
		if g.Flags&grantPause != 0 {
			one.Kind = law.PauseGrant
		}
		r.out = append(r.out, one)
	}
}

// address returns an address of the tables.
func address(w [4]uint32) netip.Addr {
	var b [16]byte
	for i := range w {
		b[4*i], b[4*i+1], b[4*i+2], b[4*i+3] = byte(w[i]), byte(w[i]>>8), byte(w[i]>>16), byte(w[i]>>24)
	}
	return netip.AddrFrom16(b).Unmap()
}
