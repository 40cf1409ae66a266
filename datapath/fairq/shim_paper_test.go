package fairq_test

import (
	"testing"

	"github.com/cilium/ebpf"

	"weir/datapath/fairq"
	"weir/datapath/internal/frames"
	"weir/datapath/testnet"
)

// switchBench is a switch's programs, to run on frames: out is that of the port to the server, back that of the
// port to the client.
type switchBench struct {
	*fairq.Attachment
	out, back *ebpf.Program
}

func newSwitchBench(t *testing.T, grant uint32, c fairq.Config) *switchBench {
	t.Helper()
	p := newRwndPath(t, testnet.PathOptions{NoIPv6: true})
	f := p.govern(t, limitedTo(grant), limitedTo(grant), c)
	return &switchBench{f, programAt(t, p.Port, ebpf.AttachTCXEgress), programAt(t, p.In, ebpf.AttachTCXEgress)}
}

// printedShim writes the bits and no checksum; printedSwitch reads them and clears them.
func printedShim(frame []byte, shift byte) {
	v := frames.Parse(frame)
	frame[v.L4+12] |= shift
}

func printedSwitch(frame []byte) (shift byte) {
	v := frames.Parse(frame)
	shift = frame[v.L4+12] & 15
	frame[v.L4+12] &^= 15
	return shift
}

// As printed the shim leaves the checksum, which is wrong on the wire until the switch has cleared the bits,
// and the next switch on the path sees none. Ours is correct on every link. Every switch reads the scale, also
// of connections whose handshake it missed, and the receiver gets the original segment.
func TestFQ17_EverySwitchReadsTheScale(t *testing.T) {
	k := &talk{name: "FQ-17", port: 1, client: 4, server: 7}
	wire := k.ack(true, 0, 0)
	printedShim(wire, 7)
	if v := frames.Parse(wire); v.ChecksumError() == 0 {
		t.Error("as printed the checksum is right: this test shows nothing")
	}
	if first, second := printedSwitch(wire), printedSwitch(wire); first != 7 || second != 0 {
		t.Errorf("as printed two switches see %d and %d", first, second)
	}

	b := newShimBench(t)
	b.shakeHands(t, k, true, false)
	b.shakeHands(t, k, false, true)
	wire = throughProgram(t, b.send, k.ack(true, 0, 0), 0)
	check := func(where string, window uint16, bits byte) {
		t.Helper()
		v := frames.Parse(wire)
		if v.ChecksumError() != 0 {
			t.Errorf("%s: checksum off by %#x", where, v.ChecksumError())
		}
		if v.Window() != window || wire[v.L4+12]&15 != bits {
			t.Errorf("%s: window %d, reserved bits %d; want %d and %d", where, v.Window(), wire[v.L4+12]&15, window, bits)
		}
	}
	check("behind the shim", 60000, 7)
	for _, s := range []struct {
		name  string
		grant uint32
	}{{"first switch", 1_000_000}, {"second switch", 16384}} {
		sw := newSwitchBench(t, s.grant, fairq.Config{Scale: fairq.ScaleShim})
		throughProgram(t, sw.out, k.ack(false, 4, 1000), 0) // data, which shows the switch the port
		wire = throughProgram(t, sw.back, wire, 0)
		check(s.name, uint16((s.grant+127)>>7), 7)
	}
	wire = throughProgram(t, b.clear, wire, 0)
	check("at the receiver", 128, 0)
}
