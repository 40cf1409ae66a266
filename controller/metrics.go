package controller

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/agent/metrics"
	"weir/bus"
)

// exporter serves the controller's figures to Prometheus.
func (r *role) exporter() *metrics.Server {
	x := &exporter{r: r}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(x)
	return metrics.New(metrics.Source{Gather: registry, Log: r.log})
}

type exporter struct{ r *role }

// figure is one metric and its source.
type figure struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(*Status) float64
}

func counter(name, help string, of func(*Status) uint64) figure {
	return figure{desc(name, help), prometheus.CounterValue, func(s *Status) float64 { return float64(of(s)) }}
}

func gauge(name, help string, of func(*Status) int) figure {
	return figure{desc(name, help), prometheus.GaugeValue, func(s *Status) float64 { return float64(of(s)) }}
}

func desc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("weir_controller_"+name, help, []string{"controller"}, nil)
}

var figures = []figure{
	gauge("switches", "Switches that are connected and managed.", func(s *Status) (n int) {
		for _, d := range s.Forward.Switches {
			if d.Joined {
				n++
			}
		}
		return n
	}),
	gauge("switches_refused", "Switches that are connected and not managed.", func(s *Status) int { return len(s.Refused) }),
	gauge("links", "Links between switches, known in both directions.", func(s *Status) int { return len(s.Forward.Links) }),
	gauge("hosts", "Hosts whose port is known.", func(s *Status) int { return len(s.Forward.Hosts) }),
	gauge("pins", "Flows on a path of their own.", func(s *Status) int { return len(s.Forward.Pins) }),
	gauge("settled", "1: every switch has confirmed its wanted state.", func(s *Status) int {
		if s.Forward.Settled {
			return 1
		}
		return 0
	}),
	counter("frames_total", "Packets that came to the controller.", func(s *Status) uint64 { return s.Core.Frames }),
	counter("frames_dropped_total", "Packets over a limit of the controller.", func(s *Status) uint64 { return s.Core.FramesDropped }),
	counter("events_dropped_total", "Changes of switches over the limit before they joined. These switches were read again.", func(s *Status) uint64 { return s.Core.EventsDropped }),
	counter("orders_total", "Orders to switches.", func(s *Status) uint64 { return s.Core.Orders }),
	counter("orders_refused_total", "Orders that a switch refused.", func(s *Status) uint64 { return s.Core.OrdersRefused }),
	counter("actions_late_total", "Actions of laws for a switch that had left. They were not carried out.", func(s *Status) uint64 { return s.Core.ActionsLate }),
	counter("grants_unenforced_total", "Windows and rates that laws granted, of all laws. This controller has no agents: nobody enforces them.", func(s *Status) uint64 { return sum(s.Core.Grants) }),
	counter("actions_unknown_total", "Actions of laws that this controller has no route for. They had no effect.", func(s *Status) uint64 { return sum(s.Core.Unknown) }),
	counter("links_forged_total", "Link probes with a wrong tag, a stale one, or from a port of hosts.", func(s *Status) uint64 { return s.Forward.Counts.LinksForged }),
	counter("hosts_refused_total", "Hosts and addresses over a limit.", func(s *Status) uint64 { return s.Forward.Counts.HostsRefused }),
	counter("moves_total", "Hosts that moved.", func(s *Status) uint64 { return s.Forward.Counts.Moves }),
	counter("floods_total", "Frames sent to all ports of hosts.", func(s *Status) uint64 { return s.Forward.Counts.Floods }),
	counter("route_changes_total", "Changes of routes.", func(s *Status) uint64 { return s.Forward.Counts.Waves }),
	counter("syn_total", "Copies of SYN.", func(s *Status) uint64 { return s.Forward.Counts.SYN }),
	counter("generation_raises_total", "Raises of the generation id, because a switch called it stale.", func(s *Status) uint64 { return s.Raises }),
	gauge("agents", "Agents that report over the bus.", func(s *Status) int { return len(s.agents()) }),
	gauge("agents_commanded", "Agents that this controller commands.", func(s *Status) (n int) {
		for _, a := range s.agents() {
			if a.Commands {
				n++
			}
		}
		return n
	}),
	gauge("bus_connected", "1: connected to the bus.", func(s *Status) int {
		if s.Bus != nil && s.Bus.Connected {
			return 1
		}
		return 0
	}),
	gauge("buckets_held", "Buckets of agents that this controller holds.", func(s *Status) int {
		if s.Bus == nil {
			return 0
		}
		return s.Bus.Held
	}),
	gauge("term", "The highest term of these buckets; 0: none.", func(s *Status) int {
		if s.Bus == nil {
			return 0
		}
		return int(s.Bus.Term)
	}),
	counter("questions_unanswered_total", "Questions of operators over a limit.", func(s *Status) uint64 {
		if s.Bus == nil {
			return 0
		}
		return s.Bus.Questions
	}),
	counter("steps_total", "Events and ticks that the laws got.", func(s *Status) uint64 { return s.Core.Steps }),
	seconds("steps_seconds_total", "Time of these steps, with the orders that follow from them.", prometheus.CounterValue, func(s *Status) int64 { return s.Core.LawsUs }),
	seconds("slowest_step_seconds", "Time of the slowest step.", prometheus.GaugeValue, func(s *Status) int64 { return s.Core.SlowestStepUs }),
	counter("recorded_entries_total", "Entries of the recording (key record).", func(s *Status) uint64 {
		if s.Record == nil {
			return 0
		}
		return s.Record.Entries
	}),
	counter("recorded_entries_lost_total", "Entries that the recording lacks.", func(s *Status) uint64 {
		if s.Record == nil {
			return 0
		}
		return s.Record.Lost
	}),
	gauge("connections", "Connections, of peers that are no switches with them.", func(s *Status) int { return s.Peers.Now }),
	counter("connections_total", "Connections that were begun.", func(s *Status) uint64 { return s.Peers.Accepted }),
}

