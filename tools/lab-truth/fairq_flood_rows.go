package main

import (
	"fmt"
	"slices"
	"time"

	"weir/datapath/fairq"
)

func (b *floodBench) goodput(law string, d *deluge, spans [2][]*span) row {
	var goodput, busy, sent, share, queue [2][]float64
	for i := range spans {
		for _, s := range spans[i] {
			goodput[i], busy[i], queue[i] = append(goodput[i], s.mbps), append(busy[i], s.busy), append(queue[i], s.queue...)
			sent[i], share[i] = append(sent[i], float64(s.sent)/floodSpan.Seconds()), append(share[i], s.share)
		}
	}
	took := median(share[1])
	r := row{
		what: law + ", " + d.name, ours: median(goodput[1]), reference: median(goodput[0]) * (1 - took), unit: "Mbit/s",
		note: fmt.Sprintf("%.0f/s; CPUs busy %.0f %%, without %.0f %%", median(sent[1]), 100*median(busy[1]), 100*median(busy[0])),
	}
	if took > 0 {
		r.note += fmt.Sprintf("; less %.1f %% for the flood's own bytes", 100*took)
	}
	if b.fairq == nil {
		b.left[d.name] = min(1, r.ours/r.reference)
	} else {
		left := b.left[d.name]
		r.note += fmt.Sprintf("; drop-tail leaves %.3f", left)
		r.limit = 0.05
		if d.answered { // a flood that the port slows down has fewer answers than under drop-tail
			r.reference *= left
			r.limit, r.atLeast = 0.95, true
		}
		r.note += fmt.Sprintf("; mean queue %.0f KB, without %.0f", mean(queue[1])/1e3, mean(queue[0])/1e3)
	}
	return r
}

// waits compares what waited at the bottleneck with its limits.
func (b *floodBench) waits() ([]row, error) {
	port, err := b.fairq.PortStats(bottleneck)
	if err != nil {
		return nil, err
	}
	c := port.Credits
	const longest = 100.0 // ms
	paces := 0.0
	if c.Pacing {
		paces = 1
	}
	return []row{
		{what: "   the port paces", ours: paces, reference: 1, note: fmt.Sprintf("%d promises, %d packets parked, %d refused", c.Promised, c.Parked, c.Refused)},
		{what: "   longest wait for a credit, of all floods", ours: c.Longest.Seconds() * 1e3, reference: longest, unit: "ms", limit: 2, atMost: true,
			note: "a packet that must not overtake may wait for twice as long"},
	}, nil
}

// state compares the kernel's tables with those before the flood.
func (b *floodBench) state(d *deluge, spans [2][]*span, before map[flowEnds]fairq.Connection) ([]row, error) {
	without, least, most := rightCounts(spans[0])
	with, leastNow, mostNow := rightCounts(spans[1])
	after, err := b.activeEntries()
	if err != nil {
		return nil, err
	}
	intact := 0
	for ends, c := range before {
		if sameEntry(c, after[ends]) {
			intact++
		}
	}
	all, err := b.fairq.Connections()
	if err != nil {
		return nil, err
	}
	pending, limit, err := b.fairq.Pending()
	if err != nil {
		return nil, err
	}
	half, err := b.halfOpen()
	if err != nil {
		return nil, err
	}
	last, err := b.settled()
	if err != nil {
		return nil, err
	}
	count := row{
		what: "   samples with the right count of flows", ours: 100 * with, reference: 100 * without, unit: "%", limit: 0.99, atLeast: true,
		note: fmt.Sprintf("%d to %d of %d, without %d to %d", leastNow, mostNow, activeFlows, least, most),
	}
	if d.forges {
		count.limit, count.note = 0, count.note+": may be off during the flood"
	}
	return []row{
		count,
		{what: "   flows counted within a second after", ours: float64(last), reference: activeFlows, limit: 0.001},
		{what: "   live entries as before", ours: float64(intact), reference: float64(len(before)), limit: 0.001},
		{what: "   connections in the flow table", ours: float64(len(all)), reference: activeFlows, limit: 0.001,
			note: fmt.Sprintf("%d half-open ones wait at the receiver", half)},
		{what: "   half-open connections recorded, of the limit", ours: float64(pending), reference: float64(limit), limit: 1, atMost: true},
	}, nil
}

// rightCounts returns the share of samples with the right count of flows, and the least and the largest count.
func rightCounts(spans []*span) (share float64, least, most uint32) {
	var counts []uint32
	for _, s := range spans {
		counts = append(counts, s.counts...)
	}
	right := 0
	for _, c := range counts {
		if c == activeFlows {
			right++
		}
	}
	return float64(right) / float64(len(counts)), slices.Min(counts), slices.Max(counts)
}

// settled returns the count of flows once it is right, or after a second.
func (b *floodBench) settled() (uint32, error) {
	for end := time.Now().Add(time.Second); ; {
		s, err := b.fairq.PortStats(bottleneck)
		if err != nil || s.Flows == activeFlows || time.Now().After(end) {
			return s.Flows, err
		}
		time.Sleep(countEvery)
	}
}

// activeEntries returns the active flows' entries.
func (b *floodBench) activeEntries() (map[flowEnds]fairq.Connection, error) {
	if b.fairq == nil {
		return nil, nil
	}
	all, err := b.fairq.Connections()
	if err != nil {
		return nil, err
	}
	found := map[flowEnds]fairq.Connection{}
	for _, c := range all {
		for _, e := range b.ends {
			if c.End[0].Addr == e.client && c.End[1].Addr == e.server || c.End[1].Addr == e.client && c.End[0].Addr == e.server {
				found[e] = c
			}
		}
	}
	if len(found) != len(b.ends) {
		return nil, fmt.Errorf("%d of %d active flows are in the flow table", len(found), len(b.ends))
	}
	return found, nil
}

// sameEntry reports whether the fields of an entry that the law uses are the same.
func sameEntry(a, b fairq.Connection) bool {
	for i := range a.End {
		a.End[i].Ended, b.End[i].Ended = false, false
	}
	a.Reset, b.Reset = false, false
	return a == b
}
