package agentd_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weir/agent/agentd"
	"weir/bus"
	"weir/bus/weirv1"
	"weir/datapath/attach"
	"weir/datapath/testnet"
	"weir/internal/testroot"
	"weir/law"
	"weir/law/hygenicc"
)

// otherHost is the agent of another host, at the test's end of the bus.
type otherHost struct {
	*bus.Agent
	heard chan *weirv1.PairMarks
}

func (m *machine) other(name string) *otherHost {
	m.t.Helper()
	o := &otherHost{heard: make(chan *weirv1.PairMarks, 1000)}
	var err error
	o.Agent, err = bus.NewAgent(bus.AgentConfig{
		Client: bus.ClientConfig{URLs: []string{"tls://" + m.at}, Files: m.enrol("agent/" + name), Log: m.logger(name)}, Buckets: buckets,
		Terms: bus.TermFile{Path: filepath.Join(m.dir, name+".term")}, Clock: func() time.Duration { return time.Duration(attach.MonotonicNs()) },
		Obey: func(*weirv1.Command, []law.Grant) {},
		Marks: func(from string, marks *weirv1.PairMarks) {
			if from == agentName {
				o.heard <- marks
			}
		},
	})
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(o.Close)
	testnet.Until(m.t, "the connection of "+name, o.Conn().Connected)
	return o
}

// sendCE sends datagrams with CE from a peer to a guest.
func (m *machine) sendCE(packets int) {
	m.t.Helper()
	m.Peer.Must(m.t, func() error {
		// A socket that is connected would return ICMP errors in place of sending.
		c := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
			if failed := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TOS, 3) }); failed != nil {
				return failed
			}
			return err
		}}
		out, err := c.ListenPacket(context.Background(), "udp4", net.JoinHostPort(testnet.PeerIPv4(0).String(), "0"))
		if err != nil {
			return err
		}
		defer out.Close()
		for range packets {
			if _, err := out.WriteTo(make([]byte, 100), &net.UDPAddr{IP: testnet.GuestIPv4(0), Port: 9}); err != nil {
				return err
			}
		}
		return nil
	})
}

// Packets with CE that come to a VM are returned to the agent of the host that sent them. The marks that such an agent returns limit the
// VM that sent; those of an agent that is no peer, and those of an address that no VM here has, do not.
func TestPairs_ReturnedAndHeard(t *testing.T) {
	testroot.Need(t, "namespaces")
	m := newMachine(t, 1, testnet.PathOptions{GSO: true, ChecksumOffload: true})
	laws := fmt.Sprintf("  laws: {%s: {min_rate: 8Mbit, increase: 1kbit, timeout: 3600s}}\n  peers:\n    - {agent: h8, addresses: [%v/32]}\n  vms:",
		hygenicc.Spec().Name, testnet.PeerIPv4(0))
	m.start(strings.Replace(m.hostFile(", rate: 200Mbit", 0), "  vms:", laws, 1))
	h8, h9 := m.other("h8"), m.other("h9")
	m.until("the VM is added", func(s *agentd.Status) bool {
		return s.Host != nil && s.Host.VMs[0].Off == "" && s.Host.VMs[0].Counts != nil
	})

	const sent = 300
	m.sendCE(sent)
	marks := uint64(0)
	for marks < sent-1 { // a single mark waits for another
		select {
		case got := <-h8.heard:
			for _, p := range got.GetPairs() {
				if source, _ := netip.AddrFromSlice(p.GetSource()); p.GetVm() != 1 || source != addr(testnet.PeerIPv4(0)) {
					t.Fatalf("%+v", p)
				}
				marks += p.GetPackets()
			}
		case <-time.After(testnet.Patience):
			t.Fatalf("%d of %d marks came back", marks, sent)
		}
	}
	s := m.until("all marks are counted", func(s *agentd.Status) bool { return s.Host.Half.Returns.Came == sent })
	if r := s.Host.Half.Returns; marks > sent || r.Sent == 0 || r.Lost+r.Failed+r.Nowhere != 0 || s.Host.VMs[0].Counts.Marked != sent {
		t.Errorf("%d came back, %+v, %+v", marks, r, s.Host.VMs[0].Counts)
	}

	flow := m.Path(0).NewStreams(t, testnet.PeerIPv4(0), 1)
	of := func(source net.IP) *weirv1.PairMarks {
		return &weirv1.PairMarks{Pairs: []*weirv1.MarkedPair{{Source: addr(source).AsSlice(), Vm: 9, Packets: 40}}}
	}
	flow.Progress(t, 1e5)
	for from, marks := range map[*otherHost]*weirv1.PairMarks{h9: of(testnet.GuestIPv4(0)), h8: of(net.IPv4(10, 0, 77, 1))} {
		if err := from.SendMarks(agentName, marks); err != nil {
			t.Fatal(err)
		}
	}
	s = m.until("both are counted", func(s *agentd.Status) bool {
		return s.Host.Half.Returns.Strangers == 1 && s.Host.Half.Returns.Unknown == 40
	})
	if s.Host.Half.Granted != 0 {
		t.Errorf("they limit the VM: %+v", s.Host.Half)
	}
	if err := h8.SendMarks(agentName, of(testnet.GuestIPv4(0))); err != nil {
		t.Fatal(err)
	}
	m.until("the VM is in its class, at the least rate", func(s *agentd.Status) bool {
		flow.Progress(t, 1e4)
		c := s.Host.VMs[0].Counts
		return c != nil && c.InClass > 0 && c.Rate > 7e6 && c.Rate < 9e6
	})
}

// A file needs the other hosts, and agents return no bits.
func TestPairs_Refuses(t *testing.T) {
	name := hygenicc.Spec().Name
	peers := []agentd.Peer{{Agent: "h8", Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}}}
	for want, h := range map[string]agentd.Host{
		"":                   {Rate: 1e9, Laws: map[string]map[string]any{name: {}}, Peers: peers},
		"set host.peers":     {Rate: 1e9, Laws: map[string]map[string]any{name: {}}},
		"feedback: agents":   {Rate: 1e9, Laws: map[string]map[string]any{name: {"feedback": "evil_bit"}}, Peers: peers},
		"host.laws.hygenicc": {Rate: 1e9, Laws: map[string]map[string]any{name: {"period": "1us"}}, Peers: peers},
	} {
		err := (&agentd.Config{Host: &h}).CheckLaws(law.Specs{hygenicc.Spec()})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
}
