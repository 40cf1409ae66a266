//go:build cgo

package laws

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"weir/datapath/native"
	"weir/law"
	"weir/sim/control"
	"weir/sim/event"
	"weir/sim/network"
)

// Hosts enforces grants of controller laws at the hypervisors of a network, with the C of the kernel programs
// (core/grant.h, core/bucket.h): windows of ACKs that arrive for a VM, and the rate of its port. A host of the network is
// one VM. The grants of an owner are valid while it sends messages: a Grant is a heartbeat, and so is Heartbeat.
type Hosts struct {
	net     *network.Network
	owners  [hostOwners]native.GrantOwner
	vms     map[network.NodeID]*hostVM
	conns   map[int32]*hostConn // by their numbers, those with an end at a VM
	ecn     *vmECN              // nil: the field stays as it is
	hold    event.Time          // how long an ACK of a paused flow waits at most; 0: it does not
	zero    bool                // a paused flow gets windows of 0
	heldNow int                 // ACKs of paused flows that wait
	drop    bool                // packets above a VM's rate are dropped, except for one that waits
	first   event.Time          // a new flow has one segment until it is granted a window, or so long; 0: its own first window
	counts  HostCounts
}

// HostCounts counts ACKs that arrived for VMs with window grants, and packets that VMs sent.
type HostCounts struct {
	Ungranted uint64 // no grant limits the flow
	Limited   uint64
	Smaller   uint64 // small enough already
	Unknown   uint64 // the handshake was not seen
	Spoofed   uint64 // packets that VMs sent from another address: they are dropped
	ECNSet    uint64 // packets of VMs whose ECN field was changed
	Held      uint64 // of a paused flow: it waited
	Excess    uint64 // packets above a VM's rate that were dropped
}

const (
	hostOwners     = 8
	hostOwnerLease = 1e9 // ns, OWNER_LEASE_NS of core/grant.h
	hostAKey       = 4   // grants for the same
	hostPairs      = 65536
	hostConns      = 1 << 20
	hostSegmentMax = 1460 // bytes
)

// hostVM is one VM: it enforces at its site.
type hostVM struct {
	h      *Hosts
	number law.VM
	port   *network.Port
	window []native.Grant
	pairs  map[network.NodeID][]native.Grant
	rates  []native.Grant
	flows  map[hostKey]*hostFlow
	bps    uint64
	end    event.Event // when the rate must be looked at again
	sent   uint64      // packets from its own address
}

// hostConn is what the SYNs of a connection announced, by the side that sent them.
type hostConn struct {
	syn [2]acdcSYN
	ecn uint8 // enum vmecn_agreed
}

// NewHosts puts enforcement at the hosts of a network. AddVM adds each VM. The network must not have traffic yet.
func NewHosts(n *network.Network) *Hosts {
	h := &Hosts{net: n, vms: map[network.NodeID]*hostVM{}, conns: map[int32]*hostConn{}}
	n.SetGuards(append(n.Guards(), h)...)
	return h
}

// AddVM makes a host of the network a VM, and returns what carries out grants there.
func (h *Hosts) AddVM(number law.VM, host network.NodeID) (control.Enforcer, error) {
	if h.vms[host] != nil {
		return nil, fmt.Errorf("host %s is a VM already", h.net.Name(host))
	}
	v := &hostVM{h: h, number: number, port: h.net.HostPort(host), pairs: map[network.NodeID][]native.Grant{}}
	v.end.Init(v)
	if err := v.port.SetRate(0, 0); err != nil {
		return nil, err
	}
	h.vms[host] = v
	return v, nil
}

// HostAddress is the address of a host of the network in keys of grants: 10.0.0.0 and its number.
func HostAddress(host network.NodeID) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(host >> 16), byte(host >> 8), byte(host)})
}

func hostOf(a netip.Addr) network.NodeID {
	b := a.Unmap().As4()
	return network.NodeID(b[1])<<16 | network.NodeID(b[2])<<8 | network.NodeID(b[3])
}

// Heartbeat shows that an owner runs. The first heartbeat after a longer silence removes what the owner had granted before:
// those grants have been released meanwhile, and must not limit again.
func (h *Hosts) Heartbeat(o law.Owner, now event.Time) {
	own := &h.owners[o%hostOwners]
	if own.HeartbeatNs != 0 && hostTime(now)-own.HeartbeatNs >= hostOwnerLease {
		h.removeOwner(uint32(o % hostOwners))
	}
	own.HeartbeatNs = hostTime(now)
}

