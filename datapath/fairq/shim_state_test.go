package fairq_test

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"

	"weir/datapath/fairq/shim"
	"weir/datapath/internal/frames"
)

// reserved returns the reserved bits of the client's acknowledgement behind a sending shim.
func (b *shimBench) reserved(t *testing.T, k *talk) byte {
	t.Helper()
	in := k.ack(false, 0, 0)
	out := throughProgram(t, b.send, in, 0)
	v := frames.Parse(out)
	bits := out[v.L4+12] & 15
	if want := k.ack(false, bits, 0); !bytes.Equal(out, want) {
		t.Errorf("%s:\n in   %x\n out  %x\n want %x", k.name, in, out, want)
	}
	return bits
}

// Both SYNs are needed, and the second must answer the first. A FIN or reset ends nothing, because
// acknowledgements still flow. A SYN by itself changes nothing, because anybody can send one.
func TestShim_KnowsAConnectionByItsHandshake(t *testing.T) {
	b := newShimBench(t)
	expect := func(k *talk, when string, want byte) {
		t.Helper()
		if got := b.reserved(t, k); got != want {
			t.Errorf("%s, %s: reserved bits %d, want %d", k.name, when, got, want)
		}
	}
	k := &talk{name: "no handshake", port: 1, client: 7, server: 8}
	expect(k, "at first", 0)
	throughProgram(t, b.send, k.syn(false), 0)
	expect(k, "after its SYN", 0)
	if in := k.ack(false, 5, 0); !bytes.Equal(throughProgram(t, b.send, in, 0), in) {
		t.Error("after its SYN bits that stand there are changed")
	}

	for i, flag := range []byte{frames.RST, frames.FIN} {
		k = &talk{name: "no SYN", port: 10 + uint16(i), client: 7, server: 8}
		throughProgram(t, b.send, k.segment(false, frames.SYN|flag, 0, frames.List(frames.OptionNop, frames.Scale(7)), 0), 0)
		throughProgram(t, b.hearSending, k.syn(true), 0)
		expect(k, "answered", 0)
	}

	k = &talk{name: "SYN-ACK only", port: 2, client: 7, server: 8}
	throughProgram(t, b.hearSending, k.syn(true), 0)
	expect(k, "heard", 0)

	k = &talk{name: "SYN-ACK with another number", port: 3, client: 7, server: 8}
	throughProgram(t, b.send, k.syn(false), 0)
	forged := k.syn(true)
	binary.BigEndian.PutUint32(forged[14+20+8:], clientSeq+1+0x10000) // nothing checks the checksum here
	throughProgram(t, b.hearSending, forged, 0)
	expect(k, "heard", 0)
	withData := k.syn(true) // as far as data in a SYN can be acknowledged
	binary.BigEndian.PutUint32(withData[14+20+8:], clientSeq+1+0xffff)
	throughProgram(t, b.hearSending, withData, 0)
	expect(k, "with data in the SYN", 7)

	k = &talk{name: "SYN-ACK from the same side", port: 4, client: 7, server: 8}
	throughProgram(t, b.send, k.syn(false), 0)
	own := k.segment(false, frames.SYN|frames.ACK, 0, frames.List(frames.OptionNop, frames.Scale(3)), 0)
	binary.BigEndian.PutUint32(own[14+20+8:], clientSeq+1)
	throughProgram(t, b.send, own, 0)
	expect(k, "sent", 0)

	k = &talk{name: "whole", port: 5, client: 7, server: 8}
	b.shakeHands(t, k, false, false)
	expect(k, "after the handshake", 7)
	for _, flags := range []byte{frames.FIN | frames.ACK, frames.RST | frames.ACK, frames.ACK | frames.URG | frames.PSH | frames.ECE | frames.CWR} {
		in, want := k.segment(false, flags, 0, nil, 0), k.segment(false, flags, 7, nil, 0)
		if out := throughProgram(t, b.send, in, 0); !bytes.Equal(out, want) {
			t.Errorf("flags %#x:\n in   %x\n out  %x\n want %x", flags, in, out, want)
		}
	}
	expect(k, "after FIN and reset", 7)
	other := *k
	other.client = 3
	throughProgram(t, b.send, other.syn(false), 0)
	throughProgram(t, b.hearSending, k.syn(true), 0)
	expect(k, "after another SYN of the same number", 7)
	newer := k.segment(false, frames.SYN, 0, frames.List(frames.OptionNop, frames.Scale(3)), 0)
	binary.BigEndian.PutUint32(newer[14+20+4:], 77)
	throughProgram(t, b.send, newer, 0)
	expect(k, "after a SYN without an answer", 7)
	answer := k.syn(true)
	binary.BigEndian.PutUint32(answer[14+20+8:], 78)
	throughProgram(t, b.hearSending, answer, 0)
	expect(k, "after the ports were used again", 3)
	throughProgram(t, b.hearSending, k.segment(true, frames.RST, 0, nil, 0), 0)
	expect(k, "after a reset", 3)

	b.counted(t, 0)
	for _, flags := range []byte{frames.SYN | frames.FIN, frames.SYN | frames.RST, frames.SYN | frames.ACK | frames.RST, 0, frames.FIN, frames.RST, frames.PSH} {
		in := k.segment(false, flags, 5, nil, 0)
		if out := throughProgram(t, b.send, in, 0); !bytes.Equal(out, in) {
			t.Errorf("flags %#x:\n in   %x\n out  %x", flags, in, out)
		}
		if got := b.counted(t, 0); got != (shim.Stats{Seen: 1, NoAck: 1}) {
			t.Errorf("flags %#x: counted %+v", flags, got)
		}
	}
}

