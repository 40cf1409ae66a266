package shim

import "fmt"

// Stats counts the packets that left by a port of the shim, by their outcome, as they are on the wire: a GSO
// packet counts its segments.
type Stats struct {
	Port       string
	Side       Side
	Seen       uint64 // the sum of the counters down to Unwritable
	NotTCP     uint64
	Tunnel     uint64 // encapsulated, encrypted or signed by AH
	Fragment   uint64
	Short      uint64 // ended before its headers did, or they contradict themselves
	NoAck      uint64 // SYN, or nothing acknowledged: the window is not scaled
	Written    uint64 // the bits were changed: set or cleared
	Same       uint64 // they were correct already
	Unknown    uint64 // the handshake was not seen, or its entry was removed
	Signed     uint64 // TCP-MD5, TCP-AO
	AccECN     uint64 // negotiated: the lowest bit belongs to AccECN
	Unwritable uint64 // the kernel had no memory to make it writable
	Learnt     uint64 // handshakes, in either direction; one sent again counts again
}

// Stats reads the counters of every port, in the order of the ports given to Attach.
func (s *Shim) Stats() ([]Stats, error) {
	stats := make([]Stats, len(s.ports))
	for i := range s.ports {
		p := &s.ports[i]
		var cpus []shimShimCounts
		if err := s.counts.Lookup(p.id, &cpus); err != nil {
			return nil, fmt.Errorf("shim: counters of %s: %w", p.Name, err)
		}
		stats[i] = Stats{Port: p.Name, Side: p.Side}
		for j := range cpus {
			stats[i].add(&cpus[j])
		}
	}
	return stats, nil
}

func (s *Stats) add(c *shimShimCounts) {
	s.Seen += c.Seen
	s.NotTCP += c.NotTcp
	s.Tunnel += c.Tunnel
	s.Fragment += c.Fragment
	s.Short += c.Short
	s.NoAck += c.NoAck
	s.Written += c.Written
	s.Same += c.Same
	s.Unknown += c.Unknown
	s.Signed += c.Signed
	s.AccECN += c.Accecn
	s.Unwritable += c.Unwritable
	s.Learnt += c.Learnt
}
