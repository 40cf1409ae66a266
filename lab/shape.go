package lab

import (
	"fmt"
	"math"

	"github.com/vishvananda/netlink"

	"weir/experiment"
)

// Every shaped port has a TBF as its root qdisc, so that dev->qdisc->qstats.backlog is the queue
// of the port: the measuring program and the laws read that.
const (
	// tbfWake is how late the kernel's timer may wake the TBF (measured here: 60 us at the median,
	// 110 us at p99; docs/lab.md). Tokens that arrive while the bucket is full are lost, so the bucket
	// holds what the link carries in that time; more would let through bursts that a wire would not.
	tbfWakeMicroseconds = 200
	// tbfLeastFrames keeps a slow link able to send: a frame larger than the bucket is dropped.
	tbfLeastFrames = 2
	// hostQueueFrames is the limit of a host's own queue: Linux's default txqueuelen, which TCP
	// (TSQ) never fills.
	hostQueueFrames = 1000
)

// tbfBurst is the size of the bucket in bytes.
func tbfBurst(p *port) uint32 {
	burst := int64(p.rate) / 8 * tbfWakeMicroseconds / 1e6
	return uint32(min(max(burst, tbfLeastFrames*frameBytes), math.MaxInt32))
}

// tbfLimit is the queue in bytes, Ethernet headers included: of a switch's port the buffer, of a
// host, and where no buffer is said, a queue that does not drop.
func tbfLimit(p *port) uint32 {
	if p.node.kind == experiment.Switch && p.buffer > 0 {
		return uint32(min(max(int64(p.buffer), frameBytes), math.MaxInt32))
	}
	return hostQueueFrames * frameBytes
}

// shape makes the TBF of a port, in the namespace that h is of.
func shape(h *netlink.Handle, p *port) error {
	rate := uint64(p.rate) / 8
	tbf := &netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: p.ifindex, Parent: netlink.HANDLE_ROOT, Handle: netlink.MakeHandle(1, 0)},
		Rate:       rate,
		Limit:      tbfLimit(p),
		Buffer:     netlink.Xmittime(rate, tbfBurst(p)),
	}
	if err := h.QdiscAdd(tbf); err != nil {
		return fmt.Errorf("shape to %v: %w", p.rate, err)
	}
	return nil
}
