package traffic

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"weir/experiment/result"
	"weir/experiment/workload"
	"weir/internal/alarm"
)

const (
	// datagramBytes of payload fill an IPv4 packet of 1500 B.
	datagramBytes = 1472
	// datagramHeaders are IPv4 and UDP. A flow's rate includes them: it is the rate of IP packets.
	datagramHeaders = 28
	// udpStep is the interval at which due packets are sent and arrived ones counted.
	udpStep = 500 * time.Microsecond
	// udpLag is the longest delay that is made up for after the machine stalled; the rest is not sent.
	udpLag = 50 * time.Millisecond
	// udpReceiveBuffer holds the packets that arrive between two steps, with room for stalls.
	udpReceiveBuffer = 4 << 20
)

// udpEngine sends and receives all UDP flows in one goroutine, which sleeps between steps: waking up for each
// packet would cost more than the packets.
type udpEngine struct {
	r     *runner
	timer *alarm.Alarm
	wake  chan struct{} // of capacity 1: a flow has been added
	pairs map[udpLine]*udpPair

	mu    sync.Mutex
	added []*udpFlow
}

type udpLine struct{ item, pair, mouse int32 }

// udpPair is the two sockets of a flow.
type udpPair struct{ tx, rx datagrams }

// datagrams is a UDP socket, the kernel's or netstack's, connected to one other. It never waits.
type datagrams interface {
	local() netip.AddrPort
	join(peer netip.AddrPort) error
	send(p []byte)
	receive() (bytes int, ok bool)
	close()
}

// kernelDatagrams is a UDP socket of the kernel.
type kernelDatagrams struct {
	fd   int
	addr netip.AddrPort
}

func (d *kernelDatagrams) local() netip.AddrPort          { return d.addr }
func (d *kernelDatagrams) join(peer netip.AddrPort) error { return unix.Connect(d.fd, sockaddr(peer)) }
func (d *kernelDatagrams) send(p []byte)                  { _, _ = unix.Write(d.fd, p) }
func (d *kernelDatagrams) close()                         { unix.Close(d.fd) }

func (d *kernelDatagrams) receive() (int, bool) {
	n, _, errno := unix.Syscall6(unix.SYS_RECVFROM, uintptr(d.fd), 0, 0, unix.MSG_TRUNC, 0, 0)
	return int(n), errno == 0
}

// udpFlow is a flow in progress.
type udpFlow struct {
	*flow
	*udpPair
	begun    int64
	sent     int64 // packets sent, or packets whose time has passed
	sentLeft int64 // of a flow with a size, bytes
	lastSent int64
}

func (u *udpPair) key() result.Key {
	return result.Key{Proto: unix.IPPROTO_UDP, Src: u.tx.local(), Dst: u.rx.local()}
}

// stopSending and abort have nothing to do: the engine drops flows that have ended.
func (u *udpPair) stopSending() {}
func (u *udpPair) abort()       {}

// prepareUDP opens the sockets of every UDP flow.
func (r *runner) prepareUDP() error {
	e := &udpEngine{r: r, wake: make(chan struct{}, 1), pairs: map[udpLine]*udpPair{}}
	r.udp = e
	for i := range r.work.Flows {
		w := &r.work.Flows[i]
		it := &r.cfg.Items[w.Item]
		if !workload.UDP(&it.Traffic) {
			continue
		}
		u := &udpPair{}
		e.pairs[udpLine{w.Item, w.Pair, w.Mouse}] = u
		p := it.Pairs[w.Pair]
		var err error
		if u.rx, err = r.openUDP(place{p.Dst, it.Profile}); err != nil {
			return err
		}
		if u.tx, err = r.openUDP(place{p.Src, it.Profile}); err != nil {
			return err
		}
		if err := errors.Join(u.tx.join(u.rx.local()), u.rx.join(u.tx.local())); err != nil {
			return fmt.Errorf("connect %s and %s by udp: %w", p.Src, p.Dst, err)
		}
	}
	return nil
}

