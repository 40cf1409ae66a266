package agentd_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/agent/agentd"
	"weir/datapath/testnet"
)

func addr(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}

// inFlight returns the most bytes that were in flight on a stream's connection in some readings.
func inFlight(t *testing.T, p *testnet.Pair, readings int) (most int) {
	t.Helper()
	for range readings {
		i := testnet.ReadTCPInfo(t, p.Client)
		most = max(most, int(i.Unacked)*int(i.Snd_mss))
	}
	return most
}

const quick = 30 * 1460 // bytes in flight of a connection without a limit

// granted is the window that limit grants: more than the least window, and a multiple of each window scale's unit, so that ACKs
// have exactly it or less.
const granted = 1 << 15

// nearly is what can be in flight then: segments count in full there.
const nearly = granted + 2*1460

// acks are the ACKs that arrive at a guest.
type acks struct {
	tap   *testnet.Tap
	shift map[netip.AddrPort]uint8 // by the guest's end
}

// most returns the largest window of those that arrived since the last call, and how many there were.
func (a *acks) most(t *testing.T) (window, n int) {
	t.Helper()
	a.tap.Each(t, func(s *testnet.Segment) {
		switch {
		case s.Out:
		case s.Flags&testnet.SYN != 0:
			a.shift[s.To] = scaleOf(t, s)
		case s.Flags&testnet.ACK != 0:
			window, n = max(window, int(s.Window)<<a.shift[s.To]), n+1
		}
	})
	return window, n
}

// scaleOf returns the window scale of a SYN (RFC 7323, 2.2).
func scaleOf(t testing.TB, s *testnet.Segment) uint8 {
	t.Helper()
	for o := s.Options; len(o) > 2; {
		switch {
		case o[0] == 1:
			o = o[1:]
		case o[0] == 3:
			return o[2]
		case o[0] == 0 || o[1] < 2 || int(o[1]) > len(o):
			t.Fatalf("options %x", s.Options)
		default:
			o = o[o[1]:]
		}
	}
	t.Fatalf("a SYN without window scale: %x", s.Options)
	return 0
}

// limit starts an agent and limits a pair of VM 1 by grants of the controller.
func limit(t *testing.T) (m *machine, a *agent, s *testnet.Streams, stop func()) {
	return limitBy(t, "bus")
}

// limitBy is limit with grants by the bus, or in-band.
func limitBy(t *testing.T, messages string) (m *machine, a *agent, s *testnet.Streams, stop func()) {
	m = newMachine(t, 1, testnet.PathOptions{UplinkBps: 200e6, UplinkLimit: 250_000, GSO: true, ChecksumOffload: true})
	a = m.start(m.messages(messages))
	testnet.Until(t, "the controller knows the VM", func() bool { return slices.Equal(m.guests(), []uint32{1}) })
	arrive := &acks{testnet.NewTap(t, m.inside(0)), map[netip.AddrPort]uint8{}}
	s = m.Path(0).NewStreams(t, testnet.PeerIPv4(0), 1)
	testnet.Until(t, "more is in flight than the grant allows", func() bool {
		most := inFlight(t, s.Pair(0), 100)
		return most >= quick
	})
	stop = m.keep(window(1, testnet.PeerIPv4(0), granted))
	m.until("the pair is limited", func(s *agentd.Status) bool { return s.Host.VMs[0].Counts.Limited > 0 })
	testnet.Until(t, "no more is in flight", func() bool {
		most := inFlight(t, s.Pair(0), 1)
		return most <= nearly
	})
	if w, _ := arrive.most(t); w <= granted {
		t.Errorf("before the grant ACKs had a window of %d at most: the test could not see a limit", w)
	}
	// The grant ends, and begins again, where a busy machine renews it after more than its second.
	testnet.Until(t, "each ACK is limited while 2000 segments are sent", func() bool {
		s.Progress(t, 2000*1460)
		w, n := arrive.most(t)
		most := inFlight(t, s.Pair(0), 3000)
		t.Logf("%d ACKs arrived at the VM, with a window of %d at most, and %d bytes were in flight; granted are %d", n, w, most, granted)
		return w <= granted && n >= 20 && most <= nearly // an ACK of a busy machine acknowledges a whole window
	})
	return m, a, s, stop
}

