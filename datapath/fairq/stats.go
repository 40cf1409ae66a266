package fairq

import (
	"fmt"
	"time"

	"weir/datapath/attach"
)

// Stats reads every port, in the order of the ports given to Attach.
func (f *Attachment) Stats() ([]Stats, error) {
	out := make([]Stats, len(f.ports))
	for i := range f.ports {
		s, err := f.maps.stats(f.ports[i].id)
		if err != nil {
			return nil, fmt.Errorf("statistics of %s: %w", f.ports[i].Name, err)
		}
		s.Port = f.ports[i].Name
		out[i] = s
	}
	return out, nil
}

func (m *fairqMaps) stats(id uint32) (Stats, error) {
	var p fairqPort
	var c fairqPortConfig
	var cpus []fairqPortCounts
	if err := m.Ports.Lookup(id, &p); err != nil {
		return Stats{}, fmt.Errorf("read its state: %w", err)
	}
	if err := m.Configs.Lookup(id, &c); err != nil {
		return Stats{}, fmt.Errorf("read its configuration: %w", err)
	}
	if err := m.Counts.Lookup(id, &cpus); err != nil {
		return Stats{}, fmt.Errorf("read its counters: %w", err)
	}
	groups, err := m.groups(id, &p)
	if err != nil {
		return Stats{}, err
	}
	s := Stats{
		Flows: p.Law.Flows, WindowBytes: p.Law.WindowQ8 >> 8, GrantBytes: p.GrantQ8 >> 8, TargetBytes: c.Law.TargetBytes,
		QueueBytes: p.Backlog, QueueMax: p.BacklogMax, SlowStart: p.Law.SlowStart != 0, Enforced: p.Enforced != 0,
		MSSBytes: p.Law.MssBytes, Samples: p.Ticks, SamplesByPacket: p.TicksByPacket, DeviceRefused: p.DeviceRefused,
		Connections: p.Owned, Mode: Mode(c.Mode), LimitedBuckets: c.LimitedBuckets, PipeBytes: c.PipeBytes,
		EquilibriumBytes: equilibriumBytes(&c, &p), FlowsReleasing: p.ReleaseQ8 != 0, HandshakeRTT: p.handshakeRTT(attach.MonotonicNs()),
		OneSidedData: groups.oneSidedData, OneSidedAcks: groups.oneSidedAcks, Groups: groups.group,
	}
	if s.Credits, err = m.credits(id, &p, groups.promisedBytes); err != nil {
		return Stats{}, err
	}
	if s.Repairs, err = m.repairs(id); err != nil {
		return Stats{}, err
	}
	if s.Mode != EnforceAll {
		s.WindowBytes = s.EquilibriumBytes
	}
	if p.TickedNs > 0 {
		s.SampledAt, s.SampleAge = time.Duration(p.TickedNs), attach.Age(p.TickedNs)
	}
	name := make([]byte, 0, len(c.Name))
	for _, b := range c.Name {
		if b == 0 {
			break
		}
		name = append(name, byte(b))
	}
	s.Port = string(name)
	for i := range cpus {
		addCounts(&s, &cpus[i])
	}
	return s, nil
}

// equilibriumBytes calculates as bpf/fairq/port.h does if not all flows are limited: the floor is above the
// cap.
func equilibriumBytes(c *fairqPortConfig, p *fairqPort) uint64 {
	if p.Law.Flows == 0 {
		return 0
	}
	window := (uint64(c.PipeBytes) + uint64(c.Law.TargetBytes)) / uint64(p.Law.Flows)
	if c.Law.CapBytes != 0 {
		window = min(window, uint64(c.Law.CapBytes))
	}
	floor := uint64(c.Law.FloorBytes)
	if floor == 0 {
		floor = uint64(p.Law.MssBytes)
	}
	if floor == 0 { // until an MSS was seen
		floor = attach.DefaultMTU - attach.SegmentOverhead
	}
	return max(window, floor)
}

func addCounts(s *Stats, c *fairqPortCounts) {
	s.Seen += c.Seen
	s.NotTCP += c.NotTcp
	s.Tunnel += c.Tunnel
	s.Fragment += c.Fragment
	s.Short += c.Short
	s.NoAck += c.NoAck
	s.Rewritten += c.Rewritten
	s.Smaller += c.Smaller
	s.Unknown += c.Unknown
	s.Ungoverned += c.Ungoverned
	s.Free += c.Free
	s.Signed += c.Signed
	s.OutOfScope += c.OutOfScope
	s.Unwritable += c.Unwritable
	s.Data += c.Data
	s.Opened += c.Opened
	s.Adopted += c.Adopted
	s.TableFull += c.TableFull
	s.LeftToEdge += c.LeftToEdge
	s.Dropped += c.Dropped
	s.Advertised += c.Advertised
	s.Assumed += c.Assumed
}
