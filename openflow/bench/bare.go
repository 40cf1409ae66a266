package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"weir/openflow"
)

// bare stands in for a controller with the least work: one thread, one epoll, as few system calls as possible, and the same
// bytes each time. It reads only type and length of each message. Its cost is the kernel's share of a controller's cost.
type bare struct {
	flowMod, request []byte
	asked            int            // requests for statistics that are out at once, of each switch
	parts            map[int][]byte // of messages that have not come whole, by socket
	in, out          []byte
	poll, listener   int
}

// serveBare is the program until it is killed.
func serveBare(asked int) error {
	b := &bare{asked: asked, parts: make(map[int][]byte), in: make([]byte, 512<<10)}
	if err := errors.Join(b.encode(), b.listen()); err != nil {
		return err
	}
	var events [256]unix.EpollEvent
	for {
		n, err := unix.EpollWait(b.poll, events[:], -1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("epoll_wait", err)
		}
		for _, e := range events[:max(n, 0)] {
			fd := int(e.Fd)
			switch {
			case fd == b.listener:
				err = b.accept()
			case !b.work(fd):
				err = os.NewSyscallError("close", unix.Close(fd))
			}
			if err != nil {
				return err
			}
		}
	}
}

// encode makes what serve sends in the same cases.
func (b *bare) encode() (err error) {
	m := newForward().(*forward)
	m.Match = openflow.Match{openflow.InPort(3), openflow.EthDst(openflow.MAC{2, 0, 0, 0, 0, 1}, openflow.MAC{})}
	m.output.Port = 1
	if b.flowMod, err = openflow.Append(nil, 0, &m.FlowMod); err != nil {
		return err
	}
	b.request, err = openflow.Append(nil, 1, &openflow.MultipartRequest{
		Type: openflow.MultipartPortStats, Body: openflow.PortStatsRequest{PortNo: openflow.PortAny},
	})
	return err
}

func (b *bare) listen() (err error) {
	if b.listener, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return os.NewSyscallError("socket", err)
	}
	here := &unix.SockaddrInet4{Addr: netip.MustParseAddr("127.0.0.1").As4()}
	if err := errors.Join(unix.Bind(b.listener, here), unix.Listen(b.listener, 4096)); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	at, err := unix.Getsockname(b.listener)
	if err != nil {
		return os.NewSyscallError("getsockname", err)
	}
	fmt.Println(at.(*unix.SockaddrInet4).Port)
	if b.poll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	return b.watch(b.listener)
}

func (b *bare) watch(fd int) error {
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(b.poll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}))
}

func (b *bare) accept() error {
	fd, _, err := unix.Accept4(b.listener, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("accept4", err)
	}
	return errors.Join(unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1), b.watch(fd))
}

// work reads once and writes once. It says whether the switch is still there.
func (b *bare) work(fd int) bool {
	have := copy(b.in, b.parts[fd])
	n, err := unix.Read(fd, b.in[have:])
	if err != nil || n == 0 {
		return false
	}
	in := b.in[:have+n]
	b.out = b.out[:0]
	for len(in) >= openflow.HeaderLen && int(binary.BigEndian.Uint16(in[2:])) <= len(in) {
		switch openflow.Type(in[1]) {
		case openflow.TypePacketIn:
			b.out = append(b.out, b.flowMod...)
		case openflow.TypeMultipartReply:
			b.out = append(b.out, b.request...)
		case openflow.TypeHello:
			for range b.asked {
				b.out = append(b.out, b.request...)
			}
		}
		in = in[binary.BigEndian.Uint16(in[2:]):]
	}
	b.parts[fd] = append(b.parts[fd][:0], in...)
	for out := b.out; len(out) > 0; {
		n, err := unix.Write(fd, out)
		if err != nil && !errors.Is(err, unix.EAGAIN) {
			return false
		}
		out = out[max(n, 0):]
	}
	return true
}
