package measure

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
	"time"

	"weir/experiment/result"
)

// Reasons of result.Drop.
const (
	ReasonTail = "tail" // the queue was full
	ReasonLaw  = "law"  // a program at tcx dropped it
)

// Cost is the cost of one of the programs. Events and Time are counted only while the kernel's BPF statistics are
// turned on (ebpf.EnableStats).
type Cost struct {
	Program string
	Events  uint64
	Time    time.Duration
	Missed  uint64 // calls that the kernel skipped, at any device, because one was in progress
}

// Costs returns the cost of the programs, after Stop.
func (r *Recorder) Costs() []Cost { return r.costs }

// Results returns, after Stop, the measurements from t0 (CLOCK_MONOTONIC, ns) for the time end, relative to t0.
// The samples of a port cover the grid points of [0, end) once each and in order. Marks and Sent count from Start;
// a mark counts when the packet enters the queue.
//
// A dropped GSO packet gives a Drop for each packet it stands for. A packet of neither TCP nor UDP gives one
// without Key. A drop in a sampled port's counter that no event reported gives a Drop without Key and Bytes; its
// time is that of the grid. lost counts records that did not fit: if there are any, figures are too small and
// samples repeat the previous one.
func (r *Recorder) Results(t0 int64, end time.Duration) (ports []result.Port, drops []result.Drop, lost uint64) {
	seen := make([][]uint64, len(r.ports)) // times of the drops by a queue
	for i := range r.drops {
		d := &r.drops[i]
		if d.Law == 0 {
			seen[d.Port] = append(seen[d.Port], d.AtNs)
		}
		if at := time.Duration(int64(d.AtNs) - t0); at >= 0 && at < end {
			drops = append(drops, wireDrops(d, at, r.ports[d.Port].Name)...)
		}
	}
	for i, p := range r.ports {
		out := result.Port{Name: p.Name, Labels: p.Labels, RateBps: p.RateBps, Buffer: p.BufferBytes}
		if p.Sample && r.final != nil {
			records := append(slices.Clone(r.samples[i]), lastSample(&r.final[i]))
			out.Samples = cover(records, t0, t0+int64(end))
			for _, ns := range unseen(records, seen[i]) {
				if at := time.Duration(int64(ns) - t0); at >= 0 && at < end {
					drops = append(drops, result.Drop{At: at, Port: p.Name, Reason: ReasonTail})
				}
			}
		}
		ports = append(ports, out)
	}
	// Records enter the ring buffer in the order in which they reserved room, not in order of time.
	slices.SortStableFunc(drops, func(a, b result.Drop) int { return cmp.Compare(a.At, b.At) })
	return ports, drops, r.lost
}

// lastSample returns the state since the last event; it lasts for ever.
func lastSample(p *measurePort) measureSample {
	return measureSample{
		FirstNs: p.NextNs, Count: math.MaxUint32, BacklogBytes: p.BacklogBytes,
		Marks: p.Marks - p.MarksDropped, SentBytes: p.SentBytes, Drops: p.Drops,
	}
}

// unseen returns the times of drops that the queue's counter has and no event reported, to the precision of the
// records. An event follows its count by some microseconds, so the counter may be ahead for a moment: only a
// difference that no later record closes was missed.
func unseen(records []measureSample, events []uint64) (times []uint64) {
	slices.Sort(events)
	missing := make([]int, len(records))
	for i, s := range records {
		before, _ := slices.BinarySearch(events, s.FirstNs)
		missing[i] = int(s.Drops) - before
	}
	if n := len(records) - 1; n >= 0 {
		missing[n] = int(records[n].Drops) - len(events)
	}
	for i := len(missing) - 2; i >= 0; i-- {
		missing[i] = min(missing[i], missing[i+1])
	}
	for i, s := range records {
		for len(times) < missing[i] {
			times = append(times, s.FirstNs)
		}
	}
	return times
}

// cover turns the records of a port, the last of which lasts for ever, into samples of the grid points in [t0,
// end).
func cover(records []measureSample, t0, end int64) []result.Sample {
	const step = int64(Step)
	samples := make([]result.Sample, 0, len(records))
	next := t0 // grid points before it are covered, or not of interest
	for i := range records {
		s := &records[i]
		first, count := int64(s.FirstNs), int64(s.Count)
		if skip := pointsBetween(first, next); skip > 0 {
			first, count = first+skip*step, count-skip
		}
		count = min(count, pointsBetween(first, end))
		if count <= 0 {
			continue
		}
		// Only a lost record leaves a gap: the sample before it continues.
		if n := len(samples); n > 0 && next < first {
			samples[n-1].Count += (first - next) / step
		}
		samples = append(samples, result.Sample{
			At: time.Duration(first - t0), Step: Step, Count: count,
			Backlog: int64(s.BacklogBytes), Marks: s.Marks, Sent: s.SentBytes,
		})
		next = first + count*step
	}
	// The mark of a packet that is then dropped is subtracted some microseconds later; it never counts.
	for i := len(samples) - 2; i >= 0; i-- {
		samples[i].Marks = min(samples[i].Marks, samples[i+1].Marks)
	}
	return samples
}

// pointsBetween counts the grid points from first, which is one, to before t.
func pointsBetween(first, t int64) int64 { return (t - first + int64(Step) - 1) / int64(Step) }

func wireDrops(d *measureDrop, at time.Duration, port string) []result.Drop {
	packets := max(int(d.Packets), 1)
	one := result.Drop{At: at, Port: port, Key: keyOf(d), Bytes: int(d.Bytes) / packets, Reason: ReasonTail}
	if d.Law != 0 {
		one.Reason = ReasonLaw
	}
	drops := make([]result.Drop, packets)
	for i := range drops {
		drops[i] = one
	}
	return drops
}

func keyOf(d *measureDrop) result.Key {
	var src, dst netip.Addr
	switch d.Family {
	case 4:
		src, dst = netip.AddrFrom4([4]byte(d.Src[:4])), netip.AddrFrom4([4]byte(d.Dst[:4]))
	case 6:
		src, dst = netip.AddrFrom16(d.Src), netip.AddrFrom16(d.Dst)
	default:
		return result.Key{}
	}
	return result.Key{Proto: d.Proto, Src: netip.AddrPortFrom(src, d.SrcPort), Dst: netip.AddrPortFrom(dst, d.DstPort)}
}
