package agentd_test

import (
	"encoding/binary"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"weir/agent/agentd"
	"weir/datapath/testnet"
	"weir/law"
)

// A reload adds and removes VMs under the traffic of another one, whose connection and grant continue. A wrong file, and one that
// cannot be applied, change nothing.
func TestReload_VMs(t *testing.T) {
	m := newMachine(t, 3, testnet.PathOptions{UplinkBps: 200e6, UplinkLimit: 250_000, GSO: true, ChecksumOffload: true})
	a := m.start(m.hostFile("", 0))
	m.until("VM 1 is there", func(s *agentd.Status) bool { return s.Host.VMs[0].Off == "" })
	s := m.Path(0).NewStreams(t, testnet.PeerIPv4(0), 1)
	m.keep(window(1, testnet.PeerIPv4(0), granted))
	m.until("VM 1 is limited", func(s *agentd.Status) bool { return s.Host.VMs[0].Counts.Limited > 0 })
	s.Mark()
	if got := m.reload(m.hostFile("", 0, 1)); !slices.Equal(got.Changes, []string{"VM 2: added"}) {
		t.Errorf("%+v", got)
	}
	testnet.Until(t, "the controller knows both", func() bool { return slices.Equal(m.guests(), []uint32{1, 2}) })
	taken := strings.ReplaceAll(m.hostFile("", 0, 1), "port: vm1", "port: vm0")
	for file, says := range map[string]string{
		strings.ReplaceAll(m.hostFile("", 0, 1), "mac:", "mack:"):          "agent.yaml:10: host.vms.web1.mack: unknown key; did you mean mac?",
		strings.ReplaceAll(m.hostFile("", 0, 1), "number: 7", "number: 8"): "host.number: 7 became 8, but a running agent cannot change it",
		taken: "the port vm0 is there twice",
	} {
		if got := m.reload(file); !strings.Contains(got.Refused, says) {
			t.Errorf("refused: %q, want %q", got.Refused, says)
		}
	}
	if got := m.guests(); !slices.Equal(got, []uint32{1, 2}) {
		t.Errorf("after refused reloads: VMs %v", got)
	}
	// VMs 1 and 2 change their ports, and VM 3 is new: by the signal.
	swapped := m.hostFile("", 0) + strings.ReplaceAll(m.vm(1), "port: vm1", "port: vm2") + strings.ReplaceAll(m.vm(2), "port: vm2", "port: vm1")
	m.write(swapped)
	if err := a.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	status := m.until("VM 3 is there", func(s *agentd.Status) bool { return len(s.Host.VMs) == 3 })
	if w := status.Well(); len(w) > 0 || status.Reloads != 5 || status.Refused != 3 {
		t.Errorf("%v %+v", w, status)
	}
	s.Progress(t, 1e6)
	if most := inFlight(t, s.Pair(0), 1000); most > nearly || s.Stall() > 300*time.Millisecond {
		t.Errorf("%d bytes in flight, longest stall %v", most, s.Stall())
	}
	if got := m.reload(m.hostFile("", 1)); got.Refused != "" {
		t.Errorf("%+v", got)
	}
	if n := testnet.AttachedTo(t, m.Ports[0]); n != 0 {
		t.Errorf("VM 1 was removed, and %d programs are attached", n)
	}
	testnet.Until(t, "VM 1 is not limited", func() bool {
		most := inFlight(t, s.Pair(0), 1)
		return most >= quick
	})
	s.Progress(t, 1e6)
	if s.Stall() > 300*time.Millisecond {
		t.Errorf("longest stall %v", s.Stall())
	}
	testnet.Until(t, "grants for VM 1 are refused", func() bool { return m.status().Host.Refused["vm"] > 0 })
}

// udpFrame is a frame of guest i to peer 0 with these addresses.
func (m *machine) udpFrame(mac []byte, from []byte) []byte {
	f := slices.Concat([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, mac, []byte{8, 0})
	ip := []byte{0x45, 0, 0, 36, 0, 0, 0, 0, 64, 17, 0, 0}
	ip = slices.Concat(ip, from, testnet.PeerIPv4(0).To4())
	var sum uint32
	for i := 0; i < len(ip); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	sum = sum>>16 + sum&0xffff
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum+sum>>16))
	return slices.Concat(f, ip, []byte{0, 9, 0, 9, 0, 16, 0, 0}, []byte("forged: "))
}

