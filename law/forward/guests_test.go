package forward

import (
	"bytes"
	"testing"
	"time"

	"weir/law"
	"weir/law/fabric"
	"weir/law/fabric/modelnet"
)

// oneSwitch has a host at each port of one switch.
func oneSwitch(t *testing.T, hosts int) *network {
	t.Helper()
	n := newNetwork(t, testConfig())
	n.AddSwitch(1, hosts)
	for p := 1; p <= hosts; p++ {
		n.addHost(at(1, p))
	}
	n.connectAll()
	must(t, n.Run(2*time.Second))
	return n
}

// asks has a host ask for an address, and returns what all hosts receive.
func (n *network) asks(t *testing.T, host int, asked fabric.IPv4) map[fabric.MAC][][]byte {
	t.Helper()
	clear(n.Received)
	n.Send(hostMAC(host), modelnet.ARP(hostMAC(host), hostIP(host), fabric.Broadcast, asked))
	must(t, n.Settle())
	return n.Received
}

// A host that sends packets from the address of another does not get its traffic: the controller answers requests with the host
// that named the address in ARP.
func TestAddressStaysWithItsHost(t *testing.T) {
	n := oneSwitch(t, 3)
	n.asks(t, 1, hostIP(99))
	forged := fabric.Tuple{Proto: 6, Src: hostIP(1), Dst: hostIP(3), SrcPort: 1000, DstPort: 80}
	n.Send(hostMAC(2), modelnet.TCP(hostMAC(2), hostMAC(3), forged, 2))
	must(t, n.Settle())
	want := modelnet.ARP(hostMAC(1), hostIP(1), hostMAC(3), hostIP(3))
	got := n.asks(t, 3, hostIP(1))
	if len(got) != 1 || len(got[hostMAC(3)]) != 1 || !bytes.HasPrefix(got[hostMAC(3)][0], want) {
		t.Errorf("arrived: %x, want %x", got, want)
	}
	// ARP moves it.
	n.Send(hostMAC(2), modelnet.ARP(hostMAC(2), hostIP(1), fabric.Broadcast, hostIP(1)))
	must(t, n.Settle())
	want = modelnet.ARP(hostMAC(2), hostIP(1), hostMAC(3), hostIP(3))
	if got := n.asks(t, 3, hostIP(1)); len(got[hostMAC(3)]) != 1 || !bytes.HasPrefix(got[hostMAC(3)][0], want) {
		t.Errorf("after it moved arrived: %x, want %x", got, want)
	}
	if s := n.law.Status(); len(s.Hosts[0].Addresses) != 0 || len(s.Hosts[1].Addresses) != 1 {
		t.Errorf("addresses %v and %v", s.Hosts[0].Addresses, s.Hosts[1].Addresses)
	}
}

// The source of a packet is an address for pins while no host named it. A request for it goes to all hosts, and is not answered.
func TestAddressOfAPacketIsNotAnswered(t *testing.T) {
	n := oneSwitch(t, 3)
	// A router forwards packets of more addresses than a host may have. Its own address has room.
	for i := range 20 {
		from := fabric.Tuple{Proto: 6, Src: fabric.IPv4{192, 0, 2, byte(i)}, Dst: hostIP(1), SrcPort: 1000, DstPort: 80}
		n.Send(hostMAC(2), modelnet.TCP(hostMAC(2), hostMAC(1), from, 2))
	}
	must(t, n.Settle())
	got := n.asks(t, 3, fabric.IPv4{192, 0, 2, 0})
	if len(got) != 2 || len(got[hostMAC(1)]) != 1 || len(got[hostMAC(2)]) != 1 {
		t.Errorf("arrived: %x", got)
	}
	pin := fabric.PinAsked{Tuple: fabric.Tuple{Proto: 6, Src: fabric.IPv4{192, 0, 2, 7}, Dst: hostIP(3), SrcPort: 1, DstPort: 2}, IdleSeconds: 1}
	if err := n.law.CanPin(&pin); err != nil {
		t.Error(err)
	}
	n.asks(t, 2, hostIP(99))
	want := modelnet.ARP(hostMAC(2), hostIP(2), hostMAC(1), hostIP(1))
	if got := n.asks(t, 1, hostIP(2)); len(got) != 1 || !bytes.HasPrefix(got[hostMAC(1)][0], want) {
		t.Errorf("arrived: %x, want %x", got, want)
	}
	if most := n.law.cfg.AddressesPerHost; len(n.law.hosts[hostMAC(2)].addresses) != most || len(n.law.owners) > most+2 {
		t.Errorf("%d addresses, %d owners", len(n.law.hosts[hostMAC(2)].addresses), len(n.law.owners))
	}
}