// The shim must not change these, whatever their bits: signed segments, AccECN's counter, and connections that
// it does not know.
func TestShim_LeavesAlone(t *testing.T) {
	b := newShimBench(t)
	md5, ao := frames.Option(frames.OptionMD5, make([]byte, 16)...), frames.Option(frames.OptionAO, make([]byte, 14)...)
	const ce = frames.CWR | frames.ECE
	accECN := func(name string, port uint16, ae, flags byte) talk {
		return talk{name: name, port: port, client: 7, server: 7, synBits: [2]byte{ce, flags}, synReserved: [2]byte{1, ae}}
	}
	signed, negotiated := shim.Stats{Seen: 1, Signed: 1}, shim.Stats{Seen: 1, AccECN: 1}
	written := shim.Stats{Seen: 1, Written: 1}
	rows := []struct {
		talk
		want shim.Stats
	}{
		{talk{name: "MD5", port: 1, client: 7, server: 7, signed: md5}, signed},
		{talk{name: "AO", port: 2, client: 7, server: 7, signed: ao}, signed},
		{accECN("AccECN, Not-ECT", 3, 0, frames.CWR), negotiated},
		{accECN("AccECN, ECT(1)", 4, 0, ce), negotiated},
		{accECN("AccECN, ECT(0)", 5, 1, 0), negotiated},
		{accECN("AccECN, CE", 6, 1, frames.CWR), negotiated},
		{accECN("AccECN asked, ECN answered", 7, 0, frames.ECE), written},
		{accECN("AccECN asked, nonce answered", 8, 1, frames.ECE), written},
		{accECN("AccECN asked, reflected", 9, 1, ce), written},
		{accECN("AccECN asked, nothing answered", 10, 0, 0), written},
	}
	for _, r := range rows {
		b.shakeHands(t, &r.talk, false, false)
		b.shakeHands(t, &r.talk, true, true)
		b.counted(t, 0)
		b.counted(t, 1)
		for side, program := range []string{"send", "clear"} {
			p, bits := b.send, byte(1)
			if side == 1 {
				p, bits = b.clear, 7
			}
			in := r.ack(false, bits, 10)
			out := throughProgram(t, p, in, 0)
			if got := b.counted(t, side); got != r.want {
				t.Errorf("%s, %s: counted %+v, want %+v", r.name, program, got, r.want)
			}
			if same := bytes.Equal(in, out); same != (r.want.Written == 0) {
				t.Errorf("%s, %s: untouched: %t\n in  %x\n out %x", r.name, program, same, in, out)
			}
		}
	}

	k := &talk{name: "signed later", port: 20, client: 7, server: 7}
	b.shakeHands(t, k, false, false)
	b.shakeHands(t, k, true, true)
	b.counted(t, 0)
	b.counted(t, 1)
	for _, o := range [][]byte{md5, ao, append(bytes.Clone(dataOptions), frames.List(frames.OptionNop, ao)...)} {
		for side, p := range []byte{0, 7} {
			in := k.segment(false, frames.ACK, p, frames.List(frames.OptionNop, o), 5)
			program := b.send
			if side == 1 {
				program = b.clear
			}
			if out := throughProgram(t, program, in, 0); !bytes.Equal(in, out) {
				t.Errorf("a signed segment was changed:\n in  %x\n out %x", in, out)
			}
			if got := b.counted(t, side); got != signed {
				t.Errorf("counted %+v, want %+v", got, signed)
			}
		}
	}
	unknown := &talk{name: "unknown", port: 21, client: 7, server: 7}
	if in := unknown.ack(false, 7, 0); !bytes.Equal(throughProgram(t, b.clear, in, 0), in) || b.counted(t, 1).Unknown != 1 {
		t.Error("the bits of a connection that nobody knows were cleared")
	}
}

