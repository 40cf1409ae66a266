//go:build cgo

package native

/*
#cgo CFLAGS: -std=gnu11 -O2 -Wall -Wextra
#include "fairq_events.h"

#cgo noescape native_may_sample
#cgo nocallback native_may_sample
#cgo noescape native_agreed
#cgo nocallback native_agreed
#cgo noescape native_opened
#cgo nocallback native_opened
#cgo noescape native_opens
#cgo nocallback native_opens
#cgo noescape native_leaves
#cgo nocallback native_leaves
#cgo noescape native_finishes
#cgo nocallback native_finishes
#cgo noescape native_may_assume
#cgo nocallback native_may_assume
*/
import "C"

import "unsafe"

// Count is the rule by which directions of connections are flows of a port: enum count_mode of
// core/fairq/switch.h.
type Count uint8

// The ways to count.
const (
	CountActive    Count = iota // directions that sent data recently
	CountHandshake              // the paper's register
	CountOpening                // as CountActive; SYN-ACKs are limited to the share with open handshakes included
)

// End.Flags: enum end_flags of core/fairq/switch.h.
const (
	EndSeen    = C.END_SEEN    // it sent a segment
	EndSYN     = C.END_SYN     // First is valid
	EndScale   = C.END_SCALE   // Shift is known. For an unanswered SYN: it has no option
	EndFIN     = C.END_FIN     // it will send no more data
	EndUnified = C.END_UNIFIED // its SYN was changed to announce another scale: its windows are converted
)

// End is struct end of core/fairq/switch.h: what a switch knows of the sender at one end of a connection.
type End struct {
	Slot             uint64 // its slot: the port at which it counts, and the epoch; 0: none
	Registration     uint32 // in its port's register, or of its open handshake; 0: none
	First            uint32 // sequence number of its SYN
	Next             uint32 // behind its FIN
	_                uint32 // in the kernel only: of connections that the simulator does not have
	Shift            uint8  // scale shift of its windows
	Flags            uint8  // EndSeen ...
	Port             uint16 // id + 1 of the port that its data leaves by; 0: unknown
	MSS              uint16 // its option, bytes; 0: none
	_                uint16
	_                uint16
	RegisteredAt     uint16
	_                uint16
	Announced        uint8 // with EndUnified: the scale shift that the other end uses instead of Shift
	_                uint8
	EdgeAdvertised   uint32 // edge mode: the window last advertised to the edge, bytes; 0: none
	EdgeAdvertisedAt uint32 // when, on the edge's clock
	UpstreamAt       uint32 // when a switch before this one advertised
	Upstream         uint16 // the field that it advertised; 0: none
	Assumed          uint16 // id + 1 of the port that its data would leave by here; 0: unknown
	Promise          uint16 // bytes that it may send before it counts; 0: none
	Longest          uint16 // with credits: the longest segment that it sent, bytes of payload; 0: none
	_                uint32 // in the kernel only
	Allowed          uint32 // with credits: sequence number that charged windows allowed it to send to; 0: unknown
	_                uint32 // in the kernel only
}

// PortConfig is struct port_config of core/fairq/switch.h, without the fields that decide nothing here.
type PortConfig struct {
	Law            FairQConfig
	EpochNs        uint64 // a direction counts for 3 to 4 epochs after it last sent
	IdleNs         uint64 // CountHandshake: after this time without data the port has no flows
	MSSUnknown     uint32 // largest MSS that the port can carry, bytes: limits announced ones, and stands for an unknown one
	Releasing      uint32 // 1: windows are released
	PipeBytes      uint32 // C * RTT
	Mode           uint32 // 0: all flows are limited; 1: LimitedBuckets of 65536 buckets; 2: none
	LimitedBuckets uint32
	Credit         CreditMode
	Divisor        uint16 // divides the window of ACKs whose data takes another of the port's equal paths; 0, 1: no division
}

// Port is struct port of core/fairq/switch.h, in C memory. The events of its Switch change it. The world itself
// writes only DataSeen.
type Port struct {
	_             uint32 // lock
	Running       uint32 // 1: the timer must run
	GrantQ8       uint64 // the window that ACKs are limited to, bytes * 256; 0: none
	Epoch         uint64
	_             uint64
	Spared        uint32 // flows in buckets below it are unlimited
	ReleaseFrom   uint32 // of those, flows in buckets from this one on are being released
	ReleaseQ8     uint64 // the window that limits them meanwhile, bytes * 256; 0: none
	EquilibriumQ8 uint64 // (C * RTT + target) / flows, if only a part of the flows is limited
	DataSeen      uint32 // 1: data left since the last tick
	Generation    uint32 // of the register, from 1
	Mode          uint32
	Enforced      uint32 // 1: at the last tick the law limited windows
	Law           FairQState
	Wheel         [8]uint32 // directions, by the epoch of their slot
	Opening       [8]uint32 // directions of open handshakes, by the epoch of their SYN-ACK
	EpochBeganNs  uint64
	TickedNs      uint64
	DataNs        uint64 // when a tick last found DataSeen
	_             [4]uint64
	Backlog       uint32 // at the last tick, bytes
	BacklogMax    uint32
	Registered    uint32 // directions in the register
	_             [2]uint32
	Easing        uint32
	_             [3]uint32
	Pacing        uint32 // 1: windows are one segment, and ACKs need credits
	_             [2]struct {
		_ uint64
		_ [6]uint32
	}
	_ [4]uint32

	here uint64 // struct native_port
}

