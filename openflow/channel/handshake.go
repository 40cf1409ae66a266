package channel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"weir/openflow"
)

// handshakeMessages limits the messages that a peer may send before its features.
const handshakeMessages = 1024

// greet exchanges hello and features. nc has the handshake's deadline.
func (c *Conn) greet() *CloseError {
	c.answer(0, &openflow.Hello{Versions: []uint8{openflow.Version13}})
	h, body, why := c.await(judgeFirst)
	if why != nil {
		return why
	}
	if why := c.agree(h, body); why != nil {
		return why
	}
	c.mu.Lock()
	xid := c.nextXID()
	c.mu.Unlock()
	c.answer(xid, &openflow.FeaturesRequest{})
	for range handshakeMessages {
		h, body, why := c.await(nil)
		if why != nil {
			return why
		}
		switch {
		case h.Type == openflow.TypeEchoRequest:
			c.answer(h.XID, &openflow.EchoReply{Data: body})
		case h.Type == openflow.TypeFeaturesReply && h.XID == xid:
			if err := c.features.DecodeBody(body); err != nil {
				return closed(CauseHandshake, "%w", err)
			}
			return nil
		case h.Type == openflow.TypeError:
			return c.refusedHandshake(body)
		}
	}
	return closed(CauseHandshake, "the switch sent %d messages and no features", handshakeMessages)
}

// judgeFirst refuses a peer by the header of its first message, before the rest has arrived.
func judgeFirst(h openflow.Header) *CloseError {
	if h.Length == 0 || h.Type == openflow.TypeHello || h.Type == openflow.TypeError {
		return nil
	}
	hint := ""
	if h.Version == 0x16 { // the first byte of a TLS handshake
		hint = ": does the switch speak TLS where plain TCP is meant?"
	}
	return closed(CauseHandshake, "the first message is %s of version %d, not a hello%s", h.Type, h.Version, hint)
}

// await returns the next message. It calls judge with the header as soon as that has arrived, and with a zero header before.
func (c *Conn) await(judge func(openflow.Header) *CloseError) (openflow.Header, []byte, *CloseError) {
	for {
		h, msg, err := c.in.next()
		if err != nil {
			return h, nil, closed(CauseMalformed, "in the handshake: %w", err)
		}
		if judge != nil {
			if why := judge(h); why != nil {
				return h, nil, why
			}
		}
		if msg != nil {
			c.count.in[slot(h.Type)].Add(1)
			return h, msg[openflow.HeaderLen:], nil
		}
		n, err := c.in.fill(c.nc)
		c.count.bytes.Add(uint64(n))
		if n == 0 && err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, net.ErrClosed) {
				return h, nil, closed(CauseHandshake, "the handshake was not finished in time")
			}
			return h, nil, readError(err)
		}
	}
}

// agree checks the peer's hello: both sides must speak version 1.3 (specification 6.3.1).
func (c *Conn) agree(h openflow.Header, body []byte) *CloseError {
	if h.Type == openflow.TypeError {
		return c.refusedHandshake(body)
	}
	var hello openflow.Hello
	if err := hello.DecodeBody(body); err != nil {
		return closed(CauseMalformed, "%w", err)
	}
	if hello.Has(openflow.Version13, h.Version) {
		return nil
	}
	text := fmt.Sprintf("this controller speaks OpenFlow 1.3 (version %d) only", openflow.Version13)
	c.farewell(h.XID, &openflow.ErrorMessage{ErrorType: openflow.ErrorHelloFailed, Code: openflow.CodeHelloIncompatible, Data: []byte(text)})
	if len(hello.Versions) > 0 {
		return closed(CauseVersion, "the switch speaks versions %v, not %d", hello.Versions, openflow.Version13)
	}
	return closed(CauseVersion, "the switch speaks version %d, not %d", h.Version, openflow.Version13)
}

func (c *Conn) refusedHandshake(body []byte) *CloseError {
	var m openflow.ErrorMessage
	if err := m.DecodeBody(body); err != nil {
		return closed(CauseHandshake, "%w", err)
	}
	if m.ErrorType == openflow.ErrorHelloFailed {
		return closed(CauseVersion, "the switch refused the controller's hello: %s", clip(m.String(), textBytes))
	}
	return closed(CauseHandshake, "the switch answered with an error: %s", clip(m.String(), textBytes))
}

// farewell writes a last message and waits until the peer has it, at most until the handshake's deadline and one second. If a
// socket is closed with unread bytes, the kernel drops the message.
func (c *Conn) farewell(xid uint32, m openflow.Message) {
	_ = c.nc.SetDeadline(earlier(time.Now().Add(time.Second), c.in.armed)) // fails on a closed socket only
	c.answer(xid, m)
	c.mu.Lock()
	c.out.last = true
	c.out.signal()
	c.mu.Unlock()
	<-c.out.stopped
	if half, ok := c.nc.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		var sink [512]byte
		for range 128 {
			if _, err := c.nc.Read(sink[:]); err != nil {
				return
			}
		}
	}
}

// deadline sets the time by which the handshake must be finished.
func (c *Conn) deadline(ctx context.Context) {
	at, _ := ctx.Deadline()
	c.in.armed = at
	_ = c.nc.SetReadDeadline(at) // fails on a closed socket only, which the next read shows
}
