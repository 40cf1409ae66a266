package fairq_test

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"weir/datapath/fairq"
	"weir/datapath/internal/frames"
)

// A flag of make fuzz-datapath.
var vethFrames = flag.Int("veth", 5_000, "mutated frames to send over real devices")

// Mutated frames of many connections over real devices, among them those that BPF_PROG_TEST_RUN cannot make: as
// short as an Ethernet header, jumbo ones whose headers are outside of the linear part, tags in the metadata.
// None is lost or reordered, and only windows and checksums change.
func TestFairQVeth_Mutated(t *testing.T) {
	seed := fairq.MutationSeed(t)
	r := rand.New(rand.NewPCG(seed, 0))
	n, traffic := newFrameNet(t, false), frames.NewTraffic(r, 64)
	var short, jumbo, tagged, rewritten, total int
	var sum fairq.Stats
	for total < *vethFrames {
		var kinds [5]uint64
		var expect [2][][]byte
		for range 64 {
			next := traffic.Next()
			in := mutateForDevices(r, next.Data)
			if in == nil {
				continue
			}
			from, _ := n.fromTo(next.LeftToRight)
			from.send(t, &vnetFrame{data: in})
			way := 0
			if next.LeftToRight {
				way = 1
			}
			expect[way] = append(expect[way], bytes.Clone(in))
			data, tag := inKernel(in)
			kinds[frames.Parse(data).Kind]++
			total++
			short, jumbo, tagged = short+count(len(in) < 54), jumbo+count(len(in) > 4100), tagged+count(tag != nil)
		}
		for way := range expect {
			_, to := n.fromTo(way == 1)
			for _, in := range expect[way] {
				out := to.receive(t)
				data, tag := inKernel(in)
				changed, err := frames.Rules{}.Check(data, out.data)
				if err != nil || !bytes.Equal(tag, out.tag) {
					t.Fatalf("seed %d: %v, tag %x, was %x\n in  %x\n out %x", seed, err, out.tag, tag, data, out.data)
				}
				rewritten += count(changed)
			}
		}
		s := n.counted(t)
		tcp := s.Seen - s.NotTCP - s.Tunnel - s.Fragment - s.Short
		if got := [5]uint64{tcp, min(s.NotTCP, kinds[frames.KindOther]), s.Tunnel, s.Fragment, s.Short}; got != kinds {
			t.Fatalf("seed %d: frames were (TCP, other, tunnel, fragment, short) %v, counted as %v", seed, kinds, got)
		}
		sum.Rewritten += s.Rewritten
	}
	t.Logf("seed %d: %d frames, %d short, %d jumbo, %d tagged, %d rewritten", seed, total, short, jumbo, tagged, rewritten)
	if uint64(rewritten) != sum.Rewritten || min(short, jumbo, tagged, rewritten)*100 < total {
		t.Errorf("%d of %d frames rewritten, counted as %d; %d short, %d jumbo, %d tagged", rewritten, total, sum.Rewritten, short, jumbo, tagged)
	}
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

// mutateForDevices is frames.Mutate for frames that devices and a bridge carry unchanged; nil: they do not.
func mutateForDevices(r *rand.Rand, in []byte) []byte {
	addresses := [12]byte(in)
	if r.IntN(8) == 0 {
		in = enlarge(r, in)
	}
	in = frames.Mutate(r, in)
	if len(in) < 14 {
		return nil
	}
	copy(in, addresses[:])
	// The kernel drops a frame with a cut tag before the bridge.
	if _, tag := inKernel(append(bytes.Clone(in), 0, 0)); tag != nil && len(in) < 22 {
		return nil
	}
	return in
}

// enlarge makes a frame a jumbo frame: its segment, or the padding behind it.
func enlarge(r *rand.Rand, in []byte) []byte {
	v := frames.Parse(in)
	more := 4200 + r.IntN(8900-4200-len(in))
	in = append(in, make([]byte, more)...)
	at := v.L3 + 2
	if in[v.L3]>>4 == 6 {
		at = v.L3 + 4
	}
	if v.Kind == frames.KindTCP && v.End == len(v.Frame) && r.IntN(4) > 0 {
		binary.BigEndian.PutUint16(in[at:], binary.BigEndian.Uint16(in[at:])+uint16(more))
		v = frames.Parse(in)
		v.SetChecksum()
	}
	return in
}

// open opens a connection that c begins, from the left, and returns an acknowledgement of the other direction.
func (n *frameNet) open(t *testing.T, c *frames.Segment) (rightToLeft frames.Segment) {
	t.Helper()
	back := *c
	back.Dst, back.Src, back.From, back.To, back.FromPort, back.ToPort = c.Src, c.Dst, c.To, c.From, c.ToPort, c.FromPort
	syn, synAck, ack := *c, back, *c
	syn.Flags, syn.Seq, syn.Options = frames.SYN, 3000, frames.List(frames.OptionNop, frames.MSS(1460), frames.Scale(2))
	synAck.Flags, synAck.Seq, synAck.Ack, synAck.Options = frames.SYN|frames.ACK, 7000, 3001, frames.List(frames.OptionNop, frames.MSS(1460), frames.Scale(vethShift))
	ack.Flags, ack.Seq, ack.Ack = frames.ACK, 3001, 7001
	for _, s := range []*frames.Segment{&syn, &synAck, &ack} {
		from, to := n.fromTo(s != &synAck)
		from.send(t, &vnetFrame{data: s.Bytes()})
		to.receive(t)
	}
	back.Flags, back.Seq, back.Ack, back.Window = frames.ACK, 7001, 3001, 60000
	n.counted(t)
	return back
}

const (
	vethShift = 3
	vethField = vethGrant >> vethShift
)

// A switch's kernel moves the outer tag of a forwarded frame to the packet's metadata. With two more in the
// data the segment is still found; behind a fourth it is not. VLANs distinguish connections wherever they
// stand; priorities do not.
func TestFairQVeth_Tags(t *testing.T) {
	n := newFrameNet(t, false)
	arrives := func(s *frames.Segment, window uint16) {
		t.Helper()
		n.right.send(t, &vnetFrame{data: s.Bytes()})
		want := *s
		want.Window = window
		checkArrived(t, &want, 0, 0, len(s.Payload), n.left.receive(t))
	}
	for tags := range 5 {
		for _, from := range []string{"10.9.0.1", "fd09::1"} {
			c := &frames.Segment{
				Link: frames.Link{Dst: [6]byte{2, 0, 0, 0, 9, 2}, Src: [6]byte{2, 0, 0, 0, 9, 1}},
				IP:   frames.IP{From: netip.MustParseAddr(from)}, FromPort: 1024, ToPort: 80, Window: 60000,
			}
			c.To = c.From.Next()
			for i := range tags {
				c.Tags = append(c.Tags, frames.Tag{TPID: [2]uint16{frames.TypeQinQ, frames.TypeVLAN}[i%2], TCI: uint16(0x2005 + i)})
			}
			s := n.open(t, c)
			if tags > 3 {
				arrives(&s, 60000)
				continue
			}
			arrives(&s, vethField)
			for i := range tags {
				other := s
				other.Tags = append([]frames.Tag(nil), s.Tags...)
				other.Tags[i].TCI ^= 0xe000
				arrives(&other, vethField)
				other.Tags[i].TCI++
				arrives(&other, 60000)
			}
		}
	}
}

// Segments whose checksums a device computes, one by one and as packets of many (GSO), of either IP version,
// tagged or not. The port that they leave by makes checksums and segments, makes checksums only, or leaves all
// to the kernel. The frame that arrives is what the sender would have built with the granted window, to the
// byte.
func TestFairQVeth_Offloads(t *testing.T) {
	n := newFrameNet(t, false)
	port := uint16(1024)
	for name, far := range map[string]map[string]bool{
		"segments and checksums": {"tx-tcp-segmentation": true, "tx-tcp6-segmentation": true, "tx-checksum-ip-generic": true},
		"checksums":              {"tx-tcp-segmentation": false, "tx-tcp6-segmentation": false, "tx-checksum-ip-generic": true},
		"nothing":                {"tx-tcp-segmentation": false, "tx-tcp6-segmentation": false, "tx-checksum-ip-generic": false},
	} {
		setFeatures(t, n.In, far)
		for tags, stack := range [][]frames.Tag{nil, {{TPID: frames.TypeVLAN, TCI: 0x6005}}, {{TPID: frames.TypeQinQ, TCI: 7}, {TPID: frames.TypeVLAN, TCI: 8}}} {
			for _, ip := range []frames.IP{
				{From: netip.MustParseAddr("10.9.0.1"), To: netip.MustParseAddr("10.9.0.2"), Fragment: 0x4000, ID: 1000},
				{From: netip.MustParseAddr("fd09::1"), To: netip.MustParseAddr("fd09::2")},
			} {
				for _, size := range []int{0, 1000, 1448, 8900} {
					port++
					s := n.open(t, &frames.Segment{
						Link: frames.Link{Dst: [6]byte{2, 0, 0, 0, 9, 2}, Src: [6]byte{2, 0, 0, 0, 9, 1}, Tags: stack},
						IP:   ip, FromPort: port, ToPort: 80, Window: 60000,
					})
					for _, options := range [][]byte{nil, frames.List(frames.OptionNop, frames.Nop, frames.Nop, frames.Timestamps(1, 2))} {
						for _, length := range []int{0, 1, 999, 1001, 8001, 40_001} {
							if length > 8900 && size == 0 || length <= size && size > 0 {
								continue
							}
							s.Options, s.Payload = options, pattern(length)
							t.Run(fmt.Sprintf("%s,tags=%d,%s,size=%d,options=%d,bytes=%d", name, tags, ip.From, size, len(options), length), func(t *testing.T) {
								n.offloaded(t, s, size, far)
							})
						}
					}
				}
			}
		}
	}
}

func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i * 31 >> 3)
	}
	return b
}

