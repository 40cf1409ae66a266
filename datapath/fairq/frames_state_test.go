package fairq

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"weir/datapath/internal/frames"
)

// The tests below check how the switch's state of a connection decides about an acknowledgement.

// The program learns scale and MSS from a SYN with any order of options, padded either way.
func TestFairQFrames_SynOptions(t *testing.T) {
	f := newFrameTable(t, frameConfig{})
	options := [][]byte{frames.MSS(1200), frames.Scale(5), frames.Option(frames.OptionPermitted), frames.Timestamps(1, 0), frames.Option(254, 1, 2, 3)}
	rows := 0
	for _, order := range permutations(len(options)) {
		for _, fill := range []byte{frames.OptionNop, frames.OptionEnd} {
			var list [][]byte
			for _, i := range order {
				list = append(list, options[i])
				if fill == frames.OptionNop {
					list = append(list, frames.Nop)
				}
			}
			c := f.conn(frames.IP{})
			c.synAck = frames.List(fill, list...)
			c.open(t, f.frameSwitch)
			name := fmt.Sprintf("order %v filled with %d", order, fill)
			f.rewritten(t, name, c.segment(), rowGrant>>5, fairqPortCounts{})
			// A window below an MSS is never granted; the MSS is the one that the receiver announced.
			f.setGrant(t, 1, 100)
			f.rewritten(t, name+", floor", c.segment(), (1200+31)>>5, fairqPortCounts{})
			rows += 2
		}
	}
	t.Logf("%d rows", rows)
}

// permutations returns all orders of 0 .. n-1.
func permutations(n int) (all [][]int) {
	if n == 0 {
		return [][]int{nil}
	}
	for _, p := range permutations(n - 1) {
		for at := range n {
			q := append([]int(nil), p[:at]...)
			all = append(all, append(append(q, n-1), p[at:]...))
		}
	}
	return all
}

// Both ends' window scales, among them none (-1) and too large ones (RFC 7323 2.3), in both directions: scales
// count only if both SYNs have one.
func TestFairQFrames_Scales(t *testing.T) {
	f := newFrameTable(t, frameConfig{})
	option := func(shift int) []byte {
		if shift < 0 {
			return frames.List(frames.OptionNop, frames.MSS(1460))
		}
		return frames.List(frames.OptionNop, frames.MSS(1460), frames.Scale(byte(shift)))
	}
	for left := -1; left <= 16; left++ {
		for right := -1; right <= 16; right++ {
			c := f.conn(frames.IP{})
			c.syn, c.synAck = option(left), option(right)
			c.open(t, f.frameSwitch)
			for port, shift := range []int{right, left} {
				s := c.segment()
				if port == 1 {
					s = c.back()
				}
				if left < 0 || right < 0 {
					shift = 0
				}
				shift = min(shift, 14)
				s.Window = 65535
				f.setGrant(t, 1-port, rowGrant)
				want := with(s, func(s *frames.Segment) { s.Window = uint16((rowGrant + 1<<shift - 1) >> shift) })
				out, err := f.run(port, s.Bytes(), testRunChecksumComplete, nil)
				if err != nil || !bytes.Equal(out, want) {
					t.Errorf("scales %d and %d, out of port %d: %v\n out  %x\n want %x", left, right, port, err, out, want)
				}
			}
		}
	}
}

