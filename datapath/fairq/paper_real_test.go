package fairq_test

import (
	"bytes"
	"io"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"weir/datapath/fairq"
	"weir/datapath/internal/frames"
	"weir/datapath/testnet"
)

// filler returns a frame of size bytes that is not IP, which the bridge floods.
func filler(size int) []byte {
	f := make([]byte, size)
	copy(f, []byte{0x02, 0, 0, 0, 0, 9, 0x02, 0, 0, 0, 0, 1, 0x88, 0xb5})
	return f
}

// sampledByPackets returns a path whose port has a flow and no timer: every 16th packet samples the queue.
func sampledByPackets(t *testing.T, law fairq.Law) (*testnet.Path, *fairq.Attachment) {
	t.Helper()
	p := testnet.NewPath(t, testnet.PathOptions{PortBps: testnet.QuickBps, Limit: 1 << 20, NoIPv6: true})
	testnet.Shape(t, p.In, testnet.QuickBps, 1<<20, 3028)
	f, err := fairq.Attach([]fairq.Port{{PortRef: p.Port, Law: law}, {PortRef: p.In, Law: law}}, fairq.Config{Lease: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	flow := p.Dial(t, p.Listen(t, testnet.ReceiverIPv4))
	testnet.Send(t, flow.Client, flow.Server, 1000)
	if err := f.StopTimer(p.Port.Name); err != nil {
		t.Fatal(err)
	}
	return p, f
}

// Q is the queue in front of a packet, without it. If it counted, as in an arrival's queue, an idle port would
// read one packet each time, and a target of one packet would always be reached.
func TestFQ6_QueueIsWithoutThePacket(t *testing.T) {
	const size = 1000
	law := limitedTo(23457)
	law.Active = 4 * time.Second
	p, f := sampledByPackets(t, law)
	testnet.Shape(t, p.Port, testnet.SlowBps, 1<<20, 3028)
	raw, arrivals, idle := testnet.NewRaw(t, p.Uplink), 0, 0
	for i := 0; arrivals < 3 && i < 1000; i++ {
		last, _ := statsOfBoth(t, f)
		before := testnet.Queue(t, p.Port).BacklogBytes
		if before > 40*size { // the frames count as the socket's: with some 90 of them each further one would wait until the queue sends
			testnet.Shape(t, p.Port, testnet.QuickBps, 1<<20, 3028)
			testnet.Until(t, "the queue is empty", func() bool { return testnet.Queue(t, p.Port).BacklogBytes == 0 })
			testnet.Shape(t, p.Port, testnet.SlowBps, 1<<20, 3028)
			continue
		}
		raw.Send(t, filler(size))
		var s fairq.Stats
		testnet.Until(t, "the frame has passed", func() bool {
			s, _ = statsOfBoth(t, f)
			return s.Seen > last.Seen
		})
		after := testnet.Queue(t, p.Port).BacklogBytes
		if before == 0 {
			idle++ // as an arrival: size bytes
		}
		if s.SamplesByPacket == last.SamplesByPacket || after != before+size || s.Seen != last.Seen+1 {
			continue // no sample, or the queue also sent
		}
		arrivals++
		if s.QueueBytes != before {
			t.Errorf("a packet of %d bytes that finds %d waiting reads %d", size, before, s.QueueBytes)
		}
	}
	if arrivals < 3 || idle == 0 {
		t.Errorf("%d packets sampled the queue, %d found it empty", arrivals, idle)
	}
}

// The law of a packet is that of the queue that it leaves by. By its port of arrival, a sender's data would be
// limited by a queue that is always empty.
func TestFQ6_DataIsOfThePortThatItLeavesBy(t *testing.T) {
	p := newRwndPath(t, testnet.PathOptions{GSO: true, ChecksumOffload: true})
	law := fairq.Law{TargetBytes: 30_000, Tick: time.Millisecond, Period: 4 * time.Millisecond}
	f := p.govern(t, law, law, fairq.Config{})
	arrives := testnet.NewTap(t, p.In)
	flow := p.Dial(t, p.Listen(t, testnet.ReceiverIPv4))
	var ends sync.WaitGroup
	ends.Go(func() { _, _ = io.Copy(flow.Client, endless{}) }) // until it is closed
	ends.Go(func() { _, _ = io.Copy(io.Discard, flow.Server) })
	var out, in fairq.Stats
	testnet.Until(t, "the data's port alone has the flow, and a queue", func() bool {
		out, in = statsOfBoth(t, f)
		return out.Flows == 1 && in.Flows == 0 && in.Rewritten > 100 && out.QueueMax > law.TargetBytes/2
	})
	byArrival := 0 // packets that the port to the sender would count
	arrives.Each(t, func(s *testnet.Segment) {
		if !s.Out && s.Payload > 0 {
			byArrival++
		}
	})
	// An acknowledgement may wait there for another one, which is nothing compared with the target.
	if byArrival == 0 || in.QueueMax > law.TargetBytes/8 {
		t.Errorf("%d packets of data arrive by the port to the sender, whose queue is up to %d: this test shows nothing", byArrival, in.QueueMax)
	}
	if in.Data != 0 || out.Data == 0 {
		t.Errorf("data leaves by the port to the sender %d times, to the receiver %d times", in.Data, out.Data)
	}
	flow.Close()
	ends.Wait()
}

// endless is zeros without end.
type endless struct{}

func (endless) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// The published patch calls its own function instead of the one that sends. With our program every packet is
// forwarded, known or not, rewritten or not.
func TestFQ20_PacketsAreForwarded(t *testing.T) {
	p := newRwndPath(t, testnet.PathOptions{NoIPv6: true})
	raw, rx := testnet.NewRaw(t, p.Uplink), testnet.NewRaw(t, p.Rx)
	s := frames.Segment{
		Link: frames.Link{Dst: [6]byte{0x02, 0, 0, 0, 0, 9}, Src: [6]byte{0x02, 0, 0, 0, 0, 1}},
		IP:   frames.IP{From: netip.MustParseAddr("10.0.0.1"), To: netip.MustParseAddr("10.0.0.2")}, FromPort: 5, ToPort: 80, Window: 60000,
	}
	all := [][]byte{filler(60), filler(1500)}
	for _, flags := range []byte{frames.SYN, frames.SYN | frames.ACK, frames.ACK, frames.ACK | frames.PSH, frames.FIN | frames.ACK, frames.RST, 0, 0xff} {
		for _, payload := range []int{0, 1, 1400} {
			s.Flags, s.Payload, s.Seq = flags, make([]byte, payload), s.Seq+1
			all = append(all, s.Bytes())
		}
	}
	arrive := func(what string, in [][]byte) {
		t.Helper()
		for i, f := range in { // one by one: those that leave the port on different processors can be exchanged
			raw.Send(t, f)
			if got := rx.Receive(t, fromUplink).Data; !bytes.Equal(got, f) {
				t.Fatalf("%s: frame %d\n sent    %x\n arrived %x", what, i, f, got)
			}
		}
	}
	// Replace the program by one that reads and does not send, then by none. The first frame to arrive is sent
	// after it is gone.
	printed, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()}, // TCX_DROP
	})
	if err != nil {
		t.Fatal(err)
	}
	defer printed.Close()
	var attached link.Link
	if err := p.Port.In(func() (err error) {
		attached, err = link.AttachTCX(link.TCXOptions{Program: printed, Attach: ebpf.AttachTCXEgress, Interface: p.Port.Ifindex})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	counting, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		t.Fatal(err)
	}
	defer counting.Close()
	for _, f := range all {
		raw.Send(t, f)
	}
	testnet.Until(t, "the printed form had every packet", func() bool {
		s, err := printed.Stats()
		if err != nil {
			t.Fatal(err)
		}
		return s.RunCount >= uint64(len(all))
	})
	if err := attached.Close(); err != nil {
		t.Fatal(err)
	}
	arrive("after the printed form", [][]byte{filler(77)})

	p.govern(t, limitedTo(23457), limitedTo(23457), fairq.Config{})
	arrive("with the law", all)
}