// offloaded sends one segment, or one packet of segments of size bytes, from the right to the left and checks
// what arrives.
func (n *frameNet) offloaded(t *testing.T, s frames.Segment, size int, far map[string]bool) {
	t.Helper()
	if size > 0 {
		s.Flags |= frames.PSH
	}
	wire := s.Bytes()
	v := frames.Parse(wire)
	v.SetPartialChecksum()
	n.right.send(t, &vnetFrame{data: wire, partial: true, size: uint16(size)})
	s.Window = vethField
	segments, arrived := 1, 0
	if size > 0 {
		segments = (len(s.Payload) + size - 1) / size
	}
	for at := 0; arrived == 0 || at < len(s.Payload); arrived++ {
		out := n.left.receive(t)
		length := len(s.Payload) - at
		if out.size == 0 && size > 0 {
			length = min(length, size)
		}
		checkArrived(t, &s, arrived, at, length, out)
		if out.partial && !far["tx-checksum-ip-generic"] {
			t.Error("a checksum was left to be made by a port that does not offload it: this test shows nothing")
		}
		at += length
	}
	if super := arrived < segments; super != (size > 0 && far["tx-tcp-segmentation"]) {
		t.Errorf("%d segments arrived as %d packets: not what this port does", segments, arrived)
	}
	if c := n.counted(t); c.Seen-c.NotTCP != uint64(segments) || c.Rewritten != uint64(segments) {
		t.Errorf("%d segments, %d rewritten; counted %+v", segments, c.Rewritten, c)
	}
}

// checkArrived checks the frame with this number, which has length bytes of s from at on.
func checkArrived(t *testing.T, s *frames.Segment, number, at, length int, out *vnetFrame) {
	t.Helper()
	want := *s
	want.Payload = s.Payload[at : at+length]
	want.Seq += uint32(at)
	if at+length < len(s.Payload) {
		want.Flags &^= frames.PSH
	}
	if want.From.Is4() {
		want.ID += uint32(number)
	}
	data, tag := inKernel(want.Bytes())
	got := out.data
	if out.partial {
		v := frames.Parse(got)
		if v.Kind != frames.KindTCP || v.Checksum() != v.PartialChecksum() {
			t.Fatalf("%v with a checksum to be made that begins with %#x, not %#x: %x", v.Kind, v.Checksum(), v.PartialChecksum(), got[:min(len(got), 100)])
		}
		v.SetChecksum()
	}
	if !bytes.Equal(got, data) || !bytes.Equal(tag, out.tag) {
		t.Fatalf("bytes from %d, tag %x, want %x\n got  %x\n want %x", at, out.tag, tag, got[:min(len(got), 100)], data[:min(len(data), 100)])
	}
}
