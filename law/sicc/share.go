package sicc

import (
	"math"
	"time"

	"weir/law"
	"weir/law/telemetry"
)

// floodFactor is how many times its share a VM begins within mouse_duration before it counts as flooding: then none of its flows
// counts, until a mouse_duration passes in which it begins less.
const floodFactor = 8

// source is what a VM began at a port in a time of mouse_duration.
type source struct {
	since  time.Duration
	began  int64 // flows
	floods bool  // more than floodFactor times the share, in this time or the one before
}

// floods reports whether a VM floods a port: its pairs are not remembered, because they would replace those of others.
func (at *port) floods(vm law.VM) bool {
	s := at.sources[vm]
	return s != nil && s.floods
}

// began returns how many flows begin at a port, by the limits of each VM. The paper counts all of them, so that one VM that sends
// many SYNs limits everybody. The list has at most 64 pairs. Flows that are not listed count while no VM is beyond its share: they may be
// its own. If unknown addresses are beyond theirs, flows that are not listed count for them, because a flood of forged addresses fills the
// list.
func (l *Law) began(now time.Duration, at *port, a *telemetry.PortArrivals) int64 {
	all, kinds := a.Counts.SYN+a.Counts.SYNACK, telemetry.SYN|telemetry.SYNACK
	active := l.p.Arrivals == ArrivalsActive
	if active {
		all, kinds = all+a.Counts.Resume, kinds|telemetry.Resume
	}
	most := int64(min(all, 1<<32))
	var listed, counted int64
	forged := false
	for _, p := range a.Pairs {
		if p.Kinds&kinds == 0 {
			continue
		}
		n := int64(p.Opened)
		if active {
			n += int64(p.Resumed)
		}
		n = max(n, 1) // of an agent of an earlier version
		vm := l.guests.Of(p.Source).VM
		may := l.share(now, at, vm, n)
		listed, counted = listed+n, counted+may
		forged = forged || vm == 0 && may < n
	}
	switch rest := max(most-listed, 0); {
	case counted == listed:
		counted += rest
	case forged:
		counted += l.share(now, at, 0, rest)
	default:
		l.counts.Over += uint64(rest)
	}
	return min(counted, most)
}

// share returns how many of n flows that a VM begins at a port count. All addresses of no known VM have one share together: a
// guest without a check of its source can send from any of them.
func (l *Law) share(now time.Duration, at *port, vm law.VM, n int64) int64 {
	if l.p.SourceShare == 0 || at.buffer == 0 { // without a buffer there is no incast
		return n
	}
	most := int64(math.Ceil(l.p.SourceShare * float64(at.buffer) / (float64(l.p.InitialWindow) * segmentBytes)))
	s := at.source(now, vm, time.Duration(l.p.MouseDuration))
	if s == nil {
		l.counts.TooMany++
		l.counts.Over += uint64(n)
		return 0
	}
	if age := now - s.since; age >= time.Duration(l.p.MouseDuration) {
		s.floods = age < 2*time.Duration(l.p.MouseDuration) && s.began > floodFactor*most
		s.since, s.began = now, 0
	}
	before := min(s.began, most)
	s.began += n
	s.floods = s.floods || s.began > floodFactor*most
	counted := min(s.began, most) - before
	if s.floods {
		counted = 0
	}
	l.counts.Over += uint64(n - counted)
	return counted
}

// source returns what a VM began at a port; nil: too many VMs did within the same time.
func (at *port) source(now time.Duration, vm law.VM, window time.Duration) *source {
	s := at.sources[vm]
	if s != nil {
		return s
	}
	if len(at.sources) == maxSources {
		for k, s := range at.sources {
			if now-s.since >= 2*window { // it does not flood any more
				delete(at.sources, k)
			}
		}
		if len(at.sources) == maxSources {
			return nil
		}
	}
	s = &source{since: now}
	at.sources[vm] = s
	return s
}
