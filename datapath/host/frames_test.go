package host_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"weir/datapath/host"
	"weir/datapath/internal/bpftest"
	"weir/datapath/internal/frames"
	"weir/law"
)

var scale7 = frames.List(1, frames.MSS(1448), frames.Scale(7))

func withMD5(options ...[]byte) []byte {
	return frames.List(1, append(options, frames.Option(19, make([]byte, 16)...))...)
}

func addrPort(a netip.Addr, port uint16) netip.AddrPort { return netip.AddrPortFrom(a, port) }

// towards sends ACKs of a talk to the VM, and checks the window that leaves, every other byte, and the counter.
func (r *rig) towards(t *testing.T, k *talk, flags byte, window, want uint16, why host.Stats) {
	t.Helper()
	for _, x := range []struct {
		payload int
		flags   uint32
	}{{0, 0}, {0, bpftest.ChecksumComplete}, {1, 0}, {700, bpftest.ChecksumComplete}} {
		list := frames.List(1, frames.Timestamps(1, 2))
		in, out := k.segment(true, flags, window, list, x.payload).Bytes(), k.segment(true, flags, want, list, x.payload).Bytes()
		verdict, got, _ := run(t, r.toVM, in, r.uplink, x.flags)
		if verdict != bpftest.TCXNext || !bytes.Equal(got, out) {
			t.Errorf("%s, window %d: returned %d\n in   %x\n out  %x\n want %x", k.name, window, int32(verdict), in, got, out)
		}
		why.Seen = 1
		if c := r.counted(t); c != why {
			t.Errorf("%s, window %d: counted %+v, want %+v", k.name, window, c, why)
		}
	}
}

var (
	ungranted = host.Stats{Ungranted: 1}
	limited   = host.Stats{Limited: 1}
	smaller   = host.Stats{Smaller: 1}
	unknown   = host.Stats{Unknown: 1}
	signed    = host.Stats{Signed: 1}
	noAck     = host.Stats{NoAck: 1}
)

func flowOf(k *talk) law.Flow {
	s := k.segment(false, frames.ACK, 0, nil, 0)
	return law.Flow{Src: addrPort(s.From, s.FromPort), Dst: addrPort(s.To, s.ToPort), Proto: 6}
}

// Every path of the program towards a VM has a row, for both IP versions, tags, and both ends opening.
func TestClamp_Table(t *testing.T) {
	r := newRig(t, host.Config{})
	port := uint16(1000)
	for _, k := range []talk{
		{name: "IPv4"}, {name: "IPv6", ipv6: true}, {name: "tagged", tags: []frames.Tag{{TPID: frames.TypeVLAN, TCI: 5}}},
		{name: "two tags, IPv6", ipv6: true, tags: []frames.Tag{{TPID: frames.TypeQinQ, TCI: 5}, {TPID: frames.TypeVLAN, TCI: 6}}}, {name: "the peer opens", peerOpens: true},
	} {
		port++
		k.vmPort, k.vmSYN, k.peerTo = port, scale7, frames.List(1, frames.MSS(1448), frames.Scale(7))
		f := flowOf(&k)
		peer := f.Dst.Addr()
		r.towards(t, &k, frames.ACK, 60000, 60000, ungranted)
		if err := r.Heartbeat(1); err != nil {
			t.Fatal(err)
		}
		set(t, r.Host, window(peer, 20000))
		r.towards(t, &k, frames.ACK, 60000, 60000, unknown) // its handshake was not seen
		r.shake(t, &k)
		r.towards(t, &k, frames.ACK, 60000, 157, limited) // ceil(20000 / 128)
		r.towards(t, &k, frames.ACK, 157, 157, smaller)
		r.towards(t, &k, frames.ACK, 0, 0, smaller)
		r.towards(t, &k, frames.ACK|frames.FIN, 60000, 157, limited)
		r.towards(t, &k, frames.ACK|frames.RST, 60000, 60000, noAck)
		r.towards(t, &k, frames.PSH, 60000, 60000, noAck)
		set(t, r.Host, law.Grant{Owner: 1, Key: law.Key{Flow: f, Pair: law.Pair{VM: 1}}, Value: 10000, Lease: time.Minute})
		r.towards(t, &k, frames.ACK, 60000, 79, limited) // the flow's is smaller
		set(t, r.Host, law.Grant{Owner: 1, Key: law.Key{Pair: law.Pair{VM: 1}}, Value: 5000, Lease: time.Minute})
		r.towards(t, &k, frames.ACK, 60000, 40, limited) // the VM's is smaller still
		set(t, r.Host, law.Grant{Owner: 1, Key: law.Key{Flow: f, Pair: law.Pair{VM: 1}}, Value: 1, Lease: time.Minute})
		r.towards(t, &k, frames.ACK, 60000, 12, limited) // a segment (1448) and a byte
		set(t, r.Host, law.Grant{Owner: 1, Kind: law.PauseGrant, Key: law.Key{Pair: law.Pair{VM: 1, Peer: peer}}, Lease: time.Minute})
		r.towards(t, &k, frames.ACK, 60000, 12, limited) // a pause is no window of 0
		if err := r.Leave(1); err != nil {
			t.Fatal(err)
		}
		if err := r.Heartbeat(2); err != nil { // owner 1 is silent: Heartbeat removes what it granted
			t.Fatal(err)
		}
		if err := r.Heartbeat(1); err != nil {
			t.Fatal(err)
		}
		r.towards(t, &k, frames.ACK, 60000, 60000, ungranted)
		if all, err := r.Grants(0); err != nil || len(all) != 0 {
			t.Errorf("grants that are left: %+v, %v", all, err)
		}
	}
}

