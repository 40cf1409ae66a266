// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Counts the directions of connections that are flows of a port (beta of Alg. 1; docs/spec 1.1, FQ-1, FQ-5 ... FQ-9).
//
//   slots            active: directions that sent data recently
//   open handshakes  opening: in addition to the slots, for the limit of SYN-ACKs
//   register         handshake: opened and not closed, as the paper counts (FQ-9)
//
// Slots. Time is divided into epochs. Each direction has a slot: the port and the epoch in which it last sent. Each port
// counts the directions in each of the last FLOWS_WHEEL epochs. A flow counts until FLOWS_LIVE epochs have passed
// without data. So a packet moves its direction at most once an epoch, and no table is walked to count.
//
// Numeric specification
//   slot            u64: id + 1 in the upper 16 bits, 1 .. 65535; epoch modulo 2^48 below. 0: none.
//   epoch           u64; each is config->epoch_ns long. An epoch counts while at most FLOWS_LIVE epochs have begun, from
//                   it on and including it.
//   wheel, opening  u32 by epoch modulo FLOWS_WHEEL. Their sum over the epochs that count is the number of flows. It may
//                   be one off while packets move slots on several CPUs. A sum above FAIRQ_FLOWS_MAX is a negative
//                   number of that kind, and reads as 0.
//   registration    u32. Of the register: its generation, from 1. Of an open handshake: the epoch modulo 2^32, plus 1.
#ifndef WEIR_CORE_SLOTS_H
#define WEIR_CORE_SLOTS_H

#include "switch.h"

#define SLOT_EPOCH ((1ull << 48) - 1)
#define FIN_REACH (1u << 24) // bytes: no sender has more in flight when it sends its FIN

// A trace defines these, to record each call and its order at the port. SLOT_COMES, SLOT_GOES and OPENING_GOES must do
// the same as slot_comes, slot_goes and opening_goes.
#ifndef WEIR_SLOT_COMES
#define WEIR_SLOT_COMES(port, id, slot) slot_comes(port, slot)
#define WEIR_SLOT_GOES(port, id, slot) slot_goes(port, slot)
#define WEIR_SLOT_TAKEN(id, order, old, new, counted, more) ((void)(order))
#define WEIR_OPENING_GOES(port, id, registration) opening_goes(port, registration)
#endif

// ---- epochs ----

// Returns the slot of a direction that sends at the port of this id in this epoch.
WEIR_INLINE weir_u64 slot_at(weir_u32 id, weir_u64 epoch)
{
	return (weir_u64)(id + 1) << 48 | (epoch & SLOT_EPOCH);
}

// Returns the id of a slot's port; for 0, 2^32 - 1, which no port has.
WEIR_INLINE weir_u32 slot_port(weir_u64 slot) { return (weir_u32)(slot >> 48) - 1; }

// Reports whether a slot at this port counts.
WEIR_INLINE int slot_is_live(const struct port *port, weir_u64 slot)
{
	return ((port->epoch - slot) & SLOT_EPOCH) < FLOWS_LIVE;
}

// Reports whether an open handshake at this port counts.
WEIR_INLINE int opening_is_live(const struct port *port, weir_u32 registration)
{
	return (weir_u32)port->epoch + 1 - registration < FLOWS_LIVE;
}

// Event, under the port's lock: begins the epochs that are due. After a pause longer than all of them no flow counts.
WEIR_INLINE void port_turn(const struct port_config *config, struct port *port, weir_u64 now_ns)
{
	for (int i = 0; i < FLOWS_WHEEL; i++) {
		if ((long long)(now_ns - port->epoch_began_ns) < (long long)config->epoch_ns)
			return;
		port->epoch++;
		port->wheel[port->epoch & (FLOWS_WHEEL - 1)] = 0;
		port->opening[port->epoch & (FLOWS_WHEEL - 1)] = 0;
		port->epoch_began_ns += config->epoch_ns;
	}
	port->epoch_began_ns = now_ns;
}

// Returns how many directions are flows of the port.
WEIR_INLINE weir_u32 port_flows(const struct port *port, weir_u8 count)
{
	weir_u32 flows = 0;

	if (count == COUNT_HANDSHAKE)
		return port->registered;
	for (weir_u32 i = 0; i < FLOWS_LIVE; i++)
		flows += port->wheel[(port->epoch - i) & (FLOWS_WHEEL - 1)];
	return flows > FAIRQ_FLOWS_MAX ? 0 : flows;
}

// Returns how many directions have an open handshake at now_ns. Epochs that are due count as begun: a port without flows
// has no timer that begins them.
WEIR_INLINE weir_u32 port_openings(const struct port_config *config, const struct port *port, weir_u64 now_ns)
{
	long long past_ns = (long long)(now_ns - port->epoch_began_ns);
	weir_u32 openings = 0;

	for (weir_u32 i = 0; i < FLOWS_LIVE; i++, past_ns += config->epoch_ns)
		if (past_ns < (long long)config->epoch_ns * FLOWS_LIVE)
			openings += port->opening[(port->epoch - i) & (FLOWS_WHEEL - 1)];
	return openings > FAIRQ_FLOWS_MAX ? 0 : openings;
}

// Event, under the port's lock, with each sample: records whether data left since the previous one. After idle_ns without
// data it empties the register, so that silent flows no longer count. A flow that sends again is entered again.
WEIR_INLINE void port_hears(const struct port_config *config, struct port *port, weir_u8 count, weir_u64 now_ns)
{
	if (port->data_seen) {
		port->data_seen = 0;
		port->data_ns = now_ns;
	} else if (count == COUNT_HANDSHAKE && port->registered && now_ns - port->data_ns > config->idle_ns) {
		port->registered = 0;
		port->generation++;
	}
}

