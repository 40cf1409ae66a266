package sicc

import (
	"strconv"
	"time"
)

// why is the reason of the last actions, for people.
type why struct {
	port   *port
	what   reason
	opened int64         // began: flows
	queue  uint64        // bytes: now; began: predicted
	lasted time.Duration // of the incast
}

type reason uint8

const (
	began   reason = iota // an incast is predicted
	joined                // a pair began during an incast
	renewed               // the leases
	ended
)

// Explain appends why the law gave its last actions.
func (l *Law) Explain(b []byte) []byte {
	w := &l.why
	if w.port == nil {
		return b
	}
	b = append(b, "port "...)
	b = strconv.AppendUint(b, uint64(w.port.at.N), 10)
	switch w.what {
	case began:
		b = append(b, ": incast: "...)
		b = append(strconv.AppendInt(b, w.opened, 10), " flows began, so "...)
		b = append(strconv.AppendUint(b, w.queue, 10), " B are predicted in a buffer of "...)
		return append(strconv.AppendUint(b, w.port.buffer, 10), " B"...)
	case joined:
		return append(b, ": a pair begins during an incast"...)
	case renewed:
		b = append(b, ": the incast goes on: queue "...)
	case ended:
		b = append(b, ": the incast ends: queue "...)
	}
	b = append(strconv.AppendUint(b, w.queue, 10), " B, lasted "...)
	return append(strconv.AppendInt(b, w.lasted.Milliseconds(), 10), " ms"...)
}
