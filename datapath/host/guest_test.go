package host_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"weir/datapath/attach"
	"weir/datapath/host"
	"weir/datapath/internal/bpftest"
	"weir/datapath/internal/frames"
	"weir/datapath/testnet"
	"weir/law"
)

// arp builds an ARP request.
func arp(l frames.Link, mac [6]byte, ip netip.Addr) []byte {
	b := append(append([]byte{}, l.Dst[:]...), l.Src[:]...)
	b = append(b, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1)
	b = append(append(b, mac[:]...), ip.AsSlice()...)
	return append(b, make([]byte, 10)...)
}

// typed builds a frame of any EtherType.
func typed(l frames.Link, ethertype uint16) []byte {
	b := append(append([]byte{}, l.Dst[:]...), l.Src[:]...)
	for _, tag := range l.Tags {
		b = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(b, tag.TPID), tag.TCI)
	}
	return append(binary.BigEndian.AppendUint16(b, ethertype), make([]byte, 50)...)
}

type guestRow struct {
	name string
	in   []byte
	want host.Stats
}

// guestRows are packets that VM 1 sends.
func guestRows() []guestRow {
	mine, spoofed := frames.Link{Dst: peerMAC, Src: vmMAC}, frames.Link{Dst: peerMAC, Src: otherMAC}
	tagged := frames.Link{Dst: peerMAC, Src: vmMAC, Tags: []frames.Tag{{TPID: frames.TypeQinQ, TCI: 1}, {TPID: frames.TypeVLAN, TCI: 2}}}
	three := tagged
	three.Tags = append(three.Tags, frames.Tag{TPID: frames.TypeVLAN, TCI: 3})
	v4, v6 := frames.IP{From: vmIPv4, To: peerIPv4}, frames.IP{From: vmIPv6, To: peerIPv6}
	false4, false6 := frames.IP{From: otherIPv4, To: peerIPv4}, frames.IP{From: otherIPv6, To: peerIPv6}
	later := frames.IP{From: vmIPv4, To: peerIPv4, Fragment: 9}
	extended := v6
	extended.Extensions = []frames.Extension{{Kind: frames.HopByHop}, {Kind: frames.ToHost}}
	longest, hidden := v6, v6
	for range 6 {
		longest.Extensions = append(longest.Extensions, frames.Extension{Kind: frames.ToHost})
	}
	for range 7 {
		hidden.Extensions = append(hidden.Extensions, frames.Extension{Kind: frames.ToHost})
	}
	data := make([]byte, 40)
	headless := frames.Packet(tagged, v4, frames.UDP, data)[:14+8+19] // a test run refuses an untagged one
	passes := host.Stats{Relaxed: 1}
	mac, ip := host.Stats{SpoofedMAC: 1}, host.Stats{SpoofedIP: 1}
	control, malformed := host.Stats{Control: 1}, host.Stats{Malformed: 1}
	return append(bareRows(), []guestRow{
		{"UDP", frames.Packet(mine, v4, frames.UDP, data), passes},
		{"UDP, IPv6", frames.Packet(mine, v6, frames.UDP, data), passes},
		{"UDP, tagged", frames.Packet(tagged, v4, frames.UDP, data), passes},
		{"UDP, IPv6, extension headers", frames.Packet(mine, extended, frames.UDP, data), passes},
		{"UDP, IPv6, six extension headers", frames.Packet(mine, longest, frames.UDP, data), passes},
		{"a later fragment", frames.Packet(mine, later, frames.UDP, data), passes},
		{"ARP", arp(mine, vmMAC, vmIPv4), passes},
		{"ARP probe", arp(mine, vmMAC, netip.MustParseAddr("0.0.0.0")), passes},
		{"another EtherType", typed(mine, 0x88cc), passes},
		{"next to the control protocols", typed(mine, 0x7a10), passes},

		{"MAC", frames.Packet(spoofed, v4, frames.UDP, data), mac},
		{"MAC, another EtherType", typed(spoofed, 0x88cc), mac},
		{"IPv4", frames.Packet(mine, false4, frames.UDP, data), ip},
		{"IPv6", frames.Packet(mine, false6, frames.UDP, data), ip},
		{"IPv4, tagged", frames.Packet(tagged, false4, frames.UDP, data), ip},
		{"ARP: sender's MAC", arp(mine, otherMAC, vmIPv4), mac},
		{"ARP: sender's IP", arp(mine, vmMAC, otherIPv4), ip},

		{"first EtherType", typed(mine, 0x7a00), control},
		{"last EtherType", typed(mine, 0x7a0f), control},
		{"EtherType, tagged", typed(tagged, 0x7a03), control},
		{"EtherType, from another MAC", typed(spoofed, 0x7a03), control},
		{"protocol", frames.Packet(mine, v4, 143, data), control},
		{"protocol, IPv6", frames.Packet(mine, v6, 143, data), control},
		{"protocol, IPv6, extension headers", frames.Packet(mine, extended, 143, data), control},
		{"protocol, IPv6, six extension headers", frames.Packet(mine, longest, 143, data), control},
		{"protocol, a later fragment", frames.Packet(mine, later, 143, data), control},

		{"no header", headless, malformed},
		{"a long chain of extension headers", frames.Packet(mine, hidden, 143, data), malformed},
		{"three tags", typed(three, frames.TypeIPv4), malformed},
		{"ARP of another kind", typed(mine, 0x0806), malformed},
	}...)
}

