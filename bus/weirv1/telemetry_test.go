package weirv1

import (
	"errors"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// sameAsGenerated checks that d takes and refuses a message as the generated decoder does, and reads the same.
func sameAsGenerated(t *testing.T, d *TelemetryDecoder, b []byte) {
	t.Helper()
	got, err := d.Decode(b)
	want, wantErr := decode(b, new(Telemetry))
	switch {
	case (err == nil) != (wantErr == nil):
		t.Fatalf("%x: %v, the generated decoder: %v", b, err, wantErr)
	case err != nil && !errors.Is(err, ErrMalformed):
		t.Fatalf("%x: another error: %v", b, err)
	case err == nil && !proto.Equal(got, want):
		t.Fatalf("%x: %v, the generated decoder: %v", b, got, want)
	}
}

// oddReports are reports that no agent of this version sends: of later versions, and malformed ones.
func oddReports(t testing.TB) (out [][]byte) {
	t.Helper()
	whole, err := Encode(report())
	if err != nil {
		t.Fatal(err)
	}
	with := func(more ...byte) { out = append(out, append(slices.Clip(whole), more...)) }
	out = append(out, nil, whole)
	for n := range whole { // cut off
		out = append(out, whole[:n])
	}
	for _, r := range rows() {
		if _, is := r.m.(*Telemetry); is {
			r.change()
			if b, err := proto.Marshal(r.m); err == nil {
				out = append(out, b)
			}
		}
	}
	port := func(fields ...byte) []byte { return protowire.AppendBytes([]byte{4<<3 | 2}, fields) }
	with(port()...)                                   // a port without a number
	with(port(1<<3, 9, 2<<3, 1, 2<<3, 2)...)          // a field twice: the last one holds
	with(port(1<<3, 0x89, 0x80, 0x80, 0x80, 0x10)...) // a number of 36 bits
	with(port(1<<3|2, 1, 9)...)                       // a number as bytes
	with(port(7<<3, 9)...)                            // sources as a number
	with(port(1<<3, 9, 7<<3|2, 0)...)                 // a source without a VM
	with(port(1<<3, 9, 12<<3, 1, 13<<3|5, 1, 2, 3, 4, 14<<3|1, 1, 2, 3, 4, 5, 6, 7, 8)...)
	with(port(1<<3, 9, 15<<3|3, 1<<3, 1, 15<<3|4)...) // a group, which ends
	with(port(1<<3, 9, 15<<3|3, 1<<3, 1)...)          // and one that does not
	with(15<<3 | 4)
	with(port(1<<3, 9, 1<<3|6, 1)...) // a form that does not exist
	with(0, 1)                        // field 0
	with(protowire.AppendVarint(nil, uint64(protowire.MaxValidNumber+1)<<3)...)
	with(append(protowire.AppendVarint(nil, uint64(protowire.MaxValidNumber+1)<<3), 1)...)
	with(1<<3|2, 2, 2<<3, 7) // a second part of the origin: both hold
	with(1<<3, 1)            // the origin as a number
	return out
}

// Reports of earlier, of this and of later versions, and malformed ones, mean what they mean to the generated decoder. One decoder
// reads them all in turn: nothing of a report remains in the next.
func TestTelemetryDecoder_IsTheGenerated(t *testing.T) {
	d := &TelemetryDecoder{}
	for _, b := range oddReports(t) {
		sameAsGenerated(t, d, b)
	}
}

// The memory is bounded by the limits of a report, however the bytes are spent.
func TestTelemetryDecoder_Limits(t *testing.T) {
	d := &TelemetryDecoder{}
	whole, err := Encode(report())
	if err != nil {
		t.Fatal(err)
	}
	ports := append(slices.Clone(whole), make([]byte, 0, MaxMessage)...)
	for len(ports)+2 <= MaxMessage {
		ports = append(ports, 4<<3|2, 0)
	}
	sources := make([]byte, 0, MaxMessage)
	for len(sources)+2 <= MaxMessage-len(whole)-8 {
		sources = append(sources, 7<<3|2, 0)
	}
	for _, b := range [][]byte{ports, protowire.AppendBytes(append(slices.Clone(whole), 4<<3|2), sources)} {
		sameAsGenerated(t, d, b)
	}
	if len(d.ports) > MaxPorts+1 || len(d.sources) > MaxSources+1 {
		t.Errorf("%d ports and %d sources in memory", len(d.ports), len(d.sources))
	}
}

// A report as long as those before it needs no memory, except for its origin.
func TestTelemetryDecoder_UsesItsMemoryAgain(t *testing.T) {
	b, err := Encode(busyReport())
	if err != nil {
		t.Fatal(err)
	}
	d, differences := &TelemetryDecoder{}, &Differences{}
	sequence := uint64(0)
	one := func() {
		m, err := d.Decode(b)
		if err != nil {
			t.Fatal(err)
		}
		sequence++
		m.Origin.Sequence = sequence
		if e := differences.Telemetry(m); e == nil || len(e.Ports) != 48 {
			t.Fatal(e)
		}
	}
	one()
	if n := testing.AllocsPerRun(10, one); n > 2 {
		t.Errorf("%v allocations a report, want 2: the origin and the event", n)
	}
}

// busyReport is of a switch whose 48 ports are all busy.
func busyReport() *Telemetry {
	m := &Telemetry{Origin: origin(), Switch: 2, IntervalNs: 5e6}
	for n := range uint32(48) {
		m.Ports = append(m.Ports, &PortReport{Port: n + 1, BacklogBytes: 5e4, PeakBytes: 9e4, OfferedBytes: 1e9, OfferedPackets: 1e6, SentBytes: 1e9})
	}
	return m
}

// FuzzTelemetryDecoder compares with the generated decoder.
func FuzzTelemetryDecoder(f *testing.F) {
	for _, b := range oddReports(f) {
		f.Add(b)
	}
	d := &TelemetryDecoder{}
	f.Fuzz(func(t *testing.T, b []byte) { sameAsGenerated(t, d, b) })
}

// BenchmarkTelemetry compares a report's way to the laws' event with the generated decoder alone.
func BenchmarkTelemetry(b *testing.B) {
	text, err := Encode(busyReport())
	if err != nil {
		b.Fatal(err)
	}
	b.Run("generated", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := proto.Unmarshal(text, new(Telemetry)); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("to-event", func(b *testing.B) {
		b.ReportAllocs()
		d, differences, n := &TelemetryDecoder{}, &Differences{}, uint64(0)
		for b.Loop() {
			m, err := d.Decode(text)
			if err != nil {
				b.Fatal(err)
			}
			n++
			m.Origin.Sequence = n
			differences.Telemetry(m)
		}
	})
}
