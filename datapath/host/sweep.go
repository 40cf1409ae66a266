package host

import (
	"errors"
	"fmt"

	"weir/datapath/attach"
	"weir/law"
)

// Sweep removes grants that have ended, and changes the classes of VMs whose rate has changed. Call it with every heartbeat.
// The kernel needs it for nothing: it makes room in the tables, and keeps lookups short.
func (h *Host) Sweep() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return ErrClosed
	}
	now := attach.MonotonicNs()
	silent, anew, err := h.silentOwners(now)
	if err != nil {
		return fmt.Errorf("host: %w", err)
	}
	err = h.prune(now, anew, func(g *grant) bool {
		return silent[g.Owner%Owners] != 0 || int64(now-g.ExpiresNs) > int64(releaseTime)
	})
	if err == nil {
		h.swept = silent
	}
	for _, v := range h.vms {
		v.dirty = v.dirty || v.class != 0
	}
	if err := errors.Join(err, h.flush(now)); err != nil {
		return fmt.Errorf("host: %w", err)
	}
	return nil
}

// silentOwners returns the last heartbeats of owners whose grants have been released; 0: they have not. anew: some of these
// grants have not been removed by a Sweep yet.
func (h *Host) silentOwners(now uint64) (silent [Owners]uint64, anew bool, err error) {
	for o := range silent {
		var e hostGrantOwner
		if err := h.maps.Owners.Lookup(uint32(o), &e); err != nil {
			return silent, false, fmt.Errorf("read owner %d: %w", o, err)
		}
		end := e.HeartbeatNs + uint64(OwnerLease)
		if e.LeftNs != 0 {
			end = min(end, e.LeftNs)
		}
		if e.HeartbeatNs != 0 && int64(now-end) > int64(releaseTime) {
			silent[o] = e.HeartbeatNs
			anew = anew || h.swept[o] != e.HeartbeatNs
		}
	}
	return silent, anew, nil
}

// removeOwner removes all grants of an owner.
func (h *Host) removeOwner(o law.Owner) error {
	return h.prune(attach.MonotonicNs(), true, func(g *grant) bool { return g.Owner == uint32(o) })
}

// prune removes the grants for which ended is true. all: also look at keys none of whose own leases has ended.
func (h *Host) prune(now uint64, all bool, ended func(g *grant) bool) error {
	changed := map[uint32]bool{} // VMs that lost a key
	errs := []error{
		pruneKeys(h, h.maps.Pairs, h.pairs, now, all, ended, func(k hostHostPair) { changed[k.Vm] = true }),
		pruneKeys(h, h.maps.FlowGrants, h.flows, now, all, ended, func(k hostHostFlow) { changed[k.Vm] = true }),
	}
	entries := map[uint32]*hostHostGrants{} // of those VMs, by index
	for _, v := range h.vms {
		e := &hostHostGrants{}
		if err := h.maps.VmGrants.Lookup(v.id, e); err != nil {
			errs = append(errs, fmt.Errorf("read the grants of VM %d: %w", v.number, err))
			continue
		}
		had := clearEnded(&e.Window, ended)
		if clearEnded(&e.Rate, ended) || had || changed[v.id] {
			entries[v.id] = e
		}
	}
	return errors.Join(append(errs, h.refilter(entries))...)
}

// refilter writes the entries of VMs' grants, with a filter of the keys that are left.
func (h *Host) refilter(entries map[uint32]*hostHostGrants) error {
	for _, e := range entries {
		e.Peers, e.Flows, e.Windows = [4]uint64{}, [4]uint64{}, 0
		e.Generation++
		if lastEnd(&e.Window) != 0 {
			e.Windows |= windowsVM
		}
	}
	for k := range h.pairs {
		if e := entries[k.Vm]; e != nil {
			filter(e, k)
		}
	}
	for k := range h.flows {
		if e := entries[k.Vm]; e != nil {
			filter(e, k)
		}
	}
	var errs []error
	for id, e := range entries {
		errs = append(errs, h.maps.VmGrants.Put(id, *e))
	}
	return errors.Join(errs...)
}

// clearEnded removes the grants of a key that have ended, and reports whether there were any.
func clearEnded(all *hostGrants, ended func(g *grant) bool) (cleared bool) {
	var left hostGrants
	n := 0
	for _, g := range all.Grant {
		switch {
		case g.Flags&grantSet == 0:
		case ended(&grant{g.Value, g.ExpiresNs, g.Owner, g.Flags}):
			cleared = true
		default:
			left.Grant[n] = g
			n++
		}
	}
	*all = left
	return cleared
}

// pruneKeys removes the ended grants of pairs or flows. It calls gone for a key without grants, which it removes. The
// caller then changes the VM's generation, before another key can get the index: connections look their grants up anew.
func pruneKeys[K comparable](h *Host, t table, known map[K]*keyed, now uint64, all bool, ended func(g *grant) bool, gone func(K)) error {
	var errs []error
	for key, k := range known {
		if !all && int64(now-k.end) <= int64(releaseTime) {
			continue
		}
		var e hostGrants
		if err := h.maps.Keyed.Lookup(k.index, &e); err != nil {
			errs = append(errs, fmt.Errorf("read a grant: %w", err))
			continue
		}
		cleared := clearEnded(&e, ended)
		if k.end = lastEnd(&e); k.end == 0 {
			delete(known, key)
			gone(key)
			errs = append(errs, missing(t.Delete(key)), h.maps.Keyed.Put(k.index, e))
			h.indexes.give(k.index)
		} else if cleared {
			errs = append(errs, h.maps.Keyed.Put(k.index, e))
		}
	}
	return errors.Join(errs...)
}
