package record

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"time"

	"weir/law"
	"weir/law/inventory"
	"weir/law/telemetry"
)

// Summary is what the actions of a law amount to. A grant limits from when it is given until it is released, or its lease ends.
type Summary struct {
	Grants   map[string]uint64 `json:"grants"`   // by kind: window, rate, pause
	Releases uint64            `json:"releases"` // grants without a lease
	Actions  map[string]uint64 `json:"actions"`  // of other kinds
	VMs      int               `json:"vms"`      // that were limited
	Keys     int               `json:"keys"`     // pairs of VM and peer, or flows, that were limited
	Holds    uint64            `json:"holds"`    // times that one was limited
	HeldNs   time.Duration     `json:"held_ns"`  // of all of them together
	Longest  time.Duration     `json:"longest_ns"`
	Times    []Time            `json:"times,omitempty"` // when at least one was limited, in order; without the spans beyond spansMax
}

// Time is a time in which, at each moment, at least one pair of VM and peer, or flow, was limited. Times are of the laws' clock.
type Time struct {
	From time.Duration `json:"from_ns"`
	To   time.Duration `json:"to_ns"`
	Most int           `json:"most"` // that were limited at once
}

// holds follows the grants of a law.
type holds struct {
	s    Summary
	vms  map[law.VM]bool
	live map[held]*span
	keys map[held]bool
	ends []edge
	over bool // there are more keys than keysMax
}

// edge is a moment at which a key begins (more 1) or ends (-1) to be limited.
type edge struct {
	at   time.Duration
	more int
}

type held struct {
	kind law.Kind
	key  law.Key
}

// span is a time for which a key is limited.
type span struct{ from, end time.Duration }

// keysMax limits the keys that a replay remembers.
const keysMax = 1 << 20

// spansMax limits the spans of which a replay remembers when they were.
const spansMax = 1 << 20

func newHolds() holds {
	return holds{
		s:   Summary{Grants: map[string]uint64{}, Actions: map[string]uint64{}},
		vms: map[law.VM]bool{}, live: map[held]*span{}, keys: map[held]bool{},
	}
}

func (h *holds) add(now time.Duration, a law.Action) {
	g, is := a.(law.Grant)
	if !is {
		h.s.Actions[kindText(a)]++
		return
	}
	k := held{g.Kind, g.Key}
	span1 := h.live[k]
	if span1 != nil && span1.end < now {
		h.close(k, span1.end)
		span1 = nil
	}
	if g.Lease <= 0 {
		h.s.Releases++
		if span1 != nil {
			h.close(k, now)
		}
		return
	}
	h.s.Grants[g.Kind.String()]++
	if span1 != nil {
		span1.end = now + g.Lease
		return
	}
	if len(h.keys) >= keysMax {
		h.over = true
		return
	}
	h.keys[k], h.vms[g.Key.VM] = true, true
	h.s.Holds++
	h.live[k] = &span{now, now + g.Lease}
}

func (h *holds) close(k held, at time.Duration) {
	from := h.live[k].from
	lasted := at - from
	if lasted > 0 && len(h.ends) < 2*spansMax {
		h.ends = append(h.ends, edge{from, 1}, edge{at, -1})
	}
	h.s.HeldNs += lasted
	h.s.Longest = max(h.s.Longest, lasted)
	delete(h.live, k)
}

// end returns the summary of a recording that ended at a time.
func (h *holds) end(now time.Duration) Summary {
	for k, s := range h.live {
		h.close(k, min(s.end, now))
	}
	h.s.VMs, h.s.Keys = len(h.vms), len(h.keys)
	h.s.Times = times(h.ends)
	return h.s
}

// times joins spans that overlap or follow each other.
func times(ends []edge) (list []Time) {
	slices.SortFunc(ends, func(a, b edge) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(b.more, a.more)) })
	live := 0
	for _, e := range ends {
		if live == 0 {
			list = append(list, Time{From: e.at})
		}
		live += e.more
		last := &list[len(list)-1]
		last.Most, last.To = max(last.Most, live), e.at
	}
	return list
}

func typeName(v any) string { return reflect.TypeOf(v).String() }

func kindText(a law.Action) string {
	if a == nil {
		return "unknown"
	}
	return typeName(a)
}

// actionText describes an action in one line.
func actionText(i Item[law.Action]) string {
	a := i.Value
	g, is := a.(law.Grant)
	switch {
	case a == nil:
		return i.Other
	case !is:
		text := fmt.Sprintf("%s %+v", typeName(a), a)
		return text[:min(len(text), 200)]
	}
	to := fmt.Sprintf("VM %d", g.Key.VM)
	if g.Key.Peer.IsValid() {
		to += fmt.Sprintf(" and %v", g.Key.Peer)
	}
	if g.Key.Flow != (law.Flow{}) {
		to += fmt.Sprintf(", flow %v > %v", g.Key.Flow.Src, g.Key.Flow.Dst)
	}
	if g.Lease <= 0 {
		return fmt.Sprintf("%v of %s released", g.Kind, to)
	}
	return fmt.Sprintf("%v %d for %s, lease %v", g.Kind, g.Value, to, g.Lease)
}

func eventText(e law.Event) string {
	switch e := e.(type) {
	case nil:
		return "none"
	case law.Tick:
		return "tick"
	case *telemetry.Telemetry:
		return fmt.Sprintf("telemetry of switch %d, %d ports", uint64(e.At), len(e.Ports))
	case *telemetry.Arrivals:
		return fmt.Sprintf("arrivals at switch %d, %d ports", uint64(e.At), len(e.Ports))
	case *inventory.Switch:
		return fmt.Sprintf("inventory of switch %d, %d ports", uint64(e.At), len(e.Ports))
	case *inventory.Host:
		return fmt.Sprintf("inventory of host %d, %d VMs", e.At, len(e.VMs))
	case *inventory.SwitchLeft:
		return fmt.Sprintf("switch %d left", uint64(e.At))
	case *inventory.HostLeft:
		return fmt.Sprintf("host %d left", e.At)
	}
	return typeName(e)
}