// removeOwner removes all grants of an owner.
func (h *Hosts) removeOwner(o uint32) {
	its := func(g native.Grant) bool { return g.Owner == o }
	for _, v := range h.vms {
		v.window, v.rates = slices.DeleteFunc(v.window, its), slices.DeleteFunc(v.rates, its)
		for peer, all := range v.pairs {
			if v.pairs[peer] = slices.DeleteFunc(all, its); len(v.pairs[peer]) == 0 {
				delete(v.pairs, peer)
			}
		}
		v.removeFlows(its)
	}
}

// hostTime keeps the clock from 0, which means never.
func hostTime(now event.Time) uint64 { return uint64(now) + 1 }

// Counts returns the counts of all VMs.
func (h *Hosts) Counts() HostCounts { return h.counts }

// Enforce carries out a grant. Errors: an action of another kind, another VM, a rate of a pair or flow, and a full table.
func (v *hostVM) Enforce(now event.Time, a law.Action) error {
	g, ok := a.(law.Grant)
	switch {
	case !ok:
		return fmt.Errorf("%T at a host", a)
	case g.Key.VM != v.number:
		return fmt.Errorf("grant for VM %d at VM %d", g.Key.VM, v.number)
	case g.Owner >= hostOwners:
		return fmt.Errorf("owner %d: 0 to %d", g.Owner, hostOwners-1)
	case g.Kind == law.RateGrant && g.Key.Peer.IsValid():
		return errors.New("a rate is for a VM, not for a pair")
	}
	v.h.Heartbeat(g.Owner, now)
	if g.Key.Flow != (law.Flow{}) {
		return v.enforceFlow(now, &g)
	}
	grant := native.Grant{Value: g.Value, ExpiresNs: hostTime(now) + uint64(g.Lease), Owner: uint32(g.Owner), Flags: native.GrantSet}
	if g.Kind == law.PauseGrant {
		grant.Flags |= native.GrantPause
	}
	var err error
	switch {
	case g.Kind == law.RateGrant:
		if v.rates, err = putGrant(v.rates, grant, hostTime(now)); err == nil {
			err = v.setRate(now)
		}
	case g.Key.Peer.IsValid():
		peer := hostOf(g.Key.Peer)
		if len(v.pairs) >= hostPairs && v.pairs[peer] == nil {
			return fmt.Errorf("VM %d has grants for %d pairs already, the most", v.number, hostPairs)
		}
		v.pairs[peer], err = putGrant(v.pairs[peer], grant, hostTime(now))
	default:
		v.window, err = putGrant(v.window, grant, hostTime(now))
	}
	return err
}

// putGrant sets a grant among those of one key, as the kernel's loader does: in the place of its owner's grant of the same kind,
// or of one that has ended.
func putGrant(all []native.Grant, g native.Grant, now uint64) ([]native.Grant, error) {
	const released = 500e6 // ns, more than a window needs
	at := -1
	for i := range all {
		if all[i].Owner == g.Owner && all[i].Flags == g.Flags {
			at = i
			break
		}
		if at < 0 && now > all[i].ExpiresNs+released {
			at = i
		}
	}
	switch {
	case at >= 0:
		all[at] = g
		return all, nil
	case len(all) >= hostAKey:
		return all, fmt.Errorf("there are %d grants for the same already, the most", hostAKey)
	}
	return append(all, g), nil
}

// setRate gives the port the smallest valid rate, and the queue of that rate. It looks again when the first of the grants ends.
func (v *hostVM) setRate(now event.Time) error {
	bps, next := uint64(0), event.Time(0)
	for i := range v.rates {
		g, o := &v.rates[i], &v.h.owners[v.rates[i].Owner]
		bps = native.GrantRate(bps, g, o, hostTime(now))
		if end := event.Time(native.GrantEnd(g, o)) - 1; end > now && (next == 0 || end < next) {
			next = end
		}
	}
	if next != 0 {
		v.h.net.Queue.Set(&v.end, next)
	}
	if bps != 0 {
		bps = native.BucketRate(bps)
	}
	if bps == v.bps {
		return nil
	}
	v.bps = bps
	if bps == 0 {
		v.port.SetQueue(0)
		return v.port.SetRate(0, 0)
	}
	v.port.SetQueue(law.Bytes(native.BucketLimit(bps)))
	return v.port.SetRate(law.Rate(bps), law.Bytes(native.BucketBurst(bps)))
}