// Each kind of frame that is not a whole TCP segment passes, and is counted by its kind.
func TestShim_PassesWhatIsNotTCP(t *testing.T) {
	b := newShimBench(t)
	k := &talk{name: "known", port: 1, client: 7, server: 7}
	b.shakeHands(t, k, false, false)
	b.counted(t, 0)
	ip := frames.IP{From: netip.MustParseAddr("10.0.0.1"), To: netip.MustParseAddr("10.0.0.2")}
	fragment := ip
	fragment.Fragment = 0x2000
	whole := k.ack(false, 0, 100)
	tcp := whole[34:]
	with := func(b []byte, at int, v byte) []byte { b = bytes.Clone(b); b[at] = v; return b }
	for name, r := range map[string]struct {
		in   []byte
		want shim.Stats
	}{
		"ARP":             {with(with(whole, 12, 8), 13, 6), shim.Stats{Seen: 1, NotTCP: 1}},
		"UDP":             {frames.Packet(frames.Link{}, ip, frames.UDP, make([]byte, 40)), shim.Stats{Seen: 1, NotTCP: 1}},
		"GRE":             {frames.Packet(frames.Link{}, ip, frames.GRE, tcp), shim.Stats{Seen: 1, Tunnel: 1}},
		"ESP":             {frames.Packet(frames.Link{}, ip, frames.ESP, tcp), shim.Stats{Seen: 1, Tunnel: 1}},
		"AH":              {frames.Packet(frames.Link{}, ip, frames.AH, tcp), shim.Stats{Seen: 1, Tunnel: 1}},
		"fragment":        {frames.Packet(frames.Link{}, fragment, frames.TCP, tcp), shim.Stats{Seen: 1, Fragment: 1}},
		"cut in TCP":      {frames.Packet(frames.Link{}, ip, frames.TCP, tcp[:19]), shim.Stats{Seen: 1, Short: 1}},
		"cut in options":  {frames.Packet(frames.Link{}, ip, frames.TCP, tcp[:31]), shim.Stats{Seen: 1, Short: 1}},
		"header too long": {with(whole, 34+12, 0xf0)[:34+40], shim.Stats{Seen: 1, Short: 1}},
		"padded":          {append(bytes.Clone(whole), 1, 2, 3, 4, 5, 6), shim.Stats{Seen: 1, Written: 1}},
	} {
		want := r.in
		if r.want.Written == 1 {
			want = append(k.ack(false, 7, 100), 1, 2, 3, 4, 5, 6)
		}
		if out := throughProgram(t, b.send, r.in, 0); !bytes.Equal(out, want) {
			t.Errorf("%s:\n in   %x\n out  %x\n want %x", name, r.in, out, want)
		}
		if got := b.counted(t, 0); got != r.want {
			t.Errorf("%s: counted %+v, want %+v", name, got, r.want)
		}
	}
}

// Tenants behind different ports may have the same addresses, and the tags of a VLAN distinguish others.
func TestShim_PortsAndVLANsAreApart(t *testing.T) {
	b := newShimBench(t)
	k := &talk{name: "one", port: 1, client: 7, server: 7}
	b.shakeHands(t, k, false, false)
	if out := throughProgram(t, b.clear, k.ack(false, 7, 0), 0); !bytes.Equal(out, k.ack(false, 7, 0)) {
		t.Error("a port knows another port's connection")
	}
	tagged := *k
	tagged.tags = []frames.Tag{{TPID: frames.TypeVLAN, TCI: 5}}
	if bits := b.reserved(t, &tagged); bits != 0 {
		t.Errorf("bits %d of a connection in another VLAN", bits)
	}
}

// The table is always full of handshakes that are never used: a connection in use stays.
func TestShim_FloodsDoNotMakeItForget(t *testing.T) {
	const table, flood = 4096, 20 * 4096
	p := newShimBenchOf(t, shim.Config{Connections: table})
	k := &talk{name: "used", port: 1, client: 7, server: 7}
	p.shakeHands(t, k, false, false)
	for i := range flood {
		f := &talk{name: "flood", port: 2, client: 5, server: 5, ends: [2]netip.Addr{
			netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), netip.MustParseAddr("10.255.0.2")}}
		throughProgram(t, p.send, f.syn(false), 0)
		if i%2 == 0 {
			throughProgram(t, p.hearSending, f.syn(true), 0)
		}
		if i%500 != 0 {
			continue
		}
		if bits := p.reserved(t, k); bits != 7 {
			t.Fatalf("after %d SYNs the bits are %d", i+1, bits)
		}
	}
}
