package gcc

import "strconv"

// Explain appends why the law sent its last messages.
func (l *Law) Explain(b []byte) []byte {
	if l.why.vms == 0 {
		return b
	}
	b = strconv.AppendUint(b, l.why.marks, 10)
	b = append(b, " packets marked at "...)
	b = strconv.AppendInt(b, int64(l.why.ports), 10)
	b = append(b, " ports, "...)
	if l.p.Divide == ByVM {
		b = append(b, "each VM's own, for "...)
	} else {
		b = append(b, "divided equally among the VMs of each, for "...)
	}
	b = strconv.AppendInt(b, int64(l.why.vms), 10)
	return append(b, " VMs"...)
}
