package telemetry

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"weir/datapath/attach"
)

// queues reads the root queue disciplines of some ports of one network namespace: many requests in one message to the kernel
// and its answers into one buffer. A dump would list every device of the namespace, and allocate for each.
type queues struct {
	cookie uint64
	socket int
	ports  []*queue
	serial uint32
	out    []byte
	in     []byte
}

// queue is the root queue discipline of a port.
type queue struct {
	name        string
	ifindex     int
	known       bool
	now         queueCounters
	sent, drops uint64 // since the reading before
	read        bool   // in this reading
}

type queueCounters struct {
	handle  uint32
	bytes   uint64
	backlog uint32
	drops   uint32
}

const (
	requestBytes = unix.NLMSG_HDRLEN + tcmsgBytes
	tcmsgBytes   = 20
	perMessage   = 32      // requests: their answers fit in the socket's buffer
	answerBytes  = 1 << 15 // more than the kernel writes at once
	// The kernel answers before the request's system call ends. The timeout is for an answer that it could not queue.
	answerSeconds = 1
	tcaStats2     = 7
	statsBasic    = 1
	statsQueue    = 3
	root          = 0xffffffff
)

// addQueue has a port's queue read with those of its namespace. The first reading's counts begin now.
func (t *Telemetry) addQueue(p *port) error {
	p.queue = &queue{name: p.Name, ifindex: p.Ifindex}
	var cookie uint64
	err := p.In(func() (err error) {
		cookie, err = attach.NetnsCookie()
		return err
	})
	if err != nil {
		return err
	}
	for _, q := range t.queues {
		if q.cookie == cookie {
			return q.add(p.queue)
		}
	}
	q := &queues{cookie: cookie, in: make([]byte, answerBytes)}
	err = p.In(func() (err error) {
		if q.socket, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE); err != nil {
			return err
		}
		t.queues = append(t.queues, q) // Close closes the socket
		return unix.SetsockoptTimeval(q.socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: answerSeconds})
	})
	if err != nil {
		return fmt.Errorf("open a netlink socket: %w", err)
	}
	return q.add(p.queue)
}

// add has a port's queue read from now on, if it can be read.
func (q *queues) add(p *queue) error {
	if err := q.readPart([]*queue{p}); err != nil {
		return err
	}
	q.ports = append(q.ports, p)
	return nil
}

func (q *queues) close() error { return unix.Close(q.socket) }

// readQueues reads the queues of all ports. A port without an answer keeps its last backlog of 0, and counts nothing.
func (t *Telemetry) readQueues() error {
	var errs []error
	for _, q := range t.queues {
		for from := 0; from < len(q.ports); from += perMessage {
			if err := q.readPart(q.ports[from:min(from+perMessage, len(q.ports))]); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// readPart reads some queues.
func (q *queues) readPart(ports []*queue) error {
	q.out = q.out[:0]
	first := q.serial + 1
	for _, p := range ports {
		p.sent, p.drops, p.read = 0, 0, false
		q.serial++
		q.out = appendRequest(q.out, q.serial, p.ifindex)
	}
	if _, err := unix.Write(q.socket, q.out); err != nil { // a netlink socket without a peer writes to the kernel
		return fmt.Errorf("ask for queue disciplines: %w", err)
	}
	var failed error
	for left := len(ports); left > 0; {
		n, err := unix.Read(q.socket, q.in)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read queue disciplines: %w", err)
		}
		answers, err := q.answers(q.in[:n], first, ports)
		left -= answers
		if err != nil && failed == nil {
			failed = err
		}
	}
	return failed
}

// appendRequest appends the request for the root queue discipline of a device.
func appendRequest(b []byte, serial uint32, ifindex int) []byte {
	e := binary.NativeEndian
	b = e.AppendUint32(b, requestBytes)
	b = e.AppendUint16(b, unix.RTM_GETQDISC)
	// Without ECHO, kernels answer this request only if another process listens for changes (6.9 to 6.18 at least).
	b = e.AppendUint16(b, unix.NLM_F_REQUEST|unix.NLM_F_ECHO)
	b = e.AppendUint32(b, serial)
	b = e.AppendUint32(b, 0)
	b = append(b, 0, 0, 0, 0) // family
	b = e.AppendUint32(b, uint32(ifindex))
	b = e.AppendUint32(b, 0) // handle
	b = e.AppendUint32(b, root)
	return e.AppendUint32(b, 0)
}

// answers handles the messages in b, and returns how many of them answer a request of this reading.
func (q *queues) answers(b []byte, first uint32, ports []*queue) (n int, failed error) {
	e := binary.NativeEndian
	for len(b) >= unix.NLMSG_HDRLEN {
		length := int(e.Uint32(b))
		if length < unix.NLMSG_HDRLEN || length > len(b) {
			return n, fmt.Errorf("read queue disciplines: a message of %d bytes in %d", length, len(b))
		}
		kind, at := e.Uint16(b[4:]), e.Uint32(b[8:])-first
		body := b[unix.NLMSG_HDRLEN:length]
		b = b[min((length+3)&^3, len(b)):]
		if at >= uint32(len(ports)) {
			continue // of an earlier reading that failed
		}
		n++
		p := ports[at]
		switch {
		case kind == unix.NLMSG_ERROR && len(body) >= 4:
			p.now.backlog, p.known = 0, false
			failed = fmt.Errorf("port %s: its queue discipline: %w", p.name, unix.Errno(-int32(e.Uint32(body))))
		case kind == unix.RTM_NEWQDISC && len(body) >= tcmsgBytes:
			p.take(e.Uint32(body[8:]), body[tcmsgBytes:])
		default:
			failed = fmt.Errorf("port %s: its queue discipline: unexpected answer of type %d", p.name, kind)
		}
	}
	return n, failed
}

// take reads the attributes of a queue discipline. One with another handle, or fewer bytes than before, is another one: how
// much of its counts came after the last reading is unknown, so they count as 0.
func (p *queue) take(handle uint32, attributes []byte) {
	now := queueCounters{handle: handle}
	eachAttribute(attributes, func(kind uint16, stats []byte) {
		if kind != tcaStats2 {
			return
		}
		eachAttribute(stats, func(kind uint16, v []byte) {
			switch {
			case kind == statsBasic && len(v) >= 8:
				now.bytes = binary.NativeEndian.Uint64(v)
			case kind == statsQueue && len(v) >= 12:
				now.backlog, now.drops = binary.NativeEndian.Uint32(v[4:]), binary.NativeEndian.Uint32(v[8:])
			}
		})
	})
	if p.known && now.handle == p.now.handle && now.bytes >= p.now.bytes {
		p.sent, p.drops = now.bytes-p.now.bytes, uint64(now.drops-p.now.drops) // drops wraps
	}
	p.now, p.known, p.read = now, true, true
}

// eachAttribute calls f for the netlink attributes in b.
func eachAttribute(b []byte, f func(kind uint16, value []byte)) {
	const header, mask = 4, 0x3fff
	for len(b) >= header {
		length := int(binary.NativeEndian.Uint16(b))
		if length < header || length > len(b) {
			return
		}
		f(binary.NativeEndian.Uint16(b[2:])&mask, b[header:length])
		b = b[min((length+3)&^3, len(b)):]
	}
}
