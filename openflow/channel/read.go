package channel

import (
	"runtime"
	"slices"
	"time"

	"weir/openflow"
)

// batchMessages is after how many messages what they made the handler send is written.
const batchMessages = 64

// A connection lets others have the processor after so much work: a switch that always has something to say would keep
// it for 10 ms each time, until the runtime takes it away.
const (
	turnBytes = 8 << 10
	readBytes = 1 << 10 // a read counts as so many more
)

// read works until the connection ends, and says why.
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

// batch works off what is in the buffer.
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
			return nil // fill finds out why
		}
		if n%batchMessages == 0 && c.in.partial() { // more is to come
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
	default: // a hello too many, or a question: nothing that a switch may ask
		if c.charge() {
			c.count.unknown.Add(1)
			c.log.say(levelWarn, "message that a switch does not send", "type", h.Type, "xid", h.XID)
		}
	}
}

// packetIn hands on a packet-in, or drops it when there are too many: the connection has better to do.
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

// unasked hands on a copy.
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

// strange is an answer that nobody waits for: late, given twice, or made up.
func (c *Conn) strange(h openflow.Header) {
	if c.charge() {
		c.count.strange.Add(1)
		c.log.say(levelWarn, "answer to nothing that was asked", "type", h.Type, "xid", h.XID)
	}
}

// charge takes one of the messages that a switch may send unasked each second, and waits until it may. It says whether
// the connection still lives.
func (c *Conn) charge() bool {
	return c.pause(c.in.messages.owe(c.in.now, 1))
}

// pause reads nothing for so long: TCP makes the switch wait.
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
		c.in.heard = c.in.now // it was us who did not listen
		return true
	case <-c.done:
		return false
	}
}