func (r *rig) grantVM(t testing.TB, bytes uint64) {
	t.Helper()
	if err := r.Heartbeat(1); err != nil {
		t.Fatal(err)
	}
	set(t, r.Host, law.Grant{Owner: 1, Key: law.Key{Pair: law.Pair{VM: 1}}, Value: bytes, Lease: time.Minute})
}

// A connection is signed if both SYNs are; of any other an end ignores the option, and it is limited.
func TestClamp_Signed(t *testing.T) {
	r := newRig(t, host.Config{})
	r.grantVM(t, 5000)
	for i, x := range []struct {
		vm, peer []byte
		want     host.Stats
		field    uint16
	}{
		{withMD5(frames.MSS(1448)), withMD5(frames.MSS(1448)), signed, 60000},
		{withMD5(frames.MSS(1448)), frames.List(1, frames.MSS(1448)), limited, 5000},
		{frames.List(1, frames.MSS(1448)), withMD5(frames.MSS(1448)), limited, 5000},
	} {
		k := talk{name: "signed", vmPort: uint16(2000 + i), vmSYN: x.vm, peerTo: x.peer}
		r.shake(t, &k)
		in := k.segment(true, frames.ACK, 60000, withMD5(), 0)
		_, out, _ := run(t, r.toVM, in.Bytes(), r.uplink, 0)
		in.Window = x.field
		x.want.Seen = 1
		if c := r.counted(t); c != x.want || !bytes.Equal(out, in.Bytes()) {
			t.Errorf("row %d: counted %+v, want %+v\n out  %x\n want %x", i, c, x.want, out, in.Bytes())
		}
	}
}

// The window of a SYN-ACK is never scaled, and limits the first flight.
func TestClamp_SYNACK(t *testing.T) {
	r := newRig(t, host.Config{})
	r.grantVM(t, 5000)
	k := talk{name: "SYN-ACK", vmPort: 3000}
	syn := k.segment(false, frames.SYN, 60000, scale7, 0).Bytes()
	run(t, r.up, syn, r.vm1, 0)
	answer := k.segment(true, frames.SYN|frames.ACK, 60000, scale7, 0)
	for range 2 { // sent again
		_, out, _ := run(t, r.toVM, answer.Bytes(), r.uplink, 0)
		want := *answer
		want.Window = 5000
		if !bytes.Equal(out, want.Bytes()) {
			t.Errorf("\n out  %x\n want %x", out, want.Bytes())
		}
	}
}

// SI-8: the scale of the peer, whose ACKs come, applies: 20000/128. The printed message has the VM's own, which would give 2500.
func TestSI8_ScaleOfThePeer(t *testing.T) {
	r := newRig(t, host.Config{})
	r.grantVM(t, 20000)
	k := talk{name: "two scales", vmPort: 3100, vmSYN: frames.List(1, frames.MSS(1448), frames.Scale(3)), peerTo: scale7}
	r.shake(t, &k)
	r.towards(t, &k, frames.ACK, 60000, 157, limited)
}

