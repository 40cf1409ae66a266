package fairqctl

import (
	"cmp"
	"container/list"
	"time"

	"weir/law"
)

// A connection counts once its SYN and its SYN-ACK were copied: a guest that sends SYN-ACKs alone changes no window of others. The
// copies come from two switches, so either may come first. When the table is full, a connection of the VM that opened the most makes
// room: a guest that opens many displaces its own.

const (
	handshake = 3 * time.Second // between the two copies; also that of a SYN-ACK that was sent again
	maxHalves = 1 << 14
)

// half is a SYN or a SYN-ACK whose counterpart was not copied yet.
type half struct {
	ends
	answer bool // the SYN-ACK
	heard  time.Duration
	age    *list.Element
}

// agreed records a SYN, or a SYN-ACK (answer), and reports whether the connection of these ends is open now.
func (l *Law) agreed(e ends, answer bool) bool {
	if l.conns[e] != nil {
		return answer
	}
	for old := first[half](l.halvesByAge); old != nil && old.heard+handshake <= l.now; old = first[half](l.halvesByAge) {
		l.dropHalf(old)
	}
	h := l.halves[e]
	if h != nil && h.answer != answer {
		l.dropHalf(h)
		return true
	}
	if h == nil {
		if len(l.halves) >= maxHalves {
			l.dropHalf(first[half](l.halvesByAge))
		}
		h = &half{ends: e, answer: answer}
		h.age = l.halvesByAge.PushBack(h)
		l.halves[e] = h
	}
	h.heard = l.now
	l.halvesByAge.MoveToBack(h.age)
	return false
}

func (l *Law) dropHalf(h *half) {
	l.halvesByAge.Remove(h.age)
	delete(l.halves, h.ends)
}

// share is the connections that a VM opened. All addresses without a VM are one.
type share struct {
	vm    law.VM
	conns *list.List // by the time of their last copy
}

// open adds a connection. One of the VM with the most makes room if there are too many.
func (l *Law) open(e ends) *connection {
	if len(l.conns) >= maxConnections {
		l.counts.Evicted++
		l.remove(first[connection](l.largest().conns))
	}
	vm := l.guests.Of(e.opener.Addr()).VM
	s := l.shares[vm]
	if s == nil {
		s = &share{vm: vm, conns: list.New()}
		l.shares[vm] = s
	}
	c := &connection{ends: e, of: s}
	c.age, c.turn = l.byAge.PushBack(c), s.conns.PushBack(c)
	l.conns[e] = c
	if l.most == nil || s.conns.Len() > l.most.conns.Len() {
		l.most = s
	}
	l.counts.Opened++
	return c
}

// largest returns a share with at least as many connections as the mean one. It searches only if the last one has fewer now.
func (l *Law) largest() *share {
	if l.most != nil && l.most.conns.Len()*len(l.shares) >= len(l.conns) {
		return l.most
	}
	l.most = nil
	for _, s := range l.shares {
		if l.most == nil || cmp.Or(cmp.Compare(s.conns.Len(), l.most.conns.Len()), cmp.Compare(l.most.vm, s.vm)) > 0 {
			l.most = s
		}
	}
	return l.most
}

// close removes a connection from its share.
func (l *Law) close(c *connection) {
	if c.of.conns.Remove(c.turn); c.of.conns.Len() > 0 {
		return
	}
	delete(l.shares, c.of.vm)
	if l.most == c.of {
		l.most = nil
	}
}
