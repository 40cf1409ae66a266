package fairqctl

import "strconv"

// Explain appends why the law gave its last grants.
func (l *Law) Explain(b []byte) []byte {
	p := l.why.port
	if p == nil {
		return b
	}
	b = strconv.AppendUint(append(b, "port "...), uint64(p.number.N), 10)
	if l.why.renewed {
		b = append(b, ": again"...)
	}
	b = strconv.AppendInt(append(b, ": "...), int64(p.flows), 10)
	b = strconv.AppendUint(append(b, " flows, "...), l.why.window, 10)
	return append(b, " B each"...)
}
