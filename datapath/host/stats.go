package host

import (
	"cmp"
	"fmt"
	"slices"

	"weir/law"
)

// Stats counts the packets of one VM by their outcome, as they are on the wire: a GSO packet counts its segments.
type Stats struct {
	VM   law.VM
	Port string

	Seen       uint64 // towards the VM; the sum of the counters down to Unwritable
	NotTCP     uint64
	Tunnel     uint64 // encapsulated, encrypted or signed by AH
	Fragment   uint64
	Short      uint64 // ended before its headers did, or they contradict themselves
	NoAck      uint64 // SYN, RST, or nothing acknowledged
	Ungranted  uint64 // no grant limits its flow
	Limited    uint64 // its window was made smaller
	Smaller    uint64 // its window was small enough already
	Unknown    uint64 // granted, but its handshake was not seen: it passes
	Signed     uint64 // granted, but its connection is signed (TCP-MD5, TCP-AO): it passes
	Unwritable uint64 // the kernel had no memory to make it writable

	Sent       uint64 // by the VM; the sum of the counters down to Malformed
	Local      uint64 // passed, to another VM of this host: by no uplink
	Relaxed    uint64 // passed by the uplink, without a rate limit
	InClass    uint64 // passed by the uplink, in the VM's limited class
	Control    uint64 // dropped: frames of Weir's control protocols
	SpoofedMAC uint64 // dropped: from another MAC address
	SpoofedIP  uint64 // dropped: from another IP address
	Malformed  uint64 // dropped: its source cannot be read
	OverRate   uint64 // of InClass, dropped: no room in the queue of its class. A GSO packet counts once

	Learnt     uint64 // handshakes
	Unlearnt   uint64 // SYNs from and to the VM beyond its share of the table of handshakes: their connections are not limited by windows
	ECNSet     uint64 // packets of the VM whose ECN field was changed
	ECNCleared uint64 // the same towards the VM
	Marked     uint64 // that came from the network with CE; only with Config.Marks

	Rate   law.Rate // of its class; 0: it has none
	Excess string   // of its class: queue or drop
}

// Stats reads the counters of every VM, by number.
func (h *Host) Stats() ([]Stats, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, ErrClosed
	}
	classes := map[uint32]class{}
	if h.limiter != nil {
		var err error
		if classes, err = h.limiter.classes(); err != nil {
			return nil, fmt.Errorf("host: %w", err)
		}
	}
	var all []Stats
	for _, v := range h.vms {
		s := Stats{VM: v.number, Port: v.port, Rate: law.Rate(v.class), Excess: h.excessOf(v), OverRate: classes[v.id].drops}
		var cpus []hostHostCounts
		if err := h.maps.Counts.Lookup(v.id, &cpus); err != nil {
			return nil, fmt.Errorf("host: counters of VM %d: %w", v.number, err)
		}
		for i := range cpus {
			s.add(&cpus[i])
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b Stats) int { return cmp.Compare(a.VM, b.VM) })
	return all, nil
}

func (s *Stats) add(c *hostHostCounts) {
	s.Seen += c.Seen
	s.NotTCP += c.NotTcp
	s.Tunnel += c.Tunnel
	s.Fragment += c.Fragment
	s.Short += c.Short
	s.NoAck += c.NoAck
	s.Ungranted += c.Ungranted
	s.Limited += c.Limited
	s.Smaller += c.Smaller
	s.Unknown += c.Unknown
	s.Signed += c.IsSigned
	s.Unwritable += c.Unwritable
	s.Sent += c.Sent
	s.Local += c.Local
	s.Relaxed += c.Relaxed
	s.InClass += c.InClass
	s.Control += c.Control
	s.SpoofedMAC += c.SpoofedMac
	s.SpoofedIP += c.SpoofedIp
	s.Malformed += c.Malformed
	s.Learnt += c.Learnt
	s.Unlearnt += c.Unlearnt
	s.ECNSet += c.EcnSet
	s.ECNCleared += c.EcnCleared
	s.Marked += c.Marked
}

// Limited returns how many ACKs towards a VM got a smaller window; false: there is no such VM.
func (h *Host) Limited(vm law.VM) (uint64, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	v := h.vms[vm]
	if h.closed || v == nil {
		return 0, false
	}
	var cpus []hostHostCounts
	if err := h.maps.Counts.Lookup(v.id, &cpus); err != nil {
		return 0, false
	}
	n := uint64(0)
	for i := range cpus {
		n += cpus[i].Limited
	}
	return n, true
}

// Sent adds to out how many packets of each VM have passed by the uplink so far, as they are on the wire. Packets to VMs of this host do not
// count, nor those that are dropped because a VM may not send them: they must not make a VM active. It costs one lookup a VM.
func (h *Host) Sent(out map[law.VM]uint64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return ErrClosed
	}
	for _, v := range h.vms {
		if err := h.maps.Counts.Lookup(v.id, &h.cpus); err != nil {
			return fmt.Errorf("host: counters of VM %d: %w", v.number, err)
		}
		n := uint64(0)
		for i := range h.cpus {
			n += h.cpus[i].Relaxed + h.cpus[i].InClass
		}
		out[v.number] = n
	}
	return nil
}
