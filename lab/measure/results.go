package measure

import (
	"net/netip"
	"sort"
	"time"

	"weir/experiment/result"
)

// Reasons of result.Drop.
const (
	ReasonTail = "tail" // the queue was full
	ReasonLaw  = "law"  // a program at tcx dropped it
)

// Cost is what one of the programs took. Time is counted only while someone has the kernel's BPF
// statistics turned on (ebpf.EnableStats).
type Cost struct {
	Program string
	Events  uint64
	Time    time.Duration
}

// Costs tells what the programs took, after Stop.
func (r *Recorder) Costs() []Cost { return r.costs }

// OtherDrops tells what was dropped at the ports' devices for other reasons, after Stop.
func (r *Recorder) OtherDrops() []OtherDrops { return r.others }

// Results gives, after Stop, what happened from t0 (CLOCK_MONOTONIC, ns) to end later, in time since
// t0. The samples of a port cover the grid points of [0, end) once each and in order. Marks and Sent
// count from Start. A GSO packet that was dropped whole gives a Drop for each packet it stands for.
// lost counts records that did not fit and calls that the kernel left out: with any, the figures are
// too small and the samples of that time repeat the one before.
func (r *Recorder) Results(t0 int64, end time.Duration) (ports []result.Port, drops []result.Drop, lost uint64) {
	for i, p := range r.ports {
		out := result.Port{Name: p.Name, Labels: p.Labels, RateBps: p.RateBps, Buffer: p.BufferBytes}
		if p.Sample && r.final != nil {
			out.Samples = cover(r.samples[i], r.final[i], t0, t0+int64(end))
		}
		ports = append(ports, out)
	}
	for i := range r.drops {
		d := &r.drops[i]
		if at := time.Duration(int64(d.AtNs) - t0); at >= 0 && at < end {
			drops = append(drops, wireDrops(d, at, r.ports[d.Port].Name)...)
		}
	}
	// Records of different ports reach the ring buffer in the order they reserved room, not of time.
	sort.SliceStable(drops, func(i, j int) bool { return drops[i].At < drops[j].At })
	return ports, drops, r.lost
}

// cover turns the records of a port and its last state into samples of the grid points in [t0, end).
func cover(records []measureSample, last measurePort, t0, end int64) []result.Sample {
	const step = int64(Step)
	samples := make([]result.Sample, 0, len(records)+1)
	next := int64(0) // first grid point not yet covered
	add := func(first, count int64, backlog uint32, marks, sent uint64) {
		if skip := (max(t0, next) - first + step - 1) / step; skip > 0 {
			first, count = first+skip*step, count-skip
		}
		count = min(count, (end-first+step-1)/step)
		if count <= 0 {
			return
		}
		// Only a lost record leaves a gap: the sample before it holds on.
		if n := len(samples); n > 0 && next < first {
			samples[n-1].Count += (first - next) / step
		}
		samples = append(samples, result.Sample{
			At: time.Duration(first - t0), Step: Step, Count: count,
			Backlog: int64(backlog), Marks: marks, Sent: sent,
		})
		next = first + count*step
	}
	for i := range records {
		s := &records[i]
		add(int64(s.FirstNs), int64(s.Count), s.BacklogBytes, s.Marks, s.SentBytes)
	}
	// Since the last event nothing has changed.
	first := int64(last.NextNs)
	add(first, (end-first+step-1)/step, last.BacklogBytes, last.Marks, last.SentBytes)
	return samples
}

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
