//go:build cgo

package laws

import "weir/sim/network"

// Equal paths (datapath/bpf/fairq/ecmp.h): acknowledgements of which the data passes another switch.
//
// The port that they came in by is the twin of the one that the data fills: where the data would leave if it came this
// way. With `paths: N` they are held to an Nth of its window (SPEC 1.1; docs/fairq.md), with `undivided` to the whole. Of
// flows whose data passes here, the port is known, and nothing is divided.

// assumesPort says whether the ACKs of a connection whose data was never heard here are held all the same. Only those of
// an end whose SYN-ACK was seen are: it alone tells the scale. Ways are fixed here, so the port is looked for once.
func (q *fairQPort) assumesPort(c *connection, pk *network.Packet) bool {
	e, sender := &c.ends[side(pk)], &c.ends[1-side(pk)]
	switch {
	case c.assumes:
		return true
	case q.sw.paths <= 1 || !e.MayAssume(sender):
		return false
	}
	if sender.Assumed == 0 {
		if in := q.port.CameInBy(pk); in != nil {
			if at := fairQOf(in); at != nil {
				sender.Assumed = at.id
			}
		}
	}
	c.assumes = sender.Assumed != 0
	return c.assumes
}
