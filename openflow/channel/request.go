package channel

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"weir/openflow"
)

// Call is an open question: a future. It ends with the answer, an error, or after [Limits].RequestTimeout.
type Call struct {
	conn     *Conn
	xid      uint32
	want     openflow.Type
	kind     uint16 // of a multipart
	deadline time.Time
	own      bool // asked by the connection itself: not counted for Limits.Outstanding
	each     Part // instead of done: see Poll
	setsRole bool // SetRole's question

	count int // received parts
	bytes int // share of Conn.gathered
	parts []*openflow.MultipartReply

	done  chan struct{}
	reply openflow.Message
	err   error
}

// Part receives each part of an answer: its body, borrowed until Part returns; whether it is the last part; and an error if no
// more follows. It is called on the connection's reading goroutine.
type Part func(body []byte, last bool, err error)

// Done returns a channel that is closed when the call has ended.
func (c *Call) Done() <-chan struct{} { return c.done }

// XID returns the question's transaction id.
func (c *Call) XID() uint32 { return c.xid }

// Wait returns the answer. If the context ends first, the question is forgotten, and a later answer is counted as strange. Errors
// are a [RemoteError], an [UnexpectedReplyError], [ErrReplySize], a [CloseError], the codec's error, or a wrapped
// context.DeadlineExceeded or context.Canceled.
func (c *Call) Wait(ctx context.Context) (openflow.Message, error) {
	if err := c.wait(ctx); err != nil {
		return nil, err
	}
	return c.reply, nil
}

func (c *Call) wait(ctx context.Context) error {
	timer := time.NewTimer(time.Until(c.deadline))
	defer timer.Stop()
	select {
	case <-c.done:
	case <-c.conn.done:
		c.conn.finish(c, nil, c.conn.Err())
	case <-timer.C:
		c.conn.finish(c, nil, c.late())
	case <-ctx.Done():
		c.conn.finish(c, nil, fmt.Errorf("wait for %s: %w", c.want, ctx.Err()))
	}
	<-c.done
	return c.err
}

func (c *Call) late() error {
	return fmt.Errorf("no %s within %v: %w", c.want, c.conn.srv.limits.RequestTimeout, context.DeadlineExceeded)
}

// Ask sends a question and returns the future of its answer. It has Send's errors, and [ErrOutstanding].
func (c *Conn) Ask(m openflow.Message) (*Call, error) {
	call := &Call{done: make(chan struct{})}
	if err := c.ask(m, call); err != nil {
		return nil, err
	}
	return call, nil
}

// Request asks and waits for the answer. Use Multipart for multipart requests.
func (c *Conn) Request(ctx context.Context, m openflow.Message) (openflow.Message, error) {
	if m.MessageType() == openflow.TypeMultipartRequest {
		return nil, fmt.Errorf("%w: use Multipart for a multipart request", ErrMessage)
	}
	call, err := c.Ask(m)
	if err != nil {
		return nil, err
	}
	return call.Wait(ctx)
}

// Barrier waits until the switch has carried out all earlier messages.
func (c *Conn) Barrier(ctx context.Context) error {
	_, err := c.Request(ctx, &openflow.BarrierRequest{})
	return err
}

// Multipart asks and gathers all parts of the answer.
func (c *Conn) Multipart(ctx context.Context, m *openflow.MultipartRequest) ([]*openflow.MultipartReply, error) {
	call, err := c.Ask(m)
	if err != nil {
		return nil, err
	}
	if err := call.wait(ctx); err != nil {
		return nil, err
	}
	return call.parts, nil
}

// Poll asks for statistics and passes on each part of the answer as it is read, without copying or gathering. each is called at
// least once, the last time with last true. An error may come up to EchoInterval after RequestTimeout.
func (c *Conn) Poll(m *openflow.MultipartRequest, each Part) error {
	return c.ask(m, &Call{each: each})
}

func (c *Conn) ask(m openflow.Message, call *Call) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.askLocked(m, call)
}

func (c *Conn) askLocked(m openflow.Message, call *Call) error {
	want, ok := answerOf(m.MessageType())
	if !ok {
		return fmt.Errorf("%w: %s has no answer", ErrMessage, m.MessageType())
	}
	if !call.own && c.asked >= c.srv.limits.Outstanding {
		return ErrOutstanding
	}
	start := len(c.out.buf)
	call.conn, call.xid, call.want = c, c.nextXID(), want
	call.deadline = time.Now().Add(c.srv.limits.RequestTimeout)
	if err := c.enqueue(call.xid, m, call.own); err != nil {
		return err
	}
	if want == openflow.TypeMultipartReply {
		call.kind = binary.BigEndian.Uint16(c.out.buf[start+openflow.HeaderLen:])
	}
	c.calls[call.xid] = call
	if !call.own {
		c.asked++
	}
	c.flush()
	return nil
}

// answerOf returns the type of message that answers a question.
func answerOf(t openflow.Type) (openflow.Type, bool) {
	switch t {
	case openflow.TypeEchoRequest, openflow.TypeFeaturesRequest, openflow.TypeGetConfigRequest, openflow.TypeMultipartRequest,
		openflow.TypeBarrierRequest, openflow.TypeQueueGetConfigRequest, openflow.TypeRoleRequest, openflow.TypeGetAsyncRequest:
		return t + 1, true
	case openflow.TypeExperimenter:
		return t, true
	}
	return 0, false
}

// nextXID returns an id that no open question has. Zero is for a switch's unrequested messages. The caller holds Conn.mu.
func (c *Conn) nextXID() uint32 {
	for {
		c.xid++
		if c.xid != 0 && c.calls[c.xid] == nil {
			return c.xid
		}
	}
}

// finish ends a call, unless it has ended.
func (c *Conn) finish(call *Call, reply openflow.Message, err error) {
	c.mu.Lock()
	if c.calls[call.xid] != call {
		c.mu.Unlock()
		return
	}
	delete(c.calls, call.xid)
	if !call.own {
		c.asked--
	}
	c.gathered -= call.bytes
	call.reply, call.err = reply, err
	c.mu.Unlock()
	if call.each == nil {
		close(call.done)
	} else if err != nil {
		call.each(nil, true, err)
	}
}

// expire ends the calls whose time is over.
func (c *Conn) expire(now time.Time) {
	c.mu.Lock()
	var late []*Call
	for _, call := range c.calls {
		if !now.Before(call.deadline) {
			late = append(late, call)
		}
	}
	c.mu.Unlock()
	for _, call := range late {
		c.finish(call, nil, call.late())
	}
}

// endCalls ends all calls of a connection that has ended.
func (c *Conn) endCalls() {
	c.mu.Lock()
	rest := make([]*Call, 0, len(c.calls))
	for _, call := range c.calls {
		rest = append(rest, call)
	}
	c.mu.Unlock()
	err := c.Err()
	for _, call := range rest {
		c.finish(call, nil, err)
	}
}
