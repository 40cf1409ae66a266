package switchd

import (
	"slices"
	"time"

	"weir/datapath/reading"
)

const (
	watchLooks    = 4                      // readings per part, if the part is long enough
	watchLeast    = 200 * time.Millisecond // between two readings
	watchFlows    = 4096                   // flows that are followed one by one
	windowIsFull  = 0.5                    // of its window: a flow with this much in flight may want more
	elasticEnough = 0.5                    // of the readings
	beforeMost    = 10 * judgeParts        // parts after which the wait for enough traffic to compare with ends
)

// meteredFlow is one flow that is followed.
type meteredFlow struct {
	acknowledged uint32
	bytes        flowParts
	parts        int // whole parts during which it existed, judgeParts at most
	group        int
	seen         uint64 // number of the last reading that had it
}

// rollbackWatch measures, part by part, what a port's rules check.
type rollbackWatch struct {
	judge judge
	part  time.Duration // length of a part

	began     time.Duration // elapsed time of the current part
	first     *portReading  // reading at its beginning
	groupsSum [2]float64    // sum of the flow counts of all readings, by group
	looks     int
	elastic   int
	befores   int // parts measured before enforcement

	flows   map[reading.Flow]*meteredFlow
	slot    int // index in flowParts of the current part
	reading uint64
}

func newRollbackWatch(r *Rollback, noControl bool) *rollbackWatch {
	return &rollbackWatch{
		judge: judge{rules: r.If, noControl: noControl}, part: r.Over.Std() / judgeParts,
		flows: map[reading.Flow]*meteredFlow{},
	}
}

// interval returns how often a reading is needed.
func (w *rollbackWatch) interval() time.Duration { return max(w.part/watchLooks, watchLeast) }

// needsBefore reports whether a rule compares with the time before enforcement.
func (w *rollbackWatch) needsBefore() bool {
	return w.judge.noControl || slices.ContainsFunc(w.judge.rules, func(r Rule) bool { return r.Figure == Drops })
}

// knowsBefore reports whether that time was measured for long enough. With too little traffic to compare with it waits
// for more, for at most beforeMost parts.
func (w *rollbackWatch) knowsBefore() bool {
	return len(w.judge.before) == judgeParts && (w.judge.hasBase() || w.befores >= beforeMost)
}

func (w *rollbackWatch) wantsFlows() bool {
	return slices.ContainsFunc(w.judge.rules, func(r Rule) bool { return r.Figure == Goodput })
}

// begin forgets the flows measured before enforcement.
func (w *rollbackWatch) begin() { clear(w.flows) }

// read processes a reading. It reports whether the reading ended a part.
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
		w.groupsSum[group] += float64(r.stats.Groups[group].Flows)
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

// isElastic reports whether some flow would fill a larger window: before enforcement, a flow with more in flight than
// its grant would be; later, a flow that nearly fills its grant. A flow whose grant is below a segment may have nothing
// in flight for that very reason, and may not count as active; it is elastic, too.
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

// between returns what happened from reading a to reading b.
func (w *rollbackWatch) between(a, b *portReading) part {
	q := b.queue.Since(a.queue)
	p := part{Seconds: w.began.Seconds(), Drops: float64(q.Drops), Sent: float64(q.SentPackets), SentBytes: float64(q.SentBytes)}
	for group := range p.Groups {
		x, y := &a.stats.Groups[group], &b.stats.Groups[group]
		p.Groups[group] = groupPart{
			Flows: w.groupsSum[group] / float64(max(w.looks, 1)), Data: cameBy(x.DataBytes, y.DataBytes),
			Retransmitted: cameBy(x.RetransmittedBytes, y.RetransmittedBytes), Acked: cameBy(x.AckedBytes, y.AckedBytes),
		}
	}
	p.Busy = w.looks > 0 && float64(w.elastic) >= elasticEnough*float64(w.looks)
	return p
}

// cameBy returns the increase of a counter; 0 if it was reset.
func cameBy(before, now uint64) float64 {
	if now < before {
		return 0
	}
	return float64(now - before)
}

// meter adds up how far each flow came since the last reading. Flows that ended are forgotten.
func (w *rollbackWatch) meter(flows []reading.Flow) {
	for i := range flows {
		f := &flows[i]
		key := reading.Flow{From: f.From, To: f.To, VLANs: f.VLANs}
		m := w.flows[key]
		group := 0
		if f.Limited {
			group = 1
		}
		if m == nil || m.group != group {
			if m == nil && len(w.flows) == watchFlows {
				continue
			}
			m = &meteredFlow{acknowledged: f.Acknowledged, group: group, parts: -1} // did not exist at the beginning of the part
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

// turn ends a part for the flows, and passes the judge those that existed during all its parts.
func (w *rollbackWatch) turn() {
	w.judge.flows = [2][]flowParts{}
	w.slot = (w.slot + 1) % judgeParts
	for _, m := range w.flows {
		m.parts = min(m.parts+1, judgeParts)
		if m.parts == judgeParts {
			f := m.bytes
			// Order the parts by time, oldest first.
			slices.Reverse(f[:w.slot])
			slices.Reverse(f[w.slot:])
			slices.Reverse(f[:])
			w.judge.flows[m.group] = append(w.judge.flows[m.group], f)
		}
		m.bytes[w.slot] = 0
	}
}
