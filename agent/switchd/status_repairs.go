package switchd

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"weir/datapath/reading"
)

// Repairs is the repair of losses at a port. Packets count since the port was first attached.
type Repairs struct {
	LimitBytes   uint32  `json:"limit_bytes"`     // of the queue that packets may fill that did not wait
	MostBytes    uint32  `json:"most_bytes"`      // bytes that may wait
	WaitingBytes uint32  `json:"waiting_bytes"`   // bytes that wait now
	Over         uint64  `json:"over"`            // packets that the queue had no room for
	Behind       uint64  `json:"behind"`          // packets that waited behind those of their flow
	Repaired     uint64  `json:"repaired"`        // of the first, packets that were put back into the queue
	Late         uint64  `json:"late"`            // of these, packets after the time of a full queue and 2 ms
	Full         uint64  `json:"full"`            // segments that as many bytes as may waited before: dropped, with credits passed to the queue
	Other        uint64  `json:"other"`           // packets without TCP dropped: the queue had no room
	Refused      uint64  `json:"refused"`         // packets that passed although they had to wait: the parking took none
	LongestMs    float64 `json:"longest_wait_ms"` // longest wait of a repaired packet
}

func repairsOf(k *reading.Repairs) *Repairs {
	if k == nil {
		return nil
	}
	return &Repairs{
		LimitBytes: k.LimitBytes, MostBytes: k.MostBytes, WaitingBytes: k.WaitingBytes, Over: k.Over, Behind: k.Behind, Repaired: k.Repaired,
		Late: k.Repaired - min(k.InTime, k.Repaired), Full: k.Full, Other: k.Other, Refused: k.Refused, LongestMs: milliseconds(k.Longest),
	}
}

// lookUnrepaired: since the previous reading there were segments that could not be kept.
func lookUnrepaired(v *view) (reason, remedy string) {
	if v.recent == nil || v.recent.unrepaired == 0 {
		return "", ""
	}
	if v.k.Credits.Paces {
		return fmt.Sprintf("the queue had no room for %d segments, and %d B wait at most: they passed to the queue", v.recent.unrepaired, v.k.Repairs.MostBytes),
			"more flows send at once than credits can hold: raise target_fraction or the buffer, or send by more ports"
	}
	return fmt.Sprintf("%d segments were dropped: %d B wait at most", v.recent.unrepaired, v.k.Repairs.MostBytes),
		"senders send more at once than the buffer and park hold: raise park or the buffer, or limit their windows by another law"
}

// repairMetric is a figure of the repair of losses. A port without it has no series.
func repairMetric(kind prometheus.ValueType, name, help string, of func(*reading.Repairs) float64) metric[*portMoment] {
	return someOfPort(kind, name, help, "", func(p *portMoment, emit func(float64, ...string)) {
		if r := p.Repairs; r != nil {
			emit(of(r))
		}
	})
}

func repairMetrics() []metric[*portMoment] {
	return []metric[*portMoment]{
		someOfPort(counter, "repair_parked_packets_total", "Packets that waited, by reason: the queue had no room for them (over), or packets of their flow waited (behind). This and the following exist only with repair of losses.", "reason",
			func(p *portMoment, emit func(float64, ...string)) {
				if r := p.Repairs; r != nil {
					emit(float64(r.Over), "over")
					emit(float64(r.Behind), "behind")
				}
			}),
		repairMetric(counter, "repaired_packets_total", "Packets that the queue had no room for, and that were put back into it.",
			func(r *reading.Repairs) float64 { return float64(r.Repaired) }),
		repairMetric(counter, "repair_late_packets_total", "Of these, packets after the time of a full queue and 2 ms.",
			func(r *reading.Repairs) float64 { return float64(r.Repaired - min(r.InTime, r.Repaired)) }),
		repairMetric(counter, "repair_wait_seconds_total", "Time that the repaired packets waited, the sum.",
			func(r *reading.Repairs) float64 { return seconds(r.Waited) }),
		repairMetric(gauge, "repair_longest_wait_seconds", "Longest wait of a repaired packet since the port was first attached.",
			func(r *reading.Repairs) float64 { return seconds(r.Longest) }),
		repairMetric(gauge, "repair_waiting_bytes", "Bytes that wait now.",
			func(r *reading.Repairs) float64 { return float64(r.WaitingBytes) }),
		someOfPort(counter, "repair_dropped_packets_total", "Packets dropped, by reason: segments while as many bytes wait as may (full; with credits they pass to the queue), and packets without TCP while the queue has no room (other).", "reason",
			func(p *portMoment, emit func(float64, ...string)) {
				if r := p.Repairs; r != nil {
					emit(float64(r.Full), "full")
					emit(float64(r.Other), "other")
				}
			}),
		repairMetric(counter, "repair_refused_packets_total", "Packets that passed although they had to wait, because the parking took none.",
			func(r *reading.Repairs) float64 { return float64(r.Refused) }),
	}
}

// unrepaired returns how many segments were dropped between two readings of a port.
func unrepaired(now, old *reading.Stats) uint64 {
	if now.Repairs == nil || old.Repairs == nil {
		return 0
	}
	return since(now.Repairs.Full, old.Repairs.Full)
}