// A broadcast ARP frame in a VLAN matches the flow for ARP, which looks behind the tag. It goes to all other hosts with its tag. Its
// addresses are not those of untagged hosts.
func TestTaggedARPIsFlooded(t *testing.T) {
	n := oneSwitch(t, 3)
	n.asks(t, 2, hostIP(99))
	clear(n.Received)
	frame := modelnet.Tagged(7, modelnet.ARP(hostMAC(1), hostIP(1), fabric.Broadcast, hostIP(2)))
	n.Send(hostMAC(1), frame)
	if e, is := n.Events[0].(*fabric.PacketIn); !is || e.Kind != fabric.ARP {
		t.Fatalf("the scenario does not occur: %+v", n.Events)
	}
	must(t, n.Settle())
	for i := 2; i <= 3; i++ {
		if got := n.Received[hostMAC(i)]; len(got) != 1 || !bytes.Equal(got[0], frame) {
			t.Errorf("host %d received %x, want %x", i, got, frame)
		}
	}
	if len(n.Received[hostMAC(1)]) != 0 || len(n.law.hosts[hostMAC(1)].addresses) != 0 {
		t.Errorf("answered with %x, addresses %v", n.Received[hostMAC(1)], n.law.hosts[hostMAC(1)].addresses)
	}
}

// meterOf returns the meter of the copies that a switch makes of a frame in its first table.
func (n *network) meterOf(at law.Port, frame []byte) uint32 {
	var best fabric.Flow
	for _, f := range n.Switches[at.Switch].Flows {
		if f.Table == tableEntry && f.Priority >= best.Priority && modelnet.Matches(f.Match, at.N, frame) {
			best = f
		}
	}
	return best.Do.Meter
}

// LLDP frames of guests do not use the meter of the probes that keep links up: neither while their ports are new, nor later. A port that
// was part of a link keeps its meter until the port has hosts, also when its switch joins without any flow.
func TestProbesOfLinksHaveTheirMeter(t *testing.T) {
	n := leafSpine(t, 2, 1, 1)
	lldp := makeProbe([]byte("a key of a guest"), at(7, 7), fabric.MAC{2}, 1)
	guest, uplink := at(1, 1), at(1, 2)
	check := func(when string) {
		t.Helper()
		if of, guests := n.meterOf(uplink, lldp), n.meterOf(guest, lldp); guests == 0 || of == 0 || of == guests {
			t.Errorf("%s: meter %#x of the link, %#x of the guest", when, of, guests)
		}
	}
	n.begin(t)
	check("link found")
	n.SetLink(uplink, false)
	must(t, n.Settle())
	check("link cut")
	n.SetLink(uplink, true)
	must(t, n.Run(time.Second))
	check("link restored")
	n.Restart(1)
	must(t, n.Settle())
	n.Connect(1)
	must(t, n.Settle())
	check("switch emptied")
	must(t, n.Run(time.Second))
	n.beginAgain(t)
	n.connectAll()
	must(t, n.Settle())
	check("controller begins again")
	// Without its cable the port gets hosts after a time.
	must(t, n.Run(time.Second))
	n.Lossy[uplink], n.Lossy[at(101, 1)] = true, true
	n.SetLink(uplink, false)
	must(t, n.Settle())
	n.SetLink(uplink, true)
	must(t, n.Run(n.law.settleTime(&port{was: 1})+2*tick))
	if of := n.meterOf(uplink, lldp); n.law.port(uplink).role != edge || of != meterProbe {
		t.Errorf("role %v, meter %#x", n.law.port(uplink).role, of)
	}
}

// The machine of a switch, behind the switch's own port, is a host like others. A port without a usable number is none.
func TestOwnPortIsOneOfAHost(t *testing.T) {
	n := newNetwork(t, testConfig())
	n.AddSwitch(1, 2)
	n.Switches[1].Ports[fabric.PortLocal] = true
	n.addHost(at(1, 1))
	n.addHost(law.Port{Switch: 1, N: fabric.PortLocal})
	n.connectAll()
	n.begin(t)
	must(t, n.pairs())
	down := fabric.PortInfo{Port: fabric.PortLocal}
	for _, info := range []fabric.PortInfo{down, {Port: fabric.PortMax + 1, Up: true}, {Port: 0xffffffff, Up: true}, {Port: 0, Up: true}} {
		n.Events = append(n.Events, &fabric.PortChanged{Switch: 1, Port: info})
	}
	must(t, n.Settle())
	if p := n.law.switches[1].ports; len(p) != 3 || p[fabric.PortLocal].Up {
		t.Errorf("%d ports, own port %+v", len(p), p[fabric.PortLocal])
	}
}

// Frames to the next bridge, as of STP and LACP, do not reach other hosts (IEEE 802.1Q, 8.6.3). Other group addresses do.
func TestLinkLocalIsNotForwarded(t *testing.T) {
	n := oneSwitch(t, 2)
	for last, want := range map[byte]int{0x00: 0, 0x02: 0, 0x0f: 0, 0x10: 1, 0x20: 1} {
		clear(n.Received)
		n.Send(hostMAC(1), modelnet.Ethernet(hostMAC(1), fabric.MAC{0x01, 0x80, 0xc2, 0, 0, last}))
		must(t, n.Settle())
		if got := len(n.Received[hostMAC(2)]); got != want {
			t.Errorf("01:80:c2:00:00:%02x: %d arrived, want %d", last, got, want)
		}
	}
	if got := n.law.counts.LinkLocal; got != 3 {
		t.Errorf("%d counted, want 3", got)
	}
}
