// Package attach has what the loaders of all kernel programs share: ports and their queues, probes of the
// kernel's features, links, pins, the lock on a pin directory, and the version of pinned tables. It knows no
// law.
package attach

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// PortRef names a port: a device within a network namespace.
type PortRef struct {
	Name    string // for logs and errors: "switch->receiver1"
	Ifindex int    // within its namespace
	// Enter runs f on a thread inside the port's namespace; nil: the caller is inside.
	Enter func(f func() error) error
}

// In runs f inside the port's namespace.
func (p PortRef) In(f func() error) error {
	if p.Enter == nil {
		return f()
	}
	return p.Enter(f)
}

// NoQueue is the error for a port whose root queue discipline keeps no backlog that can be read.
type NoQueue struct{ Port, Kind string }

func (e *NoQueue) Error() string {
	return fmt.Sprintf("port %s: its queue discipline %q keeps no backlog of its own: give the port a shaper (shape: RATE in the file, or --shape RATE), or add a tbf or htb yourself", e.Port, e.Kind)
}

// RootQueue has the counters of a device's root queue discipline.
type RootQueue struct {
	Kind         string // tbf, htb, ...
	BacklogBytes uint32
	SentBytes    uint64
	SentPackets  uint32
	Drops        uint32

	BacklogPackets uint32 // a GSO packet counts once until it is split
}

// Anew reports whether q is another queue discipline than before, whose counters have restarted from 0. The
// narrow counters also wrap to 0 in the same queue discipline, so Anew compares the counter of bytes, which
// does not wrap.
func (q RootQueue) Anew(before RootQueue) bool {
	return q.Kind != before.Kind || q.SentBytes < before.SentBytes
}

// Since returns what q counted after before, with the backlog of now. For another queue discipline it returns
// no counts: how much of them came after before is unknown.
func (q RootQueue) Since(before RootQueue) RootQueue {
	if q.Anew(before) {
		before.SentBytes, before.SentPackets, before.Drops = q.SentBytes, q.SentPackets, q.Drops
	}
	q.SentBytes -= before.SentBytes
	q.SentPackets -= before.SentPackets
	q.Drops -= before.Drops
	return q
}

// ReadRootQueue reads the root queue of the device with this ifindex in the caller's namespace. The kernel
// lists the queues of all devices for it: use ReadRootQueues to read many.
func ReadRootQueue(ifindex int) (RootQueue, error) {
	all, err := ReadRootQueues()
	if err != nil {
		return RootQueue{}, fmt.Errorf("device %d: %w", ifindex, err)
	}
	return all.Of(ifindex), nil
}

// RootQueues are the root queues of the devices of a namespace, by ifindex.
type RootQueues map[int]RootQueue

// Of returns the root queue of a device; if it is not listed, one of kind noqueue.
func (q RootQueues) Of(ifindex int) RootQueue {
	if r, ok := q[ifindex]; ok {
		return r
	}
	return RootQueue{Kind: "noqueue"}
}

// ReadRootQueues reads the root queues of the caller's namespace.
func ReadRootQueues() (RootQueues, error) {
	qdiscs, err := Again(netlink.ErrDumpInterrupted, func() ([]netlink.Qdisc, error) { return netlink.QdiscList(nil) })
	if err != nil {
		return nil, fmt.Errorf("list queue disciplines: %w", err)
	}
	out := RootQueues{}
	for _, q := range qdiscs {
		a := q.Attrs()
		if a.Parent != netlink.HANDLE_ROOT {
			continue
		}
		r := RootQueue{Kind: q.Type()}
		if s := a.Statistics; s != nil && s.Basic != nil && s.Queue != nil {
			r.BacklogBytes, r.BacklogPackets, r.Drops = s.Queue.Backlog, s.Queue.Qlen, s.Queue.Drops
			r.SentBytes, r.SentPackets = s.Basic.Bytes, s.Basic.Packets
		}
		out[a.LinkIndex] = r
	}
	return out, nil
}

// Again calls read again while it fails with changed, since the data changed while it was read. After the last
// try it returns that error.
func Again[T any](changed error, read func() (T, error)) (T, error) {
	const tries = 5
	v, err := read()
	for n := 1; n < tries && errors.Is(err, changed); n++ {
		v, err = read()
	}
	return v, err
}