// Happen is the end of a rate grant.
func (v *hostVM) Happen(_ *event.Event, now event.Time) {
	if err := v.setRate(now); err != nil {
		panic(err) // the rate is within limits, and was accepted before
	}
}

// Out reads what a VM's SYNs announce, and counts what it sends.
func (h *Hosts) Out(host network.NodeID, pk *network.Packet, _ event.Time) network.Verdict {
	v := h.vms[host]
	if v == nil {
		return network.Pass
	}
	if pk.Src() != host {
		h.counts.Spoofed++
		return network.Drop
	}
	v.sent++
	if h.drop && v.bps > 0 && v.port.BacklogPackets() > 0 {
		h.counts.Excess++
		return network.Drop
	}
	h.learn(pk)
	if h.ecn != nil && h.ecn.out(h.conns[pk.Conn()], pk) {
		h.counts.ECNSet++
	}
	return network.Pass
}

// In limits the window of an ACK that arrives for a VM.
func (h *Hosts) In(host network.NodeID, pk *network.Packet, now event.Time) network.Verdict {
	v := h.vms[host]
	if v == nil {
		return network.Pass
	}
	h.learn(pk)
	if h.ecn != nil {
		h.ecn.in(h.conns[pk.Conn()], pk)
	}
	if pk.Proto() != network.TCP {
		return network.Pass
	}
	if h.first > 0 && pk.Flags()&network.SYN != 0 {
		v.begins(pk, now)
	}
	if len(v.window)+len(v.pairs)+len(v.flows) == 0 || pk.Flags()&(network.ACK|network.RST) != network.ACK {
		return network.Pass
	}
	f := v.flowOf(pk)
	if f != nil && f.keeps(pk, now) {
		return network.Take
	}
	v.limit(f, pk, now)
	return network.Pass
}

// limit writes the smallest window of the grants for an ACK that arrives. f: the flow's own grants; nil: none.
func (v *hostVM) limit(f *hostFlow, pk *network.Packet, now event.Time) {
	h := v.h
	var least native.GrantLeast
	for _, all := range [...][]native.Grant{v.window, v.pairs[pk.Src()], f.grants()} {
		for i := range all {
			least.Add(&all[i], &h.owners[all[i].Owner], hostTime(now))
		}
	}
	if least.WindowQ8 == 0 {
		h.counts.Ungranted++
		return
	}
	c := h.conns[pk.Conn()]
	if c == nil || !c.syn[side(pk)].seen {
		h.counts.Unknown++
		return
	}
	if h.zero {
		least.Zero = 1
	}
	ack := native.WindowAck{Ack: pk.Ack(), Field: pk.Window(), Shift: c.shift(side(pk))}
	if pk.Flags()&network.SYN != 0 {
		ack.SYN = 1
	}
	field := least.Field(&ack, uint32(c.syn[side(pk)].mss), hostSegmentMax)
	if field == pk.Window() {
		h.counts.Smaller++
		return
	}
	pk.SetWindow(field)
	h.counts.Limited++
}

// shift returns the scale of the windows of a side: 0 unless both ends sent one (RFC 7323 1.3).
func (c *hostConn) shift(side int) uint8 {
	if c.syn[0].scale < 0 || c.syn[1].scale < 0 {
		return 0
	}
	return uint8(c.syn[side].scale)
}

// learn reads a SYN, and forgets a connection that is reset.
func (h *Hosts) learn(pk *network.Packet) {
	if pk.Proto() != network.TCP || pk.Flags()&(network.SYN|network.RST) == 0 {
		return
	}
	c := h.conns[pk.Conn()]
	switch {
	case pk.Flags()&network.RST != 0:
		delete(h.conns, pk.Conn())
		return
	case c == nil && len(h.conns) >= hostConns:
		return
	case c == nil:
		c = &hostConn{}
		h.conns[pk.Conn()] = c
	}
	c.syn[side(pk)] = synOf(pk)
	flags := pk.Flags() // the simulator's guests do not speak AccECN
	c.ecn = native.VMECNHandshake(c.ecn, flags&network.ACK != 0, flags&network.ECE != 0, flags&network.CWR != 0, false)
}
