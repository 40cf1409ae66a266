package fairq_test

import (
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"weir/datapath/fairq"
	"weir/datapath/park"
	"weir/datapath/reading"
	"weir/datapath/testnet"
)

// Packets that wait for credits pass after 1 ms, so answers come at once, and the port's queue is above what it has room for. Segments
// that it has no room for wait, and come behind those that were sent before them. All come, each once; none is sent again.
func TestFairQCredits_KeepsWhatTheQueueHasNoRoomFor(t *testing.T) {
	law := creditLaw()
	law.HoldRequests, law.LongestWait = false, time.Millisecond
	law.RepairLimitBytes, law.RepairMostBytes, law.RepairDue = 15_000, 2<<20, time.Second
	b := newCreditBedOf(t, 40, law, fairq.Config{Credit: fairq.CreditPaces})
	for range 3 {
		b.ask(t)
	}
	_, in := statsOfBoth(t, b.f)
	r := in.Repairs
	if r == nil || r.Over == 0 || r.Repaired == 0 {
		t.Fatalf("%+v: the queue had room for everything", r)
	}
	testnet.Until(t, "all segments have left the parking", func() bool {
		_, in := statsOfBoth(t, b.f)
		r = in.Repairs
		return r.WaitingBytes == 0 && r.Back == r.Over+r.Behind-r.Refused
	})
	if r.Full+r.Other+r.Refused > 0 {
		t.Errorf("%+v: want all kept", r)
	}
	// On another processor, a segment can overtake one that comes back at the same moment: a program cannot hold a lock until the queue
	// has it. Without an order, a third of those that waited would come late.
	if late := overtaken(t, b.client); uint64(late)*50 > r.Back {
		t.Errorf("%d segments of %d that waited came behind one that they were sent before", late, r.Back)
	}
	b.checksums(t)
	if p, err := b.f.ParkStats(); err != nil || p.Stale+p.Foreign+p.Untrimmed > 0 {
		t.Errorf("%+v: %v", p, err)
	}
}

// A segment that comes back when the queue has no room yet waits once more: here none has room until the queue is empty. So a port that
// sends later than its parking loses nothing.
func TestFairQCredits_KeptSegmentsWaitOnceMore(t *testing.T) {
	law := creditLaw()
	law.HoldRequests, law.LongestWait = false, time.Millisecond
	law.RepairLimitBytes, law.RepairFullBytes, law.RepairMostBytes, law.RepairDue = 15_000, 1514, 2<<20, time.Second
	b := newCreditBedOf(t, 40, law, fairq.Config{Credit: fairq.CreditPaces})
	for range 3 {
		b.ask(t)
	}
	r, p := b.allLeft(t)
	s := b.state(t)
	if waits := p.Parked - s.Parked; r.Over == 0 || waits <= r.Back || r.Full+r.Other+r.Refused > 0 {
		t.Errorf("%+v: %d segments waited %d times", r, r.Back, waits)
	}
	if late := overtaken(t, b.client); uint64(late)*50 > r.Back { // as above
		t.Errorf("%d segments of %d that waited came behind one that they were sent before", late, r.Back)
	}
	b.checksums(t)
}

// A segment that waited once more and was lost in the parking does not send all others round again.
func TestFairQCredits_KeptSegmentIsLost(t *testing.T) {
	law := creditLaw()
	law.HoldRequests, law.LongestWait = false, time.Millisecond
	law.RepairLimitBytes, law.RepairFullBytes, law.RepairMostBytes, law.RepairDue = 15_000, 2<<20, 2<<20, time.Second // there is room when they come back
	b := newCreditBedOf(t, 40, law, fairq.Config{Credit: fairq.CreditPaces})
	before := b.state(t).Parked
	b.ask(t) // counts are forgotten while nothing waits, so it is lost when something did
	for id := range uint32(2) {
		if err := b.f.LoseKept(id); err != nil {
			t.Fatal(err)
		}
	}
	b.ask(t)
	b.ask(t)
	r, p := b.allLeft(t)
	credits := b.state(t).Parked - before
	// Some packets of the other direction wait for credits, too.
	if waits := p.Parked - credits; r.Over == 0 || 2*waits > 3*r.Back {
		t.Errorf("%+v: %d segments waited %d times", r, r.Back, waits)
	}
}

