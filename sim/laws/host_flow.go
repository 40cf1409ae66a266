//go:build cgo

package laws

import (
	"errors"
	"fmt"
	"slices"

	"weir/datapath/native"
	"weir/law"
	"weir/sim/event"
	"weir/sim/network"
)

// Grants of flows at a VM, and the ACKs of paused flows, which wait there.
//
// A pause holds pure ACKs that acknowledge something new. Data never waits, and duplicate ACKs do not, because they repair losses.
// Each ACK waits for Hosts.hold at most and then has a window of one segment, so that a paused flow sends a segment in each hold,
// long before its retransmission timeout. When the pause ends, the ACKs leave at once.

const (
	hostFlows   = 1 << 16 // of a VM
	hostSweep   = 1 << 10 // from so many on, flows whose grants have ended are looked for
	hostHeld    = 64      // ACKs of a flow
	hostHeldAll = 4096    // of all VMs together; further ACKs pass
)

// hostKey is a flow of a VM: data from one of its ports to a port of a peer.
type hostKey struct {
	peer           network.NodeID
	peerPort, port uint16
}

// hostFlow is the grants of a flow, of each owner one: a window ends the pause of its owner, and a pause its window.
type hostFlow struct {
	v     *hostVM
	key   hostKey
	all   []native.Grant
	una   uint32 // the furthest acknowledgement that arrived
	known bool   // una is valid
	held  []heldACK
	due   event.Event // the first of them leaves
}

type heldACK struct {
	pk    *network.Packet
	until event.Time
}

// grants returns the grants; nil of a flow without any.
func (f *hostFlow) grants() []native.Grant {
	if f == nil {
		return nil
	}
	return f.all
}

// flowOf returns the flow whose data an arriving packet acknowledges; nil: it has no grants.
func (v *hostVM) flowOf(pk *network.Packet) *hostFlow {
	if len(v.flows) == 0 {
		return nil
	}
	return v.flows[hostKey{pk.Src(), pk.SrcPort(), pk.DstPort()}]
}

// enforceFlow carries out a grant for one flow of the VM.
func (v *hostVM) enforceFlow(now event.Time, g *law.Grant) error {
	if g.Kind != law.WindowGrant && g.Kind != law.PauseGrant {
		return errors.New("only windows and pauses are for a flow")
	}
	k := hostKey{hostOf(g.Key.Flow.Dst.Addr()), g.Key.Flow.Dst.Port(), g.Key.Flow.Src.Port()}
	f := v.flows[k]
	if f == nil {
		if f = v.newFlow(k, now); f == nil {
			return fmt.Errorf("VM %d has grants for %d flows already, the most", v.number, hostFlows)
		}
	}
	grant := native.Grant{Value: g.Value, ExpiresNs: hostTime(now) + uint64(g.Lease), Owner: uint32(g.Owner), Flags: native.GrantSet}
	if g.Kind == law.PauseGrant {
		grant.Flags |= native.GrantPause
	}
	if i := slices.IndexFunc(f.all, func(o native.Grant) bool { return o.Owner == grant.Owner }); i >= 0 {
		f.all[i] = grant
	} else if f.all = append(f.all, grant); len(f.all) > hostAKey {
		f.all = f.all[1:]
	}
	if !f.paused(now) {
		f.release(now)
	}
	return nil
}

// begins limits the flow that a SYN or SYN-ACK allows the VM to send to one segment, until it is granted a window. If no grant comes, the
// limit is released gradually.
func (v *hostVM) begins(pk *network.Packet, now event.Time) {
	k := hostKey{pk.Src(), pk.SrcPort(), pk.DstPort()}
	if f := v.flows[k]; f != nil { // sent again, or the grant was faster
		f.known = false
		return
	}
	if f := v.newFlow(k, now); f != nil {
		f.all = append(f.all, native.Grant{Value: hostSegmentMax, ExpiresNs: hostTime(now) + uint64(v.h.first), Flags: native.GrantSet})
	}
}

// newFlow adds a flow; nil: there are too many.
func (v *hostVM) newFlow(k hostKey, now event.Time) *hostFlow {
	if n := len(v.flows); n >= hostSweep && n%hostSweep == 0 {
		for k, f := range v.flows {
			if len(f.held) == 0 && !slices.ContainsFunc(f.all, func(g native.Grant) bool { return hostTime(now) < g.ExpiresNs }) {
				delete(v.flows, k)
			}
		}
	}
	if len(v.flows) >= hostFlows {
		return nil
	}
	if v.flows == nil {
		v.flows = map[hostKey]*hostFlow{}
	}
	f := &hostFlow{v: v, key: k}
	f.due.Init(f)
	v.flows[k] = f
	return f
}

// removeFlows removes the grants for flows that f selects.
func (v *hostVM) removeFlows(which func(native.Grant) bool) {
	for k, f := range v.flows {
		if f.all = slices.DeleteFunc(f.all, which); len(f.all) == 0 && len(f.held) == 0 {
			delete(v.flows, k)
		}
	}
}

// paused reports whether a valid pause is among the grants.
func (f *hostFlow) paused(now event.Time) bool {
	var least native.GrantLeast
	for i := range f.all {
		least.Add(&f.all[i], &f.v.h.owners[f.all[i].Owner], hostTime(now))
	}
	return least.Paused != 0
}

// keeps keeps an ACK of a paused flow, and reports whether it did.
func (f *hostFlow) keeps(pk *network.Packet, now event.Time) bool {
	const other = network.SYN | network.FIN | network.RST | network.URG
	advances := f.known && int32(pk.Ack()-f.una) > 0
	if advances || !f.known {
		f.una, f.known = pk.Ack(), true
	}
	h := f.v.h
	if h.hold == 0 || !advances || pk.Payload() > 0 || pk.Flags()&other != 0 || pk.NBlocks() > 0 || !f.paused(now) {
		return false
	}
	if len(f.held) >= hostHeld || h.heldNow >= hostHeldAll {
		return false
	}
	f.held = append(f.held, heldACK{pk, now + h.hold})
	h.heldNow++
	h.counts.Held++
	if len(f.held) == 1 {
		h.net.Queue.Set(&f.due, now+h.hold)
	}
	return true
}

// Happen lets the ACKs leave that waited longest.
func (f *hostFlow) Happen(_ *event.Event, now event.Time) {
	for len(f.held) > 0 && f.held[0].until <= now {
		f.leave(now)
	}
	if len(f.held) > 0 {
		f.v.h.net.Queue.Set(&f.due, f.held[0].until)
	}
}

// release lets all ACKs leave.
func (f *hostFlow) release(now event.Time) {
	f.v.h.net.Queue.Stop(&f.due)
	for len(f.held) > 0 {
		f.leave(now)
	}
}

// leave lets the first ACK leave, with the window that holds now.
func (f *hostFlow) leave(now event.Time) {
	pk := f.held[0].pk
	f.held[0].pk = nil
	if f.held = f.held[1:]; len(f.held) == 0 {
		f.held = nil
	}
	f.v.h.heldNow--
	f.v.limit(f, pk, now)
	f.v.h.net.Return(pk)
}
