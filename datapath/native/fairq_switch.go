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
	weir_u64 here; // a direction that sits here changes nothing
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

// What follows each event at a port.
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

// A direction takes its place at its port. 1: the port's timer is to be started.
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

// Both directions of a connection that both ends agree on. Bit i: the timer of end i's port is to be started.
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
	opening_leave(w, e); // sent again: it counts anew
	e->registered_at = (weir_u16)id;
	e->registration = opening_comes(&w->slots[id].config, port, now_ns);
	w->slots[id].at.here = seat_at(id, port->epoch);
}

// A direction counts no more.
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

// A FIN up to `behind` leaves: the first ends its direction.
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

// An ACK, and whose window it is held to.
struct native_ack {
	weir_u64 grant_q8; // of the port; for the caller, who keeps the answer to the same question
	weir_u32 ack;
	weir_u32 lot;
	weir_u16 field;
	weir_u16 mss;
	weir_u8 shift;
	weir_u8 told;
	weir_u8 unified; // 1: told is what the receiver takes shift for
	weir_u8 syn;
	weir_u8 shrink;
	weir_u8 apart; // 1: its data takes another of the port's paths
	weir_u16 gso;
	weir_u8 gone; // 1: user space is
	weir_u8 zero[3];
};

#define NATIVE_GOVERNED (1ull << 32)
#define NATIVE_LEFT (1ull << 33)
#define NATIVE_TELLS (1ull << 34)
#define NATIVE_LAW 48

// What a port grants an ACK.
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
	if (ask->shrink == WINDOW_SHRINK_AVOID) // a free flow passes, and grants what it offers
		window_granted(edge, ask->ack, (weir_u32)own << window_shift(a.shift, a.syn));
	return (weir_u64)field << NATIVE_LAW | (weir_u64)own << 16 | own;
}

// The field that an ACK leaves with; above it, what it would leave with if nothing governed it; above that, whether
// anything does; on top, what the port's window makes of it.
static weir_u64 native_window(struct weir_world *w, weir_u32 id, weir_u64 now_ns, const struct native_ack *ask,
			      struct window_edge *edge)
{
	struct granted granted = {0};

	native_granted(w, id, now_ns, ask, &granted);
	return native_rewrite(w, id, ask, &granted, edge);
}

// The same in edge mode, not of SYN-ACKs: and whether the ACK is left to the edge, or advertises.
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

// Count says which directions of connections are flows of a port: enum count_mode of core/fairq/switch.h.
type Count uint8

// The ways to count.
const (
	CountActive    Count = iota // directions that sent data lately
	CountHandshake              // the paper's register
	CountOpening                // as CountActive; SYN-ACKs are held to the share beside open handshakes
)

// End.Flags: enum end_flags of core/fairq/switch.h.
const (
	EndSeen    = C.END_SEEN    // it sent something
	EndSYN     = C.END_SYN     // First is valid
	EndScale   = C.END_SCALE   // Shift is known. Of a SYN that was not answered: there is no option
	EndFIN     = C.END_FIN     // it will send no more data
	EndUnified = C.END_UNIFIED // its SYN was made to announce Told: its windows are converted
)

// End is struct end of core/fairq/switch.h: what one end of a connection sends, as a switch knows it.
type End struct {
	Seat         uint64 // the port at which it counts, and the epoch; 0: nowhere
	Registration uint32 // of its port's register, or of its open handshake; 0: none
	First        uint32 // sequence number of its SYN
	Next         uint32 // behind its FIN
	_            uint32 // of connections that the simulator has not
	_            uint16
	Port         uint16 // id + 1 of the port that its data leaves by; 0: not known
	MSS          uint16 // its option, bytes; 0: none
	_            uint16
	Shift        uint8 // of its windows
	Flags        uint8 // EndSeen ...
	RegisteredAt uint16
	_            uint16
	Told         uint8 // what the other end takes Shift for, with EndUnified
	_            uint8
	EdgeTold     uint32 // edge mode: window that the edge was told last, bytes; 0: none
	EdgeToldAt   uint32 // and when, of the edge's clock
	UpstreamAt   uint32 // when a switch before this one told it
	Upstream     uint16 // the field that it told; 0: none
	Assumed      uint16 // id + 1 of the port that its data would leave by here; 0: not known
}

