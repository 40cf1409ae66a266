// Package channel is the connection between an OpenFlow 1.3 controller and its switches (specification 6.3): TCP or
// TLS with certificates on both sides, listening or dialling.
//
// # Use
//
// A [Server] holds the connections of one controller. [Server.Serve] accepts switches, [Server.Dial] goes to one that
// listens, [Server.Keep] does so again and again; [Dial] is for tools that want one connection. What a switch sends
// unasked goes to the [Handler]. What it is asked is a future ([Conn.Ask], [Call.Wait]) or waited for at once
// ([Conn.Request], [Conn.Multipart], [Conn.Barrier]); [Conn.Apply] sends changes with a barrier behind them and gives
// what the switch refused; [Conn.Poll] is for statistics asked many times a second.
//
// # Goroutines
//
// A connection has two: one reads and calls the handler, and writes what handlers send as far as the kernel takes it at
// once; the other writes the rest of that, and what others send. A handler therefore must not wait there for an
// answer of its own connection, which is read by the goroutine that it holds up: it uses [Conn.Send], [Conn.Poll] or a
// goroutine. While a handler runs nothing else is read from that switch: there is no queue inwards, a busy handler is
// felt by its switch through TCP, and by no other switch. All methods of [Conn] and [Server] may be called by many at once.
//
// # Who owns the memory
//
// The [openflow.PacketIn] given to a handler and the bytes given to a [Conn.Poll] lie in the connection's read buffer:
// they are good until the call returns, and cost no allocation. Every other message is a copy that belongs to whom it
// is given. A message given to Send, Ask and the others is written into the queue before they return: the caller may
// use it again at once.
//
// # Batches
//
// What handlers send while one piece of input is worked off leaves in one write: at the latest after 64 messages, or
// as soon as 32 KiB wait. Over plain TCP no other goroutine is woken for it. What others send is written at once, or
// together, if a write is under way. After 8 KiB of input, or 8 reads, other connections have their turn.
//
// # Roles
//
// Until the switch has confirmed that this controller is MASTER, whatever could change it is refused with
// [ErrNotMaster] before it is queued: only messages known to be harmless pass. A controller with a stale generation id
// stays EQUAL for Open vSwitch, which goes on to obey it; so the connection ends itself when it learns that it is
// stale: by the error ROLE_REQUEST_FAILED/STALE (after one more question, for the id that the switch knows), by a role
// status, by the error IS_SLAVE, or by asking for its role, as it does every [Limits].EchoInterval. What was queued is
// thrown away then, even what the kernel has not sent yet.
//
// # Peers are not trusted
//
// Whatever a peer sends or does not send, a connection costs no more than [Limits] says, and ends alone. Above its rate
// a switch's packet-ins are dropped and counted; above the other rates it is read from more slowly. Why a connection
// ended is a [CloseError] with a [Cause], by which the server counts. A peer's number never reaches the
// [GenerationStore]: a [RefusedIDError] gives it to the caller of [Conn.SetRole], whose part it is to doubt it.
package channel
