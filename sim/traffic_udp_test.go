package sim

import (
	"strings"
	"testing"

	"weir/law"
)

// udpShare returns the throughput of the UDP flow of a run of 2 s whose first NIC has this rate, in Mbit/s. 0: that of the file.
func udpShare(t *testing.T, text string, nic law.Rate) float64 {
	t.Helper()
	s, err := build(planned(t, text)[0])
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	if host, _ := s.net.Node("sender1"); nic > 0 {
		if err := s.net.HostPort(host).SetRate(nic, 0); err != nil {
			t.Fatal(err)
		}
	}
	s.begin()
	s.run(t.Context(), quiet{})
	for i := range s.traffic.results {
		if f := &s.traffic.results[i]; f.Group == "udp" {
			return float64(f.Bytes) * 8 / 2e6
		}
	}
	t.Fatal("there is no UDP flow")
	return 0
}

// A UDP sender shares its NIC with two TCP connections, of other VMs or of its own host. Their packets take no room in its socket, so it
// has a part of the NIC: formerly it had next to nothing.
func TestUDP_HasASocketOfItsOwn(t *testing.T) {
	const udp = "proto: udp, pattern: cbr, rate: 100Mbit, stop: 2s}"
	cubic := strings.NewReplacer("cc: reno", "cc: cubic", "senders: 4, receivers: 1, hypervisors: false",
		"senders: 1, receivers: 1, hypervisors: true, vms: 3, links: [{between: [receiver1, switch], rate: 180Mbit}]")
	vms := cubic.Replace(baseWith("{name: long, from: \"sender1.vm1..2\", to: receiver1.vm1, pattern: bulk, stop: 2s}",
		"{name: udp, from: sender1.vm3, to: receiver1.vm3, "+udp))
	within(t, "UDP of a VM, Mbit/s of 100", udpShare(t, vms, 0), 15, 60)
	host := baseWith("{name: long, from: sender1, to: receiver1, pattern: bulk, count: 2, stop: 2s}", "{name: udp, from: sender1, to: receiver1, "+udp)
	within(t, "UDP of a host, Mbit/s of 100", udpShare(t, host, 0), 15, 60)
	within(t, "UDP of a limited host, Mbit/s of 50", udpShare(t, host, 50e6), 7.5, 30)
}
