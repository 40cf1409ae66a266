package result

import (
	"cmp"
	"slices"
	"time"
)

// live returns how many of the group's flows were in progress. It covers the part of the span from the first such
// flow to the last.
func (b *builder) live(name string, s span) *Level {
	type change struct {
		at time.Duration
		by int
	}
	var changes []change
	for _, i := range b.flows[name] {
		f := &b.raw.Flows[i]
		if f.waited() {
			continue
		}
		from, to := f.Start, f.End
		if !s.whole {
			from, to = max(from, s.from), min(to, s.to)
		}
		if to > from {
			changes = append(changes, change{from, 1}, change{to, -1})
		}
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Compare(a.at, b.at) })
	var levels []level
	n := 0
	for i, c := range changes {
		n += c.by
		if i+1 < len(changes) && changes[i+1].at > c.at {
			levels = append(levels, level{float64(n), changes[i+1].at - c.at, 1})
		}
	}
	d := distributeTime(levels)
	if d == nil {
		return nil
	}
	return &Level{Mean: d.Mean, Max: d.Max}
}