// bareRows are packets that VM 1 sends from the unspecified address. Nobody is accountable for them.
func bareRows() (rows []guestRow) {
	mine, passes, spoofed := frames.Link{Dst: peerMAC, Src: vmMAC}, host.Stats{Relaxed: 1}, host.Stats{SpoofedIP: 1}
	all4, all6, solicited := netip.MustParseAddr("255.255.255.255"), netip.MustParseAddr("ff02::16"), netip.MustParseAddr("ff02::1:ff00:1")
	row := func(name string, ip frames.IP, protocol byte, head []byte, want host.Stats) {
		ip.From = netip.IPv4Unspecified()
		if ip.To.Is6() {
			ip.From = netip.IPv6Unspecified()
		}
		rows = append(rows, guestRow{"from the unspecified address: " + name, frames.Packet(mine, ip, protocol, append(head, make([]byte, 40)...)), want})
	}
	udp := func(from, to uint16) []byte {
		return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, from), to)
	}
	row("DHCP", frames.IP{To: all4, TOS: 0x10}, frames.UDP, udp(68, 67), passes)
	row("DHCP to a host", frames.IP{To: peerIPv4}, frames.UDP, udp(68, 67), spoofed)
	row("DHCP with ECN", frames.IP{To: all4, TOS: 2}, frames.UDP, udp(68, 67), spoofed)
	row("DHCP, first fragment", frames.IP{To: all4, Fragment: 0x2000}, frames.UDP, udp(68, 67), spoofed)
	row("DHCP, later fragment", frames.IP{To: all4, Fragment: 9}, frames.UDP, udp(68, 67), spoofed)
	row("UDP to another port", frames.IP{To: all4}, frames.UDP, udp(68, 9), spoofed)
	row("UDP from another port", frames.IP{To: all4}, frames.UDP, udp(9, 67), spoofed)
	row("TCP", frames.IP{To: peerIPv4}, frames.TCP, udp(68, 67), spoofed)
	router := []frames.Extension{{Kind: frames.HopByHop}}
	for _, kind := range []byte{131, 132, 133, 135, 143} {
		row("ICMPv6 "+fmt.Sprint(kind), frames.IP{To: all6, Extensions: router}, 58, []byte{kind}, passes)
		row("ICMPv6 to a host "+fmt.Sprint(kind), frames.IP{To: peerIPv6}, 58, []byte{kind}, spoofed)
	}
	row("duplicate address detection", frames.IP{To: solicited}, 58, []byte{135}, passes)
	row("duplicate address detection with ECN", frames.IP{To: solicited, TOS: 1}, 58, []byte{135}, spoofed)
	row("duplicate address detection in a fragment", frames.IP{To: solicited, Extensions: []frames.Extension{{Kind: frames.Fragment}}}, 58, []byte{135}, spoofed)
	row("echo request", frames.IP{To: all6}, 58, []byte{128}, spoofed)
	row("neighbour advertisement", frames.IP{To: all6}, 58, []byte{136}, spoofed)
	row("DHCPv6", frames.IP{To: netip.MustParseAddr("ff02::1:2")}, frames.UDP, udp(546, 547), spoofed)
	row("UDP, IPv6", frames.IP{To: peerIPv6}, frames.UDP, udp(68, 67), spoofed)
	return rows
}