// ProgramsAt lists the programs at a device of the caller's namespace, first to last. The library counts them
// before it reads them; a program attached in between makes the read fail, and it is repeated.
func ProgramsAt(ifindex int, where ebpf.AttachType) ([]link.AttachedProgram, error) {
	found, err := Again(unix.ENOSPC, func() (*link.QueryResult, error) {
		return link.QueryPrograms(link.QueryOptions{Target: ifindex, Attach: where})
	})
	if err != nil {
		return nil, err
	}
	return found.Programs, nil
}

// QueueWithBacklog reads p's root queue. It returns *NoQueue if the kernel keeps the backlog per CPU or per
// child, so that the root's reads 0: mq, mqprio, pfifo_fast, or no queue at all.
func (p PortRef) QueueWithBacklog() (RootQueue, error) {
	var r RootQueue
	err := p.In(func() (err error) {
		r, err = ReadRootQueue(p.Ifindex)
		return err
	})
	if err != nil {
		return r, fmt.Errorf("port %s: %w", p.Name, err)
	}
	return r, CheckQueue(p.Name, r.Kind)
}

// CheckQueue returns *NoQueue if a root queue discipline of this kind keeps no backlog.
func CheckQueue(port, kind string) error {
	switch kind {
	case "noqueue", "mq", "mqprio", "pfifo_fast":
		return &NoQueue{port, kind}
	}
	return nil
}

// NetnsCookie returns the kernel's number of the caller's network namespace. It is unique as long as the
// machine runs; an inode number is not.
func NetnsCookie() (uint64, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open a socket to read the namespace's cookie: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil {
		return 0, fmt.Errorf("cookie of the network namespace: %w", err)
	}
	return cookie, nil
}

// IsPermission reports whether the kernel refused a call because the process lacks permission.
func IsPermission(err error) bool {
	return errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES)
}

func isInvalid(err error) bool { return errors.Is(err, unix.EINVAL) }

// Egress lists the programs at a port's egress, and returns the cookie of its namespace.
func (p PortRef) Egress() (cookie uint64, chain *link.QueryResult, err error) {
	err = p.In(func() (err error) {
		if cookie, err = NetnsCookie(); err != nil {
			return err
		}
		chain, err = Again(unix.ENOSPC, func() (*link.QueryResult, error) {
			return link.QueryPrograms(link.QueryOptions{Target: p.Ifindex, Attach: ebpf.AttachTCXEgress})
		})
		return err
	})
	return cookie, chain, err
}

// Program attaches a program to a port's device.
func Program(p PortRef, prog *ebpf.Program, to ebpf.AttachType, anchor link.Anchor) (l link.Link, err error) {
	err = p.In(func() (err error) {
		l, err = link.AttachTCX(link.TCXOptions{Interface: p.Ifindex, Program: prog, Attach: to, Anchor: anchor})
		return err
	})
	return l, err
}

// atEgress attaches a program at a port's egress, at the place that is chosen from the programs there. The kernel attaches only if these
// are still the programs that were read; otherwise they are read again.
func atEgress(p PortRef, prog *ebpf.Program, place func(cookie uint64, chain *link.QueryResult) (link.Anchor, error)) (link.Link, error) {
	return Again(unix.ESTALE, func() (l link.Link, err error) {
		cookie, chain, err := p.Egress()
		if err != nil {
			return nil, err
		}
		anchor, err := place(cookie, chain)
		if err != nil {
			return nil, err
		}
		err = p.In(func() (err error) {
			l, err = link.AttachTCX(link.TCXOptions{
				Interface: p.Ifindex, Program: prog, Attach: ebpf.AttachTCXEgress, Anchor: anchor, ExpectedRevision: chain.Revision,
			})
			return err
		})
		return l, err
	})
}

// Sizes in bytes.
const (
	DefaultMTU      = 1500
	SegmentOverhead = 40 // IPv4 and TCP headers
)

// DeviceMTU returns the MTU of a port's device in bytes, at most the largest segment that an MSS option can
// announce.
func DeviceMTU(port PortRef) (mtu uint32, err error) {
	err = port.In(func() error {
		l, err := netlink.LinkByIndex(port.Ifindex)
		if err == nil {
			mtu = uint32(min(max(l.Attrs().MTU, DefaultMTU), 65535))
		}
		return err
	})
	return mtu, err
}
