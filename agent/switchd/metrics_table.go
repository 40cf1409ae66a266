package switchd

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/datapath/attach"
	"weir/datapath/reading"
)

// metric is one name of /metrics with its help text and the function that gets its values from a reading.
// Labels have few values: one switch, at most 1024 ports, a list of reasons.
type metric[T any] struct {
	name string // without prefix
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(from T, emit func(value float64, labels ...string))
}

func (d *metric[T]) is(v float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d.desc, d.kind, v, labels...)
}

const (
	gauge   = prometheus.GaugeValue
	counter = prometheus.CounterValue
)

// some makes a metric with a label of its own, in addition to the common ones; "": none.
func some[T any](prefix string, common []string, kind prometheus.ValueType, name, help, own string, of func(T, func(float64, ...string))) metric[T] {
	labels := common
	if own != "" {
		labels = append(append([]string{}, common...), own)
	}
	return metric[T]{name, prometheus.NewDesc(prefix+name, help, labels, nil), kind, of}
}

func ofSwitch(kind prometheus.ValueType, name, help string, of func(*moment) float64) metric[*moment] {
	return someOfSwitch(kind, name, help, "", func(m *moment, emit func(float64, ...string)) { emit(of(m)) })
}

func someOfSwitch(kind prometheus.ValueType, name, help, own string, of func(*moment, func(float64, ...string))) metric[*moment] {
	return some("weir_switch_", []string{"switch"}, kind, name, help, own, of)
}

func ofPort(kind prometheus.ValueType, name, help string, of func(*portMoment) float64) metric[*portMoment] {
	return someOfPort(kind, name, help, "", func(p *portMoment, emit func(float64, ...string)) { emit(of(p)) })
}

func someOfPort(kind prometheus.ValueType, name, help, own string, of func(*portMoment, func(float64, ...string))) metric[*portMoment] {
	return some("weir_switch_port_", []string{"switch", "port"}, kind, name, help, own, of)
}

// states that a switch or a port can have. One of them is 1, the others are 0.
var states = []State{Enforced, Degraded, Off}

func emitState(is State, emit func(float64, ...string)) {
	for _, s := range states {
		emit(truth(is == s), string(s))
	}
}