// The window of an acknowledgement is that of the port by which its data leaves, and of no other.
func TestFairQFrames_Governed(t *testing.T) {
	f := newFrameTable(t, frameConfig{})
	c := f.conn(frames.IP{})
	none := c.segment()
	f.same(t, "unknown", none.Bytes(), fairqPortCounts{Unknown: 1})
	c = f.conn(frames.IP{})
	c.open(t, f.frameSwitch)
	f.setGrant(t, 1, 0)
	f.same(t, "no window is limited", c.segment().Bytes(), fairqPortCounts{Ungoverned: 1})
	f.setGrant(t, 0, rowGrant)
	f.same(t, "the port that the acknowledgement leaves by limits windows", c.segment().Bytes(), fairqPortCounts{Ungoverned: 1})
	f.setGrant(t, 1, 1<<33)
	f.same(t, "a grant above 2^32", c.segment().Bytes(), fairqPortCounts{Smaller: 1})
	f.setGrant(t, 1, 2*rowGrant)
	f.rewritten(t, "twice the grant", c.segment(), 2*rowField, fairqPortCounts{})

	// The same addresses and ports in another VLAN are another connection.
	other := *c
	other.link.Tags = []frames.Tag{{TPID: frames.TypeVLAN, TCI: 7}}
	f.same(t, "another VLAN", other.segment().Bytes(), fairqPortCounts{Unknown: 1})
	other.link.Tags = []frames.Tag{{TPID: frames.TypeQinQ, TCI: 0xe000}, {TPID: frames.TypeVLAN, TCI: 0x6001}}
	f.same(t, "another VLAN of another one", other.segment().Bytes(), fairqPortCounts{Unknown: 1})
	other.link.Tags[0].TCI, other.link.Tags[1].TCI = 0xe000, 0xf000 // priorities
	f.rewritten(t, "two tags without a VLAN", other.segment(), 2*rowField, fairqPortCounts{})
	other.link.Tags = other.link.Tags[:1]
	f.rewritten(t, "a tag without a VLAN", other.segment(), 2*rowField, fairqPortCounts{})

	// Data that takes another path takes its window along.
	data := c.back()
	data.Payload = []byte{1}
	f.mustRun(t, 0, data.Bytes())
	f.setGrant(t, 0, rowGrant)
	f.rewritten(t, "data moved to another port", c.segment(), rowField, fairqPortCounts{})

	// If its ports are used again, the entry is of the new connection.
	reset := c.back()
	reset.Flags = frames.RST
	f.mustRun(t, 1, reset.Bytes())
	c.synAck = frames.List(frames.OptionNop, frames.MSS(1460), frames.Scale(rowShift-1))
	c.open(t, f.frameSwitch)
	f.rewritten(t, "its ports are used again", c.segment(), 2*rowField, fairqPortCounts{})
}

// A handshake step by step: how each frame is counted.
func TestFairQFrames_Handshake(t *testing.T) {
	f := newFrameTable(t, frameConfig{})
	c := f.conn(frames.IP{})
	step := func(name string, port int, s *frames.Segment, window uint16, why fairqPortCounts) {
		t.Helper()
		f.counted(t, port)
		out, err := f.run(port, s.Bytes(), 0, nil)
		want := with(s, func(s *frames.Segment) { s.Window = window })
		why.Seen = 1
		if got := f.counted(t, port); err != nil || got != why || !bytes.Equal(out, want) {
			t.Errorf("%s: %v\n counted %+v, want %+v\n out  %x\n want %x", name, err, got, why, out, want)
		}
	}
	syn, synAck, ack := c.back(), c.segment(), c.back()
	syn.Flags, syn.Seq, syn.Options = frames.SYN, 3000, c.syn
	synAck.Flags, synAck.Seq, synAck.Options = frames.SYN|frames.ACK, 7000, c.synAck
	f.setGrant(t, 1, rowGrant)
	step("SYN", 1, syn, rowWindow, fairqPortCounts{NoAck: 1})
	wrong := *synAck
	wrong.Ack = 3000
	step("SYN-ACK that acknowledges another SYN", 0, &wrong, rowWindow, fairqPortCounts{Unknown: 1})
	step("SYN-ACK: its window is not scaled", 0, synAck, rowGrant, fairqPortCounts{Rewritten: 1})
	stray := *ack
	stray.Ack = 6999
	step("ACK that acknowledges another SYN-ACK", 1, &stray, rowWindow, fairqPortCounts{Unknown: 1})
	// A new flow is granted its share at once: all of the target, if it is the only one.
	step("ACK", 1, ack, rowTarget>>2, fairqPortCounts{Rewritten: 1, Opened: 1})
	f.setGrant(t, 0, rowGrant)
	step("ACK again", 1, ack, rowGrant>>2, fairqPortCounts{Rewritten: 1})

	// A connection older than the switch is adopted when both ends were seen. Its scale is unknown: 0. It is
	// the second at its port.
	// second at its port.
	c = f.conn(frames.IP{})
	data, answer := c.back(), c.segment()
	data.Payload = make([]byte, 100)
	answer.Ack = data.Seq + 100
	step("data of an older connection", 1, data, rowWindow, fairqPortCounts{Unknown: 1})
	step("its acknowledgement", 0, answer, rowTarget/2, fairqPortCounts{Rewritten: 1, Opened: 1, Adopted: 1})
}

