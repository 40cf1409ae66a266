package lab

import (
	"fmt"
	"math"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weir/experiment"
	"weir/law"
)

// Every shaped port has a TBF as its root qdisc, so that dev->qdisc->qstats.backlog is the queue of the port: the
// measuring program and the laws read it.
const (
	// tbfWakeMicroseconds is the delay of the kernel's timer that the TBF tolerates (measured here: 60 us at the
	// median, 110 us at p99; docs/lab.md). Tokens that arrive while the bucket is full are lost, so the bucket
	// holds what the link sends in that time. A larger one would let bursts through that a line would not.
	tbfWakeMicroseconds = 200
	// tbfLeastFrames keeps a slow link able to send: a frame larger than the bucket is dropped.
	tbfLeastFrames = 2
	// hostQueueFrames is the limit of a host's own queue: Linux's default txqueuelen, which TCP (TSQ) never fills.
	hostQueueFrames = 1000
)

// tbfBurst returns the size of the bucket in bytes.
func tbfBurst(rate law.Rate) uint32 {
	burst := int64(rate) / 8 * tbfWakeMicroseconds / 1e6
	return uint32(min(max(burst, tbfLeastFrames*frameBytes), math.MaxInt32))
}

// tbfLimit returns the queue in bytes, Ethernet headers included: the buffer of a switch's port; for a host, or if
// no buffer is set, a queue that does not drop.
func tbfLimit(p *port) uint32 {
	if p.node.kind == experiment.Switch && p.buffer > 0 {
		return uint32(min(max(int64(p.buffer), frameBytes), math.MaxInt32))
	}
	return hostQueueFrames * frameBytes
}

// tbf returns the queue of a port that sends at rate.
func tbf(p *port, rate law.Rate) *netlink.Tbf {
	bytes := uint64(rate) / 8
	return &netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: p.ifindex, Parent: netlink.HANDLE_ROOT, Handle: netlink.MakeHandle(1, 0)},
		Rate:       bytes,
		Limit:      tbfLimit(p),
		Buffer:     netlink.Xmittime(bytes, tbfBurst(rate)),
	}
}

// shape creates the TBF of a port, in the namespace of h.
func shape(h *netlink.Handle, p *port) error {
	if err := h.QdiscAdd(tbf(p, p.rate)); err != nil {
		return fmt.Errorf("shape to %v: %w", p.rate, err)
	}
	return nil
}

// setRate limits a shaped port to rate, in bit/s, or to its link's rate if that is less; 0: to its link's rate.
// Waiting packets stay in the queue.
func (l *Lab) setRate(p *port, rate law.Rate) error {
	if rate <= 0 || rate > p.rate {
		rate = p.rate
	}
	err := l.withNetlink(p.node.name, func(h *netlink.Handle) error { return h.QdiscChange(tbf(p, rate)) })
	if err != nil {
		return fmt.Errorf("port %s: shape to %v: %w", p.name, rate, err)
	}
	return nil
}

// withNetlink calls do in a node.
func (l *Lab) withNetlink(node string, do func(h *netlink.Handle) error) error {
	return l.Enter(node, func() error {
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer h.Close()
		return do(h)
	})
}
