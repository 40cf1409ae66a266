package lawtrace

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Kind is the subject of an answer.
type Kind int

// The kinds.
const (
	KindLaw      Kind = iota // Algorithm 1 (core/fairq/fairq.h), and the rest of a port
	KindCounting             // which directions are flows (core/fairq/slots.h)
	KindRelease              // what a port grants, and how windows are released (core/fairq/release.h)
	KindWindow               // which group an ACK is in, and its window (core/fairq/groups.h, window.h)
	KindEdge                 // what is advertised to the edge (core/fairq/edge.h)
	KindCredit               // promises, credits and pacing (core/fairq/credit.h, credit_ack.h, credit_turn.h)
	kinds
)

var kindNames = [kinds]string{"the law", "counting", "grants and release", "windows of ACKs", "edge mode", "promises and credits"}

func (k Kind) String() string { return kindNames[k] }

// Report is the result of a replay.
type Report struct {
	Kinds    [kinds]uint64 // answers that were compared, by their kind
	Calls    []Count       // of the law, and their outcomes, in a fixed order
	Acks     uint64        // acknowledgements for which the law decided; a GSO packet is one
	Packets  uint64        // the same as they are on the wire: a GSO packet counts its segments
	Compared uint64        // answers that were compared
	// Differences counts answers of the native law that differ from the kernel's. After each turn the replay
	// continues from the kernel's state, so that a fault of one call does not count again in those that follow.
	Differences uint64
	First       string // the first of them, in full
}

// Count is how often something happened.
type Count struct {
	What string
	N    uint64
}

// Add adds another report: of another switch, or another run.
func (r *Report) Add(other *Report) {
	for _, c := range other.Calls {
		r.count(c.What, c.N)
	}
	r.Acks, r.Packets = r.Acks+other.Acks, r.Packets+other.Packets
	r.Compared += other.Compared
	for k, n := range other.Kinds {
		r.Kinds[k] += n
	}
	r.Differences += other.Differences
	if r.First == "" {
		r.First = other.First
	}
}

func (r *Report) count(what string, n uint64) {
	for i := range r.Calls {
		if r.Calls[i].What == what {
			r.Calls[i].N += n
			return
		}
	}
	r.Calls = append(r.Calls, Count{what, n})
}

// Print writes the counts, the number of differences, and the first of them.
func (r *Report) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, c := range r.Calls {
		fmt.Fprintf(t, "%d\t  %s\n", c.N, c.What)
	}
	for k, n := range r.Kinds {
		fmt.Fprintf(t, "%d\t  answers about %s\n", n, Kind(k))
	}
	fmt.Fprintf(t, "%d\t  answers compared\n%d\t  differences\n", r.Compared, r.Differences)
	if err := t.Flush(); err != nil {
		return err
	}
	if r.First == "" {
		return nil
	}
	_, err := fmt.Fprintf(w, "the first:\n%s\n", strings.TrimRight(r.First, "\n"))
	return err
}
