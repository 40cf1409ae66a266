package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sys/unix"

	"weir/openflow"
)

const longest = int64(time.Minute)

// switches holds all switches. One thread that never sleeps runs them. With more threads on its processor, waits for the
// processor would be measured. To wake a thread that sleeps would cost the controller time.
type switches struct {
	templates
	began   time.Time
	peers   []*peer
	stuck   []*peer // whose socket had no room for all
	poll    int
	events  [256]unix.EpollEvent
	in      []byte // room for what is read
	again   bool   // send a packet-in for each flow-mod
	waiting int    // packet-ins without a flow-mod
	done    uint64 // flow-mods that answered a packet-in, or statistics that were asked for
	latency *hdrhistogram.Histogram
}

// peer is a switch as a controller sees it.
type peer struct {
	fd       int
	datapath uint64
	part     []byte // of a message that has not come whole
	out      []byte // to be written, from written on
	written  int
	sent     queue  // packet-ins without a flow-mod
	heard    uint64 // flow-mods that answered none of them, and questions for statistics
	replies  uint64 // statistics
	stuck    bool   // it is in switches.stuck
}

// newSwitches connects so many.
func newSwitches(port, n int) (*switches, error) {
	s := &switches{began: time.Now(), in: make([]byte, 512<<10), latency: hdrhistogram.New(1, longest, 3)}
	var err error
	if s.templates, err = newTemplates(); err != nil {
		return nil, err
	}
	if s.poll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	for i := range n {
		p := &peer{datapath: uint64(i) + 1}
		if p.fd, err = connect(port); err != nil {
			return s, fmt.Errorf("connect switch %d: %w", i, err)
		}
		s.peers = append(s.peers, p)
		event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(i)}
		if err := unix.EpollCtl(s.poll, unix.EPOLL_CTL_ADD, p.fd, &event); err != nil {
			return s, os.NewSyscallError("epoll_ctl", err)
		}
		if p.out, err = openflow.Append(nil, 0, &openflow.Hello{Versions: []uint8{openflow.Version13}}); err != nil {
			return s, err
		}
		if err := s.flush(p); err != nil {
			return s, err
		}
		if err := s.turn(); err != nil { // the controller's queue of new connections may be short
			return s, err
		}
	}
	return s, nil
}

// connect retries for some time: a controller may print its port before it listens.
func connect(port int) (fd int, err error) {
	for range 200 {
		if fd, err = connectOnce(port); !errors.Is(err, unix.ECONNREFUSED) {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	return fd, err
}

func connectOnce(port int) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, os.NewSyscallError("socket", err)
	}
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		_ = unix.Close(fd)
		return 0, os.NewSyscallError("connect", err)
	}
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		return 0, os.NewSyscallError("setsockopt", err)
	}
	return fd, os.NewSyscallError("fcntl", unix.SetNonblock(fd, true))
}

func (s *switches) close() {
	for _, p := range s.peers {
		_ = unix.Close(p.fd)
	}
	_ = unix.Close(s.poll)
}

func (s *switches) nowNs() int64 { return int64(time.Since(s.began)) }

// run works until the step says that it is enough. It is asked again and again, with the time.
func (s *switches) run(step func(nowNs int64) (enough bool, err error)) error {
	for {
		enough, err := step(s.nowNs())
		if err != nil || enough {
			return err
		}
		if err := s.turn(); err != nil {
			return err
		}
	}
}

// turn reads once from every switch that was sent something.
func (s *switches) turn() error {
	for _, p := range s.stuck[:len(s.stuck):len(s.stuck)] {
		s.stuck, p.stuck = s.stuck[1:], false
		if err := s.flush(p); err != nil {
			return err
		}
	}
	n, err := unix.EpollWait(s.poll, s.events[:], 0)
	if err != nil && !errors.Is(err, unix.EINTR) {
		return os.NewSyscallError("epoll_wait", err)
	}
	for i := range max(n, 0) {
		if err := s.read(s.peers[s.events[i].Fd]); err != nil {
			return err
		}
	}
	return nil
}

