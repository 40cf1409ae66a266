//go:build cgo

package laws

import "weir/sim/network"

// Equal paths (datapath/bpf/fairq/ecmp.h): the data of a flow passes one switch, and its acknowledgements pass another.
//
// The port that these ACKs came in by is the twin of the port that the data leaves by: the data would leave there if it
// passed this switch. With `paths: N` the ACKs are limited to an Nth of its window (SPEC 1.1; docs/fairq.md), with
// `undivided` to the whole window. If the data passes here too, its port is known, and nothing is divided.

// assumesPort reports whether the twin's window limits the ACKs of a connection whose data was not seen here. It does
// if the SYN-ACK of the end that sends them was seen, because only that announces the scale. Routes are fixed in the
// simulator, so the port is looked up once.
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