// When a port's share is full, further connections that are opened from behind it pass. Those in the table
// stay, and those opened from behind another port get an entry.
func TestFairQFrames_Full(t *testing.T) {
	for count := range uint8(2) {
		f := newFrameTable(t, frameConfig{count: count, law: fairqPortConfig{FlowsMax: 1}})
		first, second := f.conn(frames.IP{}), f.conn(frames.IP{})
		first.open(t, f.frameSwitch)
		second.open(t, f.frameSwitch)
		// Every packet that could enter the table tries again.
		f.same(t, "no place", second.segment().Bytes(), fairqPortCounts{Unknown: 1, TableFull: 1})
		f.mustRun(t, 1, second.back().Bytes())
		f.same(t, "no place after its answer", second.segment().Bytes(), fairqPortCounts{Unknown: 1, TableFull: 1})
		f.rewritten(t, "that has one", first.segment(), rowField, fairqPortCounts{})
		f.checkShares(t, 1, 0)

		opposite := f.conn(frames.IP{})
		syn, synAck, ack := opposite.segment(), opposite.back(), opposite.segment()
		syn.Flags, syn.Seq, syn.Ack = frames.SYN, 7000, 0
		synAck.Flags, synAck.Seq = frames.SYN|frames.ACK, 3000
		f.mustRun(t, 0, syn.Bytes())
		f.mustRun(t, 1, synAck.Bytes())
		f.mustRun(t, 0, ack.Bytes())
		f.checkShares(t, 1, 1)
	}
}

// With a scope: only connections with both ends in it.
func TestFairQFrames_Scope(t *testing.T) {
	f := newFrameTable(t, frameConfig{scope: []fairqScopeKey{
		scopeKey(netip.MustParsePrefix("10.0.0.0/30")), scopeKey(netip.MustParsePrefix("fd00::/64")),
	}})
	for _, r := range []struct {
		ip frames.IP
		in bool
	}{
		{frames.IP{From: rightIPv4, To: leftIPv4}, true},
		{frames.IP{From: rightIPv6, To: leftIPv6}, true},
		{frames.IP{From: netip.MustParseAddr("10.0.0.4"), To: leftIPv4}, false},
		{frames.IP{From: rightIPv4, To: netip.MustParseAddr("192.0.2.1")}, false},
		{frames.IP{From: rightIPv6, To: netip.MustParseAddr("fd00:0:0:1::1")}, false},
		{frames.IP{From: netip.MustParseAddr("2001:db8::1"), To: netip.MustParseAddr("2001:db8::2")}, false},
	} {
		c := f.conn(r.ip)
		c.open(t, f.frameSwitch)
		name := fmt.Sprint(r.ip.From, " to ", r.ip.To)
		if r.in {
			f.rewritten(t, name, c.segment(), rowField, fairqPortCounts{})
		} else {
			f.same(t, name, c.segment().Bytes(), fairqPortCounts{OutOfScope: 1})
		}
	}
}

