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
	// queuedFor is how long what a guest has waiting in the queue of its host may take to leave, and
	// leastQueued its least size. A sender so fills the network's queues and not its own. One flow of
	// Linux TCP has been seen to keep 7 ms there; a sleep of half of it may take 3 ms longer than asked.
	queuedFor   = 10 * time.Millisecond
	leastQueued = 16 * 1514 // bytes
	// mostQueued is half of what a host's queue holds.
	mostQueued = 500 * 1514
)

// Queue is the queue through which guests leave their host: the root qdisc of a device. Who has more
// to send than the device takes waits here. The kernel offers no such wait: a packet counts as its
// socket's until the far end has it, so a socket's limit would be one on the switches' queues, too.
type Queue struct {
	rate  int64 // bit/s
	limit int   // bytes

	mu      sync.Mutex
	credit  int // bytes that may be sent before the queue is looked at again
	fd      int // netlink; -1: closed
	request []byte
	answer  []byte
}

// OpenQueue finds the queue of a device in the namespace of the calling thread; it drains at rateBps.
func OpenQueue(ifindex int, rateBps int64) (*Queue, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	// Without this flag the kernel looks and says nothing.
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

// admit is called before n bytes are sent. It waits for room, or is false if there is none and the
// caller does not wait.
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

// look makes the credit what the queue has room for. From full it waits to be half empty.
func (q *Queue) look() {
	backlog, err := q.backlog()
	if err != nil || backlog == 0 {
		q.credit = q.limit // a queue that is gone keeps nobody
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

// parseBacklog finds the length in bytes of the qdisc that a message is about.
func parseBacklog(b []byte) (int, error) {
	const header = unix.SizeofNlMsghdr
	if len(b) < header+nl.SizeofTcMsg {
		return 0, fmt.Errorf("answer of %d bytes about a queue", len(b))
	}
	if binary.NativeEndian.Uint16(b[4:]) == unix.NLMSG_ERROR {
		return 0, fmt.Errorf("find a queue: %w", unix.Errno(-int32(binary.NativeEndian.Uint32(b[header:]))))
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
		return 0, fmt.Errorf("the kernel tells nothing of a queue's length")
	}
	return int(binary.NativeEndian.Uint32(queue[4:])), nil
}

// gnetStatsQueue is TCA_STATS_QUEUE: struct gnet_stats_queue, qlen and backlog first.
const gnetStatsQueue = 3

// attribute is the payload of the first netlink attribute of a type; nil if there is none.
func attribute(b []byte, kind uint16) ([]byte, error) {
	if len(b)%unix.NLA_ALIGNTO != 0 { // the library ends the process there
		return nil, fmt.Errorf("answer about a queue: %d bytes of attributes, which are not padded", len(b))
	}
	all, err := nl.ParseRouteAttr(b)
	if err != nil {
		return nil, fmt.Errorf("answer about a queue: %w", err)
	}
	for i := range all {
		if all[i].Attr.Type&nl.NLA_TYPE_MASK == kind {
			return all[i].Value, nil
		}
	}
	return nil, nil
}

// Close ends the watch; who waits goes on.
func (q *Queue) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.fd >= 0 {
		unix.Close(q.fd)
	}
	q.fd = -1
}
