package weirv1

import "testing"

// S6 counts 150 bytes a switch and report: 240 Mbit/s of 1000 switches each 5 ms. A report of 48 busy ports has 1370 bytes, so
// 2.2 Gbit/s, and one of a single busy port 54 bytes, so 86 Mbit/s. By the messages that `make bench-bus` sends.
func TestTelemetry_SizeOfAReport(t *testing.T) {
	for ports, most := range map[uint32]int{1: 60, 48: 1400} {
		m := &Telemetry{Switch: 2, IntervalNs: 5e6, Origin: &Origin{Incarnation: 1, Sequence: 1, StampNs: 1e9}}
		for n := range ports {
			m.Ports = append(m.Ports, &PortReport{Port: n + 1, BacklogBytes: 5e4, PeakBytes: 9e4, OfferedBytes: 1e9, OfferedPackets: 1e6, SentBytes: 1e9})
		}
		b, err := Encode(m)
		if err != nil {
			t.Fatal(err)
		}
		if len(b) > most {
			t.Errorf("a report of %d busy ports has %d bytes: docs/sicc.md says at most %d", ports, len(b), most)
		}
	}
}
