package lab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"weir/experiment"
)

const (
	// lateFrames are sent at once to see when each leaves, fewer on a line that takes longer than lateLimit for them.
	lateFrames, lateLeast = 256, 32
	lateLimit             = 200 * time.Millisecond
	// lateAround is the frames before and after one among which the punctual one is looked for.
	lateAround = 16
	lateWait   = 2 * time.Second // for one frame, before it is given up
	latePort   = 9               // discard, RFC 863: nobody listens
	// latePayload makes full frames.
	latePayload = frameBytes - 14 - 20 - 8
)

// lateness measures on the idle network how late a full frame leaves a host whose queue is never empty: the median over
// a train of them, as its first switch receives it. A wire is on time; here the kernel wakes the token bucket when it gets
// to it, and lets go then what has become due. It is 0 where every host's line or TCP is of another kind.
func (l *Lab) lateness(cfg *experiment.Config) (time.Duration, error) {
	for i := range cfg.Items {
		it := &cfg.Items[i]
		for _, pair := range it.Pairs[:min(1, len(it.Pairs))] {
			src := l.plan.byName[pair.Src]
			nic := nicOf(src)
			if nic == nil || l.isForeign(src, it.Profile) {
				continue
			}
			late, err := l.trainOf(nic, l.Addr(pair.Src, it.Profile), l.Addr(pair.Dst, it.Profile), src)
			if err != nil {
				return 0, fmt.Errorf("see how late %s sends: %w", pair.Src, err)
			}
			return late, nil
		}
	}
	return 0, nil
}

// nicOf is the shaped port by which a guest sends, its own or its hypervisor's; nil: there is none.
func nicOf(guest *node) *port {
	if guest == nil || len(guest.ports) == 0 {
		return nil
	}
	p := guest.ports[0]
	if p.rate > 0 || p.peer.kind == experiment.Switch {
		return p
	}
	for _, up := range p.peer.ports {
		if up.rate > 0 && up.peer.kind == experiment.Switch {
			return up
		}
	}
	return nil
}

// trainOf sends a train of frames from a guest through its NIC and times them at the other end.
func (l *Lab) trainOf(nic *port, from, to netip.Addr, guest *node) (time.Duration, error) {
	if nic.rate == 0 {
		return 0, nil
	}
	frame := time.Duration(frameBytes * 8 * int64(time.Second) / int64(nic.rate))
	frames := max(lateLeast, min(lateFrames, int(lateLimit/frame)))
	var tap, tx int
	err := l.Enter(nic.far.node.name, func() (err error) {
		tap, err = openTap(nic.far.ifindex)
		return err
	})
	if err != nil {
		return 0, err
	}
	defer unix.Close(tap)
	err = l.Enter(guest.name, func() (err error) {
		tx, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return 0, err
	}
	defer unix.Close(tx)
	if err := errors.Join(unix.SetsockoptInt(tx, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 8<<20),
		unix.Bind(tx, &unix.SockaddrInet4{Addr: from.As4()})); err != nil {
		return 0, err
	}
	payload := make([]byte, latePayload)
	for range frames {
		if err := unix.Sendto(tx, payload, 0, &unix.SockaddrInet4{Port: latePort, Addr: to.As4()}); err != nil {
			return 0, fmt.Errorf("send a frame: %w", err)
		}
	}
	times, err := arrivals(tap, frames)
	if err != nil {
		return 0, err
	}
	return medianLateness(times, frame, int(tbfBurst(nic)/frameBytes)+1), nil
}

// openTap sees what a device receives, with the time of each frame.
func openTap(ifindex int) (int, error) {
	// All protocols: a bridge takes the frames of its ports before a socket of one protocol sees them.
	protocol := binary.NativeEndian.Uint16([]byte{unix.ETH_P_ALL >> 8, unix.ETH_P_ALL & 0xff}) // in the network's order
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, fmt.Errorf("watch a device: %w", err)
	}
	err = errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: protocol, Ifindex: ifindex}))
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("watch a device: %w", err)
	}
	return fd, nil
}

// arrivals gives the times of that many full frames, ns.
func arrivals(tap, frames int) ([]int64, error) {
	packet, control := make([]byte, frameBytes), make([]byte, 256)
	times := make([]int64, 0, frames)
	for len(times) < frames {
		n, cn, _, from, err := unix.Recvmsg(tap, packet, control, 0)
		if errors.Is(err, unix.EAGAIN) {
			ready, err := unix.Poll([]unix.PollFd{{Fd: int32(tap), Events: unix.POLLIN}}, int(lateWait/time.Millisecond))
			if ready == 0 || err != nil && !errors.Is(err, unix.EINTR) {
				return nil, errors.Join(err, fmt.Errorf("%d of %d frames came: %w", len(times), frames, os.ErrDeadlineExceeded))
			}
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read a frame's time: %w", err)
		}
		link, ok := from.(*unix.SockaddrLinklayer)
		if !ok || link.Pkttype == unix.PACKET_OUTGOING || n != latePayload+28 || packet[9] != unix.IPPROTO_UDP {
			continue
		}
		messages, err := unix.ParseSocketControlMessage(control[:cn])
		if err != nil {
			return nil, fmt.Errorf("read a frame's time: %w", err)
		}
		for _, m := range messages {
			if m.Header.Type == unix.SO_TIMESTAMPNS && len(m.Data) >= 16 {
				times = append(times, int64(binary.NativeEndian.Uint64(m.Data))*1e9+int64(binary.NativeEndian.Uint64(m.Data[8:])))
			}
		}
	}
	return times, nil
}

// medianLateness says how far frames of a train came behind the most punctual one before or after them, whichever is
// later: where tokens were lost, all that follows is behind for good. The first ones do not count: the bucket had
// tokens for them.
func medianLateness(times []int64, frame time.Duration, first int) time.Duration {
	var behind []int64 // of a line that carries frame after frame
	for i, at := range times {
		behind = append(behind, at-int64(i)*int64(frame))
	}
	behind = behind[min(first, len(behind)):]
	var late []int64
	for i, b := range behind {
		before, after := behind[max(0, i-lateAround):i+1], behind[i:min(len(behind), i+lateAround+1)]
		late = append(late, b-max(slices.Min(before), slices.Min(after)))
	}
	if len(late) == 0 {
		return 0
	}
	slices.Sort(late)
	return time.Duration(late[len(late)/2])
}