// read takes what has come, and says what that makes the switch say.
func (s *switches) read(p *peer) error {
	have := copy(s.in, p.part)
	n, err := unix.Read(p.fd, s.in[have:])
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
		return nil
	}
	if err != nil || n == 0 {
		return fmt.Errorf("switch %d: the controller hung up: %w", p.datapath, err)
	}
	b, flowMods := s.in[:have+n], 0
	for len(b) >= openflow.HeaderLen {
		size := int(binary.BigEndian.Uint16(b[2:]))
		if size < openflow.HeaderLen {
			return fmt.Errorf("switch %d: the controller sent a message of %d bytes", p.datapath, size)
		}
		if size > len(b) {
			break
		}
		if openflow.Type(b[1]) == openflow.TypeFlowMod {
			flowMods++
		} else if err := s.asked(p, b[:size]); err != nil {
			return err
		}
		b = b[size:]
	}
	p.part = append(p.part[:0], b...)
	s.answered(p, flowMods)
	return s.flush(p)
}

// asked takes a message that is no flow-mod.
func (s *switches) asked(p *peer, b []byte) error {
	h, err := openflow.ParseHeader(b)
	if err != nil {
		return err
	}
	body := b[openflow.HeaderLen:]
	if h.Type == openflow.TypeMultipartRequest && len(body) >= 2 && openflow.MultipartType(binary.BigEndian.Uint16(body)) == openflow.MultipartPortStats {
		p.heard++
		p.replies++
		s.done++
		p.out = s.appendStats(p.out, h.XID, p.replies%errorsEvery == 0)
		return nil
	}
	p.out, err = appendReply(p.out, p.datapath, h, body)
	return err
}

// answered takes flow-mods: they come in the order of the packet-ins.
func (s *switches) answered(p *peer, flowMods int) {
	if flowMods == 0 {
		return
	}
	now := s.nowNs()
	came := 0
	for came < flowMods && !p.sent.empty() {
		since, n := p.sent.take(flowMods - came)
		_ = s.latency.RecordValues(min(max(now-since, 1), longest), int64(n)) // in its range by min and max
		came += n
	}
	s.waiting -= came
	s.done += uint64(came)
	if s.again {
		s.packets(p, came, now)
	}
	p.heard += uint64(flowMods - came) // before anything was measured, or the law acted on statistics
}

// packets queues packet-ins that were due at that time.
func (s *switches) packets(p *peer, n int, dueNs int64) {
	if n == 0 {
		return
	}
	p.sent.put(dueNs, n)
	s.waiting += n
	for ; n > 0; n -= packetRun {
		p.out = append(p.out, s.packetIns[:min(n, packetRun)*s.packetInLen]...)
	}
}

// flush writes what the socket has room for.
func (s *switches) flush(p *peer) error {
	if len(p.out) == 0 {
		return nil
	}
	n, err := unix.Write(p.fd, p.out[p.written:])
	if err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
		return os.NewSyscallError("write", err)
	}
	p.written += max(n, 0)
	if p.written > len(p.out)/2 { // moved seldom: a controller that does not keep up makes it long
		p.out, p.written = append(p.out[:0], p.out[p.written:]...), 0
	}
	if len(p.out) > 0 && !p.stuck {
		s.stuck, p.stuck = append(s.stuck, p), true
	}
	return nil
}

// queue holds the packet-ins of a switch that wait, oldest first, those of the same time together.
type queue struct {
	bursts []burst
	first  int
}

type burst struct {
	dueNs int64
	n     int
}

func (q *queue) empty() bool { return q.first == len(q.bursts) }

func (q *queue) put(dueNs int64, n int) {
	if q.first > len(q.bursts)/2 || q.empty() {
		q.bursts = append(q.bursts[:0], q.bursts[q.first:]...)
		q.first = 0
	}
	q.bursts = append(q.bursts, burst{dueNs, n})
}

// take takes up to so many of the oldest time. The queue must not be empty.
func (q *queue) take(most int) (dueNs int64, n int) {
	b := &q.bursts[q.first]
	dueNs, n = b.dueNs, min(most, b.n)
	if b.n -= n; b.n == 0 {
		q.first++
	}
	return dueNs, n
}