// Switch counts flows, grants windows and releases flows at the ports of one switch, in C memory. Events take
// times in ns of one clock. Not for concurrent use. Close frees it.
type Switch struct {
	c *C.struct_weir_world
}

// NewSwitch returns a switch with 1 to 65534 ports. Configure begins each port.
func NewSwitch(ports int, count Count, edge EdgeConfig) *Switch {
	if ports < 1 || ports > 65534 {
		panic("native: a switch has 1 to 65534 ports")
	}
	c := C.native_begin(C.weir_u32(ports), C.weir_u8(count))
	if c == nil {
		panic("native: no memory for a switch")
	}
	s := &Switch{c}
	s.SetEdge(edge)
	return s
}

// SetEdge sets the switch's part of edge mode.
func (s *Switch) SetEdge(edge EdgeConfig) {
	s.c.edge = C.struct_edge_config{interval: C.weir_u32(edge.Interval), lease: C.weir_u32(edge.Lease), change: C.weir_u32(edge.Change)}
}

// Close frees the switch. Its ports must not be used afterwards.
func (s *Switch) Close() {
	if s.c != nil {
		C.native_end(s.c)
		s.c = nil
	}
}

// Configure sets a port's configuration, and begins the port without flows.
func (s *Switch) Configure(id int, config PortConfig, nowNs uint64) *Port {
	s.SetConfig(id, &config)
	C.native_configured(s.c, C.weir_u32(id), C.weir_u64(nowNs))
	return s.Port(id)
}

// SetConfig sets a port's configuration, as user space does between two events.
func (s *Switch) SetConfig(id int, config *PortConfig) {
	s.entry(id).config = C.struct_port_config{
		law: config.Law.c(), epoch_ns: C.ulonglong(config.EpochNs), idle_ns: C.ulonglong(config.IdleNs),
		mss_unknown: C.weir_u32(config.MSSUnknown), releasing: C.weir_u32(config.Releasing), pipe_bytes: C.weir_u32(config.PipeBytes),
		mode: C.weir_u32(config.Mode), limited_buckets: C.weir_u32(config.LimitedBuckets), divisor: C.weir_u16(config.Divisor),
		credit: C.weir_u32(config.Credit),
	}
}

func (s *Switch) entry(id int) *C.struct_native_entry {
	first := (*C.struct_native_entry)(unsafe.Add(unsafe.Pointer(s.c), C.NATIVE_ENTRIES))
	return &unsafe.Slice(first, s.c.n)[id]
}

// Port returns a port's state. It is valid until Close.
func (s *Switch) Port(id int) *Port { return (*Port)(unsafe.Pointer(&s.entry(id).at)) }

