package park

import "fmt"

// Stats are the counters of a parking, since its devices were made, and what waits now. Packets count as on the wire, so a
// GSO packet counts its segments.
type Stats struct {
	Parked uint64
	Padded uint64 // of the parked: made longer, up to the bytes that they stand for
	InDebt uint64 // of the parked: counted for less than the bytes that they stand for

	// Not parked, by reason.
	PassedClosed   uint64 // no parking
	PassedGone     uint64 // the parking device or its queue is gone or down
	PassedFull     uint64
	PassedNoPort   uint64 // no such port, or no such class
	PassedMarked   uint64 // the packet's mark is in use
	PassedPriority uint64 // the packet's priority is above 15

	Returned  uint64 // sent to their ports
	Untrimmed uint64 // of the returned: with the padding, because the kernel could not trim the packet
	Stale     uint64 // dropped: their port was replaced
	Foreign   uint64 // dropped: sent through the parking device by somebody else

	BacklogBytes   uint32 // as the queue counts them, padding included
	BacklogPackets uint32 // a GSO packet counts once
	// Queue reports that the queue exists.
	Queue bool
	// FlowPerCPU reports that all packets of a flow come back on one processor, which keeps their order. If it is false,
	// RPS is off, and packets of a flow that leave within microseconds of each other may be exchanged.
	FlowPerCPU bool
}

// Stats reads the counters and the queue.
func (p *Park) Stats() (s Stats, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return s, fmt.Errorf("park: %w", ErrClosed)
	}
	if s, err = p.counters(); err != nil {
		return s, fmt.Errorf("park: %w", err)
	}
	if s.BacklogBytes, s.BacklogPackets, s.Queue, err = p.backlog(); err != nil {
		return s, fmt.Errorf("park: %w", err)
	}
	s.FlowPerCPU = p.perFlow
	return s, nil
}

// Gone reads Stats.PassedGone alone. It does not ask for the queue, so it costs a system call only.
func (p *Park) Gone() (uint64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return 0, fmt.Errorf("park: %w", ErrClosed)
	}
	s, err := p.counters()
	if err != nil {
		return 0, fmt.Errorf("park: %w", err)
	}
	return s.PassedGone, nil
}

func (p *Park) counters() (s Stats, err error) {
	var cpus []parkParkCounts
	if err := p.maps[parkMapParkStats].Lookup(uint32(0), &cpus); err != nil {
		return s, fmt.Errorf("read map %s: %w", parkMapParkStats, err)
	}
	for _, c := range cpus {
		s.Parked += c.Parked
		s.Padded += c.Padded
		s.InDebt += c.InDebt
		s.Returned += c.Returned
		s.Untrimmed += c.Untrimmed
		s.Stale += c.Stale
		s.Foreign += c.Foreign
		// The order of enum park_reason.
		for i, n := range []*uint64{
			&s.PassedClosed, &s.PassedGone, &s.PassedFull, &s.PassedNoPort, &s.PassedMarked, &s.PassedPriority,
		} {
			*n += c.Passed[i]
		}
	}
	return s, nil
}

// underWay returns the packets that are behind the queue and have not passed the program at the far end. It is 0 if that
// cannot be read. A packet that the kernel lost counts for ever.
func (p *Park) underWay() uint64 {
	if p.maps == nil {
		return 0
	}
	s, err := p.counters()
	if err != nil || s.Parked < s.Returned+s.Stale {
		return 0
	}
	return s.Parked - s.Returned - s.Stale
}
