//go:build cgo

package native

/*
#cgo CFLAGS: -std=gnu11 -O2 -Wall -Wextra
#include <stdlib.h>
#define WEIR_PORT(world, id) native_port(world, id)
#define WEIR_SPAN unsigned long long
#include "../core/types.h"
struct weir_world;
struct port;
WEIR_INLINE struct port *native_port(struct weir_world *world, weir_u32 id);
#include "../core/fairq/edge.h"
#include "../core/fairq/groups.h"
#include "../core/fairq/release.h"
#include "../core/fairq/seats.h"

struct native_port {
	struct port port;
	weir_u64 here; // a direction in this slot changes nothing
};

struct native_slot {
	struct native_port at;
	struct port_config config;
	weir_u32 id;
	weir_u8 count; // enum count_mode
};

// One piece of memory without pointers: cgo checks each pointer in every call.
struct weir_world {
	weir_u32 n;
	struct edge_config edge;
	weir_u8 count; // enum count_mode
	struct native_slot slots[]; // n
};

enum { NATIVE_SLOTS = __builtin_offsetof(struct weir_world, slots) };

WEIR_INLINE struct port *native_port(struct weir_world *w, weir_u32 id)
{
	return id < w->n ? &w->slots[id].at.port : 0;
}

static struct weir_world *native_begin(weir_u32 n, weir_u8 count)
{
	// cgo's calloc does not return without memory; this one may
	struct weir_world *w = calloc(1, sizeof(*w) + n * sizeof(w->slots[0]));

	if (!w)
		return 0;
	w->n = n;
	w->count = count;
	for (weir_u32 id = 0; id < n; id++) {
		w->slots[id].id = id;
		w->slots[id].count = count;
	}
	return w;
}

static void native_end(struct weir_world *w) { free(w); }

// The steps that follow each event at a port.
WEIR_INLINE void native_followed(struct native_slot *s, weir_u64 gap_ns)
{
	if (port_holds(&s->config, &s->at.port))
		port_held(&s->config, &s->at.port, gap_ns);
	s->at.here = seat_at(s->id, s->at.port.epoch);
}

static void native_configured(struct weir_world *w, weir_u32 id, weir_u64 now_ns)
{
	fairq_reset(&w->slots[id].config.law, &w->slots[id].at.port.law, now_ns);
	w->slots[id].at.port.generation = 1;
	w->slots[id].at.here = seat_at(id, 0);
}

static int native_recount(struct weir_world *w, weir_u32 id, weir_u64 now_ns)
{
	struct native_slot *s = &w->slots[id];
	int start = port_recounted(&s->config, &s->at.port, w->count, 1, now_ns);

	native_followed(s, 0);
	return start;
}

static void native_tick(struct native_port *port, weir_u64 now_ns, weir_u32 backlog_bytes)
{
	struct native_slot *s = (struct native_slot *)port; // its first member

	native_followed(s, port_ticked(&s->config, &s->at.port, s->count, 1, now_ns, backlog_bytes, 1));
}

static int native_may_sample(struct weir_world *w, weir_u32 id, weir_u64 now_ns)
{
	return fairq_packet_may_sample(&w->slots[id].config.law, &w->slots[id].at.port.law, now_ns);
}

// A direction enters its slot at its port. Result 1: the caller must start the port's timer.
static int native_enters(struct weir_world *w, struct end *e, weir_u64 now_ns)
{
	weir_u32 id = (weir_u32)e->port - 1;
	struct port *port = native_port(w, id);

	if (!port)
		return 0;
	if (w->count != COUNT_HANDSHAKE)
		return seats_take(w, e, port, id, w->count) ? native_recount(w, id, now_ns) : 0;
	if (!register_wants(port, e))
		return 0;
	register_comes(port, e, id);
	return native_recount(w, id, now_ns);
}

// Data up to `behind` leaves by a port.
static void native_sends(struct weir_world *w, struct end *e, weir_u32 id, weir_u32 behind, weir_u64 now_ns)
{
	struct port *port = &w->slots[id].at.port;

	end_sends(e, behind);
	if (seats_take(w, e, port, id, w->count))
		native_recount(w, id, now_ns);
	if (w->count == COUNT_HANDSHAKE && register_lapsed(port, e, id)) {
		register_comes(port, e, id);
		native_recount(w, id, now_ns);
	}
}

// Both ends of a connection agree on it. Bit i of the result: the caller must start the timer of end i's port.
static int native_agreed(struct weir_world *w, struct end *e, weir_u64 now_ns)
{
	int start = 0;

	for (int i = 0; i < 2; i++) {
		weir_u32 id = (weir_u32)e[i].port - 1;
		struct port *port = native_port(w, id);

		if (w->count == COUNT_OPENING)
			opening_leave(w, &e[i]);
		if (!port)
			continue;
		fairq_saw_mss(&w->slots[id].config.law, &port->law, e[!i].mss);
		start |= native_enters(w, &e[i], now_ns) << i;
	}
	return start;
}

static void native_opened(struct weir_world *w, struct end *e)
{
	opening_leave(w, e);
}

static void native_opens(struct weir_world *w, struct end *e, weir_u64 now_ns)
{
	weir_u32 id = (weir_u32)e->port - 1;
	struct port *port = native_port(w, id);

	if (!port)
		return;
	opening_leave(w, e); // sent again: it is counted afresh
	e->registered_at = (weir_u16)id;
	e->registration = opening_comes(&w->slots[id].config, port, now_ns);
	w->slots[id].at.here = seat_at(id, port->epoch);
}

// A direction no longer counts.
static int native_leaves(struct weir_world *w, struct end *e, weir_u64 now_ns)
{
	weir_u32 registration;
	struct port *port;

	seats_leave(w, e);
	if (w->count != COUNT_HANDSHAKE)
		return 0;
	registration = WEIR_SWAP(&e->registration, 0);
	port = native_port(w, e->registered_at);
	if (!registration || !port)
		return 0;
	register_goes(port, registration);
	return native_recount(w, e->registered_at, now_ns);
}

// A FIN up to `behind` leaves. The first FIN ends its direction.
static int native_finishes(struct weir_world *w, struct end *e, weir_u32 behind, weir_u64 now_ns)
{
	return end_finishes(e, behind) ? native_leaves(w, e, now_ns) : 0;
}

// ---- one event at a time, as the kernel's program has them (lawtrace) ----

static weir_u64 native_ticked(struct weir_world *w, weir_u32 id, weir_u64 now_ns, weir_u32 backlog_bytes, int live,
			      int readable)
{
	return port_ticked(&w->slots[id].config, &w->slots[id].at.port, w->count, live, now_ns, backlog_bytes, readable);
}

static int native_recounted(struct weir_world *w, weir_u32 id, weir_u64 now_ns, int live)
{
	return port_recounted(&w->slots[id].config, &w->slots[id].at.port, w->count, live, now_ns);
}

static void native_held(struct weir_world *w, weir_u32 id, weir_u64 gap_ns)
{
	port_held(&w->slots[id].config, &w->slots[id].at.port, gap_ns);
}

static void native_stopped(struct weir_world *w, weir_u32 id) { port_stopped(&w->slots[id].at.port); }

static void native_reused(struct weir_world *w, weir_u32 id) { port_reused(&w->slots[id].at.port); }

static void native_saw_mss(struct weir_world *w, weir_u32 id, weir_u32 bytes)
{
	fairq_saw_mss(&w->slots[id].config.law, &w->slots[id].at.port.law, bytes);
}

static void native_seat_comes(struct weir_world *w, weir_u32 id, weir_u64 seat)
{
	seat_comes(&w->slots[id].at.port, seat);
}

static int native_seat_goes(struct weir_world *w, weir_u32 id, weir_u64 seat)
{
	return seat_goes(&w->slots[id].at.port, seat);
}

static int native_seat_is_new(struct weir_world *w, weir_u64 old, weir_u64 new, int counted)
{
	return seat_is_new(old, new, counted, w->count);
}

static weir_u32 native_opening_comes(struct weir_world *w, weir_u32 id, weir_u64 now_ns)
{
	return opening_comes(&w->slots[id].config, &w->slots[id].at.port, now_ns);
}

static int native_opening_goes(struct weir_world *w, weir_u32 id, weir_u32 registration)
{
	return opening_goes(&w->slots[id].at.port, registration);
}

static weir_u32 native_register_comes(struct weir_world *w, weir_u32 id)
{
	struct end e = {0};

	register_comes(&w->slots[id].at.port, &e, id);
	return e.registration;
}

static void native_register_goes(struct weir_world *w, weir_u32 id, weir_u32 registration)
{
	register_goes(&w->slots[id].at.port, registration);
}

static weir_u32 native_floor(struct weir_world *w, weir_u32 id, weir_u32 mss, weir_u32 gso)
{
	return grant_floor(&w->slots[id].config, mss, gso);
}

static int native_may_assume(const struct end *receiver, const struct end *sender)
{
	return end_may_assume(receiver, sender);
}

// An ACK, and the end whose window limits it.
struct native_ack {
	weir_u64 grant_q8; // of the port; the caller keeps the answer to the same question
	weir_u32 ack;
	weir_u32 lot;
	weir_u16 field;
	weir_u16 mss;
	weir_u8 shift;
	weir_u8 told;
	weir_u8 unified; // 1: converted; the receiver uses the next field as the shift
	weir_u8 syn;
	weir_u8 shrink;
	weir_u8 apart; // 1: its data takes another of the port's paths
	weir_u16 gso;
	weir_u8 gone; // 1: user space has gone
	weir_u8 zero[3];
};

#define NATIVE_GOVERNED (1ull << 32)
#define NATIVE_LEFT (1ull << 33)
#define NATIVE_TELLS (1ull << 34)
#define NATIVE_LAW 48

// The window that a port grants an ACK.
static void native_granted(struct weir_world *w, weir_u32 id, weir_u64 now_ns, const struct native_ack *ask,
			   struct granted *granted)
{
	struct port *port = native_port(w, id);
	struct port_config *config = port ? &w->slots[id].config : 0;
	int opens;

	if (!port)
		return;
	opens = w->count == COUNT_OPENING && ask->syn && !ask->apart && port_holds_opening(config, port, !ask->gone);
	grant_of(config, port, ask->lot, opens, grant_divisor(config, !ask->apart), now_ns, granted);
}

static weir_u64 native_rewrite(struct weir_world *w, weir_u32 id, const struct native_ack *ask,
			       const struct granted *granted, struct window_edge *edge)
{
	weir_u16 own = ask->unified && !ask->syn ? window_convert(ask->field, ask->shift, ask->told) : ask->field;
	weir_u64 answer = (weir_u64)own << 16 | own | (weir_u64)own << NATIVE_LAW;
	struct window_edge kept = *edge;
	struct window_ack a = {0};
	weir_u16 field;

	if (!granted->window_q8 && !granted->would_q8)
		return answer;
	a.window_q8 = granted->window_q8 ? granted->window_q8 : granted->would_q8;
	a.floor_bytes = grant_floor(&w->slots[id].config, ask->mss, ask->gso);
	a.ack = ask->ack;
	a.field = own;
	a.shift = ask->unified ? ask->told : ask->shift;
	a.syn = ask->syn;
	a.shrink = ask->shrink;
	field = window_rewrite(&a, &kept);
	if (granted->window_q8) {
		*edge = kept;
		return NATIVE_GOVERNED | (weir_u64)field << NATIVE_LAW | (weir_u64)own << 16 | field;
	}
	if (ask->shrink == WINDOW_SHRINK_AVOID) // an unlimited flow passes, and grants what it offers
		window_granted(edge, ask->ack, (weir_u32)own << window_shift(a.shift, a.syn));
	return (weir_u64)field << NATIVE_LAW | (weir_u64)own << 16 | own;
}

// The fields of an ACK: in the low 16 bits the one it leaves with, then the one it would leave with if no port granted
// a window. One bit says whether a port does. The top 16 bits are the field of the port's window.
static weir_u64 native_window(struct weir_world *w, weir_u32 id, weir_u64 now_ns, const struct native_ack *ask,
			      struct window_edge *edge)
{
	struct granted granted = {0};

	native_granted(w, id, now_ns, ask, &granted);
	return native_rewrite(w, id, ask, &granted, edge);
}

// The same in edge mode, for all ACKs but SYN-ACKs. Two more bits: the ACK is left to the edge, or it advertises.
static weir_u64 native_advertise(struct weir_world *w, weir_u32 id, weir_u32 clock, int flagged, int may_leave,
				 const struct native_ack *ask, struct end *e, struct window_edge *edge)
{
	struct edge_ack a = {.now = clock, .field = ask->field, .shift = ask->shift, .flagged = flagged != 0};
	struct granted granted = {0};
	weir_u64 answer;
	int due;

	native_granted(w, id, 0, ask, &granted);
	a.grant_q8 = granted.window_q8;
	due = edge_is_due(&w->edge, e, &a);
	if (may_leave && !due && e->edge_told && !ask->apart && id < w->n)
		return NATIVE_LEFT | (weir_u64)ask->field << 16 | ask->field;
	answer = native_rewrite(w, id, ask, &granted, edge);
	if (!due || !grant_advertises(native_port(w, id), ask->lot, &granted))
		return answer;
	return NATIVE_TELLS | (answer & ~0xffffull) |
	       edge_tells(&w->edge, e, &a, (weir_u16)answer);
}
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
#cgo noescape native_window
#cgo nocallback native_window
#cgo noescape native_may_assume
#cgo nocallback native_may_assume
#cgo noescape native_advertise
#cgo nocallback native_advertise
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
	Seat         uint64 // its slot: the port at which it counts, and the epoch; 0: none
	Registration uint32 // in its port's register, or of its open handshake; 0: none
	First        uint32 // sequence number of its SYN
	Next         uint32 // behind its FIN
	_            uint32 // in the kernel only: of connections that the simulator does not have
	_            uint16
	Port         uint16 // id + 1 of the port that its data leaves by; 0: unknown
	MSS          uint16 // its option, bytes; 0: none
	_            uint16
	Shift        uint8 // scale shift of its windows
	Flags        uint8 // EndSeen ...
	RegisteredAt uint16
	_            uint16
	Told         uint8 // with EndUnified: the scale shift that the other end uses instead of Shift
	_            uint8
	EdgeTold     uint32 // edge mode: the window last advertised to the edge, bytes; 0: none
	EdgeToldAt   uint32 // when, on the edge's clock
	UpstreamAt   uint32 // when a switch before this one advertised
	Upstream     uint16 // the field that it advertised; 0: none
	Assumed      uint16 // id + 1 of the port that its data would leave by here; 0: unknown
}

// PortConfig is struct port_config of core/fairq/switch.h, without the fields that decide nothing here.
type PortConfig struct {
	Law        FairQConfig
	EpochNs    uint64 // a direction counts for 3 to 4 epochs after it last sent
	IdleNs     uint64 // CountHandshake: after this time without data the port has no flows
	MSSUnknown uint32 // largest MSS that the port can carry, bytes: limits announced ones, and stands for an unknown one
	Releasing  uint32 // 1: windows are released
	PipeBytes  uint32 // C * RTT
	Hold       uint32 // 0: all flows are limited; 1: HoldShare of 65536 buckets; 2: none
	HoldShare  uint32
	Divisor    uint16 // divides the window of ACKs whose data takes another of the port's equal paths; 0, 1: no division
}

// Port is struct port of core/fairq/switch.h, in C memory. The events of its Switch change it. The world itself
// writes only DataSeen.
type Port struct {
	_             uint32 // lock
	Running       uint32 // 1: the timer must run
	GrantQ8       uint64 // the window that ACKs are limited to, bytes * 256; 0: none
	Epoch         uint64
	Spared        uint32 // flows in buckets below it are unlimited
	LetGoFrom     uint32 // of those, flows in buckets from this one on are being released
	LetGoQ8       uint64 // the window that limits them meanwhile, bytes * 256; 0: none
	EquilibriumQ8 uint64 // (C * RTT + target) / flows, if only a part of the flows is limited
	Law           FairQState
	Wheel         [8]uint32 // directions, by the epoch of their slot
	Opening       [8]uint32 // directions of open handshakes, by the epoch of their SYN-ACK
	EpochBeganNs  uint64
	TickedNs      uint64
	DataNs        uint64 // when a tick last found DataSeen
	_             [4]uint64
	Backlog       uint32 // at the last tick, bytes
	BacklogMax    uint32
	DataSeen      uint32 // 1: data left since the last tick
	Registered    uint32 // directions in the register
	Generation    uint32 // of the register, from 1
	_             uint32
	Enforced      uint32 // 1: at the last tick the law limited windows
	_             uint32
	_             uint64
	Hold          uint32
	Easing        uint32
	_             [4]uint32
	_             [2]struct{ _ [5]uint32 }

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
	s.slot(id).config = C.struct_port_config{
		law: config.Law.c(), epoch_ns: C.ulonglong(config.EpochNs), idle_ns: C.ulonglong(config.IdleNs),
		mss_unknown: C.weir_u32(config.MSSUnknown), releasing: C.weir_u32(config.Releasing), pipe_bytes: C.weir_u32(config.PipeBytes),
		hold: C.weir_u32(config.Hold), hold_share: C.weir_u32(config.HoldShare), divisor: C.weir_u16(config.Divisor),
	}
}

func (s *Switch) slot(id int) *C.struct_native_slot {
	first := (*C.struct_native_slot)(unsafe.Add(unsafe.Pointer(s.c), C.NATIVE_SLOTS))
	return &unsafe.Slice(first, s.c.n)[id]
}

// Port returns a port's state. It is valid until Close.
func (s *Switch) Port(id int) *Port { return (*Port)(unsafe.Pointer(&s.slot(id).at)) }

// The Go types have the layout of their C types.
var (
	_ = [1]struct{}{}[unsafe.Sizeof(End{})-C.sizeof_struct_end]
	_ = [1]struct{}{}[unsafe.Offsetof(End{}.Assumed)-unsafe.Offsetof(C.struct_end{}.assumed)]
	_ = [1]struct{}{}[unsafe.Offsetof(End{}.Told)-unsafe.Offsetof(C.struct_end{}.told)]
	_ = [1]struct{}{}[unsafe.Offsetof(End{}.Port)-unsafe.Offsetof(C.struct_end{}.port)]
	_ = [1]struct{}{}[unsafe.Sizeof(Port{})-C.sizeof_struct_native_port]
	_ = [1]struct{}{}[unsafe.Offsetof(Port{}.Law)-unsafe.Offsetof(C.struct_port{}.law)]
	_ = [1]struct{}{}[unsafe.Offsetof(Port{}.Wheel)-unsafe.Offsetof(C.struct_port{}.wheel)]
	_ = [1]struct{}{}[unsafe.Offsetof(Port{}.DataNs)-unsafe.Offsetof(C.struct_port{}.data_ns)]
	_ = [1]struct{}{}[unsafe.Offsetof(Port{}.DataSeen)-unsafe.Offsetof(C.struct_port{}.data_seen)]
	_ = [1]struct{}{}[unsafe.Offsetof(Port{}.Generation)-unsafe.Offsetof(C.struct_port{}.generation)]
	_ = [1]struct{}{}[unsafe.Offsetof(Port{}.Enforced)-unsafe.Offsetof(C.struct_port{}.enforced)]
	_ = [1]struct{}{}[unsafe.Offsetof(Port{}.Easing)-unsafe.Offsetof(C.struct_port{}.easing)]
	_ = [1]struct{}{}[unsafe.Offsetof(Port{}.here)-unsafe.Offsetof(C.struct_native_port{}.here)]
	_ = [1]struct{}{}[unsafe.Sizeof(FairQState{})-C.sizeof_struct_fairq_state]
	_ = [1]struct{}{}[unsafe.Offsetof(FairQState{}.Backlogs)-unsafe.Offsetof(C.struct_fairq_state{}.backlogs)]
	_ = [1]struct{}{}[unsafe.Sizeof(Ack{})-C.sizeof_struct_native_ack]
	_ = [1]struct{}{}[unsafe.Offsetof(Ack{}.Apart)-unsafe.Offsetof(C.struct_native_ack{}.apart)]
)

func (e *End) c() *C.struct_end { return (*C.struct_end)(unsafe.Pointer(e)) }

// MayAssume reports whether the ACKs that e sends may be limited to the window of the port that they arrived
// by, because their data takes another of the equal paths: end_may_assume.
func (e *End) MayAssume(sender *End) bool { return C.native_may_assume(e.c(), sender.c()) != 0 }

// Sits reports whether data of this direction changes nothing at a port: it is in its slot of the present
// epoch, and has no FIN and no emptied register to check. Otherwise call Sends. It does not call into C.
func (e *End) Sits(p *Port) bool {
	return e.Seat == p.here && e.Flags&EndFIN == 0 && (e.Registration == 0 || e.Registration == p.Generation)
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

// Ack is an acknowledgement, and what decides about its window. Two equal ones have the same answer, unless
// Shrink is ShrinkAvoid, or they are SYN-ACKs.
type Ack struct {
	GrantQ8 uint64 // Port.GrantQ8
	Ack     uint32 // used with ShrinkAvoid only
	Lot     uint32 // the flow's bucket, of 65536: Port.Spared
	Field   uint16 // the window field as it arrived
	MSS     uint16 // End.MSS of its sender
	Shift   uint8  // this and the other fields of End
	Told    uint8
	Unified uint8 // 1: EndUnified
	SYN     uint8 // 1: SYN-ACK
	Shrink  Shrink
	Apart   uint8  // 1: its data takes another of the port's equal paths
	GSO     uint16 // largest segment seen from the data's sender, bytes; 0: unknown
	Gone    uint8  // 1: user space has gone, and flows are released
	_       [3]uint8
}

// Field is the answer to an Ack.
type Field uint64

// Left returns the field that the ACK leaves with.
func (f Field) Left() uint16 { return uint16(f) }

// Own returns the field that the ACK would leave with if no port granted a window. It is the field that
// arrived, except with Unified.
func (f Field) Own() uint16 { return uint16(f >> 16) }

// Governed reports whether the port grants a window.
func (f Field) Governed() bool { return f>>32&1 != 0 }

// Law returns the field of the port's window, before it is advertised. For an unlimited flow, it is the field
// that the ACK would have if it were limited.
func (f Field) Law() uint16 { return uint16(f >> 48) }

// LeftToEdge reports whether the ACK stays unchanged, because the edge knows its window.
func (f Field) LeftToEdge() bool { return f>>33&1 != 0 }

// Advertises reports whether the ACK advertises its window to the edge.
func (f Field) Advertises() bool { return f>>34&1 != 0 }

// Window returns the field for an ACK, by the grant of the port that its data leaves by, or would leave by; id
// -1: unknown.
func (s *Switch) Window(id int, nowNs uint64, a *Ack, edge *WindowEdge) Field {
	return Field(C.native_window(s.c, C.weir_u32(id), C.weir_u64(nowNs), (*C.struct_native_ack)(unsafe.Pointer(a)), (*C.struct_window_edge)(unsafe.Pointer(edge))))
}

// Advertise does the same in edge mode, for all ACKs but SYN-ACKs. e is the end that sends the ACK. flagged: a
// switch before this one has advertised its window. mayLeave: the ACK may still be left to the edge.
func (s *Switch) Advertise(id int, now EdgeTime, flagged, mayLeave bool, a *Ack, e *End, edge *WindowEdge) Field {
	flag, leave := C.int(0), C.int(0)
	if flagged {
		flag = 1
	}
	if mayLeave {
		leave = 1
	}
	return Field(C.native_advertise(s.c, C.weir_u32(id), C.weir_u32(now), flag, leave, (*C.struct_native_ack)(unsafe.Pointer(a)), e.c(),
		(*C.struct_window_edge)(unsafe.Pointer(edge))))
}

// ---- one event at a time, as the kernel's program has them ----

// Event is one change of a port, under its lock.
type Event uint32

// The events, in the order of bpf/fairq/trace.h.
const (
	Ticked    Event = iota + 1 // Value: backlog, bytes
	Recounted                  // of its flows
	Held                       // NowNs: the gap. A part of its flows is limited, or was
	SawMSS                     // Value: bytes
	Stopped                    // by user space
	Reused                     // its id now belongs to another port
)

// Turn is one event with its input.
type Turn struct {
	Event    Event
	NowNs    uint64
	Value    uint32
	Live     bool // user space runs
	Readable bool // the port's queue could be read
}

// Turn runs one event, and none that follows from it.
func (s *Switch) Turn(id int, t *Turn) {
	live, readable := C.int(0), C.int(0)
	if t.Live {
		live = 1
	}
	if t.Readable {
		readable = 1
	}
	switch at, now := C.weir_u32(id), C.weir_u64(t.NowNs); t.Event {
	case Ticked:
		C.native_ticked(s.c, at, now, C.weir_u32(t.Value), live, readable)
	case Recounted:
		C.native_recounted(s.c, at, now, live)
	case Held:
		C.native_held(s.c, at, now)
	case SawMSS:
		C.native_saw_mss(s.c, at, C.weir_u32(t.Value))
	case Stopped:
		C.native_stopped(s.c, at)
	case Reused:
		C.native_reused(s.c, at)
	}
}

// SeatComes counts a direction that has entered this slot (core/fairq/seats.h).
func (s *Switch) SeatComes(id int, seat uint64) {
	C.native_seat_comes(s.c, C.weir_u32(id), C.weir_u64(seat))
}

// SeatGoes removes a direction from the slot. It reports whether the direction still counted.
func (s *Switch) SeatGoes(id int, seat uint64) bool {
	return C.native_seat_goes(s.c, C.weir_u32(id), C.weir_u64(seat)) != 0
}

// SeatIsNew reports whether a port has one flow more, after a direction moved from one slot to another.
// counted: the direction still counted in the old slot.
func (s *Switch) SeatIsNew(before, after uint64, counted bool) bool {
	was := C.int(0)
	if counted {
		was = 1
	}
	return C.native_seat_is_new(s.c, C.weir_u64(before), C.weir_u64(after), was) != 0
}

// OpeningComes counts an open handshake and returns its registration.
func (s *Switch) OpeningComes(id int, nowNs uint64) uint32 {
	return uint32(C.native_opening_comes(s.c, C.weir_u32(id), C.weir_u64(nowNs)))
}

// OpeningGoes removes an open handshake from the count. It reports whether the handshake still counted.
func (s *Switch) OpeningGoes(id int, registration uint32) bool {
	return C.native_opening_goes(s.c, C.weir_u32(id), C.weir_u32(registration)) != 0
}

// RegisterComes enters a direction in a port's register, and returns its registration.
func (s *Switch) RegisterComes(id int) uint32 {
	return uint32(C.native_register_comes(s.c, C.weir_u32(id)))
}

// RegisterGoes removes a direction from a port's register.
func (s *Switch) RegisterGoes(id int, registration uint32) {
	C.native_register_goes(s.c, C.weir_u32(id), C.weir_u32(registration))
}

// Floor returns the least window of a flow whose ACKs a port limits, in bytes: grant_floor.
func (s *Switch) Floor(id int, mss, gso uint16) uint32 {
	return uint32(C.native_floor(s.c, C.weir_u32(id), C.weir_u32(mss), C.weir_u32(gso)))
}

// Kept is the part of a port that a trace records: struct port from grant_q8 up to rtt_ns.
type Kept [(unsafe.Offsetof(C.struct_port{}.rtt_ns) - unsafe.Offsetof(C.struct_port{}.grant_q8)) / 8]uint64

// SetKept sets the part that a trace records.
func (p *Port) SetKept(kept *Kept) { *(*Kept)(unsafe.Pointer(&p.GrantQ8)) = *kept }

// Kept returns the part of the port that a trace records.
func (p *Port) Kept() Kept { return *(*Kept)(unsafe.Pointer(&p.GrantQ8)) }

// Same reports whether two ports are equal in all that core decides.
func (p *Port) Same(other *Port) bool {
	a, b := *p, *other
	a.here, b.here = 0, 0
	return a == b
}
