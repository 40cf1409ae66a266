package switchd

import (
	"slices"
	"time"

	"weir/datapath/reading"
)

const (
	watchLooks    = 4                      // readings in a part, where there is time for them
	watchLeast    = 200 * time.Millisecond // between two readings
	watchFlows    = 4096                   // flows that are looked at one by one
	windowIsFull  = 0.5                    // of its window: a flow with so much in flight may want more
	elasticEnough = 0.5                    // of the readings
	beforeMost    = 10 * judgeParts        // parts that are waited for something to compare with
)

// meteredFlow is one flow that is looked at.
type meteredFlow struct {
	acknowledged uint32
	bytes        flowParts
	parts        int // whole parts that it was there in, judgeParts at most
	group        int
	seen         uint64 // number of the last reading that had it
}

// rollbackWatch measures what a port's rules look at, part by part.
type rollbackWatch struct {
	judge judge
	part  time.Duration // how long one is

	began     time.Duration // so much of the present one is over
	first     *portReading  // at its beginning
	groupsSum [2]float64    // of the counts of flows
	looks     int
	elastic   int
	befores   int // parts of the time before enforcement

	flows   map[reading.Flow]*meteredFlow
	slot    int // of flowParts that is being filled
	reading uint64
}

func newRollbackWatch(r *Rollback, noControl bool) *rollbackWatch {
	return &rollbackWatch{
		judge: judge{rules: r.If, noControl: noControl}, part: r.Over.Std() / judgeParts,
		flows: map[reading.Flow]*meteredFlow{},
	}
}

// interval is how often a reading is wanted.
func (w *rollbackWatch) interval() time.Duration { return max(w.part/watchLooks, watchLeast) }

// needsBefore says whether a rule compares with the time before enforcement.
func (w *rollbackWatch) needsBefore() bool {
	return w.judge.noControl || slices.ContainsFunc(w.judge.rules, func(r Rule) bool { return r.Figure == Drops })
}

// knowsBefore says whether that time has been measured for as long as it will be compared with. Where too
// little passes to compare with, it waits for more, but not for ever.
func (w *rollbackWatch) knowsBefore() bool {
	return len(w.judge.before) == judgeParts && (w.judge.hasBase() || w.befores >= beforeMost)
}

func (w *rollbackWatch) wantsFlows() bool {
	return slices.ContainsFunc(w.judge.rules, func(r Rule) bool { return r.Figure == Goodput })
}

// begin forgets what was measured of flows before anything was held.
func (w *rollbackWatch) begin() { clear(w.flows) }

// read takes in a reading. It says whether it ended a part.
func (w *rollbackWatch) read(r *portReading, l *line, s stage, after time.Duration) bool {
	w.reading++
	if w.first == nil {
		w.meter(r.flows)
		w.first = r
		return false
	}
	w.began += after
	w.looks++
	for group := range w.groupsSum {
		w.groupsSum[group] += float64(r.stats.Arms[group].Flows)
	}
	if isElastic(r, l, s) {
		w.elastic++
	}
	w.meter(r.flows)
	if w.began < w.part {
		return false
	}
	p := w.between(w.first, r)
	if s == stageBefore {
		w.judge.before = latest(w.judge.before, p)
		w.befores++
	} else {
		w.judge.parts = latest(w.judge.parts, p)
	}
	w.turn()
	w.began, w.first, w.looks, w.elastic, w.groupsSum = 0, r, 0, 0, [2]float64{}
	return true
}

// isElastic says whether some flow would fill a larger window: it has more in flight than it would be
// granted, or nearly what it is. One that is granted less than a segment may have nothing in flight for that very
// reason, and may not count as sending.
func isElastic(r *portReading, l *line, s stage) bool {
	return slices.ContainsFunc(r.flows, func(f reading.Flow) bool {
		switch granted := float64(f.GrantedBytes); {
		case granted == 0 || f.GrantedBytes >= f.OfferedBytes:
			return false
		case s == stageBefore:
			return f.InFlightBytes > f.GrantedBytes
		default:
			return float64(f.InFlightBytes) >= windowIsFull*granted || f.Seen && granted < l.segment
		}
	})
}

// between is what happened from one reading to another.
func (w *rollbackWatch) between(a, b *portReading) part {
	q := b.queue.Since(a.queue)
	p := part{Seconds: w.began.Seconds(), Drops: float64(q.Drops), Sent: float64(q.SentPackets), SentBytes: float64(q.SentBytes)}
	for group := range p.Groups {
		x, y := &a.stats.Arms[group], &b.stats.Arms[group]
		p.Groups[group] = groupPart{
			Flows: w.groupsSum[group] / float64(max(w.looks, 1)), Data: cameBy(x.DataBytes, y.DataBytes),
			Retransmitted: cameBy(x.RetransmittedBytes, y.RetransmittedBytes), Acked: cameBy(x.AckedBytes, y.AckedBytes),
		}
	}
	p.Busy = w.looks > 0 && float64(w.elastic) >= elasticEnough*float64(w.looks)
	return p
}

// cameBy is how far a counter came; one that began anew came nowhere.
func cameBy(before, now uint64) float64 {
	if now < before {
		return 0
	}
	return float64(now - before)
}

// meter notes how far each flow came since the last reading. Those that are gone are forgotten.
func (w *rollbackWatch) meter(flows []reading.Flow) {
	for i := range flows {
		f := &flows[i]
		key := reading.Flow{From: f.From, To: f.To, VLANs: f.VLANs}
		m := w.flows[key]
		group := 0
		if f.Held {
			group = 1
		}
		if m == nil || m.group != group {
			if m == nil && len(w.flows) == watchFlows {
				continue
			}
			m = &meteredFlow{acknowledged: f.Acknowledged, group: group, parts: -1} // not there from the part's beginning
			w.flows[key] = m
		}
		m.bytes[w.slot] += float64(f.Acknowledged - m.acknowledged)
		m.acknowledged, m.seen = f.Acknowledged, w.reading
	}
	for key, m := range w.flows {
		if m.seen != w.reading {
			delete(w.flows, key)
		}
	}
}

// turn ends a part for the flows, and tells the judge of those that were there in all that it judges.
func (w *rollbackWatch) turn() {
	w.judge.flows = [2][]flowParts{}
	w.slot = (w.slot + 1) % judgeParts
	for _, m := range w.flows {
		m.parts = min(m.parts+1, judgeParts)
		if m.parts == judgeParts {
			f := m.bytes
			// In the order of time, the oldest first: that of the parts.
			slices.Reverse(f[:w.slot])
			slices.Reverse(f[w.slot:])
			slices.Reverse(f[:])
			w.judge.flows[m.group] = append(w.judge.flows[m.group], f)
		}
		m.bytes[w.slot] = 0
	}
}
