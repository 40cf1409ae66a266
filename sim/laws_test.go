//go:build cgo

package sim

import (
	"strings"
	"testing"

	"weir/experiment/result"
)

const longFlows = "{name: long, from: \"sender*\", to: receiver1, pattern: bulk, stop: 2s}"

// settled returns the mean queue and the marks of the bottleneck in the second half of the run.
func settled(raw *result.Raw) (mean float64, marks uint64) {
	for i := range raw.Ports {
		p := &raw.Ports[i]
		if len(p.Labels) == 0 {
			continue
		}
		sum, n := 0.0, int64(0)
		for _, s := range p.Samples {
			if s.At >= raw.Duration/2 {
				sum += float64(s.Backlog) * float64(s.Count)
				n += s.Count
			}
		}
		return sum / float64(n), p.Samples[len(p.Samples)-1].Marks
	}
	return 0, 0
}

// ecn marks packets that red would drop, and DCTCP keeps the queue near the threshold.
func TestMark_IsEnforcedAtSwitches(t *testing.T) {
	ecn := carriedOut(t, baseWith(longFlows), "network.buffer=250KB", "guests.cc=dctcp", "schemes=[{name: ecn, params: {threshold: 30KB}}]")
	queue, marks := settled(ecn)
	if marks == 0 || len(ecn.Drops) > 0 {
		t.Errorf("ecn: %d marks, %d drops", marks, len(ecn.Drops))
	}
	within(t, "queue of DCTCP with K = 30 KB", queue, 15_000, 45_000)
	red := carriedOut(t, baseWith(longFlows), "schemes=[{name: red, params: {threshold: 30KB}}]")
	_, marks = settled(red)
	byLaw := 0
	for _, d := range red.Drops {
		if d.Reason == "law" && d.Port == "switch->receiver1" {
			byLaw++
		}
	}
	if marks > 0 || byLaw == 0 || byLaw != len(red.Drops) {
		t.Errorf("red: %d marks, %d of %d drops by the law", marks, byLaw, len(red.Drops))
	}
	two := strings.NewReplacer("receivers: 1", "receivers: 2", "switch->receiver1", "left->right").Replace(baseWith(longFlows))
	elsewhere := carriedOut(t, two, "guests.cc=dctcp", "schemes=[{name: ecn, params: {threshold: 30KB}, at: [right]}]")
	if _, marks := settled(elsewhere); marks != 0 {
		t.Errorf("%d marks at a switch that is not in at", marks)
	}
}

// A threshold in packets counts packets: 20 full frames are the same as 20 x 1514 B.
func TestMark_ThresholdInPackets(t *testing.T) {
	packets := carriedOut(t, baseWith(longFlows), "guests.cc=dctcp", "schemes=[{name: ecn, params: {threshold: 20pkt}}]")
	bytes := carriedOut(t, baseWith(longFlows), "guests.cc=dctcp", "schemes=[{name: ecn, params: {threshold: 30280B}}]")
	a, _ := settled(packets)
	b, _ := settled(bytes)
	within(t, "mean queue with 20pkt over that with 30280B", a/b, 0.9, 1.1)
}

// static gives every sender its rate and no more, also to a single one, and drops nothing.
func TestStatic_LimitsEverySender(t *testing.T) {
	raw := carriedOut(t, baseWith("{name: long, from: \"sender1..2\", to: receiver1, pattern: bulk, stop: 2s}"), "schemes=[{name: static, params: {rate: 20Mbit, depth: 5ms}}]")
	for _, f := range raw.Flows {
		within(t, "Mbit/s", float64(f.Bytes)*8/2/1e6, 18.5, 20)
	}
	if len(raw.Drops) > 0 {
		t.Errorf("%d drops", len(raw.Drops))
	}
}
