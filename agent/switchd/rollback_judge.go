package switchd

import (
	"fmt"
	"slices"
	"time"

	"github.com/aclements/go-moremath/mathx"
	"github.com/aclements/go-moremath/stats"
)

// Evidence that a rule demands before it may undo anything. Each is there against one kind of noise:
// flows differ among themselves whoever holds them, losses come in bursts, and a port is idle at times.
const (
	judgeParts       = 5         // a rule is to be broken in each of so many parts of its time, and over all of it
	judgeFlows       = 2         // in each arm
	judgeFlowsSum    = 4         // in each arm, on average, where only sums of an arm are known
	judgeBytes       = 150_000   // acknowledged to the free flows in a part: some hundred segments
	judgeChance      = 0.001     // that flows which are no worse off than the rule allows would look so
	judgeLost        = 20 * 1500 // retransmitted by held flows over all parts
	judgeLostControl = 10 * 1500 // added to what free flows retransmitted: 0 may be luck
	judgeDrops       = 50        // packets, over all parts
	judgeDropsBefore = 10        // added to the drops before enforcement: 0 may be luck
	judgeSent        = 1000      // packets before enforcement
	portIsFull       = 0.95      // of what the port sent before: whoever sent it, nothing is missing
)

// armPart is what the flows of one arm did in one part of a rule's time.
type groupPart struct {
	Flows                      float64 // mean
	Data, Retransmitted, Acked float64 // bytes
}

// part is what a port did in one part of a rule's time.
type part struct {
	Seconds     float64
	Groups      [2]groupPart // free, held
	Drops, Sent float64      // packets
	SentBytes   float64      // of whatever kind
	Busy        bool         // some flow would fill a larger window: else a low goodput says nothing of Weir
}

// flowParts is what one flow got acknowledged in each of the last parts, in bytes.
type flowParts [judgeParts]float64

func (f *flowParts) sum() (bytes float64) {
	for _, b := range f {
		bytes += b
	}
	return bytes
}

func (group *groupPart) add(b *groupPart) {
	group.Flows += b.Flows
	group.Data += b.Data
	group.Retransmitted += b.Retransmitted
	group.Acked += b.Acked
}

// sum adds parts up; Flows is their mean.
func sum(parts []part) (s part) {
	s.Busy = len(parts) > 0
	for i := range parts {
		p := &parts[i]
		s.Seconds += p.Seconds
		s.Drops += p.Drops
		s.Sent += p.Sent
		s.SentBytes += p.SentBytes
		s.Busy = s.Busy && p.Busy
		for group := range s.Groups {
			s.Groups[group].add(&p.Groups[group])
		}
	}
	for group := range s.Groups {
		s.Groups[group].Flows /= float64(max(len(parts), 1))
	}
	return s
}

// both is what the flows of both arms did.
func (p *part) both() (group groupPart) {
	group = p.Groups[0]
	group.add(&p.Groups[1])
	return group
}

// judge decides whether a port's rules are broken. It only reckons: who asks measures.
type judge struct {
	rules     []Rule
	before    []part         // at most judgeParts: before anything was held
	parts     []part         // the last judgeParts since
	flows     [2][]flowParts // free, held: those that were there in all of parts
	noControl bool           // all flows are held: there are no free ones
}

// latest keeps as many parts as are judged.
func latest(parts []part, p part) []part {
	if len(parts) == judgeParts {
		parts = slices.Delete(parts, 0, 1)
	}
	return append(parts, p)
}

// hasBase says whether what was measured before enforcement is enough to compare with.
func (j *judge) hasBase() bool {
	base := sum(j.before)
	needsBusy := j.noControl && slices.ContainsFunc(j.rules, func(r Rule) bool { return r.Figure == Goodput })
	all := base.both()
	return base.Sent >= judgeSent && all.Acked >= judgeBytes && (base.Busy || !needsBusy)
}

