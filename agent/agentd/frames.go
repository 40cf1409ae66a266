package agentd

import (
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"weir/bus/inband"
	"weir/bus/pki"
	"weir/internal/counts"
	"weir/law"
	"weir/law/telemetry"
)

// frames receives grants in Ethernet frames at the uplink. The goroutine of the agent owns it, except take.
type frames struct {
	key  inband.Key
	form inband.Form
	log  *slog.Logger
	take func(command []byte, header *law.Grant)
	vm   func(netip.Addr) (law.VM, bool) // the VM that has an address

	at      int // ifindex of the uplink that it listens at; 0: none
	socket  frameSocket
	again   retry
	counts  counts.Counts // of frames: taken, or refused by reason
	running sync.WaitGroup

	mu   sync.Mutex
	why  string // why it does not listen
	dead bool   // reading the socket failed: follow opens another one
}

// frameSocket is an inband.Socket.
type frameSocket interface {
	Address() inband.MAC
	Read(b []byte) (int, error)
	Close() error
}

// newFrames returns nil if grants come by the bus.
func newFrames(c *Config, log *slog.Logger, to *link) (*frames, error) {
	if c.Host == nil || c.Host.Frames == "" {
		return nil, nil
	}
	key, err := pki.FrameKey(c.Bus.Keys)
	return &frames{key: key, form: c.Host.Frames, log: log, take: to.TakeFrame, vm: to.host.has}, err
}

// follow listens at the uplink, which may be another device than before. ifindex 0: there is none.
func (f *frames) follow(device string, ifindex int) {
	if f == nil {
		return
	}
	if f.isDead() {
		f.again.failed()
		f.close()
	}
	if f.socket != nil && ifindex != f.at {
		f.close()
	}
	if f.socket != nil || ifindex == 0 || !f.again.due() {
		return
	}
	s, err := inband.Listen(device, f.form)
	if err != nil {
		f.again.failed()
		f.off(err.Error())
		return
	}
	f.again, f.at = retry{}, ifindex
	f.begin(s)
}

// begin receives from a socket until it is closed or fails.
func (f *frames) begin(s frameSocket) {
	f.socket = s
	f.off("")
	f.running.Go(func() { f.receive(s) })
}

func (f *frames) isDead() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dead
}

func (f *frames) off(why string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if why != "" && why != f.why {
		f.log.Warn("grants in frames are not received", "reason", why)
	}
	f.why = why
}

// failed marks the socket as dead, so that follow opens another one.
func (f *frames) failed(err error) {
	f.off("the uplink: " + err.Error())
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dead = true
}

// receive takes frames until the socket is closed. A device that goes down gives its packet sockets the error ENETDOWN once; they
// receive again when it is up.
func (f *frames) receive(s frameSocket) {
	r := inband.NewReceiver(f.form, s.Address(), f.key)
	var b [2048]byte
	for {
		n, err := s.Read(b[:])
		if errors.Is(err, unix.ENETDOWN) {
			continue
		}
		if err != nil {
			if !errors.Is(err, os.ErrClosed) {
				f.failed(err)
			}
			return
		}
		frame, why := r.Take(b[:n])
		var header *law.Grant
		if why == inband.Taken && frame.Marks > 0 {
			if header = f.marks(&frame); header == nil {
				why = inband.Elsewhere
			}
		}
		if why != inband.Taken {
			f.counts.Refuse(f.log, "a frame is refused", string(why))
			continue
		}
		f.counts.Add("taken")
		f.take(frame.Command, header)
	}
}

// marks returns the grant in a frame's header; nil: its address is no VM's.
func (f *frames) marks(of *inband.Frame) *law.Grant {
	vm, ok := f.vm(netip.AddrFrom4(of.VM))
	if !ok {
		return nil
	}
	return &law.Grant{Kind: law.MarksGrant, Key: law.Key{Pair: law.Pair{VM: vm}}, Value: uint64(of.Marks) * telemetry.OneMark, Lease: time.Second}
}

// address returns the uplink's address, for controllers; nil: no frames are received.
func (f *frames) address() []byte {
	if f == nil || f.socket == nil || f.isDead() {
		return nil
	}
	a := f.socket.Address()
	return a[:]
}

func (f *frames) status() *FramesStatus {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return &FramesStatus{Off: f.why, Counts: f.counts.All()}
}

// close ends receiving. No frame is taken after it.
func (f *frames) close() {
	if f == nil || f.socket == nil {
		return
	}
	_ = f.socket.Close()
	f.running.Wait()
	f.socket, f.at, f.dead = nil, 0, false // receive has ended
}
