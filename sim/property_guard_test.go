package sim

import (
	"weir/sim/event"
	"weir/sim/network"
)

// guarded and wired are at both sides of the network's guards. Guests' packets pass guarded,
// and packets on the wire pass wired.
type guarded struct {
	*ledger
	spoken network.Packet  // by the guest that is sending
	heard  *network.Packet // came from the wire, and has not passed the guards
	p      passing         // of heard
}

// Out implements network.Guard.
func (g *guarded) Out(_ network.NodeID, pk *network.Packet, _ event.Time) network.Verdict {
	if pk.Proto() == network.TCP {
		g.talk(pk).sent(pk, g.tally)
	}
	g.spoken = *pk
	return network.Pass
}

// wired is the side of the wire.
type wired struct{ g *guarded }

// Out implements network.Guard.
func (*wired) Out(network.NodeID, *network.Packet, event.Time) network.Verdict { return network.Pass }

// In implements network.Guard: feedback alone ends at the guards, all else continues.
func (w *wired) In(_ network.NodeID, pk *network.Packet, _ event.Time) network.Verdict {
	g := w.g
	g.passed()
	if pk.Proto() == network.UDP {
		return network.Pass
	}
	count(&g.delivered, pk)
	alone, p := pk.Feedback() == network.FeedbackAlone, g.take(pk, false)
	if alone {
		g.tally.Feedback++
		return network.Pass
	}
	g.heard, g.p = pk, p
	return network.Pass
}

// passed is called when a packet from the wire has passed the guards, or never will.
func (g *guarded) passed() {
	if g.heard != nil {
		broken("the guard keeps a guest's segment: %s", text(&g.p.spoken))
	}
}

// In implements network.Guard: a guest gets what the other one sent, except for a window that may be smaller and marks
// that it may not see.
func (g *guarded) In(_ network.NodeID, pk *network.Packet, _ event.Time) network.Verdict {
	if pk.Proto() == network.UDP {
		return network.Pass
	}
	if pk != g.heard {
		broken("a guest gets feedback: %s", text(pk))
	}
	g.heard = nil
	was, is := g.p.spoken, *pk
	if is.Window() > was.Window() || is.Window() == 0 && was.Window() > 0 {
		broken("a window of %d became %d: %s", was.Window(), is.Window(), text(pk))
	}
	if is.Window() < was.Window() {
		g.tally.Limited++
	}
	if is.ECN() == network.CE && was.ECN() == network.NotECT {
		broken("a guest without ECN sees a mark: %s", text(pk))
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
		broken("a guest hears %s, and the other said %s", text(pk), text(&was))
	}
	g.p.talk.delivered(pk)
	return network.Pass
}