// allLeft waits until all segments have left the parking.
func (b *creditBed) allLeft(t *testing.T) (r *reading.Repairs, p park.Stats) {
	t.Helper()
	testnet.Until(t, "all segments have left the parking", func() bool {
		_, in := statsOfBoth(t, b.f)
		var err error
		if p, err = b.f.ParkStats(); err != nil {
			t.Fatal(err)
		}
		r = in.Repairs
		return r.WaitingBytes == 0 && r.Back == r.Over+r.Behind-r.Refused && p.Returned == p.Parked
	})
	return r, p
}

// Without heartbeats nothing is kept.
func TestFairQCredits_KeepsNothingWithoutHeartbeats(t *testing.T) {
	law := creditLaw()
	law.RepairLimitBytes, law.RepairMostBytes, law.RepairDue = 1, 2<<20, time.Second // no queue is so short
	b := newCreditBedOf(t, 1, law, fairq.Config{Credit: fairq.CreditPaces, Lease: 2 * fairq.HeartbeatInterval})
	b.ask(t)
	_, in := statsOfBoth(t, b.f)
	if in.Repairs == nil || in.Repairs.Over == 0 {
		t.Fatalf("%+v: nothing is kept", in.Repairs)
	}
	testnet.Until(t, "windows are released", func() bool {
		_, in := statsOfBoth(t, b.f)
		return !in.Enforced && in.GrantBytes == 0
	})
	parked := func() uint64 {
		p, err := b.f.ParkStats()
		if err != nil {
			t.Fatal(err)
		}
		return p.Parked
	}
	before := parked()
	b.ask(t)
	if after := parked(); after != before {
		t.Errorf("%d packets were parked without heartbeats", after-before)
	}
	_, in = statsOfBoth(t, b.f)
	if r := in.Repairs; r.Back != r.Over+r.Behind-r.Refused {
		t.Errorf("%+v: segments that nobody kept are counted", r)
	}
}

// A port that enforces nothing keeps nothing: after a rollback, or while it is only observed.
func TestFairQCredits_KeepsNothingWithoutEnforcement(t *testing.T) {
	law := creditLaw()
	law.RepairLimitBytes, law.RepairMostBytes, law.RepairDue = 1, 2<<20, time.Second // no queue is so short
	law.Mode = reading.EnforceNone
	b := newCreditBedOf(t, 4, law, fairq.Config{Credit: fairq.CreditPaces})
	b.ask(t)
	p, err := b.f.ParkStats()
	if err != nil || p.Parked > 0 {
		t.Errorf("%d packets were parked: %v", p.Parked, err)
	}
}

// A packet whose sender has marked it as one that was kept gains nothing: it has waited for its credit, and nothing was kept.
func TestFairQCredits_ForgedStamps(t *testing.T) {
	law := creditLaw()
	law.RepairLimitBytes, law.RepairFullBytes, law.RepairMostBytes, law.RepairDue = 1<<20, 1<<20, 2<<20, time.Second
	b := newCreditBedOf(t, 40, law, fairq.Config{Credit: fairq.CreditPaces})
	stamp, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{
		asm.Mov.Imm(asm.R2, 6),                     // kept, and waits once more
		asm.StoreMem(asm.R1, 44, asm.R2, asm.Word), // __sk_buff.tc_index
		asm.Mov.Imm(asm.R0, -1),                    // TCX_NEXT
		asm.Return(),
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer stamp.Close()
	err = b.In.In(func() error {
		at, err := link.AttachTCX(link.TCXOptions{Interface: b.In.Ifindex, Program: stamp, Attach: ebpf.AttachTCXIngress})
		if err == nil {
			t.Cleanup(func() { _ = at.Close() })
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	b.ask(t)
	out, in := statsOfBoth(t, b.f)
	for _, s := range []*reading.Stats{&out, &in} {
		if r := s.Repairs; r != nil && (r.Back > 0 || r.WaitingBytes > 0) {
			t.Errorf("%s: %+v: segments came back that nobody kept", s.Port, r)
		}
	}
	if b.state(t).Parked == 0 {
		t.Error("nothing waited for a credit")
	}
}
