package result

import (
	"time"
)

// Detail is a run flow by flow and instant by instant, in the experiment's own time and rate: the input of figures
// and Parquet rows.
type Detail struct {
	DurationMs float64
	Flows      []FlowDetail
	// Queues has the backlog of each named port, by its label.
	Queues map[string][]QueueStep
	// Rates has the rate of each group in successive steps of StepMs from 0, in Mbit/s.
	Rates  map[string][]float64
	StepMs float64
}

// FlowDetail is one flow or request. Times are ms from the start of the traffic.
type FlowDetail struct {
	Group, Item    string // Item: the traffic item of the file
	Src, Dst       string
	Mouse, Epoch   int
	StartMs, EndMs float64
	FCTMs          *float64 // nil: unfinished, or without a size
	Bytes          int64
	Size           *int64   // nil: none, or not known
	Slowdown       *float64 // nil: unfinished, without a size, or the ideal time is not known
	Drops          *int64   // nil: not known
	Timeouts       *int64   // nil: not known, or not TCP
	FLoss, LAck    *int64   // of the Timeouts, see Causes; nil: not known, or not TCP
	Missed         *bool    // nil: no deadline
	Done, Endless  bool
	// Rates is the flow's rate in successive steps of Detail.StepMs from 0, in Mbit/s. Only flows without a size
	// have it, and only if there are at most RatedFlows of them.
	Rates []float64
}

// RatedFlows limits how many flows without a size have their rate over time.
const RatedFlows = 64

// GoodputMbps returns the flow's payload over its active time; false when it was never active.
func (f *FlowDetail) GoodputMbps() (float64, bool) {
	if f.EndMs <= f.StartMs {
		return 0, false
	}
	return float64(f.Bytes) * 8 / 1e3 / (f.EndMs - f.StartMs), true
}

// QueueStep is a backlog that lasted from FromMs to ToMs.
type QueueStep struct {
	FromMs, ToMs float64
	Bytes        int64
}

func (b *builder) detail() *Detail {
	d := &Detail{
		DurationMs: b.ms(b.raw.Duration), StepMs: b.ms(b.Series),
		Flows:  make([]FlowDetail, 0, len(b.raw.Flows)),
		Queues: map[string][]QueueStep{}, Rates: map[string][]float64{},
	}
	for i := range b.raw.Flows {
		d.Flows = append(d.Flows, b.flowDetail(i))
	}
	b.flowRates(d.Flows)
	for _, name := range b.groups {
		d.Rates[name] = b.rates(name, span{0, b.raw.Duration, true})
	}
	for i := range b.raw.Ports {
		p := &b.raw.Ports[i]
		if len(p.Samples) == 0 || !b.counted {
			continue
		}
		for _, label := range p.Labels {
			d.Queues[label] = b.queueSteps(p.Samples)
		}
	}
	return d
}

func (b *builder) flowDetail(i int) FlowDetail {
	f := &b.raw.Flows[i]
	out := FlowDetail{
		Group: f.Group, Item: f.Item, Src: f.Src, Dst: f.Dst, Mouse: f.Mouse, Epoch: f.Epoch,
		StartMs: b.ms(f.Start), EndMs: b.ms(f.End), Bytes: f.Bytes, Done: f.Done, Endless: f.Endless,
	}
	if f.Done && !f.Endless {
		out.FCTMs = new(b.ms(f.FCT()))
		if x := b.ideal(f); x > 0 {
			out.Slowdown = new(float64(f.FCT()) / float64(x))
		}
	}
	if n := f.size(); n > 0 {
		out.Size = &n
	}
	if b.counted {
		out.Drops = &b.flowDrops[i]
	}
	if f.Timeouts >= 0 && f.Key.Proto != udp {
		out.Timeouts = new(int64(f.Timeouts))
	}
	if f.Causes.Known && f.Key.Proto != udp {
		out.FLoss, out.LAck = new(int64(f.Causes.FLoss)), new(int64(f.Causes.LAck))
	}
	if f.Deadline > 0 {
		out.Missed = new(missed(f))
	}
	return out
}

// flowRates fills in the rates of flows without a size; these last long and are few.
func (b *builder) flowRates(flows []FlowDetail) {
	n := 0
	for i := range flows {
		if flows[i].Endless {
			n++
		}
	}
	if n > RatedFlows {
		return
	}
	for i := range flows {
		if !flows[i].Endless {
			continue
		}
		h := b.history(&b.raw.Flows[i])
		for t := time.Duration(0); t+b.Series <= b.raw.Duration; t += b.Series {
			flows[i].Rates = append(flows[i].Rates, b.mbps(h.at(t+b.Series)-h.at(t), b.Series))
		}
	}
}

func (b *builder) queueSteps(samples []Sample) []QueueStep {
	out := make([]QueueStep, 0, len(samples))
	for i := range samples {
		m := &samples[i]
		lo := max(m.At, 0)
		hi := min(m.At+time.Duration(m.Count)*m.Step, b.raw.Duration)
		if hi > lo {
			out = append(out, QueueStep{b.ms(lo), b.ms(hi), m.Backlog})
		}
	}
	return out
}