// decide says why a port is to be left alone, by the first rule that is broken: in every part, and in all
// together. "": by none.
func (j *judge) decide() string {
	if len(j.parts) < judgeParts {
		return ""
	}
	for _, r := range j.rules {
		ratio, ok := j.ratio(r, -1)
		if !ok || !r.broken(ratio) {
			continue
		}
		every := true
		for i := range j.parts {
			every = every && j.brokenIn(r, i)
		}
		if every && j.beyondChance(r) {
			return j.say(r, ratio)
		}
	}
	return ""
}

// brokenIn says whether a rule is broken in the i-th part, and against each part of the time before, if that is
// what it compares with: load swings by itself.
func (j *judge) brokenIn(r Rule, i int) bool {
	if r.Figure != Drops && !j.noControl {
		ratio, ok := j.ratio(r, i)
		return ok && r.broken(ratio)
	}
	for k := range j.before {
		ratio, ok := j.against(r, &j.parts[i], &j.before[k], false)
		if !ok || !r.broken(ratio) {
			return false
		}
	}
	return true
}

// ratio is what a rule looks at in the i-th part, -1: in all together, and whether there is evidence enough
// for one.
func (j *judge) ratio(r Rule, i int) (float64, bool) {
	if r.Figure == Goodput && !j.noControl {
		return j.goodput(i)
	}
	now, base := sum(j.parts), sum(j.before)
	if i >= 0 {
		now = j.parts[i]
	}
	return j.against(r, &now, &base, i < 0)
}

// against is the ratio of what was measured to what was before, or of arms. all: of all parts together.
func (j *judge) against(r Rule, now, base *part, all bool) (float64, bool) {
	switch r.Figure {
	case Goodput:
		return wholeGoodput(now, base, all)
	case Retransmissions:
		return j.retransmissions(now, base, all)
	}
	return drops(now, base, all)
}

// goodput: bytes that were acknowledged to a flow, held to free. Of held flows none are demanded: those that
// starve have none.
func (j *judge) goodput(i int) (float64, bool) {
	var mean, bytes [2]float64
	for group, flows := range j.flows {
		if len(flows) < judgeFlows {
			return 0, false
		}
		for f := range flows {
			if i < 0 {
				bytes[group] += flows[f].sum()
			} else {
				bytes[group] += flows[f][i]
			}
		}
		mean[group] = bytes[group] / float64(len(flows))
	}
	if bytes[0] < judgeBytes {
		return 0, false
	}
	return mean[1] / mean[0], true
}

// wholeGoodput: of all flows together, now to before. A port that sends as much as before, if to others, is not
// left idle by Weir.
func wholeGoodput(now, base *part, all bool) (float64, bool) {
	before := base.both()
	if base.SentBytes > 0 && now.SentBytes/now.Seconds >= portIsFull*base.SentBytes/base.Seconds {
		return 1, true
	}
	if !now.Busy || !base.Busy || before.Acked <= 0 || all && before.Acked < judgeBytes {
		return 0, false
	}
	return now.Groups[1].Acked / now.Seconds / (before.Acked / base.Seconds), true
}

// retransmissions: the part of the data that was sent again, held to free; where all are held, now to before.
func (j *judge) retransmissions(now, base *part, all bool) (float64, bool) {
	control, treatment := now.Groups[0], now.Groups[1]
	if j.noControl {
		control = base.both()
	} else if control.Flows < judgeFlowsSum || treatment.Flows < judgeFlowsSum {
		return 0, false
	}
	if control.Data <= 0 || treatment.Data <= 0 || all && (control.Data < judgeBytes || treatment.Retransmitted < judgeLost) {
		return 0, false
	}
	return treatment.Retransmitted / treatment.Data / ((control.Retransmitted + judgeLostControl) / control.Data), true
}

// drops: the part of the packets that the port drops, now to before.
func drops(now, base *part, all bool) (float64, bool) {
	if base.Sent <= 0 || now.Sent <= 0 || all && (base.Sent < judgeSent || now.Drops < judgeDrops) {
		return 0, false
	}
	return now.Drops / (now.Sent + now.Drops) / ((base.Drops + judgeDropsBefore) / (base.Sent + base.Drops)), true
}

