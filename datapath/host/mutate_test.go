package host_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"weir/datapath/host"
	"weir/datapath/internal/bpftest"
	"weir/datapath/internal/frames"
	"weir/internal/testseed"
	"weir/law"
)

// checkClamp returns an error for a change that the clamp may not make: Rules.Check, and no window below the floor in a
// connection whose scale is known.
func checkClamp(in, out []byte, shift int) (changed bool, err error) {
	changed, err = frames.Rules{}.Check(in, out)
	if err != nil || !changed {
		return changed, err
	}
	v := frames.Parse(out)
	if v.Flags()&frames.SYN != 0 {
		shift = 0
	}
	if bytes := int(v.Window()) << shift; bytes < 1449 {
		return true, fmt.Errorf("a window of %d bytes, below a segment (1448) and a byte", bytes)
	}
	return true, nil
}

// Random and mutated frames: towards a VM only window and checksum ever change, never above the original and never below the
// floor; from a VM nothing changes. Each packet is counted once.
func TestHost_ChangesNothingElse(t *testing.T) {
	runs := 40_000
	if *long {
		runs = 1_000_000
	}
	random := testseed.New(t)
	r := newRig(t, host.Config{Rate: 1e9})
	var talks []*talk
	shifts := map[*talk]int{}
	for i := range 16 {
		shift := i % 15
		k := &talk{name: "mutated", vmPort: uint16(7000 + i), ipv6: i%2 == 1, vmSYN: scale7, peerTo: frames.List(1, frames.MSS(1448), frames.Scale(byte(shift)))}
		if i%3 == 2 {
			k.tags = []frames.Tag{{TPID: frames.TypeVLAN, TCI: 7}}
		}
		r.shake(t, k)
		talks = append(talks, k)
		shifts[k] = shift
	}
	grant := func() { // again and again: the test takes longer than an owner's lease
		r.grantVM(t, 20000)
		for i, k := range talks {
			if i%4 == 3 {
				set(t, r.Host, law.Grant{Owner: 1, Key: law.Key{Flow: flowOf(k), Pair: law.Pair{VM: 1}}, Value: 1, Lease: time.Minute})
			}
		}
	}
	var ran, changed, sent, dropped uint64
	for i := range runs {
		if i%500 == 0 {
			grant()
		}
		k := talks[random.IntN(len(talks))]
		fromPeer := random.IntN(2) == 0
		in := mutatedFrame(random, k, fromPeer)
		program, from := r.up, r.vm1
		if fromPeer {
			program, from = r.toVM, r.uplink
		}
		verdict, out, _, err := try(program, in, from, 0)
		if bpftest.Refused(err) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if !fromPeer {
			sent++
			if verdict == bpftest.TCXDrop {
				dropped++
			}
			if string(in) != string(out) {
				t.Fatalf("a packet from the VM was changed\n in  %x\n out %x", in, out)
			}
			continue
		}
		ran++
		// A mutation of a port or address may name another talk of this test, with another shift: the largest one is then
		// allowed. Most frames keep their ports.
		wrote, err := checkClamp(in, out, max(shifts[k], maxShift(in, k)))
		if err != nil || verdict != bpftest.TCXNext {
			t.Fatalf("returned %d: %v\n in  %x\n out %x", int32(verdict), err, in, out)
		}
		if wrote {
			changed++
		}
	}
	c := r.counted(t)
	seen := c.NotTCP + c.Tunnel + c.Fragment + c.Short + c.NoAck + c.Ungranted + c.Limited + c.Smaller + c.Unknown + c.Signed + c.Unwritable
	from := c.Relaxed + c.InClass + c.Control + c.SpoofedMAC + c.SpoofedIP + c.Malformed
	if c.Seen != ran || seen != ran || c.Sent != sent || from != sent || c.Limited != changed || dropped != sent-c.Relaxed-c.InClass {
		t.Errorf("%d towards the VM, %d changed, %d from it, %d dropped; counted %+v", ran, changed, sent, dropped, c)
	}
	if int(changed) < runs/10 || c.SpoofedIP == 0 || c.SpoofedMAC == 0 || c.Malformed == 0 || c.Unknown == 0 {
		t.Errorf("the frames left paths out: %d changed, %+v", changed, c)
	}
	t.Logf("%d towards the VM, %d changed; %d from it, %d dropped; %+v", ran, changed, sent, dropped, c)
}

// maxShift returns 14 for a frame whose ports were mutated: it may be of another connection.
func maxShift(in []byte, k *talk) int {
	v := frames.Parse(in)
	if v.Kind == frames.KindTCP && v.Ports() == [2]uint16{80, k.vmPort} {
		return 0
	}
	return 14
}

func mutatedFrame(r *rand.Rand, k *talk, fromPeer bool) []byte {
	flags := []byte{frames.ACK, frames.ACK, frames.ACK, frames.ACK | frames.PSH, frames.ACK | frames.FIN, frames.RST | frames.ACK}[r.IntN(6)]
	list := [][]byte{nil, frames.List(1, frames.Timestamps(1, 2)), withMD5()}[r.IntN(3)]
	in := k.segment(fromPeer, flags, uint16(r.Uint32()), list, []int{0, 0, 1, 700}[r.IntN(4)]).Bytes()
	return frames.Mutate(r, in)
}
