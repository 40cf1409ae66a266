package result

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// PayloadShareLab is the largest share of a link's rate that can be payload in the lab. Its shaper (TBF) counts
// 1514-byte frames (Ethernet header, no preamble, CRC or gap) with 1448 bytes of payload. The rest is 14 B
// Ethernet, 20 B IP, 20 B TCP and 12 B timestamps.
const PayloadShareLab = 1448.0 / 1514

// PayloadShareSim is the same on a simulated line, where a frame takes 1538 bytes with preamble, CRC and gap.
// Guests without timestamps send 1460 bytes of payload in it: see Raw.PayloadShare.
const PayloadShareSim = 1448.0 / 1538

// Info describes the run that Raw was measured in. Durations are in the world's own time, as in Raw.
type Info struct {
	World   string
	Seed    int64
	Scale   float64 // time_scale; 0 means 1
	Scheme  string
	Laws    []string
	GuestCC string         // the guests' congestion control if they have the same one, else ""
	Params  map[string]any // typed configuration of each law, by the law's name; scaled
	Axes    map[string]string
	Switch  string        // the kind of the lab's switches, if not Linux bridges or routers
	Series  time.Duration // measure.series; 0 means 10 ms of the experiment's time
	Windows map[string][2]time.Duration
	// PayloadShare overrides Raw's and the world's; 0: Raw's, else PayloadShareLab for the lab and
	// PayloadShareSim for the simulator.
	PayloadShare float64
	// Ideal returns how long a flow would take alone on its path, in the world's time; 0: not known. It may be
	// nil.
	Ideal func(f *Flow, raw *Raw) time.Duration
}

// Build calculates the statistics of one run from its measurements. It converts times and rates to the
// experiment's own: measured times are divided by Info.Scale, rates multiplied by it. It neither keeps nor changes
// raw.
func Build(info Info, raw *Raw) *Run {
	if info.Scale <= 0 {
		info.Scale = 1
	}
	if info.Series <= 0 {
		info.Series = time.Duration(info.Scale * float64(10*time.Millisecond))
	}
	b := &builder{Info: info, raw: raw, counted: raw.LostRecords == 0 && len(raw.Ports) > 0}
	b.index()
	run := &Run{
		World: info.World, Seed: info.Seed, Scale: info.Scale, Scheme: info.Scheme,
		Laws: append([]string{}, info.Laws...), GuestCC: info.GuestCC, Switch: info.Switch,
		Params: b.params(), Axes: maps.Clone(info.Axes),
		Partial: raw.Partial, Unmet: append([]Unmet{}, raw.Unmet...),
		PayloadShare: b.payloadShare(),
	}
	if raw.RTT > 0 {
		run.RTTus = new(float64(raw.RTT) / 1e3)
	}
	if raw.LostRecords > 0 {
		run.Unmet = append(run.Unmet, UnmetTexts("measurement", Warning,
			fmt.Sprintf("measurement: %d records did not fit, so metrics of ports and drops are absent", raw.LostRecords))...)
	}
	whole := b.window(span{0, raw.Duration, true})
	run.Groups, run.Ports = whole.Groups, whole.Ports
	run.addUnconnected()
	for name, w := range info.Windows {
		if s := b.clip(span{from: w[0], to: w[1]}); s.to > s.from {
			if run.Windows == nil {
				run.Windows = map[string]Window{}
			}
			run.Windows[name] = b.window(s)
		}
	}
	run.Busy = distribute(raw.Busy)
	run.Detail = b.detail()
	return run
}

// builder holds what all parts of Build need to know about a run.
type builder struct {
	Info
	raw     *Raw
	counted bool // ports were recorded, with every drop and queue sample
	groups  []string
	flows   map[string][]int // indices into raw.Flows by group, in order of start
	mice    map[string]int   // number of mice by group: the largest index plus 1
	// dropFlow is the flow of each drop, an index into raw.Flows, or -1.
	dropFlow  []int
	flowDrops []int64          // by flow
	drops     map[string][]int // indices into raw.Drops by group
	portDrops map[string][]time.Duration
}

