package inband

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Socket receives the frames of a form that arrive at a device.
type Socket struct {
	f   *os.File
	own MAC
}

// Listen opens a socket for frames of a form at a device of this namespace. It needs CAP_NET_RAW.
//
// The kernel hands a packet socket what arrives before a bridge forwards it, so the device may belong to a bridge. The filter runs
// for each packet that arrives, and not for those that leave.
func Listen(device string, form Form) (*Socket, error) {
	index, own, err := find(device)
	if err != nil {
		return nil, err
	}
	fd, err := open()
	if err != nil {
		return nil, err
	}
	filter := form.filter()
	err = unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1)
	}
	if err == nil { // nothing arrives before
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL), Ifindex: index})
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("receive frames at %s: %w", device, err)
	}
	return &Socket{os.NewFile(uintptr(fd), device), own}, nil
}

// filter is a socket filter that takes frames of a form.
func (form Form) filter() []unix.SockFilter {
	const load, jump, give = unix.BPF_LD | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K
	take, no := unix.SockFilter{Code: give, K: maxFrame}, unix.SockFilter{Code: give}
	etherType := unix.SockFilter{Code: load | unix.BPF_H, K: ethernetBytes - 2}
	if form == Ethernet {
		return []unix.SockFilter{etherType, {Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: 0xfff0}, {Code: jump, K: On, Jf: 1}, take, no}
	}
	return []unix.SockFilter{etherType, {Code: jump, K: etherTypeIP, Jf: 3}, {Code: load | unix.BPF_B, K: protocolAt}, {Code: jump, K: Protocol, Jf: 1}, take, no}
}

// Address returns the device's address.
func (s *Socket) Address() MAC { return s.own }

// Read waits for a frame. Close ends it with an error.
func (s *Socket) Read(b []byte) (int, error) { return s.f.Read(b) }

// Close ends the socket.
func (s *Socket) Close() error { return s.f.Close() }

// Sender sends frames from a device. Its methods may be called by several goroutines at a time.
type Sender struct {
	device string
	own    MAC
	ip     [4]byte // zeros: none

	mu sync.Mutex
	fd int // -1: closed
}

// NewSender opens a socket at a device of this namespace. It needs CAP_NET_RAW.
func NewSender(device string) (*Sender, error) {
	index, own, err := find(device)
	if err != nil {
		return nil, err
	}
	fd, err := open()
	if err != nil {
		return nil, err
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: index}); err != nil { // protocol 0: it receives nothing
		_ = unix.Close(fd)
		return nil, fmt.Errorf("send frames from %s: %w", device, err)
	}
	return &Sender{device: device, own: own, ip: ipv4Of(device), fd: fd}, nil
}

// Address returns the device's address.
func (s *Sender) Address() MAC { return s.own }

// IPv4 returns the device's first IPv4 address; zeros: it has none.
func (s *Sender) IPv4() [4]byte { return s.ip }

// Send sends a frame. It does not wait: a full queue is an error.
func (s *Sender) Send(frame []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fd < 0 {
		return fmt.Errorf("send a frame from %s: %w", s.device, net.ErrClosed)
	}
	if _, err := unix.Write(s.fd, frame); err != nil {
		return fmt.Errorf("send a frame from %s: %w", s.device, err)
	}
	return nil
}

// Close ends the socket.
func (s *Sender) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	fd := s.fd
	if s.fd = -1; fd < 0 {
		return nil
	}
	return unix.Close(fd)
}

func open() (int, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if errors.Is(err, unix.EPERM) {
		return 0, fmt.Errorf("frames need CAP_NET_RAW: run as root, or use messages: bus: %w", err)
	}
	if err != nil {
		return 0, fmt.Errorf("a packet socket: %w", err)
	}
	return fd, nil
}

func find(device string) (index int, own MAC, err error) {
	d, err := net.InterfaceByName(device)
	if err != nil {
		return 0, own, fmt.Errorf("device %s: %w", device, err)
	}
	if len(d.HardwareAddr) != len(own) {
		return 0, own, fmt.Errorf("device %s has no Ethernet address", device)
	}
	return d.Index, MAC(d.HardwareAddr), nil
}

func ipv4Of(device string) (a [4]byte) {
	d, err := net.InterfaceByName(device)
	if err != nil {
		return a
	}
	all, _ := d.Addrs() // none on an error
	for _, of := range all {
		if n, ok := of.(*net.IPNet); ok && n.IP.To4() != nil {
			return [4]byte(n.IP.To4())
		}
	}
	return a
}

func htons(n uint16) uint16 { return n<<8 | n>>8 }