// seconds is a metric whose source has microseconds.
func seconds(name, help string, kind prometheus.ValueType, of func(*Status) int64) figure {
	return figure{desc(name, help), kind, func(s *Status) float64 { return float64(of(s)) / 1e6 }}
}

func (s *Status) agents() []AgentStatus {
	if s.Bus == nil {
		return nil
	}
	return s.Bus.Agents
}

func sum(counts map[string]uint64) (n uint64) {
	for _, c := range counts {
		n += c
	}
	return n
}

var activeDesc = desc("active", "1: active; 0: stands by for another controller with the same generation file, and has no other figures.")

var grantsDesc = prometheus.NewDesc("weir_controller_grants_total", "Windows and rates that laws granted, by what became of them: sent, nowhere (no agent has the VM), not_held (another controller commands the agent), failed.",
	[]string{"controller", "result"}, nil)

var messagesDesc = prometheus.NewDesc("weir_controller_agent_messages_refused_total", "Messages of agents that were dropped, or named a switch, host or VM of another agent, by reason.",
	[]string{"controller", "reason"}, nil)

var sflowDesc = prometheus.NewDesc("weir_controller_sflow_total", "What came by sFlow: datagrams that were taken, lost (by sequence numbers), samples, marked (samples with CE), counters, and what was refused, by reason.",
	[]string{"controller", "what"}, nil)

var endedDesc = prometheus.NewDesc("weir_controller_connections_ended_total", "Connections that ended or were refused, by cause.",
	[]string{"controller", "cause"}, nil)

var decisionsDesc = prometheus.NewDesc("weir_controller_decision_seconds", "Time from the arrival of a report to the last command that answers it.",
	[]string{"controller"}, nil)

func (x *exporter) Describe(to chan<- *prometheus.Desc) {
	for i := range figures {
		to <- figures[i].desc
	}
	to <- grantsDesc
	to <- messagesDesc
	to <- sflowDesc
	to <- endedDesc
	to <- activeDesc
	to <- decisionsDesc
	bus.DescribeServer(to)
}

func (x *exporter) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	s := x.r.status(ctx)
	if s == nil {
		return
	}
	active := 0.0
	if s.Active == "" {
		active = 1
	}
	to <- prometheus.MustNewConstMetric(activeDesc, prometheus.GaugeValue, active, x.r.cfg.Name)
	if s.Active != "" {
		return
	}
	for i := range figures {
		f := &figures[i]
		to <- prometheus.MustNewConstMetric(f.desc, f.kind, f.of(s), x.r.cfg.Name)
	}
	if s.Bus != nil {
		d := s.Bus.Decisions
		to <- prometheus.MustNewConstHistogram(decisionsDesc, d.Count, d.Sum, d.Within, x.r.cfg.Name)
		for result, n := range s.Bus.Grants {
			to <- prometheus.MustNewConstMetric(grantsDesc, prometheus.CounterValue, float64(n), x.r.cfg.Name, result)
		}
		for _, counts := range []map[string]uint64{s.Bus.Dropped, s.Bus.NoEffect} {
			for reason, n := range counts {
				to <- prometheus.MustNewConstMetric(messagesDesc, prometheus.CounterValue, float64(n), x.r.cfg.Name, reason)
			}
		}
	}
	if t := x.r.term.Load(); t != nil && t.link != nil && t.link.server != nil {
		t.link.server.Collect(to)
	}
	if s.SFlow != nil {
		for what, n := range s.SFlow.All() {
			to <- prometheus.MustNewConstMetric(sflowDesc, prometheus.CounterValue, float64(n), x.r.cfg.Name, what)
		}
	}
	for cause, n := range s.Peers.Ended {
		to <- prometheus.MustNewConstMetric(endedDesc, prometheus.CounterValue, float64(n), x.r.cfg.Name, cause)
	}
}
