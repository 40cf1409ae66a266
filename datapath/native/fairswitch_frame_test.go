//go:build cgo

package native_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"weir/datapath/native"
	"weir/internal/testseed"
)

// onesSum is the 16-bit sum with its carries added again: 0xffff if the checksum in it is right.
func onesSum(parts ...[]byte) uint32 {
	var sum uint32
	for _, p := range parts {
		for i, b := range p {
			sum += uint32(b) << (8 * (1 - i%2))
		}
		for sum > 0xffff {
			sum = sum&0xffff + sum>>16
		}
	}
	return sum
}

// switchFrame is a TCP segment in IPv4 or IPv6 with right checksums, and where its headers begin.
type switchFrame struct {
	data    []byte
	ip, tcp int
	v6      bool
}

func (f *switchFrame) tcpSum() uint32 {
	addresses := f.data[f.ip+12 : f.ip+20]
	if f.v6 {
		addresses = f.data[f.ip+8 : f.ip+40]
	}
	length := len(f.data) - f.tcp
	return onesSum(addresses, []byte{0, 6, byte(length >> 8), byte(length)}, f.data[f.tcp:])
}

func newSwitchFrame(rng *rand.Rand) *switchFrame {
	f := &switchFrame{v6: rng.IntN(3) == 0}
	noise := func(n int) {
		for range n {
			f.data = append(f.data, byte(rng.Uint32()))
		}
	}
	noise(12)
	for range rng.IntN(3) {
		f.data = append(f.data, 0x81, 0, byte(rng.Uint32()), byte(rng.Uint32()))
	}
	payload, tcpOptions, ipOptions := rng.IntN(100), rng.IntN(11), rng.IntN(11)
	if f.v6 {
		f.data = append(f.data, 0x86, 0xdd)
		f.ip = len(f.data)
		length := 20 + 4*tcpOptions + payload
		f.data = append(f.data, 0x60, byte(rng.IntN(4))<<4, 0, 0, byte(length>>8), byte(length), 6, 64)
		noise(32)
	} else {
		f.data = append(f.data, 8, 0)
		f.ip = len(f.data)
		length := 40 + 4*ipOptions + 4*tcpOptions + payload
		f.data = append(f.data, byte(0x45+ipOptions), byte(rng.IntN(4)), byte(length>>8), byte(length), 1, 2, 0x40, 0, 64, 6, 0, 0)
		noise(8 + 4*ipOptions)
	}
	f.tcp = len(f.data)
	noise(20 + 4*tcpOptions + payload)
	f.data[f.tcp+12] = byte(5+tcpOptions)<<4 | byte(rng.IntN(16))
	f.data[f.tcp+16], f.data[f.tcp+17] = 0, 0
	binary.BigEndian.PutUint16(f.data[f.tcp+16:], uint16(^f.tcpSum()))
	if !f.v6 {
		binary.BigEndian.PutUint16(f.data[f.ip+10:], uint16(^onesSum(f.data[f.ip:f.tcp])))
	}
	return f
}

// TestFairSwitchFrame_RewritesWhatItMay checks the model of frames against the rules, with full checksums.
func TestFairSwitchFrame_RewritesWhatItMay(t *testing.T) {
	rng := testseed.New(t)
	rewritten, marked := 0, 0
	for range 20000 {
		f := newSwitchFrame(rng)
		before := bytes.Clone(f.data)
		window, over, clears := rng.Uint32N(1<<(1+rng.IntN(30))), rng.IntN(2) == 0, rng.IntN(2) == 0
		mode := native.FairSwitchStay
		if clears {
			mode = native.FairSwitchClears
		}
		seen := native.FairSwitchFrame(f.data, window, over, mode)

		flags, reserved := before[f.tcp+13], before[f.tcp+12]&15
		field := uint32(binary.BigEndian.Uint16(before[f.tcp+14:]))
		shift := min(uint32(reserved), 14)
		if flags&2 != 0 {
			shift = 0
		}
		want := field
		if flags&16 != 0 && window != 0 && field > 0 && uint64(window) < uint64(field)<<shift {
			want = (window + 1<<shift - 1) / (1 << shift)
		}
		if got := uint32(binary.BigEndian.Uint16(f.data[f.tcp+14:])); got != want || seen.Rewritten != (want != field) {
			t.Fatalf("window %d, field %d, shift %d, flags %02x: wrote %d (%v), want %d", window, field, shift, flags, got, seen.Rewritten, want)
		}
		if f.tcpSum() != 0xffff || !f.v6 && onesSum(f.data[f.ip:f.tcp]) != 0xffff {
			t.Fatalf("a checksum is wrong: % x became % x", before, f.data)
		}
		for i := range before {
			free := i == f.ip+1 || !f.v6 && (i == f.ip+10 || i == f.ip+11) || i == f.tcp+12 || i >= f.tcp+14 && i < f.tcp+18
			if !free && before[i] != f.data[i] {
				t.Fatalf("byte %d changed", i)
			}
		}
		if keeps := f.data[f.tcp+12]&15 == reserved; keeps == (clears && reserved != 0) {
			t.Fatalf("reserved bits %x became %x", reserved, f.data[f.tcp+12]&15)
		}
		place := uint(0)
		if f.v6 {
			place = 4
		}
		ecn := before[f.ip+1] >> place & 3
		if ce := over && (ecn == 1 || ecn == 2); seen.Marked != ce || ce && f.data[f.ip+1] != before[f.ip+1]|3<<place || !ce && f.data[f.ip+1] != before[f.ip+1] {
			t.Fatalf("ECN %d, over %v: %02x became %02x", ecn, over, before[f.ip+1], f.data[f.ip+1])
		}
		if seen.Rewritten {
			rewritten++
		}
		if seen.Marked {
			marked++
		}
	}
	if rewritten == 0 || marked == 0 {
		t.Errorf("%d rewritten, %d marked: the frames do not cover the rules", rewritten, marked)
	}
}

// A frame that ends early passes unchanged: nothing is written before the whole header is there.
func TestFairSwitchFrame_CutFramesPass(t *testing.T) {
	rng := testseed.New(t)
	for range 500 {
		f := newSwitchFrame(rng)
		for n := range f.tcp + 20 {
			data := bytes.Clone(f.data[:n])
			seen := native.FairSwitchFrame(data, 1, false, native.FairSwitchClears)
			if !bytes.Equal(data, f.data[:n]) || seen != (native.FairSwitchSeen{}) {
				t.Fatalf("%d bytes of a frame whose TCP header ends at %d: changed, or %+v", n, f.tcp+20, seen)
			}
		}
	}
}
