package oftest

import (
	"errors"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	of "weir/openflow"
)

// failer is a test, or what stands for one.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// Check decodes any bytes and reports whether they are a message. An error must be a [of.DecodeError] that points into the bytes.
// A message must be the same again after it was written and read.
func Check(t failer, b []byte) bool {
	t.Helper()
	h, m, err := of.Decode(b)
	if err != nil {
		var e *of.DecodeError
		if !errors.As(err, &e) || e.Field == "" || e.Err == nil || e.Offset < 0 || e.Offset > len(b) {
			t.Fatalf("%x: an error that says not where: %v", b, err)
		}
		return false
	}
	again, err := of.Append(nil, h.XID, m)
	if err != nil {
		var e *of.EncodeError
		if !errors.As(err, &e) {
			t.Fatalf("%x: written again: %v", b, err)
		}
		if !errors.Is(err, of.ErrTooLong) { // padding that the peer left out may make it longer than it was
			t.Fatalf("%x: read, and cannot be written: %v", b, err)
		}
		return true
	}
	_, m2, err := of.Decode(again)
	if err != nil {
		t.Fatalf("%x\nwritten as\n%x: %v", b, again, err)
	}
	if !Equal(m, m2) {
		t.Fatalf("%x\nwritten as\n%x: %s", b, again, cmp.Diff(m, m2, equal...))
	}
	return true
}

var equal = []cmp.Option{cmpopts.EquateEmpty(), cmp.Comparer(func(a, b of.Field) bool { return a == b })}

// Equal reports whether two messages are the same; an empty list is as none.
func Equal(a, b of.Message) bool { return cmp.Equal(a, b, equal...) }