// On real TCP: an end that has ended its data still limits the other to its window. Both ports are without flows
// when both ends have ended or either was reset.
func TestFQ8_HalfClosedConnection(t *testing.T) {
	for _, reset := range []bool{false, true} {
		p := newRwndPath(t, testnet.PathOptions{GSO: true, ChecksumOffload: true})
		f := p.govern(t, limitedTo(23457), limitedTo(23457), fairq.Config{Count: fairq.CountHandshake})
		c := p.Dial(t, p.Listen(t, testnet.ReceiverIPv4, testnet.WindowScale(4)), testnet.WindowScale(7))
		testnet.Send(t, c.Client, c.Server, 50_000)
		flows := func(what string, out, in uint32) {
			t.Helper()
			testnet.Until(t, what, func() bool {
				o, i := statsOfBoth(t, f)
				return o.Flows == out && i.Flows == in
			})
		}
		flows("a flow each way", 1, 1)
		if err := c.Client.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		flows("the server's data alone", 0, 1)
		testnet.Send(t, c.Server, c.Client, 100_000)
		if w, want := testnet.ReadTCPInfo(t, c.Server).Snd_wnd, granted(23457, 7); w != want {
			t.Errorf("half closed: window %d, want %d", w, want)
		}
		if reset {
			if err := c.Server.SetLinger(0); err != nil {
				t.Fatal(err)
			}
		}
		_ = c.Server.Close()
		flows("none", 0, 0)
	}
}

