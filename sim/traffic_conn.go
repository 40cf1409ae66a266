package sim

import (
	"cmp"
	"errors"
	"fmt"

	"weir/experiment/result"
	"weir/law"
	"weir/sim/event"
	"weir/sim/network"
	"weir/sim/tcp"
)

// conn is a TCP connection with both its ends. It carries one flow at a time. The side that gets the data closes first.
// This shows the other side, without a message, that all data has arrived. So no FIN is queued before the data has
// passed.
type conn struct {
	t         *traffic
	item      int32
	index     int32 // the stack's
	from, to  network.NodeID
	port      uint16 // of the client
	client    *tcp.Endpoint
	server    *tcp.Endpoint // nil before it accepts
	flow      *flow         // in progress, or the last one; nil: none yet
	unwritten *flow         // the program has not written for it yet
	only      *flow         // the one flow of a connection that is not persistent
	owner     *session      // nil: an open-loop flow's own
	expected  int64         // bytes of the message that its receiver still waits for
	over      bool          // no flow will follow: the server closes as soon as possible
	clientUp  bool          // its program has not closed it
	serverUp  bool
	gone      bool
	thinking  bool      // its server's program will answer when the timer expires
	opened    bool      // its server's end got the last packet of the handshake
	past      tcpCounts // of ends that were closed
	before    tcpCounts // before the current flow
	timer     event.Event
}

// clientEnd and serverEnd are the two programs of a conn.
type (
	clientEnd conn
	serverEnd conn
)

var errNoPort = errors.New("no client port is free")

// dial connects, and begins f (which may be nil) at the time of connect(). If the host has no port left, f fails, and
// dial returns nil.
func (t *traffic) dial(itemIndex, pair int32, f *flow) *conn {
	it := &t.items[itemIndex]
	c := &conn{t: t, item: itemIndex, from: it.ends[pair][0], to: it.ends[pair][1], only: f, clientUp: true}
	if c.port = t.clientPort(c.from); c.port == 0 {
		if f != nil {
			f.fail(errNoPort)
		}
		return nil
	}
	c.timer.Init(c)
	if t.open++; t.open > t.mostOpen {
		t.stop(fmt.Errorf("traffic %s: more than %d connections are open at a time: give it fewer flows, or flows that end sooner", it.Name, t.mostOpen))
	}
	c.client = t.stack.Dial(c.from, c.to, c.port, it.port, it.tcp, (*clientEnd)(c))
	c.index = c.client.Index()
	for len(t.conns) <= int(c.index) {
		t.conns = append(t.conns, nil)
	}
	t.conns[c.index] = c
	if f != nil {
		f.begin(c.key(), t.queue.Now())
	}
	return c
}

func (c *conn) key() result.Key {
	return result.Key{Proto: network.TCP, Src: addrPort(c.from, c.port), Dst: addrPort(c.to, c.t.items[c.item].port)}
}

func (c *conn) pull() bool       { return c.t.items[c.item].pull }
func (c *conn) persistent() bool { return c.t.items[c.item].persistent }

// accept gives a connection its server's end. If the client has aborted meanwhile there is none: its reset is on the
// way.
func (t *traffic) accept(e *tcp.Endpoint) tcp.App {
	c := t.conns[e.Index()]
	if c == nil {
		return nil
	}
	c.server, c.serverUp = e, true
	return (*serverEnd)(c)
}

// exchangeAfter begins to transfer f after the delay late, which the lab's program had.
func (c *conn) exchangeAfter(f *flow, late event.Time) {
	if late == 0 {
		c.exchange(f)
		return
	}
	c.unwritten, f.carrier = f, c
	c.t.queue.Set(&c.timer, c.t.queue.Now()+late)
}

// exchange begins to transfer f, which has begun.
func (c *conn) exchange(f *flow) {
	c.flow, f.carrier = f, c
	c.noteOpened()
	if c.pull() {
		c.expected = messageBytes
		c.client.Write(messageBytes)
		return
	}
	if c.persistent() {
		c.expected = messageBytes
	}
	c.send()
}

// write adds n bytes at the sender of the flow's data.
func (c *conn) write(n int64) {
	if e := c.sender(); e != nil {
		e.Write(n)
	}
}

// sender returns the end that sends the data; nil: it is closed, or does not exist yet.
func (c *conn) sender() *tcp.Endpoint {
	switch {
	case c.pull() && c.serverUp:
		return c.server
	case !c.pull() && c.clientUp:
		return c.client
	}
	return nil
}

