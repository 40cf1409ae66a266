package fairq_test

import (
	"testing"
	"time"

	"weir/datapath/fairq"
	"weir/datapath/testnet"
)

// While a queue is empty, packets that look at it do not sample. The first that finds bytes in it samples twice: the empty queue, at the
// time of the look before, and what it finds. Otherwise the time of the empty queue would count as time of this one.
func TestFairQ_EmptyLooksAreSampledFirst(t *testing.T) {
	const size, late = 1000, 3 // late: intervals after which packets sample in the timer's place
	law := limitedTo(23457)
	law.Period = time.Second // an empty queue rests as long
	p, f := sampledByPackets(t, law)
	raw := testnet.NewRaw(t, p.Uplink)
	// send sends frames until a packet has looked. It returns how many samples were taken.
	send := func() (samples uint64, queue uint32) {
		from, _ := statsOfBoth(t, f)
		for last := from; ; {
			raw.Send(t, filler(size))
			var s fairq.Stats
			testnet.Until(t, "the frame has passed", func() bool {
				s, _ = statsOfBoth(t, f)
				return s.Seen > last.Seen
			})
			if s.Seen/16 != last.Seen/16 {
				return s.SamplesByPacket - from.SamplesByPacket, s.QueueBytes
			}
			last = s
		}
	}
	rested := func() bool {
		testnet.Shape(t, p.Port, testnet.QuickBps, 1<<20, 3028)
		send() // may sample, if the rest is over
		testnet.Until(t, "the queue is empty", func() bool { return testnet.Queue(t, p.Port).BacklogBytes == 0 })
		time.Sleep((late + 1) * law.Tick)
		samples, _ := send()
		return samples == 0
	}
	for range 100 {
		if !rested() {
			continue // more than a period has passed, or a frame had not left
		}
		testnet.Shape(t, p.Port, testnet.SlowBps, 1<<20, 3028)
		samples, queue := send()
		if samples == 0 {
			samples, queue = send() // the first frames found no queue
		}
		if samples == 0 || queue == 0 {
			continue
		}
		if samples != 2 {
			t.Errorf("%d samples by the packet that found %d bytes, want 2", samples, queue)
		}
		return
	}
	t.Error("no look at an empty queue was followed by one at a queue")
}
