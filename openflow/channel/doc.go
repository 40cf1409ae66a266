// Package channel is the connection between an OpenFlow 1.3 controller and its switches (specification 6.3): TCP or
// TLS with certificates on both sides, listening or dialling.
//
// # Use
//
// A [Server] has the connections of one controller. [Server.Serve] accepts switches, [Server.Dial] connects to one that
// listens, and [Server.Keep] does so again after each failure. [Dial] is for tools that need one connection.
//
// The [Handler] receives the switch's unrequested messages. [Conn.Ask] sends a question and returns a future for [Call.Wait].
// [Conn.Request], [Conn.Multipart] and [Conn.Barrier] wait for the answer. [Conn.Apply] sends changes followed by a barrier,
// and returns the switch's refusals. [Conn.Poll] is for statistics that are read many times a second.
//
// # Goroutines
//
// A connection has two goroutines. One reads, calls the handler, and writes the handler's messages as far as the kernel's
// buffer has room. The other writes the rest, and the messages of other goroutines. So a handler must not wait for an answer
// of its own connection, which the same goroutine would have to read: it uses [Conn.Send], [Conn.Poll] or another goroutine.
// While a handler runs, nothing else is read from that switch. There is no receive queue: a busy handler slows its switch down
// through TCP, and no other switch. All methods of [Conn] and [Server] are safe for concurrent use.
//
// # Memory
//
// The [openflow.PacketIn] for a handler and the bytes for a [Conn.Poll] are in the connection's read buffer: they are valid until
// the call returns, and cost no allocation. Every other message is a copy that the receiver owns. Send, Ask and the others encode
// a message before they return: the caller may use it again at once.
//
// # Batches
//
// The messages that handlers send during one batch of input are written together, at the latest after 64 messages or when 32 KiB
// wait. Over plain TCP no other goroutine is woken for that. Messages of other goroutines are written at once or, if a write
// is running, together after it. After 8 KiB of input, or 8 reads, other connections have their turn.
//
// # Roles
//
// Until the switch has confirmed that this controller is MASTER, messages that could change the switch are refused with
// [ErrNotMaster] before they are queued. Open vSwitch keeps a controller with a stale generation id as EQUAL, and continues to
// obey it. So the connection closes itself when it learns that its id is stale. It learns this from one of:
//
//   - the error ROLE_REQUEST_FAILED/STALE; then it first asks for the id that the switch knows
//   - a role status
//   - the error IS_SLAVE
//   - the answer to a request for its role, which it sends every [Limits].EchoInterval
//
// Queued messages are dropped then, also bytes that the kernel has not sent yet.
//
// # Peers are not trusted
//
// [Limits] bounds the cost of a connection for any behaviour of the peer, and no connection affects others. Above its rate a
// switch's packet-ins are dropped and counted; above other rates it is read more slowly. A connection ends with a
// [CloseError], whose [Cause] the server counts. A peer's number never reaches the [GenerationStore]: a [RefusedIDError]
// passes it to the caller of [Conn.SetRole], who must check it.
package channel