// PortConfig is struct port_config of core/fairq/switch.h, as far as it decides something.
type PortConfig struct {
	Law        FairQConfig
	EpochNs    uint64 // a direction counts for 3 to 4 of them after it last sent
	IdleNs     uint64 // CountHandshake: after so long without data there are no flows
	MSSUnknown uint32 // the largest MSS that the port can carry, bytes: more is not believed, and it stands for one that is not known
	Releasing  uint32 // 1: windows are released
	PipeBytes  uint32 // C * RTT
	Hold       uint32 // 0: all flows are held; 1: HoldShare of 65536; 2: none
	HoldShare  uint32
	Divisor    uint16 // of the window of ACKs whose data takes another of the port's equal paths; 0, 1: the whole
}

// Port is struct port of core/fairq/switch.h, which stands in C memory. It is changed by the events of its Switch; the world
// itself writes DataSeen.
type Port struct {
	_             uint32 // lock
	Running       uint32 // 1: the timer is to run
	GrantQ8       uint64 // what ACKs are held to, bytes * 256; 0: nothing
	Epoch         uint64
	Spared        uint32 // flows with a lot below it are free
	LetGoFrom     uint32 // of those, the ones from this lot on are released
	LetGoQ8       uint64 // what they are held to meanwhile; 0: nothing
	EquilibriumQ8 uint64 // (C * RTT + target) / flows, where flows are held in part
	Law           FairQState
	Wheel         [8]uint32 // directions, by the epoch they sit in
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
	Enforced      uint32 // 1: at the last tick windows were the law's
	_             uint32
	_             uint64
	Hold          uint32
	Easing        uint32
	_             [4]uint32
	_             [2]struct{ _ [5]uint32 }

	here uint64 // struct native_port
}

// Switch is what the ports of one switch count, grant and release, in C memory. Events give times in ns of one clock.
// Not for concurrent use. Close frees it.
type Switch struct {
	c *C.struct_weir_world
}

// NewSwitch begins a switch with so many ports, from 1 to 65534, which Configure makes.
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

// SetEdge puts the switch's part of edge mode in place.
func (s *Switch) SetEdge(edge EdgeConfig) {
	s.c.edge = C.struct_edge_config{interval: C.weir_u32(edge.Interval), lease: C.weir_u32(edge.Lease), change: C.weir_u32(edge.Change)}
}

// Close frees the switch. Its ports are of no use afterwards.
func (s *Switch) Close() {
	if s.c != nil {
		C.native_end(s.c)
		s.c = nil
	}
}

// Configure puts a port's configuration in place, and begins it without flows.
func (s *Switch) Configure(id int, config PortConfig, nowNs uint64) *Port {
	s.SetConfig(id, &config)
	C.native_configured(s.c, C.weir_u32(id), C.weir_u64(nowNs))
	return s.Port(id)
}

// SetConfig puts a port's configuration in place, as user space does between two events.
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

// Port is a port's state. It is valid until Close.
func (s *Switch) Port(id int) *Port { return (*Port)(unsafe.Pointer(&s.slot(id).at)) }

// The mirrors have the layout of what they mirror.
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

// MayAssume says whether the ACKs that e sends may be held to the window of the port that they came in by, as their
// data takes another of the equal paths: end_may_assume.
func (e *End) MayAssume(sender *End) bool { return C.native_may_assume(e.c(), sender.c()) != 0 }

// Sits says that data of this direction changes nothing at a port: it sits there, in the present epoch, and neither a FIN
// nor a register that was emptied is to be looked at again. Otherwise Sends. No call into C.
func (e *End) Sits(p *Port) bool {
	return e.Seat == p.here && e.Flags&EndFIN == 0 && (e.Registration == 0 || e.Registration == p.Generation)
}

// Tick gives the law a sample: backlogBytes wait in the port's queue, and user space is there. Afterwards Running says
// whether the timer goes on. Tick is the most frequent call here, so its C function returns nothing: a result costs two
// more calls. The pragma nocallback costs two as well, and only arguments on the stack need it.
func (p *Port) Tick(nowNs uint64, backlogBytes uint32) {
	C.native_tick((*C.struct_native_port)(unsafe.Pointer(p)), C.weir_u64(nowNs), C.weir_u32(backlogBytes))
}

