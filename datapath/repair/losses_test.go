package repair_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"weir/datapath/internal/repairtest"
	"weir/datapath/native"
	"weir/datapath/testnet"
)

var losses = flag.Int("losses", 1000, "TestRepair_Losses: until a queue had no room for so many packets (make repair-losses: 1000000)")

// The harness: a port of 100 Mbit/s with a queue of 100 KB and its parking, as a model in whole packets. The kernel program decides.
const (
	harnessBps   = 100e6
	harnessQueue = 100_000
	harnessLimit = harnessQueue - 2_500 - 4*1514 // the burst, and four frames
	harnessBurst = 200 * time.Microsecond
	harnessDue   = time.Duration(harnessQueue*8e9/harnessBps) + 2*time.Millisecond
	harnessFlows = 14
)

// harness is the model. Times are since its begin.
type harness struct {
	*bench
	now    time.Duration
	busy   time.Duration // when the queue will have drained
	free   time.Duration // when the parking will have sent all at the port's rate
	parked []parkedPacket
	bytes  uint32
	last   uint64 // when the packet that came back last was parked
	flows  [harnessFlows]native.RepairFlow
	sent   [harnessFlows]int // number of the last packet that joined the queue

	over, repaired, inTime, full, wrong, disorder int
	longest                                       time.Duration
}

type parkedPacket struct {
	flow, number int
	since        time.Duration
	over         bool
}

func sends(bytes int) time.Duration { return time.Duration(float64(bytes) * 8e9 / harnessBps) }

// backlog returns the bytes that wait in the queue.
func (h *harness) backlog() uint32 {
	return uint32(float64(max(0, h.busy-h.now)) * harnessBps / 8e9)
}

// joins puts a packet into the queue.
func (h *harness) joins(t *testing.T, flow, number, bytes int) {
	t.Helper()
	if number < h.sent[flow] {
		h.disorder++
	}
	h.sent[flow] = number
	h.busy = max(h.busy, h.now) + sends(bytes)
	if h.backlog() > harnessQueue+1 {
		t.Fatalf("the queue has %d bytes: more than it holds", h.backlog())
	}
}

// until has all packets come back that the parking sends before a time.
func (h *harness) until(t *testing.T, at time.Duration, frames [][]byte) {
	t.Helper()
	for len(h.parked) > 0 {
		p := h.parked[0]
		due := max(p.since, h.free-harnessBurst)
		if due > at {
			break
		}
		h.now = max(h.now, due)
		h.parked = h.parked[1:]
		h.free = max(h.free, h.now) + sends(len(frames[p.flow]))
		h.set(t)
		if got := h.run(t, frames[p.flow], h.backlog(), h.back); got != tcxNext {
			t.Fatalf("a packet that comes back: verdict %d", int32(got))
		}
		h.bytes -= uint32(len(frames[p.flow]))
		h.last = uint64(h.kernel(p.since))
		h.flows[p.flow].Waiting--
		h.joins(t, p.flow, p.number, len(frames[p.flow]))
		if p.over {
			h.repaired++
			h.longest = max(h.longest, h.now-p.since)
			if h.now-p.since <= harnessDue {
				h.inTime++
			}
		}
	}
	h.now = max(h.now, at)
}

// kernel returns a time on the clock of the program.
func (h *harness) kernel(at time.Duration) time.Duration { return time.Hour + at }

func (h *harness) set(t *testing.T) {
	t.Helper()
	if err := h.objects.NowNs.Set(uint64(h.kernel(h.now))); err != nil {
		t.Fatal(err)
	}
}