// Packets that a VM may not send are dropped and counted, at the uplink and at the port of another VM. All others pass
// unchanged.
func TestGuest_Table(t *testing.T) {
	r := newRig(t, host.Config{})
	for _, row := range guestRows() {
		for _, p := range []placed{r.up, r.toVM2} {
			verdict, out, _ := run(t, p, row.in, r.vm1, 0)
			want := uint32(bpftest.TCXDrop)
			if row.want.Relaxed == 1 {
				want = bpftest.TCXNext
			}
			w := row.want
			w.Sent = 1
			if p.at.Name == r.vm2.Name {
				w.Local, w.Relaxed = w.Relaxed, 0
			}
			if c := r.counted(t); c != w || verdict != want || !bytes.Equal(out, row.in) {
				t.Errorf("%s at %s: returned %d, counted %+v, want %+v", row.name, p.at.Name, int32(verdict), c, w)
			}
		}
		// From the network and from the host itself everything passes.
		for _, from := range []attach.PortRef{r.uplink, {}} {
			if verdict, _, _, err := try(r.up, row.in, from, 0); err == nil && verdict != bpftest.TCXNext {
				t.Errorf("%s from %q: returned %d", row.name, from.Name, int32(verdict))
			}
		}
		r.counted(t)
	}
	// A range: VM 2 has 10.0.0.2 and .3.
	for last, want := range map[byte]uint32{1: bpftest.TCXDrop, 2: bpftest.TCXNext, 3: bpftest.TCXNext, 4: bpftest.TCXDrop} {
		in := frames.Packet(frames.Link{Dst: peerMAC, Src: otherMAC}, frames.IP{From: netip.AddrFrom4([4]byte{10, 0, 0, last}), To: peerIPv4}, frames.UDP, make([]byte, 40))
		if verdict, _, _ := run(t, r.up, in, r.vm2, 0); verdict != want {
			t.Errorf("10.0.0.%d of VM 2: returned %d", last, int32(verdict))
		}
	}
}

// A VM is active by what it sends by the uplink and what passes. A flood of packets that are dropped, or to another VM of the host, does
// not make it active.
func TestSent_CountsWhatPasses(t *testing.T) {
	r := newRig(t, host.Config{Rate: 1e9})
	sent := func() uint64 {
		all := map[law.VM]uint64{}
		if err := r.Sent(all); err != nil {
			t.Fatal(err)
		}
		return all[1]
	}
	passed := uint64(0)
	for _, row := range guestRows() {
		run(t, r.up, row.in, r.vm1, 0)
		run(t, r.toVM2, row.in, r.vm1, 0)
		if passed += row.want.Relaxed; sent() != passed {
			t.Fatalf("%s: %d packets, want %d", row.name, sent(), passed)
		}
	}
	if err := r.Heartbeat(1); err != nil {
		t.Fatal(err)
	}
	set(t, r.Host, law.Grant{Owner: 1, Kind: law.RateGrant, Key: law.Key{Pair: law.Pair{VM: 1}}, Value: 50e6, Lease: time.Minute})
	in := frames.Packet(frames.Link{Dst: peerMAC, Src: vmMAC}, frames.IP{From: vmIPv4, To: peerIPv4}, frames.UDP, make([]byte, 40))
	if run(t, r.up, in, r.vm1, 0); sent() != passed+1 {
		t.Errorf("in its class: %d packets, want %d", sent(), passed+1)
	}
}