// scale: shim. For connections whose SYNs were not seen, reserved bits give the scale; 1 may also be AccECN's.
// Otherwise they have no meaning.
func TestFairQFrames_Shim(t *testing.T) {
	for _, scale := range []uint8{0, 1} {
		f := newFrameTable(t, frameConfig{scale: scale})
		for reserved := range byte(16) {
			known, adopted := f.conn(frames.IP{}), f.conn(frames.IP{})
			known.open(t, f.frameSwitch)
			adopted.adopt(t, f.frameSwitch)
			for _, c := range []*frameConn{known, adopted} {
				s := c.segment()
				s.Reserved = reserved
				shift := 0
				if c == known {
					shift = rowShift
				} else if scale == 1 && reserved > 1 {
					shift = min(int(reserved), 14)
				}
				field := (rowGrant + 1<<shift - 1) >> shift
				f.rewritten(t, fmt.Sprintf("scale %d, reserved bits %d, adopted %t", scale, reserved, c == adopted), s, uint16(field), fairqPortCounts{})
			}
		}
	}
}

// shrink: avoid. The right edge of a granted window stays in place, or moves on.
func TestFairQFrames_KeepsRightEdge(t *testing.T) {
	f := newFrameTable(t, frameConfig{shrink: 1})
	c := f.conn(frames.IP{})
	c.open(t, f.frameSwitch)
	s := c.segment()
	f.same(t, "the first: what was granted before is not known", s.Bytes(), fairqPortCounts{Smaller: 1})
	s.Ack += rowWindow<<rowShift - 30_000
	f.rewritten(t, "the edge stays where its receiver put it", s, (30_000+1<<rowShift-1)>>rowShift, fairqPortCounts{})
	s.Ack += 30_000
	f.rewritten(t, "it is reached", s, rowField, fairqPortCounts{})
	f.setGrant(t, 1, rowGrant/2)
	f.rewritten(t, "less is granted, and the edge stays", s, rowField, fairqPortCounts{})
	s.Ack += rowGrant / 4
	f.rewritten(t, "and stays", s, rowField*3/4, fairqPortCounts{})
	s.Ack += rowGrant / 4
	f.rewritten(t, "until it is near", s, rowField/2, fairqPortCounts{})
	s.Ack += rowGrant / 4
	f.rewritten(t, "and moves on", s, rowField/2, fairqPortCounts{})
}

// skbContext builds struct __sk_buff for BPF_PROG_TEST_RUN, with the fields of a GSO packet. (It takes no VLAN
// tag: TestFairQVeth_Tags has those in the metadata.)
func skbContext(segments, size uint32) []byte {
	b := make([]byte, 192)
	binary.NativeEndian.PutUint32(b[164:], segments)
	binary.NativeEndian.PutUint32(b[176:], size)
	return b
}

// A GSO packet counts its segments on the wire, and shows how large segments of its flow are.
func TestFairQFrames_Segmented(t *testing.T) {
	f := newFrameTable(t, frameConfig{})
	c := f.conn(frames.IP{})
	c.open(t, f.frameSwitch)
	s := c.segment()
	s.Payload = make([]byte, 3000)
	f.counted(t, 0)
	want := with(s, func(s *frames.Segment) { s.Window = rowField })
	for _, segments := range []uint32{3, 0} { // 0: a guest left it to its virtio device
		out, err := f.run(0, s.Bytes(), 0, skbContext(segments, 1000))
		if got := f.counted(t, 0); err != nil || got != (fairqPortCounts{Seen: 3, Rewritten: 3, Data: 3}) || !bytes.Equal(out, want) {
			t.Errorf("gso_segs %d: %v: counted %+v\n out  %x\n want %x", segments, err, got, out, want)
		}
	}
	// The floor of a flow in that direction is a segment. The program ignores a gso_size that the port cannot
	// carry.
	large := c.back()
	large.Payload = make([]byte, 3000)
	if _, err := f.run(1, large.Bytes(), 0, skbContext(1, 2900)); err != nil {
		t.Fatal(err)
	}
	f.setGrant(t, 1, 100)
	f.rewritten(t, "a gso_size above what the port carries", c.segment(), floorField(1460), fairqPortCounts{})
	// If the MSS of a flow was not seen, the largest gso_size is the least window.
	old := f.conn(frames.IP{})
	old.adopt(t, f.frameSwitch)
	for _, r := range []struct{ gso, floor int }{{1000, 1000}, {1460, 1460}, {1461, 1460}, {9000, 1460}, {65535, 1460}} {
		large := old.back()
		large.Payload = make([]byte, 3000)
		if _, err := f.run(1, large.Bytes(), 0, skbContext(1, uint32(r.gso))); err != nil {
			t.Fatal(err)
		}
		f.setGrant(t, 1, 100)
		f.rewritten(t, fmt.Sprintf("gso_size %d", r.gso), old.segment(), uint16(r.floor+1), fairqPortCounts{})
	}
}