// PacketMaySample says whether the timer is so late that a packet shall sample: fairq_packet_may_sample.
func (s *Switch) PacketMaySample(id int, nowNs uint64) bool {
	return C.native_may_sample(s.c, C.weir_u32(id), C.weir_u64(nowNs)) != 0
}

// Sends reports that data of a direction leaves by a port, up to the sequence number behind. It returns whether the caller
// has to start the port's timer. Like Tick it is called often.
func (s *Switch) Sends(e *End, id int, behind uint32, nowNs uint64) bool {
	port := s.Port(id)
	ran := port.Running
	C.native_sends(s.c, e.c(), C.weir_u32(id), C.weir_u32(behind), C.weir_u64(nowNs))
	return ran == 0 && port.Running != 0
}

// Agreed says that both ends of a connection agree on it: both directions count. Of end i, bit i says whether the timer of
// its port is to be started.
func (s *Switch) Agreed(ends *[2]End, nowNs uint64) int {
	return int(C.native_agreed(s.c, ends[0].c(), C.weir_u64(nowNs)))
}

// Opens says that a direction's handshake is open, with CountOpening.
func (s *Switch) Opens(e *End, nowNs uint64) { C.native_opens(s.c, e.c(), C.weir_u64(nowNs)) }

// Opened says that it is over, with CountOpening.
func (s *Switch) Opened(e *End) { C.native_opened(s.c, e.c()) }

// Leaves says that a direction counts no more: its connection was reset, or is forgotten.
func (s *Switch) Leaves(e *End, nowNs uint64) { C.native_leaves(s.c, e.c(), C.weir_u64(nowNs)) }

// Finishes says that a FIN leaves, which ends at the sequence number behind.
func (s *Switch) Finishes(e *End, behind uint32, nowNs uint64) {
	C.native_finishes(s.c, e.c(), C.weir_u32(behind), C.weir_u64(nowNs))
}

// Ack is an acknowledgement, and what decides about its window. Of two that are equal the answer is the same, unless
// Shrink is ShrinkAvoid, or it is a SYN-ACK.
type Ack struct {
	GrantQ8 uint64 // Port.GrantQ8
	Ack     uint32 // of effect with ShrinkAvoid
	Lot     uint32 // which of 65536 groups the flow is in: Port.Spared
	Field   uint16 // the window as it stands there
	MSS     uint16 // End.MSS of its sender
	Shift   uint8  // and the other fields of End
	Told    uint8
	Unified uint8 // 1: EndUnified
	SYN     uint8 // 1: SYN-ACK
	Shrink  Shrink
	Apart   uint8  // 1: its data takes another of the port's equal paths
	GSO     uint16 // largest segment that the data's sender was seen to send, bytes; 0: not seen
	Gone    uint8  // 1: user space is, and windows are released
	_       [3]uint8
}

// Field is the answer to an Ack.
type Field uint64

// Left is the field that the ACK leaves with.
func (f Field) Left() uint16 { return uint16(f) }

// Own is the field that it would leave with if no port granted anything: the same as it came, but with Unified.
func (f Field) Own() uint16 { return uint16(f >> 16) }

// Governed says whether the port grants anything.
func (f Field) Governed() bool { return f>>32&1 != 0 }

// Law is the field that the port's window gives it, before it advertises; of a free flow: that it would.
func (f Field) Law() uint16 { return uint16(f >> 48) }

// LeftToEdge says that the ACK is left as it is: the edge knows its window.
func (f Field) LeftToEdge() bool { return f>>33&1 != 0 }

// Advertises says that the ACK advertises its window to the edge.
func (f Field) Advertises() bool { return f>>34&1 != 0 }

// Window decides about an ACK, by what a port grants: the one that its data leaves by, or would; -1: not known.
func (s *Switch) Window(id int, nowNs uint64, a *Ack, edge *WindowEdge) Field {
	return Field(C.native_window(s.c, C.weir_u32(id), C.weir_u64(nowNs), (*C.struct_native_ack)(unsafe.Pointer(a)), (*C.struct_window_edge)(unsafe.Pointer(edge))))
}

