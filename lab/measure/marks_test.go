package measure

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"weir/datapath/attach"
	"weir/datapath/mark"
	"weir/datapath/testnet"
	"weir/experiment/result"
)

// Marks are the packets that arrived without CE and entered the queue with it: not those that arrived with CE, and
// not those that were marked and dropped.
func TestRecorder_Marks(t *testing.T) {
	for _, ipv6 := range []bool{false, true} {
		t.Run(fmt.Sprintf("ipv6=%t", ipv6), func(t *testing.T) {
			ip, counter := testnet.ReceiverIPv4, [2]string{"IpExt", "InCEPkts"}
			if ipv6 {
				ip, counter = testnet.ReceiverIPv6, [2]string{"", "Ip6InCEPkts"}
			}
			p := testnet.NewPath(t, testnet.PathOptions{PortBps: 20e6, Limit: 30_000})
			m, err := mark.Attach([]attach.PortRef{p.Port}, mark.Config{ThresholdBytes: 10_000})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			port := portOf(p.Port, p.Switch, true)
			r := start(t, port)
			w := watchDrops(t, port)
			notECT, ect0, ect1, ce := p.NewUDP(t, ip, 0), p.NewUDP(t, ip, 2), p.NewUDP(t, ip, 1), p.NewUDP(t, ip, 3)
			t0 := monotonic()
			for range 100 {
				for _, u := range []*testnet.UDP{notECT, ect0, ce, ect1} {
					u.Send(t, 3, 800)
				}
			}
			testnet.Quiet(t, p.Port)
			ports, drops, _ := finish(t, r, t0)
			marks := int(ports[0].Samples[len(ports[0].Samples)-1].Marks)
			cameWithCE := ce.Arrived(t, 1)
			want := int(p.Receiver.SNMP(t, counter[0], counter[1])) - cameWithCE
			// A drop without an event may have been that of a marked packet.
			_, keyless := count(drops)
			allRecorded(t, r, w)
			if marks < want || marks > want+keyless || want == 0 || cameWithCE == 0 {
				t.Errorf("%d marks; %d more CE packets arrived than came (%d)", marks, want, cameWithCE)
			}
			s, err := m.Stats()
			if err != nil {
				t.Fatal(err)
			}
			if len(drops) == 0 || int(s[0].Marked) <= marks {
				t.Errorf("%d drops, %d marked by the law, %d of them left: the test wants some marked and dropped", len(drops), s[0].Marked, marks)
			}
		})
	}
}

// Without drops, marks are the law's own count, including super-packets.
func TestRecorder_MarksAreTheLaws(t *testing.T) {
	for _, gso := range []bool{false, true} {
		t.Run(fmt.Sprintf("gso=%t", gso), func(t *testing.T) {
			p := testnet.NewPath(t, testnet.PathOptions{PortBps: 50e6, Limit: 10_000_000, UplinkBps: 60e6, Burst: 64_000, GSO: gso, ChecksumOffload: gso})
			p.Sender.Sysctl(t, "net.ipv4.tcp_ecn", "1")
			p.Receiver.Sysctl(t, "net.ipv4.tcp_ecn", "1")
			m, err := mark.Attach([]attach.PortRef{p.Port, p.Uplink}, mark.Config{ThresholdBytes: 15_000})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			r := start(t, portOf(p.Port, p.Switch, true), portOf(p.Uplink, p.Sender, true))
			t0 := monotonic()
			p.Transfer(t, testnet.ReceiverIPv4, "reno", 4, 500_000)
			testnet.Quiet(t, p.Uplink, p.Port)
			ports, drops, _ := finish(t, r, t0)
			s, err := m.Stats()
			if err != nil {
				t.Fatal(err)
			}
			for i := range ports {
				marks := ports[i].Samples[len(ports[i].Samples)-1].Marks
				if marks != s[i].Marked || marks == 0 {
					t.Errorf("%s: %d marks, the law counted %d", ports[i].Name, marks, s[i].Marked)
				}
			}
			if len(drops) != 0 {
				t.Errorf("%d drops", len(drops))
			}
		})
	}
}

