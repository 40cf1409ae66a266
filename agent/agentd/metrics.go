package agentd

import (
	"context"
	"errors"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/agent/metrics"
)

// serveMetrics serves the agent's figures to Prometheus.
func (a *agent) serveMetrics() error {
	x := &exporter{a: a, read: func(a *agent) *Status { return a.status(true) }}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(x)
	a.metrics = metrics.New(metrics.Source{Gather: registry, Log: a.log, Health: x.health})
	return a.metrics.Listen(a.cfg.Metrics, a.cfg.Metrics == defaultMetrics || a.cfg.TakeOver)
}

// exporter collects the metrics. Health is called after Collect, on the same goroutine.
type exporter struct {
	a    *agent
	read func(*agent) *Status
	last *Status
}

// figure is a metric and its source.
type figure struct {
	name, help string
	counter    bool
	label      string // the values of this label are those of the map; "": one value
	of         func(*Status) (float64, bool)
	all        func(*Status) map[string]uint64

	desc *prometheus.Desc
}

func one(name, help string, counter bool, of func(*Status) (float64, bool)) figure {
	return figure{name: "weir_agent_" + name, help: help, counter: counter, of: of}
}

func each(name, label, help string, all func(*Status) map[string]uint64) figure {
	return figure{name: "weir_agent_" + name, help: help, counter: true, label: label, all: all}
}

// figures lists all metrics.
var figures = func() []figure {
	list := []figure{
		one("connected", "1: connected to the bus.", false, func(s *Status) (float64, bool) { return truth(s.Bus.Connected), true }),
		one("term", "Highest term seen.", false, func(s *Status) (float64, bool) { return float64(s.Bus.Term), true }),
		each("commands_total", "result", "Commands of controllers: obeyed, or refused by reason.", func(s *Status) map[string]uint64 { return s.Bus.Commands }),
		one("messages_lost_total", "Messages with state or inventory that the bus did not take.", true, func(s *Status) (float64, bool) { return float64(s.Bus.Lost), true }),
		one("subjects_refused_total", "Subjects that the bus refused.", true, func(s *Status) (float64, bool) { return float64(s.Bus.Refused), true }),
		one("overruns_total", "Times that commands came faster than they were carried out.", true, func(s *Status) (float64, bool) { return float64(s.Bus.Dropped), true }),
		one("stray_grants_total", "Grants for an agent without the role host.", true, func(s *Status) (float64, bool) { return float64(s.Bus.Stray), true }),
		one("questions_unanswered_total", "Questions of operators over a limit.", true, func(s *Status) (float64, bool) { return float64(s.Bus.Questions), true }),
		one("reloads_total", "Reloads of the file.", true, func(s *Status) (float64, bool) { return float64(s.Reloads), true }),
		one("reloads_refused_total", "Reloads that changed nothing.", true, func(s *Status) (float64, bool) { return float64(s.Refused), true }),
		ofHost("enforcing", "1: grants are enforced.", false, func(h *HostStatus) float64 { return truth(h.Off == "") }),
		ofHost("vms", "VMs that grants are enforced for.", false, func(h *HostStatus) (n float64) {
			for i := range h.VMs {
				n += truth(h.VMs[i].Off == "")
			}
			return n
		}),
		ofHost("grants_live", "Grants that the kernel has and that are valid.", false, func(h *HostStatus) float64 { return float64(h.Live) }),
		ofHost("grants_set_total", "Grants that were set.", true, func(h *HostStatus) float64 { return float64(h.Set) }),
		ofHost("grants_capped_total", "Grants whose lease was shortened.", true, func(h *HostStatus) float64 { return float64(h.Capped) }),
		each("grants_refused_total", "reason", "Grants that were refused, by reason.", func(s *Status) map[string]uint64 {
			if s.Host == nil {
				return nil
			}
			return s.Host.Refused
		}),
		each("host_deadlines_total", "result", "Deadlines that programs declared: taken, or refused by reason.", func(s *Status) map[string]uint64 {
			if s.Host == nil || s.Host.Deadlines == nil {
				return nil
			}
			out := maps.Clone(s.Host.Deadlines.Refused)
			out["taken"] = s.Host.Deadlines.Taken
			return out
		}),
		each("host_frames_total", "result", "Frames with grants: taken, or refused by reason.", func(s *Status) map[string]uint64 {
			if s.Host == nil || s.Host.Frames == nil {
				return nil
			}
			return s.Host.Frames.Counts
		}),
		each("vm_dropped_packets_total", "reason", "Packets of all VMs that were dropped, by reason.", dropped),
		each("vm_over_rate_dropped_packets_total", "vm", "Packets dropped because the queue of the VM's rate was full, by VM with a rate; a GSO packet counts once.", overRate),
		each("vm_acks_total", "result", "Acknowledgements towards VMs with a grant: limited, or smaller already, or not limited by reason.", acks),
		ofHost("handshakes_beyond_share_total", "SYNs beyond a VM's share of the table of handshakes: windows do not limit their connections.", true, func(h *HostStatus) (n float64) {
			for i := range h.VMs {
				if c := h.VMs[i].Counts; c != nil {
					n += float64(c.Unlearnt)
				}
			}
			return n
		}),
		ofSwitch("ports", "Ports that are reported about.", false, func(w *SwitchStatus) (n float64) {
			for i := range w.Ports {
				n += truth(w.Ports[i].Off == "")
			}
			return n
		}),
		ofSwitch("readings_total", "Readings of all ports.", true, func(w *SwitchStatus) float64 { return float64(w.Counts.Readings) }),
		ofSwitch("readings_late_total", "Readings that were left out, because the one before began or ended too late.", true, func(w *SwitchStatus) float64 { return float64(w.Counts.Late) }),
		ofSwitch("readings_failed_total", "Readings without the figures of some queue disciplines.", true, func(w *SwitchStatus) float64 { return float64(w.Counts.Failed) }),
		ofSwitch("telemetry_sent_total", "Messages with telemetry.", true, func(w *SwitchStatus) float64 { return float64(w.Counts.Sent) }),
		ofSwitch("arrivals_sent_total", "Messages with arrivals.", true, func(w *SwitchStatus) float64 { return float64(w.Counts.Arrivals) }),
		ofSwitch("flows_sent_total", "Messages with the progress of flows.", true, func(w *SwitchStatus) float64 { return float64(w.Counts.Flows) }),
		ofSwitch("telemetry_lost_total", "Messages with telemetry, arrivals or flows that the bus did not take.", true, func(w *SwitchStatus) float64 { return float64(w.Counts.Lost) }),
	}
	for i := range list {
		labels := []string{"agent"}
		if list[i].label != "" {
			labels = append(labels, list[i].label)
		}
		list[i].desc = prometheus.NewDesc(list[i].name, list[i].help, labels, nil)
	}
	return list
}()