// Advertise does the same in edge mode, where it is not a SYN-ACK. e is the end that sends the ACK; flagged: a switch
// before this one has advertised its window; mayLeave: it is not decided yet that the ACK is not left to the edge.
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

// Event is what is done to a port in one go, under its lock.
type Event uint32

// The events, in the order of bpf/fairq/trace.h.
const (
	Ticked    Event = iota + 1 // Value: backlog, bytes
	Recounted                  // of its flows
	Held                       // NowNs: the gap. Its flows are held in part, or were
	SawMSS                     // Value: bytes
	Stopped                    // by user space
	Reused                     // its id is another port's
)

// Turn is one event and what it is told.
type Turn struct {
	Event    Event
	NowNs    uint64
	Value    uint32
	Live     bool // user space is there
	Readable bool // the port's queue could be read
}

// Turn lets one event happen, and nothing behind it.
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

// SeatComes counts a direction that has taken this seat, and SeatGoes counts one no more that had it: it gives whether it
// still counted. SeatIsNew says whether the port has a flow more by that. (core/fairq/seats.h)
func (s *Switch) SeatComes(id int, seat uint64) {
	C.native_seat_comes(s.c, C.weir_u32(id), C.weir_u64(seat))
}

// SeatGoes is SeatComes's opposite.
func (s *Switch) SeatGoes(id int, seat uint64) bool {
	return C.native_seat_goes(s.c, C.weir_u32(id), C.weir_u64(seat)) != 0
}

// SeatIsNew says whether a port has a flow more, after a direction went from a seat to another. counted: the old one still
// did.
func (s *Switch) SeatIsNew(before, after uint64, counted bool) bool {
	was := C.int(0)
	if counted {
		was = 1
	}
	return C.native_seat_is_new(s.c, C.weir_u64(before), C.weir_u64(after), was) != 0
}

// OpeningComes counts an open handshake, and gives its registration; OpeningGoes counts it no more, and gives whether it
// still counted.
func (s *Switch) OpeningComes(id int, nowNs uint64) uint32 {
	return uint32(C.native_opening_comes(s.c, C.weir_u32(id), C.weir_u64(nowNs)))
}

// OpeningGoes is OpeningComes's opposite.
func (s *Switch) OpeningGoes(id int, registration uint32) bool {
	return C.native_opening_goes(s.c, C.weir_u32(id), C.weir_u32(registration)) != 0
}

// RegisterComes enters a direction in a port's register, and gives its registration; RegisterGoes takes it out.
func (s *Switch) RegisterComes(id int) uint32 {
	return uint32(C.native_register_comes(s.c, C.weir_u32(id)))
}

// RegisterGoes is RegisterComes's opposite.
func (s *Switch) RegisterGoes(id int, registration uint32) {
	C.native_register_goes(s.c, C.weir_u32(id), C.weir_u32(registration))
}

// Floor is the least window of a flow whose ACKs are held to a port's window, bytes: grant_floor.
func (s *Switch) Floor(id int, mss, gso uint16) uint32 {
	return uint32(C.native_floor(s.c, C.weir_u32(id), C.weir_u32(mss), C.weir_u32(gso)))
}

// Kept is a port as a trace has it: struct port from grant_q8 up to rtt_ns.
type Kept [(unsafe.Offsetof(C.struct_port{}.rtt_ns) - unsafe.Offsetof(C.struct_port{}.grant_q8)) / 8]uint64

// SetKept puts in place what a trace has of a port.
func (p *Port) SetKept(kept *Kept) { *(*Kept)(unsafe.Pointer(&p.GrantQ8)) = *kept }

// Kept is what a trace would have of it.
func (p *Port) Kept() Kept { return *(*Kept)(unsafe.Pointer(&p.GrantQ8)) }

// Same says whether two ports are the same in all that core decides.
func (p *Port) Same(other *Port) bool {
	a, b := *p, *other
	a.here, b.here = 0, 0
	return a == b
}