// Frames that a VM forges do not reach the network while the agent runs, also after it was killed.
func TestForgedFramesAreDropped(t *testing.T) {
	m := newMachine(t, 1, testnet.PathOptions{})
	a := m.start(m.hostFile("", 0))
	m.until("VM 1 is there", func(s *agentd.Status) bool { return s.Host.VMs[0].Off == "" })
	guest, far := testnet.NewRaw(t, m.inside(0)), testnet.NewRaw(t, m.Far)
	mac, other := m.MACs[0], slices.Clone(m.MACs[0])
	other[5] ^= 1
	mine, spoofed := testnet.GuestIPv4(0).To4(), testnet.GuestIPv4(9).To4()
	arrives := func() (macs []string) {
		for _, f := range [][]byte{m.udpFrame(other, mine), m.udpFrame(mac, spoofed), slices.Concat([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, mac, []byte{0x7a, 3}, make([]byte, 50)), m.udpFrame(mac, mine)} {
			guest.Send(t, f)
		}
		far.Receive(t, func(f []byte) bool {
			if len(f) < 34 || string(f[len(f)-8:]) != "forged: " && binary.BigEndian.Uint16(f[12:]) != 0x7a03 {
				return false
			}
			macs = append(macs, string(f[6:12]))
			return string(f[6:12]) == string(mac) && string(f[26:30]) == string(mine)
		})
		return macs
	}
	if macs := arrives(); len(macs) != 1 {
		t.Errorf("%d frames arrived, want the honest one", len(macs))
	}
	s := m.until("they are counted", func(s *agentd.Status) bool { return s.Host.VMs[0].Counts.Control == 1 })
	if c := s.Host.VMs[0].Counts; c.SpoofedMAC != 1 || c.SpoofedIP != 1 {
		t.Errorf("%+v", c)
	}
	a.kill()
	if macs := arrives(); len(macs) != 1 {
		t.Errorf("after the agent was killed %d frames arrived, want the honest one", len(macs))
	}
	a = m.start(m.hostFile("", 0))
	m.until("the next agent runs", func(s *agentd.Status) bool { return s.PID == a.cmd.Process.Pid })
	a.end()
	if macs := arrives(); len(macs) != 4 {
		t.Errorf("after its end %d frames arrived, want 4: the test could not see a forged one", len(macs))
	}
}

// A VM that is limited to 2 Mbit/s sends 97 % of it or more by UDP. When its controller dies, it is unlimited within 1.5 s.
func TestRate(t *testing.T) {
	const rate = 2e6
	const queued = 250 * time.Millisecond // that the class's queue of 70 kB lasts at the rate
	m := newMachine(t, 1, testnet.PathOptions{})
	m.start(m.hostFile(", rate: 20Mbit", 0))
	m.until("VM 1 is there", func(s *agentd.Status) bool { return s.Host.VMs[0].Off == "" })
	stop := m.keep(law.Grant{Owner: 2, Kind: law.RateGrant, Key: law.Key{Pair: law.Pair{VM: 1}}, Value: rate, Lease: time.Minute})
	flood := m.Path(0).NewUDP(t, testnet.PeerIPv4(0), 0).Flood(t, 50, 1400) // a round fills the queue
	begin := m.classBytes()
	testnet.Until(t, "the class sends", func() bool { return m.classBytes() > begin+rate/8/4 })
	sent := 0.0
	testnet.Until(t, "the VM always had packets to send for a second", func() bool {
		flood.Longest()
		sent = testnet.Rate(t, time.Second, m.classBytes)
		return flood.Longest() < queued
	})
	t.Logf("%.3f Mbit/s of %.0f", sent/1e6, rate/1e6)
	if sent < 0.97*rate || sent > 1.03*rate {
		t.Errorf("%.3f Mbit/s of %.0f", sent/1e6, rate/1e6)
	}
	stop()
	stopped := time.Now()
	relaxed := m.until("the agent answers", func(*agentd.Status) bool { return true }).Host.VMs[0].Counts.Relaxed
	flood.Longest()
	last := time.Duration(0) // begin of the last look that found the VM limited, after the last command
	for {
		look := time.Since(stopped)
		if m.until("the agent answers", func(*agentd.Status) bool { return true }).Host.VMs[0].Counts.Relaxed > relaxed {
			break
		}
		last = look
	}
	// A packet is counted once the VM sends one, and a look on a busy machine takes long.
	if last > 1500*time.Millisecond+flood.Longest() {
		t.Errorf("still limited %v after the last command", last)
	}
}

// classBytes returns the bytes that the first VM's class of the uplink has sent.
func (m *machine) classBytes() (sent uint64) {
	m.Host.Must(m.t, func() error {
		l, err := netlink.LinkByIndex(m.Uplink.Ifindex)
		if err != nil {
			return err
		}
		list, err := netlink.ClassList(l, 0)
		for _, c := range list {
			if a := c.Attrs(); a.Handle == 0x57480010 && a.Statistics != nil && a.Statistics.Basic != nil {
				sent = a.Statistics.Basic.Bytes
			}
		}
		return err
	})
	return sent
}
