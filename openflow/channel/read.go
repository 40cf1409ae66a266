package channel

import (
	"runtime"
	"slices"
	"time"

	"weir/openflow"
)

// batchMessages is the number of received messages after which the handler's messages are written.
const batchMessages = 64

// The amount of work after which a connection yields the processor. A switch that always sends would otherwise keep it for 10 ms
// each time, until the runtime preempts it.
const (
	turnBytes = 8 << 10
	readBytes = 1 << 10 // a read counts as so many more bytes
)

// read reads until the connection ends, and returns the cause.
func (c *Conn) read() *CloseError {
	for {
		if why := c.batch(); why != nil {
			return why
		}
		if c.in.turn >= turnBytes {
			c.in.turn = 0
			runtime.Gosched()
		}
		if why := c.fill(); why != nil {
			return why
		}
	}
}

// batch handles the messages in the buffer.
func (c *Conn) batch() *CloseError {
	c.cork()
	defer c.uncork()
	for n := 1; ; n++ {
		h, msg, err := c.in.next()
		if err != nil {
			return closed(CauseMalformed, "%w", err)
		}
		if msg == nil {
			return nil
		}
		if h.Version != openflow.Version13 && h.Type != openflow.TypeHello {
			return closed(CauseMalformed, "%s of version %d after version %d was agreed", h.Type, h.Version, openflow.Version13)
		}
		c.count.in[slot(h.Type)].Add(1)
		c.dispatch(h, msg[openflow.HeaderLen:])
		if c.ended.Load() {
			return nil // fill finds the cause
		}
		if n%batchMessages == 0 && c.in.partial() { // more follows
			c.uncork()
			c.cork()
		}
	}
}

func (c *Conn) dispatch(h openflow.Header, body []byte) {
	switch h.Type {
	case openflow.TypePacketIn:
		c.packetIn(body)
	case openflow.TypeEchoRequest:
		if c.charge() {
			c.answer(h.XID, &openflow.EchoReply{Data: body})
		}
	case openflow.TypeEchoReply, openflow.TypeFeaturesReply, openflow.TypeGetConfigReply, openflow.TypeMultipartReply,
		openflow.TypeBarrierReply, openflow.TypeQueueGetConfigReply, openflow.TypeRoleReply, openflow.TypeGetAsyncReply:
		if !c.reply(h, body) {
			c.strange(h)
		}
	case openflow.TypeError:
		c.refusal(h, body)
	case openflow.TypeExperimenter:
		c.onfRoleStatus(body)
		if !c.reply(h, body) {
			c.unasked(h, body)
		}
	case openflow.TypeFlowRemoved, openflow.TypePortStatus:
		c.unasked(h, body)
	case typeRoleStatus:
		if c.charge() && c.roleStatus(body) != nil {
			c.count.undecodable.Add(1)
		}
	default: // a second hello, or a question that a switch may not ask
		if c.charge() {
			c.count.unknown.Add(1)
			c.log.say(levelWarn, "message that a switch does not send", "type", h.Type, "xid", h.XID)
		}
	}
}

// packetIn passes a packet-in to the handler, or drops it above the rate.
func (c *Conn) packetIn(body []byte) {
	in := &c.in
	if !in.packetIns.take(in.now, 1) || !in.packetInB.take(in.now, len(body)) {
		c.count.packetIns.Add(1)
		return
	}
	if err := in.packetIn.DecodeBody(body); err != nil {
		c.undecodable(err)
		return
	}
	c.srv.handler.PacketIn(c, &in.packetIn)
}

// unasked passes a copy of a message to the handler.
func (c *Conn) unasked(h openflow.Header, body []byte) {
	if !c.charge() {
		return
	}
	m := openflow.New(h.Type)
	if m == nil {
		c.count.unknown.Add(1)
		return
	}
	if err := m.DecodeBody(slices.Clone(body)); err != nil {
		c.undecodable(err)
		return
	}
	c.srv.handler.Message(c, h, m)
}

func (c *Conn) undecodable(err error) {
	c.count.undecodable.Add(1)
	c.log.say(levelWarn, "message that cannot be read", "error", err)
}

// strange counts an answer without an open question: late, duplicate, or forged.
func (c *Conn) strange(h openflow.Header) {
	if c.charge() {
		c.count.strange.Add(1)
		c.log.say(levelWarn, "answer without a question", "type", h.Type, "xid", h.XID)
	}
}

// charge takes one token for an unrequested message, and waits if there is none. It reports whether the connection is still open.
func (c *Conn) charge() bool {
	return c.pause(c.in.messages.owe(c.in.now, 1))
}

// pause stops reading for this time: TCP makes the switch wait.
func (c *Conn) pause(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	c.uncork()
	defer c.cork()
	c.count.pauses.Add(1)
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		c.in.now = time.Now()
		c.in.heard = c.in.now // the pause is not the switch's silence
		return true
	case <-c.done:
		return false
	}
}
