package bus

import (
	"github.com/nats-io/nats-server/v2/server"
	"github.com/prometheus/client_golang/prometheus"
)

// serverFigure is a metric of a server, with one value or one for each value of a label.
type serverFigure struct {
	name, help string
	counter    bool
	label      string
	of         func(*readings) float64
	each       func(*readings) map[string]uint64

	desc *prometheus.Desc
}

// readings is what a server counted.
type readings struct {
	varz    *server.Varz
	store   uint64
	roles   map[string]uint64
	refused map[string]uint64
}

var serverFigures = func() []serverFigure {
	list := []serverFigure{
		{name: "connections", help: "Connections by role.", label: "role", each: func(r *readings) map[string]uint64 { return r.roles }},
		{name: "connections_total", help: "Connections that were accepted.", counter: true, of: func(r *readings) float64 { return float64(r.varz.TotalConnections) }},
		{
			name: "connections_refused_total", help: "Connections and certificates that were refused, and connections that were ended, by reason.", counter: true, label: "reason",
			each: func(r *readings) map[string]uint64 { return r.refused },
		},
		{name: "slow_consumers_total", help: "Connections that were ended because they did not read.", counter: true, of: func(r *readings) float64 { return float64(r.varz.SlowConsumers) }},
		{name: "subscriptions", help: "Subscriptions.", of: func(r *readings) float64 { return float64(r.varz.Subscriptions) }},
		{name: "received_messages_total", help: "Messages that clients sent.", counter: true, of: func(r *readings) float64 { return float64(r.varz.InMsgs) }},
		{name: "sent_messages_total", help: "Messages to clients.", counter: true, of: func(r *readings) float64 { return float64(r.varz.OutMsgs) }},
		{name: "received_bytes_total", help: "Bytes of the messages that clients sent.", counter: true, of: func(r *readings) float64 { return float64(r.varz.InBytes) }},
		{name: "sent_bytes_total", help: "Bytes of the messages to clients.", counter: true, of: func(r *readings) float64 { return float64(r.varz.OutBytes) }},
		{name: "store_bytes", help: "Bytes on disk: leases, policies, work.", of: func(r *readings) float64 { return float64(r.store) }},
	}
	for i := range list {
		labels := []string{"server"}
		if list[i].label != "" {
			labels = append(labels, list[i].label)
		}
		list[i].name = "weir_bus_" + list[i].name
		list[i].desc = prometheus.NewDesc(list[i].name, list[i].help, labels, nil)
	}
	return list
}()

// Describe makes Server a prometheus.Collector.
func (s *Server) Describe(to chan<- *prometheus.Desc) { DescribeServer(to) }

// DescribeServer describes the metrics of any server.
func DescribeServer(to chan<- *prometheus.Desc) {
	for i := range serverFigures {
		to <- serverFigures[i].desc
	}
}

// Collect makes Server a prometheus.Collector.
func (s *Server) Collect(to chan<- prometheus.Metric) {
	r, err := s.read()
	if err != nil {
		to <- prometheus.NewInvalidMetric(serverFigures[0].desc, err)
		return
	}
	name := s.keys.Identity().Name
	for i := range serverFigures {
		f := &serverFigures[i]
		kind := prometheus.GaugeValue
		if f.counter {
			kind = prometheus.CounterValue
		}
		if f.of != nil {
			to <- prometheus.MustNewConstMetric(f.desc, kind, f.of(r), name)
			continue
		}
		for value, n := range f.each(r) {
			to <- prometheus.MustNewConstMetric(f.desc, kind, float64(n), name, value)
		}
	}
}

func (s *Server) read() (*readings, error) {
	r := &readings{roles: map[string]uint64{}, refused: s.counts.All()}
	for _, role := range clientRoles {
		r.roles[string(role)] = 0
	}
	s.mu.Lock()
	for _, c := range s.clients {
		r.roles[string(c.id.Role)]++
	}
	s.mu.Unlock()
	var err error
	if r.varz, err = s.nats.Varz(nil); err != nil {
		return nil, err
	}
	store, err := s.nats.Jsz(nil)
	if err != nil {
		return nil, err
	}
	r.store = store.Store
	return r, nil
}

var _ prometheus.Collector = (*Server)(nil)
