package channel

import (
	"encoding/binary"
	"slices"

	"weir/openflow"
)

// reply handles an answer and reports whether anybody waited for it. It runs on the reading goroutine, as all functions in this
// file. body is in the read buffer.
func (c *Conn) reply(h openflow.Header, body []byte) bool {
	c.mu.Lock()
	call := c.calls[h.XID]
	c.mu.Unlock()
	switch {
	case call == nil:
		return false
	case call.want != h.Type:
		c.finish(call, nil, &UnexpectedReplyError{Want: call.want, Got: h.Type})
	case h.Type == openflow.TypeMultipartReply:
		c.part(call, body)
	case call.each != nil:
		c.finish(call, nil, nil)
		call.each(body, true, nil)
	default:
		m := openflow.New(h.Type)
		err := m.DecodeBody(slices.Clone(body))
		if err != nil {
			m = nil
		}
		c.finish(call, m, err)
	}
	return true
}

// part handles one part of the answer to a multipart request.
func (c *Conn) part(call *Call, body []byte) {
	if len(body) < multipartHead {
		c.finish(call, nil, &openflow.DecodeError{Message: openflow.TypeMultipartReply.String(), Field: "type",
			Offset: openflow.HeaderLen, Value: int64(len(body)), Err: openflow.ErrTruncated})
		return
	}
	if binary.BigEndian.Uint16(body) != call.kind {
		c.finish(call, nil, &UnexpectedReplyError{Want: call.want, Got: openflow.TypeMultipartReply})
		return
	}
	last := binary.BigEndian.Uint16(body[2:])&multipartMore == 0
	if call.count++; call.count > c.srv.limits.ReplyParts {
		c.finish(call, nil, ErrReplySize)
		return
	}
	if call.each != nil {
		if last {
			c.finish(call, nil, nil)
		}
		call.each(body, last, nil)
		return
	}
	if !c.gather(call, len(body)) {
		c.finish(call, nil, ErrReplySize)
		return
	}
	m := new(openflow.MultipartReply)
	if err := m.DecodeBody(slices.Clone(body)); err != nil {
		c.finish(call, nil, err)
		return
	}
	call.parts = append(call.parts, m)
	if last {
		c.finish(call, m, nil)
	}
}

// gather counts bytes that are kept until the answer is complete.
func (c *Conn) gather(call *Call, n int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls[call.xid] != call {
		return true // nobody waits for it now: its bytes were released
	}
	if c.gathered+n > c.srv.limits.ReplyBytes {
		return false
	}
	c.gathered += n
	call.bytes += n
	return true
}

// refusal handles an error message, and reports whether it answers a question.
func (c *Conn) refusal(h openflow.Header, body []byte) bool {
	m := new(openflow.ErrorMessage)
	if err := m.DecodeBody(slices.Clone(body)); err != nil {
		c.count.undecodable.Add(1)
		return false
	}
	c.mu.Lock()
	call := c.calls[h.XID]
	inBatch := call == nil && c.refusedInBatch(h.XID, m)
	c.mu.Unlock()
	c.heedError(m, call != nil && call.setsRole)
	if call != nil {
		c.finish(call, nil, &RemoteError{XID: h.XID, Message: m})
		return true
	}
	if inBatch {
		return true
	}
	if c.charge() {
		c.srv.handler.Message(c, h, m)
	}
	return false
}
