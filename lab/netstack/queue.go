package netstack

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

const (
	// queuedFor is the time that a guest's data in the queue of its host may take to leave, and leastQueued its
	// minimum size. A sender so fills the network's queues and not its own. One flow of Linux TCP kept up to 7 ms
	// there; a sleep of half of queuedFor may take 3 ms longer.
	queuedFor   = 10 * time.Millisecond
	leastQueued = 16 * 1514 // bytes
	// mostQueued is half of the limit of a host's queue.
	mostQueued = 500 * 1514
)

// Queue is the queue through which guests leave their host: the root qdisc of a device. A sender with more data
// than the device sends waits here. The kernel has no such wait: a packet counts towards its socket until the far
// end has it, so a socket's limit would limit the switches' queues, too.
type Queue struct {
	rate  int64 // bit/s
	limit int   // bytes

	mu      sync.Mutex
	credit  int // bytes that may be sent before the queue is read again
	fd      int // netlink; -1: closed
	request []byte
	answer  []byte
}

// OpenQueue opens the queue of a device in the namespace of the calling thread; it drains at rateBps.
func OpenQueue(ifindex int, rateBps int64) (*Queue, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	// Without this flag the kernel sends no answer.
	req := nl.NewNetlinkRequest(unix.RTM_GETQDISC, unix.NLM_F_ECHO)
	req.AddData(&nl.TcMsg{Family: unix.AF_UNSPEC, Ifindex: int32(ifindex), Parent: root})
	q := &Queue{
		fd: fd, rate: rateBps, answer: make([]byte, 4096),
		request: req.Serialize(), //nolint:misspell // the library's name
		limit:   min(max(int(float64(rateBps)/8*queuedFor.Seconds()), leastQueued), mostQueued),
	}
	if _, err := q.backlog(); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return q, nil
}

// root is TC_H_ROOT.
const root = 0xffffffff

// admit is called before n bytes are sent. It waits for room; if wait is false and there is no room, it returns
// false.
func (q *Queue) admit(n int, wait bool) bool {
	for {
		q.mu.Lock()
		if q.credit < n && q.fd >= 0 {
			q.look()
		}
		room := q.credit >= n || q.fd < 0
		if room {
			q.credit -= n
		}
		q.mu.Unlock()
		if room {
			return true
		}
		if !wait {
			return false
		}
		time.Sleep(time.Duration(float64(q.limit) / 2 * 8e9 / float64(q.rate)))
	}
}

// look sets the credit to the room in the queue. When the queue is full it waits until it is half empty.
func (q *Queue) look() {
	backlog, err := q.backlog()
	if err != nil || backlog == 0 {
		q.credit = q.limit // a queue that no longer exists limits nobody
		return
	}
	if room := q.limit - backlog; room >= q.limit/4 {
		q.credit = room
	}
}

// backlog asks the kernel for the bytes in the queue.
func (q *Queue) backlog() (int, error) {
	if q.fd < 0 {
		return 0, os.ErrClosed
	}
	if err := unix.Sendto(q.fd, q.request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, err
	}
	// The kernel has answered before sendto returns.
	n, _, err := unix.Recvfrom(q.fd, q.answer, unix.MSG_DONTWAIT)
	if err != nil {
		return 0, fmt.Errorf("find a queue: %w", err)
	}
	return parseBacklog(q.answer[:n])
}

// parseBacklog returns the length in bytes of the qdisc in a message.
func parseBacklog(b []byte) (int, error) {
	const header = unix.SizeofNlMsghdr
	if len(b) < header+nl.SizeofTcMsg {
		return 0, fmt.Errorf("read a queue: the answer has %d bytes", len(b))
	}
	if binary.NativeEndian.Uint16(b[4:]) == unix.NLMSG_ERROR {
		return 0, fmt.Errorf("read a queue: %w", unix.Errno(-int32(binary.NativeEndian.Uint32(b[header:]))))
	}
	stats, err := attribute(b[header+nl.SizeofTcMsg:], nl.TCA_STATS2)
	if err != nil {
		return 0, err
	}
	queue, err := attribute(stats, gnetStatsQueue)
	if err != nil {
		return 0, err
	}
	if len(queue) < 8 {
		return 0, fmt.Errorf("read a queue: the kernel does not report its length")
	}
	return int(binary.NativeEndian.Uint32(queue[4:])), nil
}

// gnetStatsQueue is TCA_STATS_QUEUE: struct gnet_stats_queue, qlen and backlog first.
const gnetStatsQueue = 3

// attribute returns the payload of the first netlink attribute of a type; nil if there is none.
func attribute(b []byte, kind uint16) ([]byte, error) {
	if len(b)%unix.NLA_ALIGNTO != 0 { // the library ends the process in this case
		return nil, fmt.Errorf("read a queue: %d bytes of attributes, which are not padded", len(b))
	}
	all, err := nl.ParseRouteAttr(b)
	if err != nil {
		return nil, fmt.Errorf("read a queue: %w", err)
	}
	for i := range all {
		if all[i].Attr.Type&nl.NLA_TYPE_MASK == kind {
			return all[i].Value, nil
		}
	}
	return nil, nil
}

// Close closes the queue; waiting senders continue.
func (q *Queue) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.fd >= 0 {
		unix.Close(q.fd)
	}
	q.fd = -1
}