// index sorts flows and drops by group and port, once for all windows.
func (b *builder) index() {
	b.flows, b.mice = map[string][]int{}, map[string]int{}
	b.drops, b.portDrops = map[string][]int{}, map[string][]time.Duration{}
	for i := range b.raw.Flows {
		f := &b.raw.Flows[i]
		b.flows[f.Group] = append(b.flows[f.Group], i)
		b.mice[f.Group] = max(b.mice[f.Group], f.Mouse+1)
	}
	b.groups = slices.Sorted(maps.Keys(b.flows))
	for _, list := range b.flows {
		slices.SortStableFunc(list, func(i, j int) int {
			return cmp.Compare(b.raw.Flows[i].Start, b.raw.Flows[j].Start)
		})
	}
	b.dropFlow = attribute(b.raw.Flows, b.raw.Drops)
	b.flowDrops = make([]int64, len(b.raw.Flows))
	for i, flow := range b.dropFlow {
		d := &b.raw.Drops[i]
		b.portDrops[d.Port] = append(b.portDrops[d.Port], d.At)
		if flow >= 0 {
			b.flowDrops[flow]++
			group := b.raw.Flows[flow].Group
			b.drops[group] = append(b.drops[group], i)
		}
	}
}

// attribute finds the flow of each drop. Keys are reused, by requests on one connection and by ports that repeat:
// of the flows with the packet's key, in either direction, it takes the last one that had started. A packet
// dropped before any such flow started belongs to none (-1).
func attribute(flows []Flow, drops []Drop) []int {
	out := make([]int, len(drops))
	if len(drops) == 0 {
		return out
	}
	byKey := make(map[Key][]int, len(flows))
	for i := range flows {
		byKey[flows[i].Key] = append(byKey[flows[i].Key], i)
	}
	for _, list := range byKey {
		slices.SortStableFunc(list, func(i, j int) int { return cmp.Compare(flows[i].Start, flows[j].Start) })
	}
	latest := func(k Key, at time.Duration) int {
		list := byKey[k]
		n, _ := slices.BinarySearchFunc(list, at, func(i int, at time.Duration) int {
			if flows[i].Start <= at {
				return -1
			}
			return 1
		})
		if n == 0 {
			return -1
		}
		return list[n-1]
	}
	for i := range drops {
		d := &drops[i]
		out[i] = -1
		if d.Key == (Key{}) {
			continue
		}
		one, other := latest(d.Key, d.At), latest(d.Key.Reverse(), d.At)
		if one < 0 || other >= 0 && flows[other].Start > flows[one].Start {
			one = other
		}
		out[i] = one
	}
	return out
}

// span is the time [from, to), in the world's time. The whole run includes every flow and drop, also those at its
// ends.
type span struct {
	from, to time.Duration
	whole    bool
}

func (s span) has(t time.Duration) bool { return s.whole || t >= s.from && t < s.to }

// clip shortens a window of a run that was cut short to the part that was measured. It does not shorten the window
// of a run that ended because all flows had: nothing was sent in the rest.
func (b *builder) clip(s span) span {
	s.from = max(s.from, 0)
	if b.raw.Partial {
		s.to = min(s.to, b.raw.Duration)
	}
	return s
}

func (b *builder) window(s span) Window {
	w := Window{Groups: map[string]*Group{}, Ports: map[string]*PortResult{}}
	for _, name := range b.groups {
		w.Groups[name] = b.group(name, s)
	}
	for i := range b.raw.Ports {
		p := &b.raw.Ports[i]
		for _, label := range p.Labels {
			w.Ports[label] = b.port(p, s)
		}
	}
	all := &PortResult{}
	if b.counted {
		n := int64(0)
		for _, at := range b.portDrops {
			n += countIn(at, s)
		}
		all.Drops = new(n)
	}
	if s.whole {
		all.Law = b.lawTotals()
	}
	w.Ports[AllPorts] = all
	return w
}

func countIn(at []time.Duration, s span) int64 {
	n := int64(0)
	for _, t := range at {
		if s.has(t) {
			n++
		}
	}
	return n
}

func (b *builder) payloadShare() float64 {
	switch {
	case b.PayloadShare > 0:
		return b.PayloadShare
	case b.raw.PayloadShare > 0:
		return b.raw.PayloadShare
	case b.World == "lab":
		return PayloadShareLab
	}
	return PayloadShareSim
}

// ms converts a time of the world to ms of the experiment.
func (b *builder) ms(d time.Duration) float64 { return float64(d) / 1e6 / b.Scale }

// mbps returns the rate of n bytes in a time of the world, in Mbit/s of the experiment.
func (b *builder) mbps(n float64, d time.Duration) float64 {
	return n * 8 / d.Seconds() / 1e6 * b.Scale
}
