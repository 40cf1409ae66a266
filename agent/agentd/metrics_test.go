package agentd

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"weir/datapath/host"
	"weir/internal/promtest"
)

var update = flag.Bool("update", false, "write docs/tables/agent-metrics.md anew, to be reviewed as a diff")

// The metrics say what the status says. Those of a role that the agent does not have are missing.
func TestMetrics(t *testing.T) {
	s := &Status{Name: "h7", Reloads: 3, Refused: 1, Bus: BusStatus{Connected: true, Term: 9, Lost: 4, Refused: 31, Dropped: 32, Stray: 33, Questions: 34, Commands: map[string]uint64{"obeyed": 7, "late": 2}}}
	text := gathered(t, s)
	if strings.Contains(text, "_host_") || strings.Contains(text, "_switch_") {
		t.Errorf("metrics of roles that the agent does not have:\n%s", text)
	}
	s.Host = &HostStatus{Off: "", Live: 35, Set: 11, Capped: 5, Refused: map[string]uint64{"vm": 6}, VMs: []VMStatus{
		{VM: 1, Counts: &host.Stats{Control: 1, SpoofedMAC: 2, SpoofedIP: 3, Malformed: 4, Limited: 5, Smaller: 6, Unknown: 7, Signed: 8, Unwritable: 9, OverRate: 36, Rate: 1e6}},
		{VM: 2, Off: "gone"},
	}}
	s.Switch = &SwitchStatus{Counts: ReadingCounts{Readings: 21, Late: 22, Failed: 23, Sent: 24, Arrivals: 25, Lost: 26}, Ports: []PortStatus{{Off: "x"}, {}, {}}}
	text = gathered(t, s)
	for _, line := range []string{
		`weir_agent_connected{agent=h7} 1`, `weir_agent_term{agent=h7} 9`, `weir_agent_commands_total{agent=h7 result=late} 2`,
		`weir_agent_messages_lost_total{agent=h7} 4`, `weir_agent_reloads_total{agent=h7} 3`, `weir_agent_reloads_refused_total{agent=h7} 1`,
		`weir_agent_subjects_refused_total{agent=h7} 31`, `weir_agent_overruns_total{agent=h7} 32`, `weir_agent_stray_grants_total{agent=h7} 33`,
		`weir_agent_questions_unanswered_total{agent=h7} 34`, `weir_agent_host_grants_live{agent=h7} 35`,
		`weir_agent_host_enforcing{agent=h7} 1`, `weir_agent_host_vms{agent=h7} 1`, `weir_agent_host_grants_set_total{agent=h7} 11`,
		`weir_agent_host_grants_capped_total{agent=h7} 5`, `weir_agent_grants_refused_total{agent=h7 reason=vm} 6`,
		`weir_agent_vm_dropped_packets_total{agent=h7 reason=control} 1`, `weir_agent_vm_dropped_packets_total{agent=h7 reason=mac} 2`,
		`weir_agent_vm_dropped_packets_total{agent=h7 reason=ip} 3`, `weir_agent_vm_dropped_packets_total{agent=h7 reason=malformed} 4`,
		`weir_agent_vm_over_rate_dropped_packets_total{agent=h7 vm=1} 36`,
		`weir_agent_vm_acks_total{agent=h7 result=limited} 5`, `weir_agent_vm_acks_total{agent=h7 result=smaller} 6`,
		`weir_agent_vm_acks_total{agent=h7 result=unknown} 7`, `weir_agent_vm_acks_total{agent=h7 result=signed} 8`,
		`weir_agent_vm_acks_total{agent=h7 result=unwritable} 9`, `weir_agent_switch_ports{agent=h7} 2`,
		`weir_agent_switch_readings_total{agent=h7} 21`, `weir_agent_switch_readings_late_total{agent=h7} 22`,
		`weir_agent_switch_readings_failed_total{agent=h7} 23`, `weir_agent_switch_telemetry_sent_total{agent=h7} 24`,
		`weir_agent_switch_arrivals_sent_total{agent=h7} 25`, `weir_agent_switch_telemetry_lost_total{agent=h7} 26`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no %s in\n%s", line, text)
		}
	}
	if w := s.Well(); len(w) != 2 || w[0] != "VM : gone" {
		t.Errorf("%q", w)
	}
}

// gathered returns the metrics of an agent with a status.
func gathered(t *testing.T, s *Status) string {
	t.Helper()
	a := &agent{asked: make(chan request), stop: make(chan struct{})}
	x := &exporter{a: a, read: func(*agent) *Status { return s }}
	end := make(chan struct{})
	go func() {
		for {
			select {
			case ask := <-a.asked:
				ask(a)
			case <-end:
				return
			}
		}
	}()
	defer close(end)
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(x)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			fmt.Fprintf(&b, "%s{%s} %v\n", f.GetName(), strings.Join(labels, " "), valueOf(f.GetType(), m))
		}
	}
	return b.String()
}

func valueOf(kind dto.MetricType, m *dto.Metric) float64 {
	if kind == dto.MetricType_COUNTER {
		return m.GetCounter().GetValue()
	}
	return m.GetGauge().GetValue()
}

// TestMetrics_AreDocumented compares the table of metrics with the code, and with -update writes it.
func TestMetrics_AreDocumented(t *testing.T) {
	var rows []promtest.Row
	for i := range figures {
		f := &figures[i]
		rows = append(rows, promtest.Row{Name: f.name, Kind: promtest.Kind(f.counter), Label: f.label, Help: f.help})
	}
	promtest.Table(t, "../../docs/tables/agent-metrics.md", "Metrics of weir agent", "The command: [agent.md](../agent.md). All have the label `agent`.", rows, *update)
}

// A status is well only if all that was configured works.
func TestWell(t *testing.T) {
	good := func() *Status {
		return &Status{Bus: BusStatus{Connected: true}, Host: &HostStatus{VMs: []VMStatus{{}}}, Switch: &SwitchStatus{Ports: []PortStatus{{}}, Laws: &LawsStatus{}}}
	}
	for what, spoil := range map[string]func(s *Status){
		"bus":    func(s *Status) { s.Bus.Connected = false },
		"host":   func(s *Status) { s.Host.Off = "x" },
		"VM":     func(s *Status) { s.Host.VMs[0].Off = "x" },
		"switch": func(s *Status) { s.Switch.Off = "x" },
		"port":   func(s *Status) { s.Switch.Ports[0].Off = "x" },
		"laws":   func(s *Status) { s.Switch.Laws.Off = "x" },
	} {
		s := good()
		if w := s.Well(); len(w) != 0 {
			t.Errorf("%q", w)
		}
		if spoil(s); len(s.Well()) != 1 || !strings.HasPrefix(s.Well()[0], what) {
			t.Errorf("%s: %q", what, s.Well())
		}
	}
}