// ---- slots ----

WEIR_INLINE weir_u64 slot_comes(struct port *port, weir_u64 slot)
{
	WEIR_ADD(&port->wheel[slot & (FLOWS_WHEEL - 1)], 1);
	return 0;
}

// Returns 1 if the slot still counted.
WEIR_INLINE int slot_goes(struct port *port, weir_u64 slot)
{
	if (!slot_is_live(port, slot))
		return 0;
	WEIR_ADD(&port->wheel[slot & (FLOWS_WHEEL - 1)], -1);
	return 1;
}

// Reports whether a direction that took a slot adds a flow to its port. counted: the slot that it left still counted.
WEIR_INLINE int slot_is_new(weir_u64 old, weir_u64 new, int counted, weir_u8 count)
{
	return count != COUNT_HANDSHAKE && !(counted && slot_port(old) == slot_port(new));
}

// Event: a direction sends by the port of this id. It takes a slot there, in the port's present epoch. Returns 1 if the
// port has one more flow, which its law must learn at once; 0 in count mode handshake. If it has that slot already,
// nothing changes: a world may skip the call.
WEIR_INLINE int slots_take(struct weir_world *world, struct end *e, struct port *port, weir_u32 id, weir_u8 count)
{
	weir_u64 old = e->slot, new = slot_at(id, port->epoch), order;
	struct port *left = 0;
	int counted = 0, more;

	if (old == new || WEIR_CAS(&e->slot, old, new) != old)
		return 0;
	order = WEIR_SLOT_COMES(port, id, new);
	if (old)
		left = WEIR_PORT(world, slot_port(old));
	if (left)
		counted = WEIR_SLOT_GOES(left, slot_port(old), old);
	more = slot_is_new(old, new, counted, count);
	WEIR_SLOT_TAKEN(id, order, old, new, counted, more);
	return more;
}

// Event: a direction no longer counts.
WEIR_INLINE void slots_leave(struct weir_world *world, struct end *e)
{
	weir_u64 old = WEIR_SWAP(&e->slot, 0);
	struct port *port;

	if (!old)
		return;
	port = WEIR_PORT(world, slot_port(old));
	if (port)
		(void)WEIR_SLOT_GOES(port, slot_port(old), old);
}

// ---- open handshakes ----
//
// count: opening. A handshake is open after its SYN-ACK. Both directions count at their ports until the handshake is
// over, but no longer than a silent flow counts. SYN-ACKs are limited to the share that would be left if all open
// handshakes became flows. Only SYN-ACKs are: no number of half-open connections takes anything from active flows.

WEIR_INLINE int opening_goes(struct port *port, weir_u32 registration)
{
	if (!opening_is_live(port, registration))
		return 0;
	WEIR_ADD(&port->opening[(registration - 1) & (FLOWS_WHEEL - 1)], -1);
	return 1;
}

// Event: a direction's handshake is over.
WEIR_INLINE void opening_leave(struct weir_world *world, struct end *e)
{
	weir_u32 registration = WEIR_SWAP(&e->registration, 0);
	struct port *port;

	if (!registration)
		return;
	port = WEIR_PORT(world, e->registered_at);
	if (port)
		(void)WEIR_OPENING_GOES(port, e->registered_at, registration);
}

// Event, under the port's lock: a direction's handshake is open at the port. Gives its registration.
WEIR_INLINE weir_u32 opening_comes(const struct port_config *config, struct port *port, weir_u64 now_ns)
{
	port_turn(config, port, now_ns);
	WEIR_ADD(&port->opening[port->epoch & (FLOWS_WHEEL - 1)], 1);
	return (weir_u32)port->epoch + 1;
}

// ---- the register ----

// Reports whether a direction must be entered in the port's register: once, and again after the register was emptied.
WEIR_INLINE int register_wants(const struct port *port, const struct end *e)
{
	return !e->registration || e->registration != port->generation;
}

// Event, under the port's lock: enters it.
WEIR_INLINE void register_comes(struct port *port, struct end *e, weir_u32 id)
{
	e->registration = port->generation;
	e->registered_at = (weir_u16)id;
	port->registered++;
}

// Event, under the port's lock: a direction with this registration leaves the register. If the register was emptied
// meanwhile, nothing changes (FQ-9).
WEIR_INLINE void register_goes(struct port *port, weir_u32 registration)
{
	if (registration == port->generation && port->registered)
		port->registered--;
}

// ---- ends of connections ----

// Reports whether a direction that sends at the port of this id was in a register that was emptied since.
WEIR_INLINE int register_lapsed(const struct port *port, const struct end *e, weir_u32 id)
{
	return e->registration && e->registered_at == id && e->registration != port->generation;
}

// Event: data up to `behind` leaves. Data far beyond a FIN means that the ends did not accept the FIN: it is forgotten.
// Other data after a FIN is sent again. It fills the queue, too, and counts.
WEIR_INLINE void end_sends(struct end *e, weir_u32 behind)
{
	if (e->flags & END_FIN && e->next - behind > FIN_REACH)
		e->flags &= (weir_u8)~END_FIN;
}

// Event: a FIN up to `behind` leaves (FQ-8). Returns 1 if it ends the direction: it is the first FIN.
WEIR_INLINE int end_finishes(struct end *e, weir_u32 behind)
{
	if (e->flags & END_FIN)
		return 0;
	e->flags |= END_FIN;
	e->next = behind;
	return 1;
}

#endif