// arrives sends a packet to the port, and compares the program's verdict with that of the same C in the simulator.
func (h *harness) arrives(t *testing.T, flow, number int, frame []byte) {
	t.Helper()
	bytes := uint32(len(frame))
	config := native.RepairConfig{LimitBytes: harnessLimit, ParkBytes: harnessQueue}
	now := uint64(h.kernel(h.now))
	waits := native.RepairWaits(&h.flows[flow], h.last, now)
	want := native.Repair(&config, h.backlog(), h.bytes, bytes, true, waits)
	h.set(t)
	got := h.run(t, frame, h.backlog(), 0)
	if got != map[native.RepairVerdict]uint32{native.RepairPass: tcxNext, native.RepairOver: tcxRedirect, native.RepairBehind: tcxRedirect, native.RepairFull: tcxDrop}[want] {
		h.wrong++
	}
	switch want {
	case native.RepairPass:
		h.joins(t, flow, number, len(frame))
	case native.RepairOver, native.RepairBehind:
		h.parked = append(h.parked, parkedPacket{flow, number, h.now, want == native.RepairOver})
		h.bytes += bytes
		h.flows[flow].ParkedNs = now
		h.flows[flow].Waiting++
	default:
		h.full++
	}
	if want == native.RepairOver || want == native.RepairFull {
		h.over++
	}
}

// Bursts of 14 senders overflow the queue again and again. The kernel program decides as the simulator's C does. Of
// the packets that the queue had no room for, at least 95 % are back within the time of a full queue and 2 ms. No flow is reordered.
func TestRepair_Losses(t *testing.T) {
	h := &harness{bench: newBench(t)}
	h.configure(t, repairtest.RepairRepairPortConfig{LimitBytes: harnessLimit, ParkBytes: harnessQueue, DueNs: uint64(harnessDue)})
	c := repairtest.RepairRepairControl{HeartbeatNs: uint64(time.Hour), LeaseNs: uint64(1000 * time.Hour)}
	if err := h.objects.RepairControls.Put(uint32(0), &c); err != nil {
		t.Fatal(err)
	}
	var frames [][]byte
	for flow := range harnessFlows {
		frames = append(frames, segment("10.9.0.1", "10.9.0.2", uint16(4000+flow), 80))
	}
	r := rand.New(rand.NewPCG(22, 1))
	var number [harnessFlows]int
	for h.over < *losses {
		for range 10 { // segments of each sender, which are mixed
			for flow := range harnessFlows {
				h.until(t, h.now+time.Duration(r.Int64N(int64(10*time.Microsecond))), frames)
				number[flow]++
				h.arrives(t, flow, number[flow], frames[flow])
			}
		}
		h.until(t, h.now+8*time.Millisecond+time.Duration(r.Int64N(int64(10*time.Millisecond))), frames)
	}
	t.Logf("%d packets, no room for %d: %d repaired, %d in time, the longest wait %v; %d dropped, %d out of order, %d other verdicts",
		h.packets, h.over, h.repaired, h.inTime, h.longest, h.full, h.disorder, h.wrong)
	if h.inTime*100 < 95*h.over || h.disorder > 0 || h.wrong > 0 {
		t.Errorf("%d of %d in time, %d out of order, %d verdicts differ", h.inTime, h.over, h.disorder, h.wrong)
	}
}

var realLosses = flag.Int("real-losses", 100, "TestRepair_RealLosses: so many packets of real connections (make repair-losses: 10000)")

// Real connections overflow the queue until it had no room for as many packets as -real-losses says. Receivers see no segment out of order.
func TestRepair_RealLosses(t *testing.T) {
	p := testnet.NewPath(t, testnet.PathOptions{PortBps: realBps, Limit: realQueue, NoIPv6: true})
	r := attached(t, p, realBps, realLimit, realPark)
	send := connected(t, p)
	rounds := 0
	for ; int(statsOf(t, r).Over) < *realLosses; rounds++ {
		send()
	}
	s, o := statsOf(t, r), outcomeOf(t, p)
	says := fmt.Sprintf("%d rounds: %+v; %+v", rounds, o, s)
	t.Log(says)
	if lost := s.Over + s.Full; s.InTime*100 < 95*lost || o.outOfOrder > s.Full {
		t.Error(says)
	}
}
