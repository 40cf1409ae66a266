package sed

import (
	"weir/law"
	"weir/law/flows"
)

// duplicates is how many duplicate ACKs make a sender retransmit (RFC 5681 3.2).
const duplicates = 3

// dropped answers the loss of a segment (SPEC 1.11) with duplicate acknowledgements, so that its sender retransmits it without a timeout.
//
// RS-1: as printed they acknowledge everything before the segment, at once. If something before it is lost, too, or gets lost at
// another switch, it can never be sent again, and the connection hangs. So they wait until the receiver has acknowledged everything before
// the segment. RS-4: one loss of a window is answered. The sender repairs the others of the window itself, at each partial
// acknowledgement (RFC 6582 3.2).
func (l *Law) dropped(e *flows.Dropped, out []law.Action) []law.Action {
	if l.repair != RepairDupACKs && l.repair != RepairDrained || e.Bytes == 0 { // RS-6: segments without data are not covered
		return out
	}
	end, known := l.windows[e.Flow]
	if known && before(e.Seq, end) {
		l.counts.Unrepaired++
		return out
	}
	if !known && len(l.windows) >= maxFlows {
		l.counts.TooMany++
		return out
	}
	l.windows[e.Flow] = e.End
	l.counts.Repairs++
	return append(out, flows.Acks{At: e.At, Flow: e.Flow, Ack: e.Seq, N: duplicates})
}

// before reports whether a sequence number is before another.
func before(a, b uint32) bool { return int32(a-b) < 0 }