func truth(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

func seconds(d time.Duration) float64 { return d.Seconds() }

var buildInfo = prometheus.NewDesc("weir_build_info",
	"Version of the running Weir: always 1.", []string{"version", "goversion"}, nil)

var readable = ofSwitch(gauge, "up", "1: the kernel could be read. 0: it could not, and all other metrics of the switch are missing.", nil)

var switchMetrics = []metric[*moment]{
	someOfSwitch(gauge, "state", "1 for the current state, 0 for the other states. The switch has the worst state of its ports.", "state",
		func(m *moment, emit func(float64, ...string)) { emitState(m.words.State, emit) }),
	ofSwitch(gauge, "ports", "Ports that the law is attached to.",
		func(m *moment) float64 { return float64(len(m.words.Ports)) }),
	ofSwitch(gauge, "heartbeat_age_seconds", "Time since the last heartbeat of user space; it sends one every 0.25 s.",
		func(m *moment) float64 { return seconds(m.kernel.HeartbeatAge) }),
	ofSwitch(gauge, "heartbeat_lease_seconds", "Age of the heartbeat at which the kernel program stops limiting windows.",
		func(m *moment) float64 { return seconds(m.kernel.Lease) }),
	ofSwitch(gauge, "read_duration_seconds", "Time that reading the kernel took for this scrape.",
		func(m *moment) float64 { return seconds(m.took) }),
	someOfSwitch(counter, "reloads_total", "Reloads of the configuration, by result.", "result",
		func(m *moment, emit func(float64, ...string)) {
			emit(float64(m.events.applied.Load()), reloadApplied)
			emit(float64(m.events.refused.Load()), reloadRefused)
		}),
	ofSwitch(gauge, "last_reload_successful", "1: the last reload was applied, or there was none. 0: it was refused, and the configuration before it is in force.",
		func(m *moment) float64 { return truth(!m.events.lastRefused.Load()) }),
	someOfSwitch(counter, "signed_segments_total", "Segments that both ends sign (TCP-MD5, TCP-AO), for the 10 sources with the most of the last 1024.", "source",
		func(m *moment, emit func(float64, ...string)) {
			for _, from := range m.words.SignedSources {
				emit(float64(from.Segments), from.label())
			}
		}),
	parkingMetric(gauge, "parking_present", "1: the parking, where packets wait, is there. 0: it is missing, and packets pass. This and the following exist only with credits or repair of losses.",
		func(p *Parking) float64 { return truth(p.Present) }),
	parkingMetric(gauge, "parking_packets", "Packets that wait now.",
		func(p *Parking) float64 { return float64(p.Packets) }),
	parkingMetric(gauge, "parking_bytes", "Bytes that these packets stand for.",
		func(p *Parking) float64 { return float64(p.Bytes) }),
	someOfSwitch(counter, "parking_passed_packets_total", "Packets that the parking did not take, by reason: it was gone, it was full, or their mark or priority is in use.", "reason",
		func(m *moment, emit func(float64, ...string)) {
			if p := m.words.Parking; p != nil {
				emit(float64(p.PassedGone), "gone")
				emit(float64(p.PassedFull), "full")
				emit(float64(p.PassedMarked), "marked")
			}
		}),
	ofSwitch(counter, "rollbacks_total", "Rollbacks: times that a rule of the configuration stopped enforcement on a port.",
		func(m *moment) float64 { return float64(m.events.rollbacks.Load()) }),
}

var portMetrics = slices.Concat(namedPortMetrics, repairMetrics(), formerPortMetrics(namedPortMetrics))

var namedPortMetrics = []metric[*portMoment]{
	someOfPort(gauge, "state", "1 for the current state, 0 for the other states.", "state",
		func(p *portMoment, emit func(float64, ...string)) { emitState(p.words.State, emit) }),
	someOfPort(gauge, "finding", "1 for each finding of weir status about the port; no series without findings.", "finding",
		func(p *portMoment, emit func(float64, ...string)) {
			for _, f := range p.words.Findings {
				emit(1, f.Word)
			}
		}),
	ofPort(gauge, "flows", "Flows that send data out of the port now (beta).",
		func(p *portMoment) float64 { return float64(p.Flows) }),
	ofPort(gauge, "connections", "Connections in the flow table that were opened by hosts behind the port.",
		func(p *portMoment) float64 { return float64(p.Connections) }),

	ofPort(gauge, "window_bytes", "Window that the law gives each flow.",
		func(p *portMoment) float64 { return float64(p.WindowBytes) }),
	ofPort(gauge, "grant_bytes", "Window that flows are limited to now; 0: no flow is limited.",
		func(p *portMoment) float64 { return float64(p.GrantBytes) }),
	ofPort(gauge, "equilibrium_window_bytes", "Equilibrium window: (BDP + target) / flows. A canary's flows are limited to it, with the BDP counted together with the current queue; 0 without flows.",
		func(p *portMoment) float64 { return float64(p.EquilibriumBytes) }),
	ofPort(gauge, "enforced_ratio", "Configured share of the flows to limit: 1 all, 0.1 a canary of 10 %, 0 observe only.",
		func(p *portMoment) float64 { return enforcedRatio(p.Mode, p.LimitedBuckets) }),
	ofPort(gauge, "handshake_rtt_seconds", "Smallest round-trip time of the handshakes of the last 9 to 17 s, of connections that send by this port. It includes the time in this switch's queues; 0 without handshakes.",
		func(p *portMoment) float64 { return seconds(p.HandshakeRTT) }),
	ofPort(gauge, "target_bytes", "Target queue (alpha x buffer).",
		func(p *portMoment) float64 { return float64(p.TargetBytes) }),
	ofPort(gauge, "queue_bytes", "Queue at the last sample. A port without flows is not sampled.",
		func(p *portMoment) float64 { return float64(p.QueueBytes) }),
	ofPort(gauge, "queue_max_bytes", "Longest queue that was sampled since the port was first attached.",
		func(p *portMoment) float64 { return float64(p.QueueMax) }),
	someOfPort(counter, "samples_total", "Samples of the queue, by the port's timer, or by a packet if the timer was late.", "by",
		func(p *portMoment, emit func(float64, ...string)) {
			emit(float64(p.Samples), "timer")
			emit(float64(p.SamplesByPacket), "packet")
		}),
	ofPort(gauge, "sample_age_seconds", "Time since the last sample of the queue; 0 before the first.",
		func(p *portMoment) float64 { return seconds(p.SampleAge) }),
	ofPort(counter, "samples_refused_total", "Timer ticks that found the device gone and read nothing.",
		func(p *portMoment) float64 { return float64(p.DeviceRefused) }),

	ofPort(counter, "packets_total", "Packets that left by the port or were dropped by signed: limit or drop; a packet that the NIC splits counts as its segments.",
		func(p *portMoment) float64 { return float64(p.Seen) }),
	ofPort(counter, "rewritten_packets_total", "Of these, acknowledgements whose window was rewritten.",
		func(p *portMoment) float64 { return float64(p.Rewritten) }),
	someOfPort(counter, "passed_packets_total", "Of these, packets that passed unchanged, by reason.", "reason",
		func(p *portMoment, emit func(float64, ...string)) {
			for _, r := range reasons {
				emit(float64(r.of(&p.Stats)), r.Key)
			}
		}),
	ofPort(counter, "dropped_packets_total", "Of these, signed segments that signed: limit or drop dropped.",
		func(p *portMoment) float64 { return float64(p.Dropped) }),
	ofPort(counter, "data_packets_total", "Of these, packets with payload, rewritten or not.",
		func(p *portMoment) float64 { return float64(p.Data) }),
	ofPort(counter, "connections_opened_total", "Connections that were entered in the flow table.",
		func(p *portMoment) float64 { return float64(p.Opened) }),
	ofPort(counter, "connections_adopted_total", "Of these, adopted connections: they began before the law was attached.",
		func(p *portMoment) float64 { return float64(p.Adopted) }),
	ofPort(counter, "connections_refused_total", "Connections that found no room in the flow table and pass unmanaged.",
		func(p *portMoment) float64 { return float64(p.TableFull) }),

	someOfPort(gauge, "one_sided_connections", "Directions of connections of which only data, or only acknowledgements, passed this switch for a second.", "seen",
		func(p *portMoment, emit func(float64, ...string)) {
			emit(float64(p.OneSidedData), "data")
			emit(float64(p.OneSidedAcks), "acks")
		}),
	ofPort(counter, "advertised_packets_total", "Edge mode: acknowledgements that advertised a window to an edge.",
		func(p *portMoment) float64 { return float64(p.Advertised) }),
	ofPort(counter, "assumed_packets_total", "Acknowledgements of data that takes another switch, limited to this port's window divided by paths.",
		func(p *portMoment) float64 { return float64(p.Assumed) }),

	creditMetric(gauge, "credit_pacing", "1: one segment of each flow exceeds BDP and target, so every acknowledgement needs a credit. This and the following exist only with promises or credits.",
		func(c *Credits) float64 { return truth(c.Pacing) }),
	creditMetric(gauge, "promised_bytes", "Bytes promised to flows that have not sent yet, as of the last heartbeat.",
		func(c *Credits) float64 { return float64(c.LiveBytes) }),
	creditMetric(gauge, "credit_ahead_seconds", "Time until all data that was released to the port will have drained.",
		func(c *Credits) float64 { return c.AheadMs / 1e3 }),
	creditMetric(counter, "promises_total", "Packets that carried a promise.",
		func(c *Credits) float64 { return float64(c.Promised) }),
	creditMetric(counter, "parked_packets_total", "Packets that waited for a credit.",
		func(c *Credits) float64 { return float64(c.Parked) }),
	creditMetric(counter, "refused_waits_total", "Packets that passed although they had to wait: the wait was too long, or the parking took no packet.",
		func(c *Credits) float64 { return float64(c.Refused) }),
	creditMetric(gauge, "credit_longest_wait_seconds", "Longest wait of a packet since the port was first attached.",
		func(c *Credits) float64 { return c.LongestMs / 1e3 }),

	groupMetric(gauge, "group_flows", "Active flows of the control group, which are not limited, and of the treatment group, which are limited.",
		func(g *reading.Group) float64 { return float64(g.Flows) }),
	groupMetric(counter, "group_data_bytes_total", "TCP payload that left by the port, retransmissions included. This and the following count only with a canary or a rollback rule, where nothing is limited, and during weir observe.",
		func(g *reading.Group) float64 { return float64(g.DataBytes) }),
	groupMetric(counter, "group_retransmitted_bytes_total", "Of this, payload that was retransmitted or reordered.",
		func(g *reading.Group) float64 { return float64(g.RetransmittedBytes) }),
	groupMetric(counter, "group_acknowledged_bytes_total", "TCP payload that was newly acknowledged: goodput.",
		func(g *reading.Group) float64 { return float64(g.AckedBytes) }),
	groupMetric(counter, "group_acks_total", "Segments that acknowledge data of these flows.",
		func(g *reading.Group) float64 { return float64(g.Acks) }),
	groupMetric(counter, "group_limited_acks_total", "Of these, segments that were rewritten; in the control group, segments that would be rewritten.",
		func(g *reading.Group) float64 { return float64(g.Limited) }),

	queueMetric(gauge, "qdisc_backlog_bytes", "Backlog of the port's root queue discipline at this scrape.",
		func(q attach.RootQueue) float64 { return float64(q.BacklogBytes) }),
	queueMetric(counter, "qdisc_sent_bytes_total", "Bytes that the port's root queue discipline sent.",
		func(q attach.RootQueue) float64 { return float64(q.SentBytes) }),
	queueMetric(counter, "qdisc_dropped_packets_total", "Packets that the port's root queue discipline dropped. The kernel's counter has 32 bits.",
		func(q attach.RootQueue) float64 { return float64(q.Drops) }),
	someOfPort(counter, "device_dropped_packets_total", "Packets that the port's device dropped on transmit.", "",
		func(p *portMoment, emit func(float64, ...string)) {
			if p.Local && p.HasDevice {
				emit(float64(p.words.DeviceDrops))
			}
		}),
}

// creditMetric is a figure of promises and credits. A port without them has no series.
func creditMetric(kind prometheus.ValueType, name, help string, of func(*Credits) float64) metric[*portMoment] {
	return someOfPort(kind, name, help, "", func(p *portMoment, emit func(float64, ...string)) {
		if c := p.words.Credits; c != nil {
			emit(of(c))
		}
	})
}

// parkingMetric is a figure of the parking. A switch without credits has no series.
func parkingMetric(kind prometheus.ValueType, name, help string, of func(*Parking) float64) metric[*moment] {
	return someOfSwitch(kind, name, help, "", func(m *moment, emit func(float64, ...string)) {
		if p := m.words.Parking; p != nil {
			emit(of(p))
		}
	})
}

// groupMetric has one value for the control group of a canary and one for the treatment group.
func groupMetric(kind prometheus.ValueType, name, help string, of func(*reading.Group) float64) metric[*portMoment] {
	return someOfPort(kind, name, help, "group", func(p *portMoment, emit func(float64, ...string)) {
		emit(of(&p.Groups[0]), "control")
		emit(of(&p.Groups[1]), "treatment")
	})
}

// enforcedRatio returns the share of the flows to limit, 0 to 1.
func enforcedRatio(h reading.Mode, share uint32) float64 {
	switch h {
	case reading.EnforceAll:
		return 1
	case reading.EnforcePart:
		return float64(share) / reading.Buckets
	}
	return 0
}

// queueMetric is read from the root queue discipline, which is visible only in the port's own namespace.
func queueMetric(kind prometheus.ValueType, name, help string, of func(attach.RootQueue) float64) metric[*portMoment] {
	return someOfPort(kind, name, help, "", func(p *portMoment, emit func(float64, ...string)) {
		if p.Local && p.HasDevice {
			emit(of(p.Queue))
		}
	})
}
