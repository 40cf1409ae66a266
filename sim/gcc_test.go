//go:build cgo

package sim

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/experiment/result"
)

// gccFile is a tagged flow and three competitors on one link of 100 Mbit/s.
func gccFile(scheme, competitors string) string {
	return strings.NewReplacer("hypervisors: false", "hypervisors: true", "buffer: 60KB", "buffer: 100pkt",
		"guests: {cc: reno}", "guests: {cc: reno, sack: true, delayed_ack: false}",
		"schemes: [{name: droptail}]", "schemes: ["+scheme+"]").
		Replace(baseWith("{name: tagged, from: sender1, to: receiver1, pattern: bulk, stop: 2s}",
			"{name: others, from: \"sender2..\", to: receiver1, pattern: bulk, stop: 2s, "+competitors+"}"))
}

const gccScheme = "{name: sdn_gcc, laws: [gcc, ecn], params: {interval: 5ms, threshold: 20pkt, not_ect: drop, min_rate: 1Mbit, increase: 65kbit%s}}"

// mbits returns the throughput of a group in the second half of the run, in Mbit/s.
func mbits(raw *result.Raw, group string) float64 {
	bytes := int64(0)
	for i := range raw.Flows {
		f := &raw.Flows[i]
		for _, d := range f.Delivered {
			if f.Group == group && time.Duration(d.Bin)*raw.Bin >= raw.Duration/2 {
				bytes += int64(d.Bytes)
			}
		}
	}
	return float64(bytes) * 8 / (raw.Duration / 2).Seconds() / 1e6
}

// deliveries is everything that arrived, and when.
func deliveries(raw *result.Raw) string {
	var b strings.Builder
	for i := range raw.Flows {
		fmt.Fprintln(&b, raw.Flows[i].Src, raw.Flows[i].Bytes, raw.Flows[i].Delivered)
	}
	fmt.Fprintln(&b, len(raw.Drops))
	return b.String()
}

// GS-7: no mark reaches a VM, so DCTCP under this law is NewReno, packet by packet. With clear: not_negotiated it sees marks.
func TestGS7_DCTCPIsNewReno(t *testing.T) {
	of := func(more, cc string) string {
		return deliveries(carriedOut(t, gccFile(fmt.Sprintf(gccScheme, more), "cc: "+cc)))
	}
	if of("", "reno") != of("", "dctcp") {
		t.Error("DCTCP delivers something else than NewReno, or at other times")
	}
	if more := ", clear: not_negotiated"; of(more, "reno") == of(more, "dctcp") {
		t.Error("with clear: not_negotiated DCTCP delivers what NewReno does: it must see marks")
	}
}

// A tagged TCP flow gets its quarter of the link, whatever the other three VMs speak. Without the law UDP leaves it nothing.
func TestGCC_AShareWhateverTheTransport(t *testing.T) {
	const udp = "proto: udp, pattern: cbr, rate: 100Mbit"
	others := strings.Replace(gccFile(fmt.Sprintf(gccScheme, ""), udp), "pattern: bulk, stop: 2s, proto", "stop: 2s, proto", 1)
	for _, row := range []struct {
		what, text string
		from, to   float64
	}{
		{"against NewReno", gccFile(fmt.Sprintf(gccScheme, ""), "cc: reno"), 20, 27},
		{"against UDP", others, 20, 27},
		{"against UDP, marks by VM", strings.Replace(others, "interval: 5ms", "interval: 5ms, divide: by_vm", 1), 20, 27},
		{"against UDP, without the law", strings.Replace(others, fmt.Sprintf(gccScheme, ""), "{name: droptail}", 1), 0, 5},
	} {
		raw := carriedOut(t, row.text)
		got := mbits(raw, "tagged")
		t.Logf("%s: %.1f Mbit/s, others %.1f", row.what, got, mbits(raw, "others"))
		within(t, row.what, got, row.from, row.to)
	}
}
