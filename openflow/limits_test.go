package openflow_test

import (
	"encoding/binary"
	"runtime"
	"testing"

	of "weir/openflow"
	"weir/openflow/oftest"
)

// full is the longest message of a type with a head, then as many of the smallest piece as fit.
func full(typ of.Type, head, piece []byte) []byte {
	b := append([]byte{of.Version13, byte(typ), 0, 0, 0, 0, 0, 1}, head...)
	for len(b)+len(piece) <= of.MaxLen {
		b = append(b, piece...)
	}
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
	return b
}

// emptyFields is a packet-in whose match holds nothing but different fields of no length.
func emptyFields() []byte {
	b := full(of.TypePacketIn, append(make([]byte, 16), 0, 1, 0xff, 0xe0), []byte{0x70, 0, 0, 0})
	for at, i := 28, 0; at+4 <= len(b); at, i = at+4, i+1 {
		b[at+1], b[at+2] = byte(i>>7), byte(i<<1)
	}
	return b
}

// allocated is how many bytes decoding allocates.
func allocated(b []byte) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, m, _ := of.Decode(b)
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(m)
	return after.TotalAlloc - before.TotalAlloc
}

// withinLimit measures how many bytes decoding allocates. Decoding allocates the same each time, but the measurement
// also counts what the runtime allocates meanwhile. So one that is beyond the limit is repeated, at most 10 times.
func withinLimit(b []byte) (got uint64, ok bool) {
	limit := uint64(64*len(b) + 4096)
	for range 11 {
		if got = allocated(b); got <= limit {
			return got, true
		}
	}
	return got, false
}

// For any bytes of a peer, decoding allocates at most 64 bytes for each byte of the message, plus 4 KiB. The size of lists follows
// from the bytes that are there, not from a length field.
func TestMemoryIsBounded(t *testing.T) {
	worst := map[string][]byte{
		"fields of no length":   emptyFields(),
		"plain actions":         full(of.TypePacketOut, []byte{0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0xe0, 0, 0, 0, 0, 0, 0}, []byte{0, 24, 0, 8, 0, 0, 0, 0}),
		"set-fields":            full(of.TypePacketOut, []byte{0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0xe0, 0, 0, 0, 0, 0, 0}, []byte{0, 25, 0, 16, 0x80, 0, 10 << 1, 1, 6, 0, 0, 0, 0, 0, 0, 0}),
		"set-fields of nothing": full(of.TypePacketOut, []byte{0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0xe0, 0, 0, 0, 0, 0, 0}, []byte{0, 25, 0, 8, 0, 0, 0, 0}),
		"instructions":          full(of.TypeFlowMod, append(make([]byte, 40), 0, 1, 0, 4, 0, 0, 0, 0), []byte{0, 4, 0, 8, 0, 0, 0, 0}),
		"buckets":               full(of.TypeGroupMod, make([]byte, 8), append([]byte{0, 16}, make([]byte, 14)...)),
		"bands":                 full(of.TypeMeterMod, make([]byte, 8), append([]byte{0, 1, 0, 16}, make([]byte, 12)...)),
		"flow stats":            full(of.TypeMultipartReply, []byte{0, 1, 0, 0, 0, 0, 0, 0}, append(append([]byte{0, 56}, make([]byte, 46)...), 0, 1, 0, 4, 0, 0, 0, 0)),
		"group descriptions":    full(of.TypeMultipartReply, []byte{0, 7, 0, 0, 0, 0, 0, 0}, []byte{0, 8, 0, 0, 0, 0, 0, 1}),
		"meter configurations":  full(of.TypeMultipartReply, []byte{0, 10, 0, 0, 0, 0, 0, 0}, []byte{0, 8, 0, 0, 0, 0, 0, 1}),
		"table properties": full(of.TypeMultipartReply, append([]byte{0, 12, 0, 0, 0, 0, 0, 0, 0xff, 0xe8}, make([]byte, 62)...),
			[]byte{0, 0, 0, 4, 0, 0, 0, 0}),
		"field ids": full(of.TypeMultipartReply, append(append([]byte{0, 12, 0, 0, 0, 0, 0, 0, 0xff, 0xe8}, make([]byte, 62)...), 0, 8, 0xff, 0xa8),
			[]byte{0x80, 0, 0, 4}),
		"queues": full(of.TypeQueueGetConfigReply, make([]byte, 8), []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0}),
		"hello":  full(of.TypeHello, nil, append([]byte{0, 1, 0, 36}, append(make([]byte, 32), 0, 0, 0, 0)...)),
	}
	for name, b := range worst {
		got, ok := withinLimit(b)
		_, _, err := of.Decode(b)
		t.Logf("%-22s %d bytes: %.1f a byte, %v", name, len(b), float64(got)/float64(len(b)), err)
		if !ok {
			t.Errorf("%s: %d bytes of message allocate %d", name, len(b), got)
		}
	}
	mutator := oftest.NewMutator(oftest.Corpus(4))
	for i := range uint64(5000) {
		b := mutator.Message(2, i)
		if got, ok := withinLimit(b); !ok {
			t.Fatalf("%x: %d bytes of message allocate %d", b, len(b), got)
		}
	}
}