// beyondChance asks, of goodput, the flows one by one: sums of few flows say little, as flows differ
// among themselves. Are held ones smaller than free ones would be at the rule's ratio? Which flows are held,
// a hash decides, so whatever else makes flows differ makes both arms differ alike.
func (j *judge) beyondChance(r Rule) bool {
	if r.Figure != Goodput || j.noControl {
		return true
	}
	var bytes [2][]float64
	for group, flows := range j.flows {
		for f := range flows {
			b := flows[f].sum()
			if group == 0 {
				b *= r.Than
			}
			bytes[group] = append(bytes[group], b)
		}
	}
	return smaller(bytes[1], bytes[0]) < judgeChance
}

// say puts a broken rule into words, with the figures.
func (j *judge) say(r Rule, ratio float64) string {
	now, base := sum(j.parts), sum(j.before)
	control, treatment, before := now.Groups[0], now.Groups[1], base.both()
	against, figures := "that of the free flows", ""
	switch {
	case r.Figure == Drops:
		against = "that before enforcement"
		figures = fmt.Sprintf("the port dropped %.3g %% of its packets, before %.3g %%",
			percentOf(now.Drops, now.Sent+now.Drops), percentOf(base.Drops, base.Sent+base.Drops))
	case j.noControl:
		against = "that before enforcement, for no flow is free"
		figures = fmt.Sprintf("all flows together had %s, before %s", bitRate(treatment.Acked/now.Seconds), bitRate(before.Acked/base.Seconds))
		if r.Figure == Retransmissions {
			figures = fmt.Sprintf("flows sent %.3g %% again, before %.3g %%", percentOf(treatment.Retransmitted, treatment.Data), percentOf(before.Retransmitted, before.Data))
		}
	case r.Figure == Goodput:
		var each [2]string
		for group, flows := range j.flows {
			var bytes float64
			for f := range flows {
				bytes += flows[f].sum()
			}
			each[group] = bitRate(bytes / float64(max(len(flows), 1)) / now.Seconds)
		}
		figures = fmt.Sprintf("%d held flows had %s each, %d free ones %s", len(j.flows[1]), each[1], len(j.flows[0]), each[0])
	default:
		figures = fmt.Sprintf("held flows sent %.3g %% again, free ones %.3g %%", percentOf(treatment.Retransmitted, treatment.Data), percentOf(control.Retransmitted, control.Data))
	}
	over := time.Duration(now.Seconds * float64(time.Second)).Round(100 * time.Millisecond)
	return fmt.Sprintf("%s: it was %.2f of %s over %v: %s", r, ratio, against, over, figures)
}

func percentOf(part, noControl float64) float64 {
	if noControl <= 0 {
		return 0
	}
	return 100 * part / noControl
}

// bitRate is bytes/s as people of networks say it.
func bitRate(bytesPerSecond float64) string {
	bits := 8 * bytesPerSecond
	for _, u := range []struct {
		name string
		size float64
	}{{"Gbit/s", 1e9}, {"Mbit/s", 1e6}} {
		if bits >= u.size {
			return fmt.Sprintf("%.3g %s", bits/u.size, u.name)
		}
	}
	return fmt.Sprintf("%.3g kbit/s", bits/1e3)
}

// smaller gives the one-sided p-value of Mann and Whitney's rank test, 0 to 1: how often a would come out as small
// against b if both were drawn from the same source. It is 1 where nothing can be said: one of them is empty, or all
// values are equal.
func smaller(group, b []float64) float64 {
	test, err := stats.MannWhitneyUTest(group, b, stats.LocationLess)
	if err != nil {
		return 1
	}
	// Of more than 25 values with ties, or 50 without, the library has the normal approximation, which is too small where
	// one side has few. No order of the values is rarer than this:
	return max(test.P, 1/mathx.Choose(len(group)+len(b), len(group)))
}
