package forward

import (
	"bytes"
	"testing"
	"time"

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
