package metadata

import (
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"weir/datapath/attach"
)

// port is a VM's port that is served.
type port struct {
	name  string
	mac   net.HardwareAddr // of the VM
	cfg   Config
	serve func(net.Listener)
	link  link.Link // kept here: the garbage collector would close it, which detaches the program

	sending sync.Mutex
	socket  int // a packet socket that only sends; -1: closed
	out     []byte

	mu     sync.Mutex
	stack  *tcpStack // nil: no frame came yet
	closed bool
}

func newPort(ref attach.PortRef, mac net.HardwareAddr, c Config, serve func(net.Listener)) (*port, error) {
	if len(mac) != 6 {
		return nil, fmt.Errorf("MAC address %q: 6 bytes are needed", mac)
	}
	p := &port{name: ref.Name, mac: mac, cfg: c, serve: serve}
	err := ref.In(func() (err error) {
		// Protocol 0: it receives nothing.
		if p.socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0); err != nil {
			return fmt.Errorf("open a packet socket: %w", err)
		}
		if err = unix.Bind(p.socket, &unix.SockaddrLinklayer{Ifindex: ref.Ifindex}); err != nil {
			return errors.Join(fmt.Errorf("bind a packet socket: %w", err), unix.Close(p.socket))
		}
		return nil
	})
	return p, err
}

// receive passes a frame of the VM to its stack. The stack copies it.
func (p *port) receive(frame []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	if p.stack == nil {
		s, err := newStack(p)
		if err != nil { // it depends on nothing that could change
			return
		}
		p.stack = s
	}
	p.stack.receive(frame)
}

// send sends a frame to the VM. A frame without room is lost; TCP sends it again.
func (p *port) send(parts [][]byte) {
	p.sending.Lock()
	defer p.sending.Unlock()
	if p.socket < 0 {
		return
	}
	p.out = p.out[:0]
	for _, part := range parts {
		p.out = append(p.out, part...)
	}
	_, _ = unix.Write(p.socket, p.out)
}

func (p *port) detach() error {
	if p.link == nil {
		return nil
	}
	return errors.Join(attach.DetachLink(p.link), p.link.Close())
}

// close resets the connections and ends the stack.
func (p *port) close() error {
	p.mu.Lock()
	p.closed = true
	s := p.stack
	p.mu.Unlock()
	if s != nil {
		s.close()
	}
	p.sending.Lock()
	defer p.sending.Unlock()
	err := unix.Close(p.socket)
	p.socket = -1
	return err
}