// A range of IPv6 that covers the IPv4-mapped addresses would let the VM send from any IPv4 address: AddVM refuses it.
func TestAddVM_Ranges(t *testing.T) {
	r := newRig(t, host.Config{})
	for text, refused := range map[string]bool{"::/0": true, "::/80": true, "::ffff:0:0/95": true, "::/96": false, "2000::/3": false, "0.0.0.0/0": false} {
		v := host.VM{Number: 1, Port: r.vm1, MAC: vmMAC[:], Addresses: []netip.Prefix{netip.MustParsePrefix(text)}}
		if err := r.AddVM(v); (err != nil) != refused {
			t.Errorf("%s: error %v", text, err)
		}
		in := frames.Packet(frames.Link{Dst: peerMAC, Src: vmMAC}, frames.IP{From: otherIPv4, To: peerIPv4}, frames.UDP, make([]byte, 40))
		want := uint32(bpftest.TCXDrop)
		if text == "0.0.0.0/0" {
			want = bpftest.TCXNext
		}
		if verdict, _, _ := run(t, r.up, in, r.vm1, 0); !refused && verdict != want {
			t.Errorf("%s: a packet from %v: returned %d", text, otherIPv4, int32(verdict))
		}
	}
}

// A packet takes its VM's limited class while a rate is granted, and the relaxed class otherwise. The priority
// that a packet came with has no effect.
func TestUplink_Class(t *testing.T) {
	const relaxed, class = 0x57480002, 0x57480010
	r := newRig(t, host.Config{Rate: 1e9})
	if err := r.Heartbeat(1); err != nil {
		t.Fatal(err)
	}
	in := frames.Packet(frames.Link{Dst: peerMAC, Src: vmMAC}, frames.IP{From: vmIPv4, To: peerIPv4}, frames.UDP, make([]byte, 40))
	expect := func(when string, want uint32, why host.Stats) {
		t.Helper()
		why.Sent = 1
		if _, _, priority := run(t, r.up, in, r.vm1, 0); priority != want {
			t.Errorf("%s: priority %#x, want %#x", when, priority, want)
		}
		if c := r.counted(t); c != why {
			t.Errorf("%s: counted %+v, want %+v", when, c, why)
		}
	}
	rate := law.Grant{Owner: 1, Kind: law.RateGrant, Key: law.Key{Pair: law.Pair{VM: 1}}, Value: 50e6, Lease: time.Minute}
	expect("without a grant", relaxed, host.Stats{Relaxed: 1})
	set(t, r.Host, rate)
	expect("granted", class, host.Stats{InClass: 1})
	rate.Lease = 0
	set(t, r.Host, rate)
	expires := func(what string) { // the programs' clock is as coarse as the kernel's tick
		t.Helper()
		testnet.Until(t, what, func() bool {
			_, _, priority := run(t, r.up, in, r.vm1, 0)
			return priority == relaxed
		})
		r.counted(t)
	}
	expires("the lease is over")
	expect("the lease is over", relaxed, host.Stats{Relaxed: 1})
	rate.Lease = time.Minute
	set(t, r.Host, rate)
	expect("granted again", class, host.Stats{InClass: 1})
	if err := r.Leave(1); err != nil {
		t.Fatal(err)
	}
	expires("the owner has left")
	expect("the owner has left", relaxed, host.Stats{Relaxed: 1})
	other := frames.Packet(frames.Link{Dst: peerMAC, Src: otherMAC}, frames.IP{From: otherIPv4, To: peerIPv4}, frames.UDP, make([]byte, 40))
	if _, _, priority := run(t, r.up, other, r.vm2, 0); priority != relaxed {
		t.Errorf("VM 2: priority %#x", priority)
	}
	if _, _, priority := run(t, r.up, other, attach.PortRef{}, 0); priority != 0 {
		t.Errorf("the host's own packet: priority %#x", priority)
	}
}
