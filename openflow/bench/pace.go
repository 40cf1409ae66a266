package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"weir/openflow"
)

// pacedMost is what one thread sends evenly at a system call a packet-in. Above it its own lateness is measured.
const pacedMost = 50_000 // packet-ins a second

// pace sends packet-ins evenly, switch after switch, for that long, and then waits for the last flow-mods. One thread
// does all of it and never sleeps: with more, on one processor, the waits for it would be measured, and not the
// controller's.
func pace(peers []*peer, perSecond float64, lasts time.Duration) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	poll, err := unix.EpollCreate1(0)
	if err != nil {
		return err
	}
	defer unix.Close(poll)
	all := make([]*paced, len(peers))
	for i, p := range peers {
		if all[i], err = p.take(); err != nil {
			return err
		}
		if err := unix.EpollCtl(poll, unix.EPOLL_CTL_ADD, all[i].fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(i)}); err != nil {
			return err
		}
	}
	events := make([]unix.EpollEvent, 256)
	sent := 0.0
	waiting := 0
	for began, next := time.Now(), 0; ; {
		since := time.Since(began)
		if since > lasts && waiting == 0 {
			break
		}
		if since > lasts+20*time.Second {
			return fmt.Errorf("%d flow-mods are missing: the controller lost packet-ins", waiting)
		}
		if since < lasts {
			for due := since.Seconds() * perSecond; sent < due; next++ {
				n := 1
				if len(all) == 1 {
					n = int(due-sent) + 1
				}
				if err := all[next%len(all)].send(n, began.Add(since).UnixNano()); err != nil {
					return err
				}
				waiting += n
				sent += float64(n)
			}
		}
		for _, t := range all { // what a socket had no room for
			if err := t.push(); err != nil {
				return err
			}
		}
		n, err := unix.EpollWait(poll, events, 0)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		for _, e := range events[:max(n, 0)] {
			came, err := all[e.Fd].read()
			if err != nil {
				return err
			}
			waiting -= came
		}
	}
	for _, p := range peers {
		p.giveBack()
	}
	return nil
}

// paced is a switch whose socket pace holds.
type paced struct {
	*peer
	fd   int
	part []byte // of a message that has not come whole, and room
	have int
}

// take ends the peer's own reading.
func (p *peer) take() (*paced, error) {
	if err := p.conn.SetReadDeadline(time.Unix(1, 0)); err != nil {
		return nil, err
	}
	<-p.stopped
	raw, err := p.conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return nil, err
	}
	t := &paced{peer: p, part: make([]byte, 128<<10)}
	if t.have = p.r.Buffered(); t.have > 0 {
		if _, err := p.r.Read(t.part[:t.have]); err != nil {
			return nil, err
		}
	}
	return t, raw.Control(func(fd uintptr) { t.fd = int(fd) })
}

// giveBack lets the peer read again.
func (p *peer) giveBack() {
	_ = p.conn.SetReadDeadline(time.Time{})
	p.stopped = make(chan struct{})
	go p.work()
}

// send sends n packet-ins, and what the socket had no room for before.
func (t *paced) send(n int, now int64) error {
	for range n {
		t.packet(now)
	}
	return t.push()
}

func (t *paced) push() error {
	if len(t.out) == 0 {
		return nil
	}
	n, err := unix.Write(t.fd, t.out)
	switch {
	case errors.Is(err, unix.EAGAIN):
		return nil
	case err != nil:
		return os.NewSyscallError("write", err)
	}
	t.out = append(t.out[:0], t.out[n:]...)
	return nil
}

// read takes the flow-mods that came, and gives their number. Questions are answered as ever.
func (t *paced) read() (flowMods int, err error) {
	n, err := unix.Read(t.fd, t.part[t.have:])
	if errors.Is(err, unix.EAGAIN) {
		return 0, nil
	}
	if err != nil || n == 0 {
		return 0, fmt.Errorf("the controller hung up: %w", err)
	}
	now := time.Now().UnixNano()
	t.have += n
	b := t.part[:t.have]
	for len(b) >= openflow.HeaderLen {
		h, err := openflow.ParseHeader(b)
		if err != nil {
			return flowMods, err
		}
		if len(b) < int(h.Length) {
			break
		}
		if h.Type == openflow.TypeFlowMod {
			if t.flowMod(now) {
				flowMods++
			}
		} else if err := t.reply(h, b[:h.Length]); err != nil {
			return flowMods, err
		}
		b = b[h.Length:]
	}
	t.have = copy(t.part, b)
	return flowMods, t.push()
}
