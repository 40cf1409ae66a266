package switchd

import (
	"fmt"
	"slices"
	"time"

	"github.com/aclements/go-moremath/mathx"
	"github.com/aclements/go-moremath/stats"
)

// Evidence that a rule needs before it stops enforcement. Each limit excludes one kind of noise: flows differ among
// themselves in either group, losses come in bursts, and ports are idle at times.
const (
	judgeParts       = 5         // a rule must be broken in each of these parts of its time, and in their sum
	judgeFlows       = 2         // in each group
	judgeFlowsSum    = 4         // in each group, on average, if only sums of a group are known
	judgeBytes       = 150_000   // acknowledged to the control group in a part: about a hundred segments
	judgeChance      = 0.001     // probability that flows no worse off than the rule allows look worse
	judgeLost        = 20 * 1500 // bytes retransmitted by the treatment group over all parts
	judgeLostControl = 10 * 1500 // added to the retransmitted bytes of the control group: 0 may be chance
	judgeDrops       = 50        // packets, over all parts
	judgeDropsBefore = 10        // added to the drops before enforcement: 0 may be chance
	judgeSent        = 1000      // packets before enforcement
	portIsFull       = 0.95      // of what the port sent before: if it sends as much, no goodput was lost
)

// groupPart is what the flows of one group did in one part of a rule's time.
type groupPart struct {
	Flows                      float64 // mean
	Data, Retransmitted, Acked float64 // bytes
}

// part is what a port did in one part of a rule's time.
type part struct {
	Seconds     float64
	Groups      [2]groupPart // control, treatment
	Drops, Sent float64      // packets
	SentBytes   float64      // all traffic
	Busy        bool         // some flow would fill a larger window: without one, a low goodput is not caused by Weir
}

// flowParts is what one flow got acknowledged in each of the latest parts, in bytes.
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

// both returns the sum of both groups.
func (p *part) both() (group groupPart) {
	group = p.Groups[0]
	group.add(&p.Groups[1])
	return group
}

// judge decides whether a port's rules are broken. It only calculates; rollbackWatch measures.
type judge struct {
	rules     []Rule
	before    []part         // at most judgeParts: before enforcement
	parts     []part         // the latest judgeParts since
	flows     [2][]flowParts // control, treatment: flows that existed during all of parts
	noControl bool           // all flows are limited: there is no control group
}

// latest appends p and keeps the last judgeParts parts.
func latest(parts []part, p part) []part {
	if len(parts) == judgeParts {
		parts = slices.Delete(parts, 0, 1)
	}
	return append(parts, p)
}

// hasBase reports whether the time before enforcement has enough traffic to compare with.
func (j *judge) hasBase() bool {
	base := sum(j.before)
	needsBusy := j.noControl && slices.ContainsFunc(j.rules, func(r Rule) bool { return r.Figure == Goodput })
	all := base.both()
	return base.Sent >= judgeSent && all.Acked >= judgeBytes && (base.Busy || !needsBusy)
}

// decide returns the first rule that is broken, in words, or "". A rule is broken if every part breaks it, and all
// parts together do.
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

// brokenIn reports whether the i-th part breaks a rule. A rule that compares with the time before enforcement must be
// broken compared with each part of that time, because load varies by itself.
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

// ratio returns a rule's ratio in the i-th part (-1: in all parts together), and whether there is enough evidence for
// it.
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

// against returns the ratio to the time before enforcement, or of the groups. all: now is the sum of all parts.
func (j *judge) against(r Rule, now, base *part, all bool) (float64, bool) {
	switch r.Figure {
	case Goodput:
		return wholeGoodput(now, base, all)
	case Retransmissions:
		return j.retransmissions(now, base, all)
	}
	return drops(now, base, all)
}

// goodput returns the acknowledged bytes per flow of the treatment group divided by those of the control group. The
// treatment group needs no minimum: starved flows have no bytes acknowledged.
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

// wholeGoodput returns the goodput of all flows, now divided by before. A port that still sends as many bytes as
// before, of whatever traffic, is not left idle by Weir: the ratio is 1.
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

// retransmissions returns the retransmitted fraction of the data: of the treatment group divided by the control group,
// or, if all flows are limited, now divided by before.
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

// drops returns the fraction of packets that the port drops, now divided by before.
func drops(now, base *part, all bool) (float64, bool) {
	if base.Sent <= 0 || now.Sent <= 0 || all && (base.Sent < judgeSent || now.Drops < judgeDrops) {
		return 0, false
	}
	return now.Drops / (now.Sent + now.Drops) / ((base.Drops + judgeDropsBefore) / (base.Sent + base.Drops)), true
}

// beyondChance tests goodput flow by flow, because sums of few flows say little: flows differ among themselves. It asks
// whether the limited flows got less than the unlimited ones would at the rule's ratio. A hash assigns flows to the
// groups, so other differences affect both groups alike.
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

// say describes a broken rule with its figures.
func (j *judge) say(r Rule, ratio float64) string {
	now, base := sum(j.parts), sum(j.before)
	control, treatment, before := now.Groups[0], now.Groups[1], base.both()
	against, figures := "that of the unlimited flows", ""
	switch {
	case r.Figure == Drops:
		against = "that before enforcement"
		figures = fmt.Sprintf("the port dropped %.3g %% of its packets, before %.3g %%",
			percentOf(now.Drops, now.Sent+now.Drops), percentOf(base.Drops, base.Sent+base.Drops))
	case j.noControl:
		against = "that before enforcement (all flows are limited)"
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
		figures = fmt.Sprintf("%d limited flows had %s each, %d unlimited flows %s each", len(j.flows[1]), each[1], len(j.flows[0]), each[0])
	default:
		figures = fmt.Sprintf("limited flows sent %.3g %% again, unlimited flows %.3g %%", percentOf(treatment.Retransmitted, treatment.Data), percentOf(control.Retransmitted, control.Data))
	}
	over := time.Duration(now.Seconds * float64(time.Second)).Round(100 * time.Millisecond)
	return fmt.Sprintf("%s: it was %.2f of %s over %v: %s", r, ratio, against, over, figures)
}

func percentOf(part, total float64) float64 {
	if total <= 0 {
		return 0
	}
	return 100 * part / total
}

// bitRate formats bytes/s as bit/s.
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

// smaller returns the one-sided p-value of the Mann-Whitney rank test, 0 to 1: the probability that a is this small
// compared with b if both come from the same distribution. It returns 1 if nothing can be said: one of them is empty,
// or all values are equal.
func smaller(a, b []float64) float64 {
	test, err := stats.MannWhitneyUTest(a, b, stats.LocationLess)
	if err != nil {
		return 1
	}
	// For more than 25 values with ties, or 50 without, the library uses the normal approximation, which is too small
	// if one side has few values. The p-value cannot be below that of the rarest order:
	return max(test.P, 1/mathx.Choose(len(a)+len(b), len(a)))
}
