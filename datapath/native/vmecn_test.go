//go:build cgo

package native

import "testing"

// The table of core/vmecn.h. Fields: 0 Not-ECT, 1 ECT(1), 2 ECT(0), 3 CE.
func TestVMECN_Table(t *testing.T) {
	for _, row := range []struct {
		what             string
		mode             uint8
		negotiated, data bool
		out, in          [4]uint8 // by field
	}{
		{"none", VMECNNone, false, true, [4]uint8{0, 1, 2, 3}, [4]uint8{0, 1, 2, 3}},
		{"none, negotiated", VMECNNone, true, true, [4]uint8{0, 1, 2, 3}, [4]uint8{0, 1, 2, 3}},
		{"all", VMECNAll, false, true, [4]uint8{2, 2, 2, 2}, [4]uint8{0, 0, 0, 0}},
		{"all, without data", VMECNAll, false, false, [4]uint8{2, 2, 2, 2}, [4]uint8{0, 0, 0, 0}},
		{"all, negotiated", VMECNAll, true, true, [4]uint8{2, 2, 2, 2}, [4]uint8{0, 0, 0, 0}},
		{"not negotiated", VMECNNotNegotiated, false, true, [4]uint8{2, 2, 2, 2}, [4]uint8{0, 0, 0, 0}},
		{"not negotiated, without data", VMECNNotNegotiated, false, false, [4]uint8{2, 2, 2, 2}, [4]uint8{0, 0, 0, 0}},
		{"negotiated", VMECNNotNegotiated, true, true, [4]uint8{2, 1, 2, 2}, [4]uint8{0, 1, 2, 3}},
		{"negotiated, without data", VMECNNotNegotiated, true, false, [4]uint8{0, 1, 2, 2}, [4]uint8{0, 1, 2, 3}},
	} {
		for field := range uint8(8) { // higher bits are ignored
			if got := VMECNOut(row.mode, row.negotiated, row.data, field); got != row.out[field%4] {
				t.Errorf("%s: field %d leaves as %d, want %d", row.what, field, got, row.out[field%4])
			}
			if got := VMECNIn(row.mode, row.negotiated, field); got != row.in[field%4] {
				t.Errorf("%s: field %d arrives as %d, want %d", row.what, field, got, row.in[field%4])
			}
		}
	}
}

// No mark of a VM leaves its host in any mode, and a VM that did not negotiate ECN sees no mark.
func TestVMECN_NoForgedMark(t *testing.T) {
	for _, mode := range []uint8{VMECNAll, VMECNNotNegotiated} {
		for i := range 16 {
			negotiated, data, field := i&1 > 0, i&2 > 0, uint8(i>>2)
			if got := VMECNOut(mode, negotiated, data, field); got == 3 || data && got == 0 {
				t.Errorf("mode %d, negotiated %v: field %d leaves as %d", mode, negotiated, field, got)
			}
			if got := VMECNIn(mode, false, field); got != 0 {
				t.Errorf("mode %d: a VM without ECN sees %d", mode, got)
			}
		}
	}
}

// The ends agree if the SYN asked and the SYN-ACK agreed (RFC 3168, 6.1.1). A SYN-ACK that repeats the SYN's flags does not: some
// hosts reflect them.
func TestVMECN_Handshake(t *testing.T) {
	for _, row := range []struct {
		what                      string
		before                    uint8
		answers, ece, cwr, accECN bool
		want                      uint8
	}{
		{"a SYN asks", VMECNNotAsked, false, true, true, false, VMECNAsked},
		{"a SYN without", VMECNNotAsked, false, false, false, false, VMECNNotAsked},
		{"a SYN with ECE only", VMECNNotAsked, false, true, false, false, VMECNNotAsked},
		{"the SYN again, without", VMECNAsked, false, false, false, false, VMECNNotAsked},
		{"agreed", VMECNAsked, true, true, false, false, VMECNAgreed},
		{"refused", VMECNAsked, true, false, false, false, VMECNAsked},
		{"reflected", VMECNAsked, true, true, true, false, VMECNAsked},
		{"agreed by AccECN", VMECNAsked, true, false, true, true, VMECNAgreed},
		{"nobody asked", VMECNNotAsked, true, true, false, false, VMECNNotAsked},
	} {
		if got := VMECNHandshake(row.before, row.answers, row.ece, row.cwr, row.accECN); got != row.want {
			t.Errorf("%s: %d, want %d", row.what, got, row.want)
		}
	}
}
