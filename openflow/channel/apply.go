package channel

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"weir/openflow"
)

const refusalsKept = 16 // of one Apply; further ones are counted

// batch holds the messages of one Apply.
type batch struct {
	first, n uint32 // their transaction ids: n from first on, except those of unfinished questions
	refused  []error
	more     int
}

// Apply sends changes followed by a barrier, and waits for it. nil: the switch has carried out all of them. It queues all of
// them or none. If the switch refused some, the error joins their [RemoteError]s, sixteen at most; the others were carried
// out. After any other error it is not known which were carried out. The error is [ErrQueueFull] if the changes find no room.
// Several Applies one after the other adapt to the switch's pace.
func (c *Conn) Apply(ctx context.Context, changes ...openflow.Message) error {
	b := new(batch)
	call := &Call{done: make(chan struct{})}
	if err := c.queueBatch(b, call, changes); err != nil {
		return err
	}
	err := call.wait(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.Index(c.batches, b); i >= 0 {
		c.batches = slices.Delete(c.batches, i, i+1)
	}
	if b.more > 0 {
		b.refused = append(b.refused, fmt.Errorf("the switch refused %d more messages", b.more))
	}
	return errors.Join(append(b.refused, err)...)
}

// queueBatch queues the changes and the barrier, or nothing.
func (c *Conn) queueBatch(b *batch, barrier *Call, changes []openflow.Message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, xid := c.out.queued, c.xid
	b.first = xid + 1
	err := func() error {
		for _, m := range changes {
			if err := c.enqueue(c.nextXID(), m, false); err != nil {
				return err
			}
		}
		b.n = c.xid - xid
		return c.askLocked(&openflow.BarrierRequest{}, barrier)
	}()
	if err != nil {
		c.out.queued, c.xid = before, xid
		return err
	}
	c.batches = append(c.batches, b)
	return nil
}

// refusedInBatch adds the error to its Apply. The caller holds Conn.mu.
func (c *Conn) refusedInBatch(xid uint32, m *openflow.ErrorMessage) bool {
	for _, b := range c.batches {
		if xid-b.first < b.n {
			if len(b.refused) < refusalsKept {
				b.refused = append(b.refused, &RemoteError{XID: xid, Message: m})
			} else {
				b.more++
			}
			return true
		}
	}
	return false
}