// floorField returns the field of a window of one segment and a byte, in rows.
func floorField(segment int) uint16 { return uint16((segment + 1 + 1<<rowShift - 1) >> rowShift) }

// Traffic in tunnels over UDP passes: the program knows the same acknowledgement when it comes without the
// tunnel.
func TestFairQFrames_UDPTunnels(t *testing.T) {
	f := newFrameTable(t, frameConfig{})
	for _, ip := range []frames.IP{{}, {From: rightIPv6, To: leftIPv6}, {From: rightIPv6, To: leftIPv6, Extensions: []frames.Extension{hopByHop}}} {
		c := f.conn(ip)
		c.open(t, f.frameSwitch)
		udp := func(from, to uint16) []byte {
			payload := append([]byte{8, 0, 0x65, 0x58, 0, 0, 1, 0}, c.segment().Bytes()...)
			header := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, from), to)
			header = append(binary.BigEndian.AppendUint16(header, uint16(8+len(payload))), 0, 0)
			return frames.Packet(c.link, c.ip, frames.UDP, append(header, payload...))
		}
		for name, port := range map[string]uint16{"VXLAN": 4789, "VXLAN, as Linux had it": 8472, "Geneve": 6081, "ESP over UDP": 4500, "WireGuard": 51820} {
			f.same(t, name, udp(0xc000, port), fairqPortCounts{Tunnel: 1})
			f.same(t, name+", answer", udp(port, 0xc000), fairqPortCounts{Tunnel: 1})
		}
		f.same(t, "DNS", udp(0xc000, 53), fairqPortCounts{NotTcp: 1})
		whole := udp(0xc000, 4789)
		header := len(whole) - 8 - 8 - len(c.segment().Bytes())
		f.same(t, "UDP header cut", whole[:header+3], fairqPortCounts{NotTcp: 1})
	}
}

// BPF_PROG_TEST_RUN refuses these frames, and no other: the other tests rely on it.
func TestFairQFrames_Refused(t *testing.T) {
	f := newFrameTable(t, frameConfig{})
	v4, v6 := f.conn(frames.IP{}).segment(), f.conn(frames.IP{From: rightIPv6, To: leftIPv6}).segment()
	v4.Payload, v6.Payload = make([]byte, testRunLongest), make([]byte, testRunLongest)
	arp := v4.Bytes()
	arp[13] = 6
	for _, whole := range [][]byte{v4.Bytes(), v6.Bytes(), arp} {
		for n := 1; n <= testRunLongest; n++ {
			_, err := f.run(0, whole[:n], 0, nil)
			if refused := err != nil; refused != testRunRefuses(whole[:n]) || refused && !errors.Is(err, unix.EINVAL) {
				t.Fatalf("%d bytes of type %x: %v", n, whole[12:14], err)
			}
		}
	}
}

// testRunLongest is the longest frame that fits into a page with the head and tail room of the kernel.
const testRunLongest = 3600

// testRunRefuses reports whether BPF_PROG_TEST_RUN refuses such a frame.
func testRunRefuses(frame []byte) bool {
	least := 14
	if len(frame) >= least {
		switch binary.BigEndian.Uint16(frame[12:]) {
		case frames.TypeIPv4:
			least = 34
		case frames.TypeIPv6:
			least = 54
		}
	}
	return len(frame) < least || len(frame) > testRunLongest
}