// A timer is expensive. If the queue is empty it runs once in a period, or 4 ms, and not each T. If packets
// come close together it leaves the sampling to them.
func TestFairQ_TimerRests(t *testing.T) {
	const longestRest = 4 * time.Millisecond // of bpf/fairq/port.h, and shorter than the period
	p := newRwndPath(t, testnet.PathOptions{GSO: true, ChecksumOffload: true})
	law := fairq.Law{TargetBytes: 1 << 20, Tick: time.Millisecond, Period: 8 * time.Millisecond, Active: 4 * time.Second}
	f := p.govern(t, law, law, fairq.Config{})
	flow := p.Dial(t, p.Listen(t, testnet.ReceiverIPv4))
	testnet.Send(t, flow.Client, flow.Server, 1000)
	began := time.Now() // before the first reading: this test may have to wait after it
	first, _ := statsOfBoth(t, f)
	var last fairq.Stats
	testnet.Until(t, "the timer has come often", func() bool {
		last, _ = statsOfBoth(t, f)
		return last.Samples >= first.Samples+20
	})
	// A timer is never early. The first four may be closer: a packet was there just before.
	if most := uint64(time.Since(began)/longestRest) + 5; last.Samples-first.Samples > most {
		t.Errorf("the queue is empty and the timer came %d times in %v", last.Samples-first.Samples, time.Since(began))
	}

	var ends sync.WaitGroup
	ends.Go(func() { _, _ = io.Copy(flow.Client, endless{}) }) // until it is closed
	ends.Go(func() { _, _ = io.Copy(io.Discard, flow.Server) })
	first = last
	testnet.Until(t, "packets sample", func() bool {
		last, _ = statsOfBoth(t, f)
		return last.SamplesByPacket >= first.SamplesByPacket+20
	})
	flow.Close()
	ends.Wait()
}

// The register drops flows that send nothing for a while (docs/spec 1.1). A connection that then sends again
// counts again: otherwise nothing would limit it for as long as it lives.
func TestFairQ_HandshakeForgetsAndCountsAgain(t *testing.T) {
	p := newRwndPath(t, testnet.PathOptions{GSO: true, ChecksumOffload: true})
	law := limitedTo(23457)
	law.Idle = 50 * time.Millisecond
	f := p.govern(t, law, law, fairq.Config{Count: fairq.CountHandshake})
	c := p.Dial(t, p.Listen(t, testnet.ReceiverIPv4))
	counted := func(flows uint32) bool {
		out, in := statsOfBoth(t, f)
		return out.Flows == flows && in.Flows == 0
	}
	for range 3 {
		testnet.Until(t, "the flow counts while it sends", func() bool { // also if this test waits longer than Idle
			testnet.Send(t, c.Client, c.Server, 1000)
			return counted(1)
		})
		testnet.Until(t, "the register forgot it", func() bool { return counted(0) })
	}
	var ends sync.WaitGroup
	ends.Go(func() { _, _ = io.Copy(io.Discard, c.Server) }) // until it is closed
	testnet.Until(t, "the flow counts once more", func() bool {
		if _, err := c.Client.Write(make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
		return counted(1)
	})
	c.Close()
	ends.Wait()
	testnet.Until(t, "none counts", func() bool { return counted(0) })
}

// fromUplink recognises the frames that the test sends by their source address.
func fromUplink(b []byte) bool {
	return len(b) >= 14 && bytes.Equal(b[6:12], []byte{0x02, 0, 0, 0, 0, 1})
}
