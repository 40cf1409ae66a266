package fabric_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"pgregory.net/rapid"

	"weir/law/fabric"
)

// Another decoder reads what AppendSegment writes, and so does ReadSegment. It also reads a frame with IP options, and one that a switch cut.
func TestSegment_AsAnotherDecoderReadsIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOfN(rapid.Byte(), 12, 12).Draw(t, "ends")
		want := fabric.Tuple{
			Proto: 6, Src: fabric.IPv4(b[:4]), Dst: fabric.IPv4(b[4:8]), SrcPort: uint16(b[8])<<8 | uint16(b[9]), DstPort: uint16(b[10])<<8 | uint16(b[11]),
		}
		flags := rapid.Byte().Draw(t, "flags")
		frame := fabric.AppendSegment([]byte{1, 2, 3}, fabric.MAC{2, 5: 1}, fabric.MAC{2, 5: 2}, want, flags)[3:]
		p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
		ip, _ := p.NetworkLayer().(*layers.IPv4)
		tcp, _ := p.TransportLayer().(*layers.TCP)
		if p.ErrorLayer() != nil || ip == nil || tcp == nil || !bytes.Equal(ip.SrcIP, want.Src[:]) || !bytes.Equal(ip.DstIP, want.Dst[:]) ||
			uint16(tcp.SrcPort) != want.SrcPort || uint16(tcp.DstPort) != want.DstPort || tcp.SYN != (flags&2 != 0) || tcp.FIN != (flags&1 != 0) || tcp.RST != (flags&4 != 0) || tcp.ACK != (flags&16 != 0) {
			t.Fatalf("%v", p)
		}
		tags := rapid.SampledFrom([][]byte{{}, {0x81, 0, 0, 7}, {0x88, 0xa8, 0, 9, 0x81, 0, 0, 7}}).Draw(t, "VLAN tags")
		tagged := slices.Concat(frame[:12], tags, frame[12:])
		if got, gotFlags, ok := fabric.ReadSegment(tagged); !ok || got != want || gotFlags != flags {
			t.Fatalf("tags %x: %v %#x %v, want %v %#x", tags, got, gotFlags, ok, want, flags)
		}
		words := rapid.IntRange(0, 10).Draw(t, "words of options")
		longer := append(append(append([]byte{}, frame[:34]...), make([]byte, 4*words)...), frame[34:]...)
		longer[14] = 0x45 + byte(words)
		longer = longer[:len(longer)-rapid.IntRange(0, 6).Draw(t, "cut")]
		if got, gotFlags, ok := fabric.ReadSegment(longer); !ok || got != want || gotFlags != flags {
			t.Fatalf("%v %#x %v, want %v %#x", got, gotFlags, ok, want, flags)
		}
	})
}

// Frames that are no TCP segments are refused, and no input is read behind its end.
func TestReadSegment_Refuses(t *testing.T) {
	good := fabric.AppendSegment(nil, fabric.MAC{2, 5: 1}, fabric.MAC{2, 5: 2}, fabric.Tuple{Src: fabric.IPv4{10, 0, 0, 1}, Dst: fabric.IPv4{10, 0, 0, 2}, SrcPort: 1, DstPort: 2}, 2)
	if _, _, ok := fabric.ReadSegment(good); !ok {
		t.Fatal("a good frame is refused")
	}
	change := func(at int, to byte) []byte {
		b := bytes.Clone(good)
		b[at] = to
		return b
	}
	for name, frame := range map[string][]byte{"must not be fragmented": change(20, 0x40), "first fragment": change(20, 0x20)} {
		if _, _, ok := fabric.ReadSegment(frame); !ok {
			t.Errorf("%s: refused", name)
		}
	}
	for name, frame := range map[string][]byte{
		"empty": nil, "cut before the flags": good[:47], "IPv6": change(12, 0x86), "version 6": change(14, 0x65), "header of 16 bytes": change(14, 0x44),
		"UDP": change(23, 17), "second fragment": change(21, 1), "a later fragment": change(20, 1), "header behind the end": change(14, 0x4f),
		"three tags": slices.Concat(good[:12], bytes.Repeat([]byte{0x81, 0, 0, 7}, 3), good[12:]), "cut in the tag": slices.Concat(good[:12], []byte{0x81, 0, 0}),
	} {
		if got, _, ok := fabric.ReadSegment(frame); ok {
			t.Errorf("%s: read as %v", name, got)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		fabric.ReadSegment(rapid.SliceOfN(rapid.Byte(), 0, 80).Draw(t, "bytes"))
		b := bytes.Clone(good)
		b[rapid.IntRange(12, 40).Draw(t, "at")] = rapid.Byte().Draw(t, "value")
		fabric.ReadSegment(b[:rapid.IntRange(0, len(b)).Draw(t, "length")])
	})
}
