package edge

import "fmt"

// Stats counts the packets towards the guest of one port, by their outcome, as they are on the wire: a GSO
// packet counts its segments.
type Stats struct {
	Port         string
	Side         Side
	Seen         uint64 // the sum of the counters down to Unwritable
	NotTCP       uint64
	Tunnel       uint64 // encapsulated, encrypted or signed by AH
	Fragment     uint64
	Short        uint64 // ended before its headers did, or they contradict themselves
	NoAck        uint64 // SYN, RST, or nothing acknowledged
	Advertised   uint64 // flagged by a switch: the edge remembers the window
	Applied      uint64 // limited to the window that the edge remembers
	Smaller      uint64 // the window was small enough already
	Unadvertised uint64 // of a flow without an advertised window
	Expired      uint64 // of a flow whose last advertisement is older than the lease
	Unwritable   uint64 // the kernel had no memory to make it writable
	Forged       uint64 // segments from the guest whose flag was cleared; not in Seen
	Learnt       uint64 // handshakes, in either direction; one sent again counts again
	Entered      uint64 // flows that were entered in the table; one that was removed counts again
}

// Stats reads the counters of every port, in the order of the ports given to Attach.
func (e *Edge) Stats() ([]Stats, error) {
	stats := make([]Stats, len(e.ports))
	for i := range e.ports {
		p := &e.ports[i]
		var cpus []edgeEdgeCounts
		if err := e.maps[edgeMapCounts].Lookup(p.id, &cpus); err != nil {
			return nil, fmt.Errorf("edge: counters of %s: %w", p.Name, err)
		}
		stats[i] = Stats{Port: p.Name, Side: p.Side}
		for j := range cpus {
			stats[i].add(&cpus[j])
		}
	}
	return stats, nil
}

func (s *Stats) add(c *edgeEdgeCounts) {
	s.Seen += c.Seen
	s.NotTCP += c.NotTcp
	s.Tunnel += c.Tunnel
	s.Fragment += c.Fragment
	s.Short += c.Short
	s.NoAck += c.NoAck
	s.Advertised += c.Advertised
	s.Applied += c.Applied
	s.Smaller += c.Smaller
	s.Unadvertised += c.Unadvertised
	s.Expired += c.Expired
	s.Unwritable += c.Unwritable
	s.Forged += c.Forged
	s.Learnt += c.Learnt
	s.Entered += c.Entered
}
