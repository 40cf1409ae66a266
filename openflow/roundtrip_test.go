package openflow_test

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	of "weir/openflow"
	"weir/openflow/oftest"
)

// same compares messages; fields are compared whole, and an empty list is as none.
var same = cmp.Options{cmpopts.EquateEmpty(), cmp.Comparer(func(a, b of.Field) bool { return a == b }), cmpopts.EquateComparable(netip.Addr{})}

// Every message of every type is read as it was written, into a new struct and into one that was used before; prints
// on one line, and as JSON that can be read.
func TestRoundTrip(t *testing.T) {
	used := map[of.Type]of.Message{}
	for typ := of.TypeHello; typ <= of.TypeMeterMod; typ++ {
		used[typ] = of.New(typ)
		t.Run(typ.String(), rapid.MakeCheck(func(t *rapid.T) {
			m := oftest.MessagesOf(typ).Draw(t, "message")
			xid := rapid.Uint32().Draw(t, "xid")
			b, err := of.Append(nil, xid, m)
			if err != nil {
				t.Fatal(err)
			}
			h, got, err := of.Decode(b)
			if err != nil {
				t.Fatalf("%x: %v", b, err)
			}
			if h.XID != xid || h.Type != typ || int(h.Length) != len(b) || h.Version != of.Version13 {
				t.Fatalf("header %+v of %d bytes, xid %d", h, len(b), xid)
			}
			if d := cmp.Diff(m, got, same); d != "" {
				t.Fatalf("%x: %s", b, d)
			}
			if err := used[typ].DecodeBody(b[of.HeaderLen:]); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(m, used[typ], same); d != "" {
				t.Fatalf("into a used struct: %s", d)
			}
			if s := of.Text(h, got); strings.ContainsAny(s, "\n\r") || !strings.Contains(s, typ.String()) {
				t.Fatalf("prints as %q", s)
			}
			j, err := of.JSON(h, got)
			if err != nil || !json.Valid(j) {
				t.Fatalf("as JSON %s: %v", j, err)
			}
		}))
	}
}

// A message that was written may be cut anywhere: an error that says where, or, where its last part is as long as it
// is, a message that is written again as it was read.
func TestTruncated(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, err := of.Append(nil, 1, oftest.Messages().Draw(t, "message"))
		if err != nil {
			t.Fatal(err)
		}
		n := rapid.IntRange(0, len(b)).Draw(t, "length")
		b = b[:n]
		if n >= of.HeaderLen {
			b[2], b[3] = byte(n>>8), byte(n)
		}
		oftest.Check(t, b)
	})
}