// SH-4: the checksum of a limited ACK is right. As printed (HC + m' - m) it has the wrong sign, and the VM would drop nearly every ACK.
func TestSH4_Checksum(t *testing.T) {
	const acks = 500
	r := newRig(t, host.Config{})
	k := talk{name: "checksum", vmPort: 3200, vmSYN: frames.List(1, frames.MSS(1448)), peerTo: frames.List(1, frames.MSS(1448))}
	r.shake(t, &k)
	random := rand.New(rand.NewPCG(4, 1))
	dropped := 0
	for range acks {
		r.grantVM(t, 1449+random.Uint64N(30_000))
		in := k.segment(true, frames.ACK, uint16(32_000+random.UintN(33_000)), nil, random.IntN(200)).Bytes()
		_, out, _ := run(t, r.toVM, in, r.uplink, 0)
		before, after := frames.Parse(in), frames.Parse(out)
		if got := after.ChecksumError(); got != 0 || after.Window() >= before.Window() {
			t.Fatalf("window %d to %d: the checksum is off by %#x", before.Window(), after.Window(), got)
		}
		checksum := func(v frames.View) uint32 { return uint32(binary.BigEndian.Uint16(v.Frame[v.L4+16:])) }
		printed := checksum(before) + uint32(after.Window()) + uint32(^before.Window())
		for printed>>16 != 0 {
			printed = printed&0xffff + printed>>16
		}
		if printed != checksum(after) {
			dropped++
		}
	}
	if dropped < acks*9/10 {
		t.Errorf("as printed only %d of %d are wrong: this test shows nothing", dropped, acks)
	}
}

// A pause writes a window of 0 if the operator asks for it, and another value never does.
func TestClamp_PauseZero(t *testing.T) {
	r := newRig(t, host.Config{PauseZero: true})
	r.grantVM(t, 0)
	k := talk{name: "pause", vmPort: 4000, vmSYN: scale7, peerTo: scale7}
	r.shake(t, &k)
	r.towards(t, &k, frames.ACK, 60000, 12, limited)
	set(t, r.Host, law.Grant{Owner: 1, Kind: law.PauseGrant, Key: law.Key{Pair: law.Pair{VM: 1}}, Lease: time.Minute})
	r.towards(t, &k, frames.ACK, 60000, 0, limited)
}

// SE-6: a window for a flow ends its owner's pause at once, also one without a limit. Before, the flow stayed paused until the
// lease of the pause had ended and its window was released.
func TestSE6_WindowEndsThePause(t *testing.T) {
	r := newRig(t, host.Config{PauseZero: true})
	if err := r.Heartbeat(1); err != nil {
		t.Fatal(err)
	}
	k := talk{name: "pause of a flow", vmPort: 4100, vmSYN: scale7, peerTo: scale7}
	r.shake(t, &k)
	key := law.Key{Pair: law.Pair{VM: 1}, Flow: flowOf(&k)}
	for _, x := range []struct {
		kind  law.Kind
		value uint64
		field uint16
		why   host.Stats
	}{
		{law.PauseGrant, 0, 0, limited}, {law.WindowGrant, 20000, 157, limited}, // ceil(20000 / 128)
		{law.PauseGrant, 0, 0, limited}, {law.WindowGrant, 1 << 26, 60000, ungranted},
	} {
		set(t, r.Host, law.Grant{Owner: 1, Kind: x.kind, Key: key, Value: x.value, Lease: time.Minute})
		r.towards(t, &k, frames.ACK, 60000, x.field, x.why)
	}
}

// A packet without a TCP segment passes unchanged and is counted as such.
func TestClamp_OtherTraffic(t *testing.T) {
	r := newRig(t, host.Config{})
	r.grantVM(t, 5000)
	l, ip := frames.Link{Dst: vmMAC, Src: peerMAC}, frames.IP{From: peerIPv4, To: vmIPv4}
	k := talk{vmPort: 5000}
	cut := k.segment(true, frames.ACK, 60000, nil, 0).Bytes()[:40]
	fragment := frames.IP{From: peerIPv4, To: vmIPv4, Fragment: 5}
	for name, x := range map[string]struct {
		in   []byte
		want host.Stats
	}{
		"UDP":      {frames.Packet(l, ip, frames.UDP, make([]byte, 30)), host.Stats{NotTCP: 1}},
		"GRE":      {frames.Packet(l, ip, frames.GRE, make([]byte, 30)), host.Stats{Tunnel: 1}},
		"fragment": {frames.Packet(l, fragment, frames.TCP, make([]byte, 30)), host.Stats{Fragment: 1}},
		"short":    {cut, host.Stats{Short: 1}},
	} {
		verdict, out, _ := run(t, r.toVM, x.in, r.uplink, 0)
		x.want.Seen = 1
		if c := r.counted(t); c != x.want || verdict != bpftest.TCXNext || !bytes.Equal(out, x.in) {
			t.Errorf("%s: returned %d, counted %+v, want %+v", name, int32(verdict), c, x.want)
		}
	}
}