func ofHost(name, help string, counter bool, of func(*HostStatus) float64) figure {
	return one("host_"+name, help, counter, func(s *Status) (float64, bool) {
		if s.Host == nil {
			return 0, false
		}
		return of(s.Host), true
	})
}

func ofSwitch(name, help string, counter bool, of func(*SwitchStatus) float64) figure {
	return one("switch_"+name, help, counter, func(s *Status) (float64, bool) {
		if s.Switch == nil {
			return 0, false
		}
		return of(s.Switch), true
	})
}

func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

func dropped(s *Status) map[string]uint64 {
	if s.Host == nil {
		return nil
	}
	out := map[string]uint64{"control": 0, "mac": 0, "ip": 0, "malformed": 0}
	for i := range s.Host.VMs {
		if c := s.Host.VMs[i].Counts; c != nil {
			out["control"] += c.Control
			out["mac"] += c.SpoofedMAC
			out["ip"] += c.SpoofedIP
			out["malformed"] += c.Malformed
		}
	}
	return out
}

// overRate counts by VM the drops of packets above its rate. A VM that never had a rate is left out.
func overRate(s *Status) map[string]uint64 {
	if s.Host == nil {
		return nil
	}
	out := map[string]uint64{}
	for i := range s.Host.VMs {
		if c := s.Host.VMs[i].Counts; c != nil && c.Rate > 0 {
			out[strconv.FormatUint(uint64(s.Host.VMs[i].VM), 10)] = c.OverRate
		}
	}
	return out
}

func acks(s *Status) map[string]uint64 {
	if s.Host == nil {
		return nil
	}
	out := map[string]uint64{"limited": 0, "smaller": 0, "unknown": 0, "signed": 0, "unwritable": 0}
	for i := range s.Host.VMs {
		if c := s.Host.VMs[i].Counts; c != nil {
			out["limited"] += c.Limited
			out["smaller"] += c.Smaller
			out["unknown"] += c.Unknown
			out["signed"] += c.Signed
			out["unwritable"] += c.Unwritable
		}
	}
	return out
}

// Describe sends the descriptions of all metrics.
func (x *exporter) Describe(out chan<- *prometheus.Desc) {
	for i := range figures {
		out <- figures[i].desc
	}
}

// Collect reads the agent's state once, and makes all metrics of it.
func (x *exporter) Collect(out chan<- prometheus.Metric) {
	x.last = nil
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var s *Status
	if err := x.a.ask(ctx, func(a *agent) { s = x.read(a) }); err != nil {
		out <- prometheus.NewInvalidMetric(figures[0].desc, errors.New("the agent is busy or ends"))
		return
	}
	x.last = s
	for i := range figures {
		f := &figures[i]
		kind := prometheus.GaugeValue
		if f.counter {
			kind = prometheus.CounterValue
		}
		if f.label != "" {
			counts := f.all(s)
			for _, value := range sortedKeys(counts) {
				out <- prometheus.MustNewConstMetric(f.desc, kind, float64(counts[value]), s.Name, value)
			}
		} else if v, ok := f.of(s); ok {
			out <- prometheus.MustNewConstMetric(f.desc, kind, v, s.Name)
		}
	}
}

func (x *exporter) health() (well bool, text string) {
	switch s := x.last; {
	case s == nil:
		return false, "the agent is busy or ends"
	case len(s.Well()) > 0:
		return false, strings.Join(least(s.Well(), 8), "; ")
	}
	return true, "ok"
}
