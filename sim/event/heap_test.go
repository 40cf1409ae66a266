package event

// heap is the baseline for Queue: a 4-ary heap of (time, order). Each event keeps its place in the heap, so that it can
// be moved and removed.
type heap struct {
	now     Time
	order   uint64
	entries []heapEntry
}

type heapEntry struct {
	at    Time
	order uint64
	ev    *Event
}

func (e *heapEntry) before(o *heapEntry) bool {
	return e.at < o.at || e.at == o.at && e.order < o.order
}

func (h *heap) Now() Time { return h.now }

func (h *heap) Set(ev *Event, at Time) {
	h.order++
	ev.at = at
	e := heapEntry{at, h.order, ev}
	if ev.slot == 0 {
		h.entries = append(h.entries, e)
		h.up(len(h.entries)-1, e)
		return
	}
	h.replace(int(ev.slot-1), e)
}

func (h *heap) Stop(ev *Event) {
	if ev.slot == 0 {
		return
	}
	i, last := int(ev.slot-1), len(h.entries)-1
	e := h.entries[last]
	h.entries = h.entries[:last]
	if i != last {
		h.replace(i, e)
	}
	ev.slot = 0
}

func (h *heap) Run(until Time) {
	for len(h.entries) > 0 && h.entries[0].at <= until {
		ev := h.entries[0].ev
		h.Stop(ev)
		h.now = ev.at
		ev.handler.Happen(ev, ev.at)
	}
	h.now = until
}

// replace puts e in the place of entry i, and restores the heap's order.
func (h *heap) replace(i int, e heapEntry) {
	if i > 0 && e.before(&h.entries[(i-1)/4]) {
		h.up(i, e)
		return
	}
	h.down(i, e)
}

func (h *heap) up(i int, e heapEntry) {
	for i > 0 {
		parent := (i - 1) / 4
		if !e.before(&h.entries[parent]) {
			break
		}
		h.put(i, h.entries[parent])
		i = parent
	}
	h.put(i, e)
}

func (h *heap) down(i int, e heapEntry) {
	for {
		child := 4*i + 1
		if child >= len(h.entries) {
			break
		}
		best := child
		for c := child + 1; c < min(child+4, len(h.entries)); c++ {
			if h.entries[c].before(&h.entries[best]) {
				best = c
			}
		}
		if !h.entries[best].before(&e) {
			break
		}
		h.put(i, h.entries[best])
		i = best
	}
	h.put(i, e)
}

func (h *heap) put(i int, e heapEntry) {
	h.entries[i] = e
	e.ev.slot = int32(i) + 1
}