// answer sends the flow's bytes after the time that the answering program takes.
func (c *conn) answer() {
	r, asked := c.flow.result(), law.Duration(c.t.queue.Now()-c.t.t0)
	at := c.t.work.Answers(c.item, int32(r.Mouse), int32(r.Epoch), asked)
	if at == asked {
		c.send()
		return
	}
	c.thinking = true
	c.t.queue.Set(&c.timer, c.t.t0+event.Time(at))
}

// send writes the flow's bytes.
func (c *conn) send() {
	f, e := c.flow, c.sender()
	if f.ended || e == nil {
		return
	}
	switch {
	case f.rate > 0:
		f.startPacing(c.t.queue.Now())
	case f.size == 0:
		e.Write(endlessBytes)
	default:
		e.SetDeadline(f.due)
		e.Write(f.size)
	}
}

// Connected implements tcp.App. Written data waits in the endpoint.
func (p *clientEnd) Connected(*tcp.Endpoint) {}

// Connected implements tcp.App.
func (p *serverEnd) Connected(*tcp.Endpoint) {
	c := (*conn)(p)
	c.opened = true
	c.noteOpened()
	if c.over {
		c.endServer()
	}
}

// noteOpened records in the current flow, or in the one that the connection is for, that the connection is open.
func (c *conn) noteOpened() {
	f := cmp.Or(c.flow, c.only)
	if c.opened && f != nil && !f.ended {
		f.result().Opening = result.Opened
	}
}

// Acknowledged implements tcp.App; it is not needed.
func (p *clientEnd) Acknowledged(*tcp.Endpoint) {}

// Acknowledged implements tcp.App.
func (p *serverEnd) Acknowledged(*tcp.Endpoint) {}

// Received implements tcp.App: the answer to a push, or the data of a pull.
func (p *clientEnd) Received(_ *tcp.Endpoint, n int64) {
	c := (*conn)(p)
	if !c.clientUp || c.flow == nil {
		return
	}
	if c.pull() {
		if c.flow.received(n, c.t.queue.Now()) {
			c.exchanged()
		}
		return
	}
	if c.expected -= n; c.expected == 0 {
		c.exchanged()
	}
}

// Received implements tcp.App: the request of a pull, or the data of a push.
func (p *serverEnd) Received(_ *tcp.Endpoint, n int64) {
	c := (*conn)(p)
	if !c.serverUp || c.flow == nil {
		return
	}
	if c.pull() {
		if c.expected -= n; c.expected == 0 {
			c.answer()
		}
		return
	}
	if !c.flow.received(n, c.t.queue.Now()) {
		return
	}
	if c.persistent() {
		c.server.Write(messageBytes)
		return
	}
	c.endServer()
}

// Finished implements tcp.App: the server has closed. For the sender of a push this means that all data has arrived.
func (p *clientEnd) Finished(*tcp.Endpoint) {
	c := (*conn)(p)
	switch {
	case !c.clientUp:
	case c.flow != nil && !c.flow.ended && !c.over:
		c.broke(errEOF) // before the flow was complete
	case c.owner != nil && c.persistent():
		c.endClient()
	default:
		c.exchanged()
	}
}

var errEOF = errors.New("unexpected EOF")

// Finished implements tcp.App: the client has closed, or an endless sender has sent everything.
func (p *serverEnd) Finished(*tcp.Endpoint) {
	if c := (*conn)(p); c.serverUp {
		c.endServer()
	}
}

// Failed implements tcp.App: the connection failed.
func (p *clientEnd) Failed(e *tcp.Endpoint, why error) {
	c := (*conn)(p)
	if !c.clientUp {
		return
	}
	c.clientUp = false
	c.past.add(e)
	c.broke(why)
}

// Failed implements tcp.App.
func (p *serverEnd) Failed(e *tcp.Endpoint, why error) {
	c := (*conn)(p)
	if !c.serverUp {
		return
	}
	c.serverUp = false
	c.past.add(e)
	c.broke(why)
}

// tcpCounts has counts of both ends: retransmission timeouts, including the handshake's; those caused by a full window loss or a lack of
// ACKs (result.Causes); and segments that arrived before their predecessors.
type tcpCounts struct{ timeouts, floss, lack, early int64 }

// add adds the counts of one end.
func (x *tcpCounts) add(e *tcp.Endpoint) {
	c := e.Counters()
	x.timeouts += c.Timeouts + c.SYNTimeouts
	x.floss += c.FLoss
	x.lack += c.LAck
	x.early += c.OutOfOrder
}

