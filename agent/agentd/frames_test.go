package agentd

import (
	"log/slog"
	"os"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weir/bus/inband"
	"weir/datapath/testnet"
	"weir/law"
)

// readSocket returns what a test sends to it.
type readSocket struct {
	reads  chan any // a frame or an error
	closed chan struct{}
}

func newReadSocket(reads ...any) *readSocket {
	s := &readSocket{make(chan any, len(reads)), make(chan struct{})}
	for _, r := range reads {
		s.reads <- r
	}
	return s
}

func (s *readSocket) Address() inband.MAC { return framesTo }

func (s *readSocket) Read(b []byte) (int, error) {
	select {
	case r := <-s.reads:
		if err, failed := r.(error); failed {
			return 0, &os.PathError{Op: "read", Path: "up0", Err: err}
		}
		return copy(b, r.([]byte)), nil
	case <-s.closed:
		return 0, os.ErrClosed
	}
}

func (s *readSocket) Close() error {
	close(s.closed)
	return nil
}

var (
	framesKey = inband.Key{1}
	framesTo  = inband.MAC{2, 0, 0, 0, 0, 1}
)

// newFramesKit returns a receiver of frames, and the channel of the commands that it takes.
func newFramesKit() (*frames, chan string) {
	taken := make(chan string, 16)
	f := &frames{key: framesKey, form: inband.Ethernet, log: slog.New(slog.DiscardHandler)}
	f.take = func(command []byte, _ *law.Grant) { taken <- string(command) }
	return f, taken
}

func grantFrame(t *testing.T, to inband.MAC, counter uint64, command string) []byte {
	t.Helper()
	b, err := inband.NewTagger(inband.Ethernet, framesKey).Append(nil, &inband.Frame{
		To: to, From: inband.MAC{2, 0, 0, 0, 0, 9}, Type: inband.On, Run: 1, Counter: counter, Command: []byte(command)})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The uplink goes down, and its socket reports that once. The agent receives the frames that come when it is up again.
func TestFrames_UplinkWasDown(t *testing.T) {
	f, taken := newFramesKit()
	f.begin(newReadSocket(grantFrame(t, framesTo, 1, "before"), unix.ENETDOWN, grantFrame(t, framesTo, 2, "after")))
	defer f.close()
	for _, want := range []string{"before", "after"} {
		next := ""
		testnet.Until(t, "the frame "+want, func() bool {
			select {
			case next = <-taken:
				return true
			default:
				return false
			}
		})
		if next != want {
			t.Errorf("took %q, want %q", next, want)
		}
	}
	if f.address() == nil || f.status().Off != "" {
		t.Errorf("address %v, off %q", f.address(), f.status().Off)
	}
}

// After any other error the agent reports no address, so that grants come by the bus, and closes the socket.
func TestFrames_DeadSocket(t *testing.T) {
	f, _ := newFramesKit()
	s := newReadSocket(unix.EIO)
	f.at = 7
	f.begin(s)
	f.running.Wait()
	if f.address() != nil || f.status().Off == "" {
		t.Errorf("address %v, off %q", f.address(), f.status().Off)
	}
	f.follow("none", 7)
	select {
	case <-s.closed:
	default:
		t.Error("the dead socket is open")
	}
	if f.again.due() {
		t.Error("it opens another socket without a pause")
	}
	f.begin(newReadSocket())
	defer f.close()
	if f.address() == nil || f.status().Off != "" {
		t.Errorf("the next socket: address %v, off %q", f.address(), f.status().Off)
	}
}

// The kernel's packet socket receives again after its device was down.
func TestFrames_DeviceWasDown(t *testing.T) {
	host := testnet.NewNamespace(t)
	var sender *inband.Sender
	f, taken := newFramesKit()
	host.Must(t, func() error {
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "up0"}, PeerName: "far0"}); err != nil {
			return err
		}
		if err := setUp("up0", "far0"); err != nil {
			return err
		}
		up, err := netlink.LinkByName("up0")
		if err != nil {
			return err
		}
		f.follow("up0", up.Attrs().Index)
		if sender, err = inband.NewSender("far0"); err != nil {
			return err
		}
		if err := netlink.LinkSetDown(up); err != nil {
			return err
		}
		return setUp("up0")
	})
	defer f.close()
	defer sender.Close()
	if f.socket == nil {
		t.Fatal(f.status().Off)
	}
	to, counter := f.socket.Address(), uint64(0)
	testnet.Until(t, "a frame after the device was down", func() bool {
		counter++
		_ = sender.Send(grantFrame(t, to, counter, "after")) // fails until the device is ready
		return len(taken) > 0
	})
}

func setUp(devices ...string) error {
	for _, name := range devices {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(l); err != nil {
			return err
		}
	}
	return nil
}