// released waits until the pair is not limited, and checks how long that took.
func released(t *testing.T, s *testnet.Streams, since time.Time) {
	t.Helper()
	s.Mark()
	testnet.Until(t, "the pair is released", func() bool {
		most := inFlight(t, s.Pair(0), 1)
		return most >= quick
	})
	took := time.Since(since)
	s.Progress(t, 1e6)
	t.Logf("released after %v, longest stall %v", took, s.Stall())
	if took-s.Paused() > 1500*time.Millisecond || s.Stall() > 300*time.Millisecond {
		t.Errorf("released after %v, longest stall %v", took, s.Stall())
	}
}

// A pair that a controller limits is limited on the wire. When the controller dies, it is released within 1.5 s.
func TestGrant_ControllerDies(t *testing.T) {
	m, _, s, stop := limit(t)
	status := m.until("the status shows the grant", func(s *agentd.Status) bool { return s.Host.Live == 1 })
	vm := &status.Host.VMs[0]
	if len(vm.Grants) != 1 || vm.Grants[0].Peer != testnet.PeerIPv4(0).String() || vm.Grants[0].LeftMs > 1000 || status.Bus.Controller != "c1" || status.Bus.Term == 0 {
		t.Errorf("%+v %+v", status.Bus, vm)
	}
	stop()
	m.stopController()
	released(t, s, time.Now())
	m.until("no grant is live", func(s *agentd.Status) bool { return s.Host.Live == 0 })
}

// kill -9 of the agent releases a pair within 1.5 s, and the next start continues.
func TestGrant_AgentKilled(t *testing.T) {
	m, a, s, _ := limit(t)
	a.kill()
	released(t, s, time.Now())
	if n := testnet.AttachedTo(t, m.Ports[0]); n != 1 {
		t.Errorf("%d programs at the VM's port", n)
	}
	m.start(m.hostFile("", 0))
	testnet.Until(t, "the pair is limited again", func() bool {
		most := inFlight(t, s.Pair(0), 1)
		return most <= nearly
	})
}

// Purge removes what a killed agent left, and nothing of a running one.
func TestPurge(t *testing.T) {
	m := newMachine(t, 1, testnet.PathOptions{})
	a := m.start(m.hostFile(", rate: 200Mbit", 0))
	m.until("VM 1 is there", func(s *agentd.Status) bool { return s.Host.VMs[0].Off == "" })
	t.Setenv(purgeVariable, "1")
	if said := m.another(); !strings.Contains(said, "is running on /sys/fs/bpf/weir/agent/h7") {
		t.Errorf("while the agent runs: %q", said)
	}
	a.kill()
	p := m.start(m.hostFile(", rate: 200Mbit", 0))
	if err := <-p.done; err != nil {
		t.Error(err)
	}
	p.done <- nil
	if n := testnet.AttachedTo(t, m.Ports[0]) + testnet.AttachedTo(t, m.Uplink); n != 0 {
		t.Errorf("%d programs are left", n)
	}
	if q := testnet.Queue(t, m.Uplink); q.Kind == "htb" {
		t.Errorf("left: %+v", q)
	}
	m.Host.Must(t, func() error {
		if _, err := os.Stat("/sys/fs/bpf/weir"); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("the directory of pins is left: %w", err)
		}
		return nil
	})
}

// At the end grants are released, and nothing is left.
func TestEnd(t *testing.T) {
	m, a, s, stop := limit(t)
	s.Mark()
	a.end()
	if n := testnet.AttachedTo(t, m.Ports[0]) + testnet.AttachedTo(t, m.Uplink); n != 0 {
		t.Errorf("%d programs are left", n)
	}
	s.Progress(t, 1e6)
	testnet.Until(t, "the pair is not limited", func() bool {
		most := inFlight(t, s.Pair(0), 100)
		return most >= quick
	})
	if s.Stall() > 300*time.Millisecond {
		t.Errorf("longest stall %v", s.Stall())
	}
	stop()
	if status := m.status(); status != nil {
		t.Errorf("the agent answers: %+v", status)
	}
}