// The Go types have the layout of their C types.
var (
	_ = [1]struct{}{}[unsafe.Sizeof(End{})-C.sizeof_struct_end]
	_ = [1]struct{}{}[unsafe.Offsetof(End{}.Assumed)-unsafe.Offsetof(C.struct_end{}.assumed)]
	_ = [1]struct{}{}[unsafe.Offsetof(End{}.Flags)-unsafe.Offsetof(C.struct_end{}.flags)]
	_ = [1]struct{}{}[unsafe.Offsetof(End{}.Announced)-unsafe.Offsetof(C.struct_end{}.announced)]
	_ = [1]struct{}{}[unsafe.Offsetof(End{}.Port)-unsafe.Offsetof(C.struct_end{}.port)]
	_ = [1]struct{}{}[unsafe.Sizeof(Port{})-C.sizeof_struct_native_port]
	_ = [1]struct{}{}[unsafe.Offsetof(Port{}.Law)-unsafe.Offsetof(C.struct_port{}.law)]
	_ = [1]struct{}{}[unsafe.Offsetof(Port{}.Wheel)-unsafe.Offsetof(C.struct_port{}.wheel)]
	_ = [1]struct{}{}[unsafe.Offsetof(Port{}.DataNs)-unsafe.Offsetof(C.struct_port{}.data_ns)]
	_ = [1]struct{}{}[unsafe.Offsetof(Port{}.Spared)-unsafe.Offsetof(C.struct_port{}.spared)]
	_ = [1]struct{}{}[unsafe.Offsetof(Port{}.Mode)-unsafe.Offsetof(C.struct_port{}.mode)]
	_ = [1]struct{}{}[unsafe.Offsetof(Port{}.Registered)-unsafe.Offsetof(C.struct_port{}.registered)]
	_ = [1]struct{}{}[unsafe.Offsetof(Port{}.Pacing)-unsafe.Offsetof(C.struct_port{}.pacing)]
	_ = [1]struct{}{}[unsafe.Offsetof(Port{}.DataSeen)-unsafe.Offsetof(C.struct_port{}.data_seen)]
	_ = [1]struct{}{}[unsafe.Offsetof(Port{}.Generation)-unsafe.Offsetof(C.struct_port{}.generation)]
	_ = [1]struct{}{}[unsafe.Offsetof(Port{}.Enforced)-unsafe.Offsetof(C.struct_port{}.enforced)]
	_ = [1]struct{}{}[unsafe.Offsetof(Port{}.Easing)-unsafe.Offsetof(C.struct_port{}.easing)]
	_ = [1]struct{}{}[unsafe.Offsetof(Port{}.here)-unsafe.Offsetof(C.struct_native_port{}.here)]
	_ = [1]struct{}{}[unsafe.Sizeof(FairQState{})-C.sizeof_struct_fairq_state]
	_ = [1]struct{}{}[unsafe.Offsetof(FairQState{}.Backlogs)-unsafe.Offsetof(C.struct_fairq_state{}.backlogs)]
)

func (e *End) c() *C.struct_end { return (*C.struct_end)(unsafe.Pointer(e)) }

// MayAssume reports whether the ACKs that e sends may be limited to the window of the port that they arrived
// by, because their data takes another of the equal paths: end_may_assume.
func (e *End) MayAssume(sender *End) bool { return C.native_may_assume(e.c(), sender.c()) != 0 }

// InSlot reports whether data of this direction changes nothing at a port: it is in its slot of the present
// epoch, and has no FIN and no emptied register to check. Otherwise call Sends. It does not call into C.
func (e *End) InSlot(p *Port) bool {
	return e.Slot == p.here && e.Flags&EndFIN == 0 && (e.Registration == 0 || e.Registration == p.Generation)
}

// Tick passes a sample to the law: backlogBytes wait in the port's queue, and user space runs. Afterwards
// Running reports whether the timer continues. Tick is the most frequent call here, so its C function returns
// nothing: a result costs two more calls. The pragma nocallback costs two as well, and only arguments on the
// stack need it.
func (p *Port) Tick(nowNs uint64, backlogBytes uint32) {
	C.native_tick((*C.struct_native_port)(unsafe.Pointer(p)), C.weir_u64(nowNs), C.weir_u32(backlogBytes))
}

// PacketMaySample reports whether the timer is so late that a packet must take the sample:
// fairq_packet_may_sample.
func (s *Switch) PacketMaySample(id int, nowNs uint64) bool {
	return C.native_may_sample(s.c, C.weir_u32(id), C.weir_u64(nowNs)) != 0
}

// Sends records that data of a direction leaves by a port, up to the sequence number behind. It returns whether
// the caller must start the port's timer. Like Tick it is called often.
func (s *Switch) Sends(e *End, id int, behind uint32, nowNs uint64) bool {
	port := s.Port(id)
	ran := port.Running
	C.native_sends(s.c, e.c(), C.weir_u32(id), C.weir_u32(behind), C.weir_u64(nowNs))
	return ran == 0 && port.Running != 0
}

// Agreed records that both ends of a connection agree on it, so that both directions count. If bit i of the
// result is set, the caller must start the timer of end i's port.
func (s *Switch) Agreed(ends *[2]End, nowNs uint64) int {
	return int(C.native_agreed(s.c, ends[0].c(), C.weir_u64(nowNs)))
}

// Opens records that a direction's handshake is open, with CountOpening.
func (s *Switch) Opens(e *End, nowNs uint64) { C.native_opens(s.c, e.c(), C.weir_u64(nowNs)) }

// Opened records that the handshake is over, with CountOpening.
func (s *Switch) Opened(e *End) { C.native_opened(s.c, e.c()) }

// Leaves removes a direction from the count: its connection was reset, or its entry removed.
func (s *Switch) Leaves(e *End, nowNs uint64) { C.native_leaves(s.c, e.c(), C.weir_u64(nowNs)) }

// Finishes records that a FIN leaves, which ends at the sequence number behind.
func (s *Switch) Finishes(e *End, behind uint32, nowNs uint64) {
	C.native_finishes(s.c, e.c(), C.weir_u32(behind), C.weir_u64(nowNs))
}
