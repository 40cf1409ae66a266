package channel

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"weir/openflow"
)

const refusalsKept = 16 // of one Apply; further ones are counted

// batch is the messages of one Apply.
type batch struct {
	first, n uint32 // their transaction ids: n from first on, but for those of questions under way
	refused  []error
	more     int
}

// Apply sends changes with a barrier behind them and waits for it: when it returns nil, the switch has taken and done
// them all. It queues all of them or none. What the switch refused comes as [RemoteError]s, joined, the first sixteen;
// the others were done. After any other error it is not known what was done. It fails with [ErrQueueFull] when the
// changes find no room; several Applies one after the other keep to the switch's pace.
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
		b.refused = append(b.refused, fmt.Errorf("the switch refused %d more", b.more))
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

// refusedInBatch keeps the error with the Apply it belongs to. Conn.mu is held.
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
