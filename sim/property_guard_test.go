package sim

import (
	"weir/experiment/result"
	"weir/sim/event"
	"weir/sim/network"
)

// guarded looks at both sides of the network's Guard: what guests say and hear passes here before and behind it, what is
// on the wire the other way round.
type guarded struct {
	*ledger
	spoken network.Packet // by the guest that is sending
}

// Out is network.Guard. No guest here sends beyond what it was granted, so nothing may be dropped.
func (g *guarded) Out(host network.NodeID, pk *network.Packet, now event.Time) (*network.Packet, bool) {
	if pk.Proto() == network.TCP {
		g.talk(pk).sent(pk, g.tally)
	}
	g.spoken = *pk
	own, ok := g.guard.Out(host, pk, now)
	if !ok {
		broken("the guard drops what a guest sends: %s", tell(pk))
	}
	return own, true
}

// In is network.Guard: a guest gets what the other one sent, but for a window that may be smaller and marks that it may
// not see.
func (g *guarded) In(host network.NodeID, pk *network.Packet, now event.Time) bool {
	if pk.Proto() == network.UDP {
		return g.guard.In(host, pk, now)
	}
	count(&g.delivered, pk)
	alone, p := pk.Feedback() == network.FeedbackAlone, g.take(pk, false)
	if !g.guard.In(host, pk, now) {
		if !alone {
			broken("the guard keeps a guest's segment: %s", tell(&p.spoken))
		}
		g.tally.Feedback++
		return false
	}
	if alone {
		broken("a guest gets feedback: %s", tell(pk))
	}
	was, is := p.spoken, *pk
	if is.Window() > was.Window() || is.Window() == 0 && was.Window() > 0 {
		broken("a window of %d became %d: %s", was.Window(), is.Window(), tell(pk))
	}
	if is.Window() < was.Window() {
		g.tally.HeldBack++
	}
	if is.ECN() == network.CE && was.ECN() == network.NotECT {
		broken("a guest without ECN sees a mark: %s", tell(pk))
	}
	is.SetWindow(was.Window())
	is.SetHash(was.Hash())
	is.SetTotal(was.Total())
	is.SetMarked(was.Marked())
	if is.ECN() == network.CE {
		is.SetECN(was.ECN())
	}
	is.SetFlags(is.Flags() | (was.Flags() & network.ECE))
	if is != was {
		broken("a guest hears %s, and the other said %s", tell(pk), tell(&was))
	}
	p.talk.delivered(pk)
	return true
}

// raw is the simulation's: what counts the guard's doings must find it, and not who looks at it.
func (l *ledger) raw() *result.Raw {
	g := l.s.net.Guard
	l.s.net.Guard = l.guard
	defer func() { l.s.net.Guard = g }()
	return l.s.raw(false)
}
