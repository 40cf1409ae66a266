package fairq

import (
	"weir/datapath/attach"
)

import (
	"fmt"
	"time"
)

// Stats is the state of a port at one moment, and what it counted since it was attached. Packets
// are those that leave by the port, or would but for Dropped, as they are on the wire: a GSO packet counts its segments.
type Stats struct {
	Port        string
	Flows       uint32 // β, held or not
	WindowBytes uint64 // Rwnd, the law's window of each flow; with another Hold than all: EquilibriumBytes
	GrantBytes  uint64 // what windows are held to; 0: nothing is held
	TargetBytes uint32 // αB
	QueueBytes  uint32 // at the last sample
	QueueMax    uint32 // since attached
	SlowStart   bool
	Enforced    bool // at the last sample user space was alive
	Hold        Hold
	HoldShare   uint32 // with HoldPart: of Lots
	LettingGo   bool   // flows that are held no more still have windows, which grow
	MSSBytes    uint16

	// EquilibriumBytes is (PipeBytes + TargetBytes) / Flows within the law's floor and cap. 0: no flows.
	EquilibriumBytes uint64
	PipeBytes        uint32 // C*RTT, as configured
	// HandshakeRTT is the least round-trip time of handshakes lately (8.6 to 17 s) whose connections send by
	// this port: from the SYN to the acknowledgement of its SYN-ACK, none of them sent again. What they
	// waited in this switch is part of it. Two hosts that agree can make it short: bound it. 0: none.
	HandshakeRTT time.Duration
	// Directions of connections, as the last beat found them, of which for a second only one side passed
	// this switch: new data that leaves by this port without acknowledgements, and acknowledgements that
	// leave by it without data. The other side goes another way, or is tunnelled. Where there are more of
	// them than the table of half-open connections holds, these are fewer.
	OneSidedData, OneSidedAcks uint32
	// Arms compares flows whose data leaves by this port: [0] free, [1] held.
	Arms [2]Arm

	Samples         uint64        // of the queue, by the timer
	SamplesByPacket uint64        // by a packet, because the timer was late
	DeviceRefused   uint64        // samples that found the device gone
	SampledAt       time.Duration // CLOCK_MONOTONIC at the last sample; 0: never
	SampleAge       time.Duration
	Connections     uint32 // that were opened from behind this port and are in the table

	Seen       uint64 // the sum of those down to Dropped
	NotTCP     uint64
	Tunnel     uint64 // encapsulated, encrypted or signed by AH
	Fragment   uint64
	Short      uint64 // ended before its headers did, or they contradict themselves
	NoAck      uint64 // SYN and RST grant nothing
	Rewritten  uint64
	Smaller    uint64 // the window was small enough already
	Unknown    uint64 // of no connection in the table
	Ungoverned uint64 // the data's port has no flows, no Weir, or Weir has let go
	Free       uint64 // of a flow that is not held, while others are, or that is only observed
	Signed     uint64 // TCP-MD5, TCP-AO: acknowledgements left as they are
	OutOfScope uint64
	Unwritable uint64 // the kernel had no memory to make it writable
	Untold     uint64 // edge mode: left to the edge, which knows the window
	Dropped    uint64 // signed segments that Config.Signed drops
	Data       uint64 // with payload, whatever else
	Opened     uint64 // connections that were entered in the table
	Adopted    uint64 // of them, those that began before Weir
	TableFull  uint64 // not entered: the table or the port's share was full
	Told       uint64 // edge mode: ACKs that told the edge a window
	Assumed    uint64 // ACKs whose data passes another switch, held by Law.Paths
}

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
	arms, err := m.arms(id, &p)
	if err != nil {
		return Stats{}, err
	}
	s := Stats{
		Flows: p.Law.Flows, WindowBytes: p.Law.WindowQ8 >> 8, GrantBytes: p.GrantQ8 >> 8, TargetBytes: c.Law.TargetBytes,
		QueueBytes: p.Backlog, QueueMax: p.BacklogMax, SlowStart: p.Law.SlowStart != 0, Enforced: p.Enforced != 0,
		MSSBytes: p.Law.MssBytes, Samples: p.Ticks, SamplesByPacket: p.TicksByPacket, DeviceRefused: p.DeviceRefused,
		Connections: p.Owned, Hold: Hold(c.Hold), HoldShare: c.HoldShare, PipeBytes: c.PipeBytes,
		EquilibriumBytes: equilibriumBytes(&c, &p), LettingGo: p.LetGoQ8 != 0, HandshakeRTT: p.handshakeRTT(attach.MonotonicNs()),
		OneSidedData: arms.oneSidedData, OneSidedAcks: arms.oneSidedAcks, Arms: arms.arm,
	}
	if s.Hold != HoldAll {
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
		s.add(&cpus[i])
	}
	return s, nil
}

// equilibriumBytes is what bpf/fairq/port.h reckons where not all flows are held: the floor above the cap.
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
	if floor == 0 { // until one was seen
		floor = attach.DefaultMTU - attach.SegmentOverhead
	}
	return max(window, floor)
}

func (s *Stats) add(c *fairqPortCounts) {
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
	s.Untold += c.Untold
	s.Dropped += c.Dropped
	s.Told += c.Told
	s.Assumed += c.Assumed
}
