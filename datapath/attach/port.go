// Package attach is what the loaders of all kernel programs share: ports and their queues, probes of the kernel's
// features, links, pins, the lock on a pin directory, and the version of pinned tables. It knows no law.
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
	Name    string // for people and errors: "switch->receiver1"
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
	return fmt.Sprintf("port %s: its queue discipline %q keeps no backlog of its own: give the port a shaper: shape: RATE in the file or --shape RATE, or a tbf or htb of yours", e.Port, e.Kind)
}

// RootQueue is what the kernel counts of a device's root queue discipline.
type RootQueue struct {
	Kind         string // tbf, htb, ...
	BacklogBytes uint32
	SentBytes    uint64
	SentPackets  uint32
	Drops        uint32

	BacklogPackets uint32 // a large one that is not split yet counts once
}

// Anew says whether q is another queue discipline than before: its counters began at 0 since. Those that are
// narrow come round and begin at 0 in the same one, too; that of bytes does not.
func (q RootQueue) Anew(before RootQueue) bool {
	return q.Kind != before.Kind || q.SentBytes < before.SentBytes
}

// Since is what q counted after before, with what waits now. Of another queue discipline it is nothing: how much
// of it came after is not known.
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
// lists those of all devices for it: who reads many uses ReadRootQueues.
func ReadRootQueue(ifindex int) (RootQueue, error) {
	all, err := ReadRootQueues()
	if err != nil {
		return RootQueue{}, fmt.Errorf("device %d: %w", ifindex, err)
	}
	return all.Of(ifindex), nil
}

// RootQueues are the root queues of the devices of a namespace, by ifindex.
type RootQueues map[int]RootQueue

// Of is the root queue of a device; one that is not listed has none.
func (q RootQueues) Of(ifindex int) RootQueue {
	if r, ok := q[ifindex]; ok {
		return r
	}
	return RootQueue{Kind: "noqueue"}
}

// ReadRootQueues reads those of the caller's namespace.
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

// Again reads what may change while it is read, and tries again where that was so: where read fails with changed.
// If it changes all the time, the error is the last one.
func Again[T any](changed error, read func() (T, error)) (T, error) {
	const tries = 5
	v, err := read()
	for n := 1; n < tries && errors.Is(err, changed); n++ {
		v, err = read()
	}
	return v, err
}

// ProgramsAt lists the programs at a device of the caller's namespace, first to last. They are counted before
// they are read: one that is attached in between does not fit.
func ProgramsAt(ifindex int, where ebpf.AttachType) ([]link.AttachedProgram, error) {
	found, err := Again(unix.ENOSPC, func() (*link.QueryResult, error) {
		return link.QueryPrograms(link.QueryOptions{Target: ifindex, Attach: where})
	})
	if err != nil {
		return nil, err
	}
	return found.Programs, nil
}

// QueueWithBacklog reads p's root queue, and refuses with *NoQueue one whose backlog the kernel keeps
// per CPU or per child, so that the root's reads 0: mq, mqprio, pfifo_fast and none at all.
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

// CheckQueue refuses with *NoQueue a root queue discipline of this kind, if it keeps no backlog.
func CheckQueue(port, kind string) error {
	switch kind {
	case "noqueue", "mq", "mqprio", "pfifo_fast":
		return &NoQueue{port, kind}
	}
	return nil
}

// NetnsCookie is the kernel's number of the caller's network namespace: unique as long as the machine
// runs, other than an inode.
func NetnsCookie() (uint64, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("socket to ask for the namespace's cookie: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil {
		return 0, fmt.Errorf("cookie of the network namespace: %w", err)
	}
	return cookie, nil
}

// IsPermission says whether an error is a refusal by the kernel for want of permission.
func IsPermission(err error) bool {
	return errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES)
}

func isInvalid(err error) bool { return errors.Is(err, unix.EINVAL) }

// Egress lists the programs at a port's egress, with the cookie of its namespace.
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

// Sizes in bytes.
const (
	DefaultMTU      = 1500
	SegmentOverhead = 40 // IPv4 and TCP headers
)

// DeviceMTU is the MTU of a port's device, of which segments are at most so large.
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