func (x tcpCounts) since(before tcpCounts) tcpCounts {
	return tcpCounts{x.timeouts - before.timeouts, x.floss - before.floss, x.lack - before.lack, x.early - before.early}
}

// exchanged is called when the client's side of a flow is done.
func (c *conn) exchanged() {
	f := c.flow
	if c.persistent() {
		c.noteCounts(f)
		c.owner.done(f, true)
		return
	}
	c.endClient()
	if c.owner != nil {
		c.owner.done(f, true)
	}
}

// noteCounts adds to a flow of a persistent connection the counts during it.
func (c *conn) noteCounts(f *flow) {
	now := c.counts()
	f.addCounts(now.since(c.before))
	c.before = now
}

// counts returns the counts of both ends.
func (c *conn) counts() tcpCounts {
	x := c.past
	if c.clientUp {
		x.add(c.client)
	}
	if c.serverUp {
		x.add(c.server)
	}
	return x
}

// stopSending makes the sender of an endless flow end it, and resets the connection if that takes too long.
func (c *conn) stopSending(f *flow) {
	c.thinking = false
	if c.unwritten == f {
		c.abort()
	}
	if c.gone || c.flow != f {
		return
	}
	e := c.sender()
	if e == nil {
		c.abort()
		return
	}
	e.Truncate(unsentBytes)
	e.Close()
	if e.State() == tcp.Closed { // it was in SYN-SENT with nothing to send: another connection may get the endpoint
		c.abort()
		return
	}
	c.t.queue.Set(&c.timer, c.t.queue.Now()+drainTime)
}

// Happen aborts a connection that did not end by itself, or that has a failed end. It also ends a program's wait before it
// writes.
func (c *conn) Happen(*event.Event, event.Time) {
	if f := c.unwritten; f != nil {
		c.unwritten = nil
		c.exchange(f)
		return
	}
	if c.thinking {
		c.thinking = false
		c.send()
		return
	}
	c.abort()
}

// close ends a persistent connection whose flows have ended.
func (c *conn) close() {
	c.over = true
	switch {
	case c.gone:
	case c.pull():
		c.endClient()
	case c.serverUp:
		c.endServer() // the client closes when it sees that
	}
}

func (c *conn) endClient() {
	if c.clientUp {
		c.clientUp = false
		c.past.add(c.client)
		c.client.Close()
		c.leave()
	}
}

func (c *conn) endServer() {
	if c.serverUp {
		c.serverUp = false
		c.past.add(c.server)
		c.server.Close()
		c.leave()
	}
}

// broke ends the connection because one of its ends failed. An event of its own resets the other end, because the stack
// is still processing the first.
func (c *conn) broke(why error) {
	f := c.flow
	if f == nil {
		f = c.only
	}
	if f != nil {
		f.fail(why)
	}
	if !c.gone {
		c.unwritten, c.thinking = nil, false
		c.t.queue.Set(&c.timer, c.t.queue.Now())
	}
}

// abort resets both ends. The program that waited for the flow continues.
func (c *conn) abort() {
	c.unwritten, c.thinking = nil, false
	if c.clientUp {
		c.clientUp = false
		c.past.add(c.client)
		c.client.Abort()
	}
	if c.serverUp {
		c.serverUp = false
		c.past.add(c.server)
		c.server.Abort()
	}
	if c.gone {
		return
	}
	c.leave()
	if c.owner != nil {
		c.owner.broken(c.flow)
	}
}

// leave is called when an end's program is done with the connection. Later segments (FINs and their acknowledgements)
// belong to no flow.
func (c *conn) leave() {
	if c.clientUp || c.serverUp || c.gone {
		return
	}
	c.settle()
	c.t.queue.Stop(&c.timer)
	c.t.conns[c.index] = nil
	delete(c.t.hosts[c.from].used, c.port)
	if c.t.open--; c.t.open == 0 && c.t.left == 0 {
		c.t.queue.Halt()
	}
}

// settle adds the counts to the flow, once.
func (c *conn) settle() {
	c.gone = true
	if c.only != nil {
		c.only.addCounts(c.counts())
	} else if c.flow != nil && !c.idle() {
		c.noteCounts(c.flow)
	}
}

// idle reports whether a persistent connection carries no flow now.
func (c *conn) idle() bool { return c.owner == nil || c.owner.carried == nil }