// A packet that a law drops is a drop of the port, with that reason; a port that is not sampled has its drops too.
func TestRecorder_LawDrops(t *testing.T) {
	p := testnet.NewPath(t, testnet.PathOptions{PortBps: 50e6, Limit: 1_000_000, NoIPv6: true})
	m, err := mark.Attach([]attach.PortRef{p.Port}, mark.Config{ThresholdBytes: 15_000, Action: mark.ActionDrop})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	r := start(t, portOf(p.Port, p.Switch, false))
	t0 := monotonic()
	p.Transfer(t, testnet.ReceiverIPv4, "reno", 2, 300_000)
	testnet.Quiet(t, p.Port)
	ports, drops, _ := finish(t, r, t0)
	s, err := m.Stats()
	if err != nil {
		t.Fatal(err)
	}
	// No counter of the kernel includes drops by a law that no event reported.
	law := int(s[0].DroppedByLaw)
	if len(drops) > law || len(drops)*10 < law*9 || law == 0 || ports[0].Samples != nil {
		t.Errorf("%d drops, the law counted %d; %d samples", len(drops), law, len(ports[0].Samples))
	}
	for _, d := range drops {
		if d.Reason != ReasonLaw || d.Key.Proto != unix.IPPROTO_TCP {
			t.Fatalf("drop %+v", d)
		}
	}
}

// A dropped packet of neither TCP nor UDP has no key, but its bytes: here IGMP, as bridges and hosts send it.
func TestRecorder_OtherProtocols(t *testing.T) {
	p := testnet.NewPath(t, testnet.PathOptions{PortBps: 1e4, Limit: 1_000_000, NoIPv6: true})
	u := p.NewUDP(t, testnet.ReceiverIPv4, 0)
	warm(t, u)
	u.Send(t, 50, 1000) // 40 s of queue; the socket has no room for more
	testnet.Until(t, "the queue is far over the threshold", func() bool { return testnet.Queue(t, p.Port).BacklogBytes > 40_000 })
	m, err := mark.Attach([]attach.PortRef{p.Port}, mark.Config{ThresholdBytes: 5_000, Action: mark.ActionDrop})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	r := start(t, portOf(p.Port, p.Switch, false))
	t0 := monotonic()
	report, err := hex.DecodeString("01005e000016" + "020000000001" + "0800" +
		"46c00028000040000102" + "03fa00000000e0000016" + "94040000" + // IPv4 with router alert
		"2200f9930000000104000000e000006a") // IGMPv3: joins 224.0.0.106
	if err != nil {
		t.Fatal(err)
	}
	raw := testnet.NewRaw(t, p.Uplink)
	for range 10 {
		raw.Send(t, report)
		u.Send(t, 1, 1000)
	}
	testnet.Until(t, "all have come to the port", func() bool {
		s, err := m.Stats()
		return err == nil && s[0].DroppedByLaw >= 20
	})
	_, drops, _ := finish(t, r, t0)
	reports := 0
	for _, d := range drops {
		if d.Reason != ReasonLaw || (d.Key == result.Key{}) != (d.Bytes == len(report)) {
			t.Errorf("drop %+v", d)
		}
		if d.Bytes == len(report) {
			reports++
		}
	}
	if reports == 0 || reports == len(drops) {
		t.Errorf("%d drops, %d of them IGMP reports: the test wants both", len(drops), reports)
	}
}

// A law that is attached after the recorder runs before it: this is reported, not measured wrongly.
func TestStop_LawInFront(t *testing.T) {
	p := testnet.NewPath(t, testnet.PathOptions{PortBps: 20e6, Limit: 20_000})
	r, err := Start([]Port{portOf(p.Port, p.Switch, true)})
	if err != nil {
		t.Fatal(err)
	}
	m, err := mark.Attach([]attach.PortRef{p.Port}, mark.Config{ThresholdBytes: 10_000})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := r.Stop(); err == nil || !strings.Contains(err.Error(), p.Port.Name) {
		t.Errorf("error %v", err)
	}
}
