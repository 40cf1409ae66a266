package sed

import "strconv"

// why is the reason of the last actions, for people.
type why struct {
	port *port
	what reason
}

type reason uint8

const (
	nothing   reason = iota
	triggered        // the port became congested
	crowded          // so many flows may send at once
	recovered
	declared
	began
	ended
	again // the period
)

var reasons = [...]string{
	nothing: "", triggered: "is congested", crowded: "could be filled by first windows", recovered: "is no longer congested", declared: "a deadline was declared",
	began: "a flow began", ended: "a flow ended", again: "windows again",
}

func (l *Law) explain(what reason, at *port) { l.why = why{at, what} }

// Explain appends why the law gave its last actions.
func (l *Law) Explain(b []byte) []byte {
	w := &l.why
	if w.what == nothing {
		return b
	}
	b = append(b, "port "...)
	b = strconv.AppendUint(b, uint64(w.port.at.N), 10)
	b = append(b, ": "...)
	b = append(b, reasons[w.what]...)
	b = append(b, ", "...)
	b = strconv.AppendInt(b, int64(len(w.port.flows)), 10)
	return append(b, " flows"...)
}