// openUDP opens a socket bound to an address of a node.
func (r *runner) openUDP(p place) (datagrams, error) {
	if guest := r.net.Guest(p.node, p.profile); guest != nil {
		d, err := guest.NewDatagrams(udpReceiveBuffer)
		if err != nil {
			return nil, fmt.Errorf("open a socket in %s: %w", p.node, err)
		}
		return foreignDatagrams{d}, nil
	}
	fd, err := openSocket(r.net, p, newUDP)
	if err != nil {
		return nil, err
	}
	// Larger than rmem_max, which root may set; the default is enough for slow flows.
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, udpReceiveBuffer)
	local, err := localAddr(fd)
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return &kernelDatagrams{fd, local}, nil
}

// startUDP starts the engine if there are UDP flows.
func (r *runner) startUDP(ctx context.Context) error {
	e := r.udp
	if len(e.pairs) == 0 {
		return nil
	}
	timer, err := alarm.New()
	if err != nil {
		return err
	}
	e.timer = timer
	r.spawn(func() {
		stop := timer.CloseWhen(ctx)
		defer func() {
			if stop() {
				timer.Close()
			}
		}()
		e.run(ctx)
	})
	return nil
}

// begin passes a flow to the engine.
func (e *udpEngine) begin(f *flow, item, pair int) {
	u := e.pairs[udpLine{int32(item), int32(pair), int32(f.res.Mouse)}]
	f.addCounts(counts{}) // UDP has none
	e.mu.Lock()
	e.added = append(e.added, &udpFlow{flow: f, udpPair: u, sentLeft: f.size})
	e.mu.Unlock()
	select {
	case e.wake <- struct{}{}:
	default: // a wake-up is already pending
	}
}

func (e *udpEngine) run(ctx context.Context) {
	var active []*udpFlow
	next := int64(0)
	for {
		if len(active) == 0 {
			select {
			case <-e.wake:
			case <-ctx.Done():
				return
			}
			next = e.r.clock.now()
		} else if !e.timer.Wait(next) {
			return
		}
		e.mu.Lock()
		active = append(active, e.added...)
		e.added = nil
		e.mu.Unlock()
		now := e.r.clock.now()
		kept := active[:0]
		for _, u := range active {
			if e.step(u, now) {
				kept = append(kept, u)
			}
		}
		clear(active[len(kept):])
		active = kept
		next = max(next+int64(udpStep), now)
	}
}

// step sends and receives what is due for one flow; false when it has ended.
func (e *udpEngine) step(u *udpFlow, now int64) bool {
	if u.begun == 0 {
		u.begun = now
		u.begin(u.udpPair, now)
	}
	u.receive(now)
	if u.hasEnded() {
		return false
	}
	u.transmit(e.r.zeros, now)
	if u.size > 0 && u.sentLeft == 0 && now > u.lastSent+int64(e.r.drain) {
		u.end(false, now) // packets that have not arrived by now are lost
		return false
	}
	return true
}

// transmit sends the packets that are due. A packet without room in the socket is lost, as for a source without
// flow control.
func (u *udpFlow) transmit(payload []byte, now int64) {
	perNs := float64(u.rate) / (8e9 * (datagramBytes + datagramHeaders)) // packets
	due := int64(float64(now-u.begun)*perNs) + 1
	if most := int64(float64(udpLag)*perNs) + 1; due-u.sent > most {
		u.sent = due - most
	}
	for ; u.sent < due && (u.size == 0 || u.sentLeft > 0); u.sent++ {
		n := int64(datagramBytes)
		if u.size > 0 {
			n = min(n, u.sentLeft)
			u.sentLeft -= n
		}
		u.tx.send(payload[:n])
		u.lastSent = now
	}
}

// receive counts the arrived packets.
func (u *udpFlow) receive(now int64) {
	for {
		n, ok := u.rx.receive()
		if !ok {
			return // nothing has arrived
		}
		u.received(n, now)
	}
}

func (e *udpEngine) close() {
	for _, u := range e.pairs {
		for _, d := range []datagrams{u.tx, u.rx} {
			if d != nil {
				d.close()
			}
		}
	}
	clear(e.pairs)
}
