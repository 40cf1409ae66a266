package fairq_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"weir/datapath/fairq/edge"
	"weir/datapath/internal/bpftest"
	"weir/datapath/internal/frames"
	"weir/internal/testseed"
)

// checkEdge returns an error for a change that the edge may not make. It may only make the window smaller and
// clear the flag, in a segment other than a SYN, and update its checksum. A correct checksum must stay correct,
// and a wrong one wrong by the same amount. A flag that may be cleared must be.
func checkEdge(in, out []byte, guard bool) (changed bool, err error) {
	a := frames.Parse(in)
	if a.Kind == frames.KindTCP && len(in) == len(out) && out[a.L4+12]&flagged != 0 && a.Flags()&frames.SYN == 0 {
		return false, fmt.Errorf("the flag goes on")
	}
	if bytes.Equal(in, out) {
		return false, nil
	}
	if len(in) != len(out) || a.Kind != frames.KindTCP {
		return true, fmt.Errorf("%d bytes (%v) became %d", len(in), a.Kind, len(out))
	}
	for i := range in {
		flag := i == a.L4+12 && in[i]&^flagged == out[i]
		window := !guard && (i == a.L4+14 || i == a.L4+15)
		if in[i] != out[i] && !flag && !window && i != a.L4+16 && i != a.L4+17 {
			return true, fmt.Errorf("byte %d was changed; TCP begins at %d", i, a.L4)
		}
	}
	b := a
	b.Frame = out
	switch {
	case a.Flags()&frames.SYN != 0:
		return true, fmt.Errorf("a segment with flags %#x was changed", a.Flags())
	case a.Window() != b.Window() && a.Flags()&(frames.ACK|frames.RST) != frames.ACK:
		return true, fmt.Errorf("the window of a segment with flags %#x was changed", a.Flags())
	case b.Window() > a.Window() || b.Window() == 0 && a.Window() != 0:
		return true, fmt.Errorf("window %d became %d", a.Window(), b.Window())
	case a.ChecksumError() != b.ChecksumError():
		return true, fmt.Errorf("checksum was off by %#x and now is by %#x", a.ChecksumError(), b.ChecksumError())
	}
	return true, nil
}

// The edge gets random and mutated frames of limited connections. Only window, flag and checksum ever change,
// every checksum keeps its error, and windows only shrink. No flag passes, no frame is lost, and each packet is
// counted once.
func TestEdge_ChangesNothingElse(t *testing.T) {
	const runs = 60_000
	r := testseed.New(t)
	b := newEdgeBench(t, edge.Config{Lease: time.Minute})
	var all []talk
	for i, k := range headers() {
		k.port, k.client, k.server = uint16(i), r.IntN(16), r.IntN(16)
		for side := range 2 {
			b.shakeHands(t, &k, side)
			throughProgram(t, b.apply[side], k.towards(uint16(100+r.IntN(10000)), flagged, 0), 0)
			b.counted(t, side)
		}
		all = append(all, k)
	}
	var ran, changed [2]uint64
	for range runs {
		in := mutated(r, all)
		for side := range 2 { // mutated frames advertise windows too
			throughProgram(t, b.apply[side], all[r.IntN(len(all))].towards(uint16(100+r.IntN(10000)), flagged, 0), 0)
			ran[side]++
		}
		for i, p := range []*ebpf.Program{b.apply[0], b.guard[0], b.apply[1], b.guard[1]} {
			o := ebpf.RunOptions{Data: in, DataOut: make([]byte, len(in)+64)}
			verdict, err := p.Run(&o)
			if bpftest.Refused(err) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			wrote, err := checkEdge(in, o.DataOut, i%2 == 1)
			if err != nil || verdict != bpftest.TCXNext {
				t.Fatalf("program %d returned %d: %v\n in  %x\n out %x", i, int32(verdict), err, in, o.DataOut)
			}
			if i%2 == 0 {
				ran[i/2]++
			}
			if wrote {
				changed[i/2]++
			}
		}
	}
	for side := range 2 {
		c := b.counted(t, side)
		sum := c.NotTCP + c.Tunnel + c.Fragment + c.Short + c.NoAck + c.Advertised + c.Applied + c.Smaller + c.Unadvertised + c.Expired + c.Unwritable
		if c.Seen != ran[side] || sum != c.Seen || changed[side] < runs/20 || c.Applied < runs/50 || c.Advertised < runs/50 || c.Forged < runs/50 {
			t.Errorf("%d frames, %d changed, counted %+v", ran[side], changed[side], c)
		}
	}
	t.Logf("%d frames each, %d and %d changed", ran[0], changed[0], changed[1])
}
