package switchd

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"weir/agent/metrics"
	"weir/datapath/reading"
)

// moment is one reading of a switch: the kernel's figures, and their description.
type moment struct {
	kernel *reading.Switch
	words  *Switch
	took   time.Duration
	events *events
}

// portMoment is one port of a moment.
type portMoment struct {
	*reading.Pinned
	words *Port
}

// exporter reads the kernel for each scrape with file descriptors of its own, independent of the heartbeat.
type exporter struct {
	name, version string
	events        *events
	log           *slog.Logger
	read          func(name string) (*reading.Switch, *Switch, error)

	mu     sync.Mutex
	state  State
	reason string
}

func newExporter(of *LawKeys, name, version string, e *events, l *slog.Logger) *exporter {
	return &exporter{name: name, version: version, events: e, log: l, read: (&momentReader{of: func(name string) (*snapshot, error) { return readSwitch(of, name) }}).read, state: Off, reason: "not read yet"}
}

// registry returns a Prometheus registry for this switch, with the collectors of Go and of the process.
func (x *exporter) registry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(x, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// momentReader keeps the previous reading: some findings follow from how counters change.
type momentReader struct {
	of     func(name string) (*snapshot, error)
	mu     sync.Mutex
	before *snapshot
}

func (m *momentReader) read(name string) (*reading.Switch, *Switch, error) {
	now, err := m.of(name)
	if err != nil {
		return nil, nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	words := describe(name, now, m.before)
	m.before = now
	return now.kernel, words, nil
}

// health returns how the switch was at the last reading.
func (x *exporter) health() (well bool, text string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	text = string(x.state)
	if x.reason != "" {
		text += ": " + x.reason
	}
	return x.state == Enforced, text
}

// setHealth stores how the switch is, and reports whether that is new.
func (x *exporter) setHealth(s State, reason string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	isNew := x.state != s || x.reason != reason
	x.state, x.reason = s, reason
	return isNew
}

// Describe lists every metric.
func (x *exporter) Describe(to chan<- *prometheus.Desc) {
	to <- buildInfo
	to <- readable.desc
	for i := range switchMetrics {
		to <- switchMetrics[i].desc
	}
	for i := range portMetrics {
		to <- portMetrics[i].desc
	}
}

// Collect reads the kernel.
func (x *exporter) Collect(to chan<- prometheus.Metric) {
	to <- prometheus.MustNewConstMetric(buildInfo, prometheus.GaugeValue, 1, label(x.version), runtime.Version())
	all, err := x.figures()
	if err != nil {
		if reason := "it cannot be read: " + err.Error(); x.setHealth(Off, reason) && !errors.Is(err, fs.ErrNotExist) {
			x.log.Warn("cannot read the switch for its metrics", "error", err) // a switch that does not exist yet is no fault
		}
		to <- readable.is(0, x.name)
		return
	}
	to <- readable.is(1, x.name)
	for _, m := range all {
		to <- m
	}
}

// figures reads the switch. A panic in here must not end the process, which limits windows.
func (x *exporter) figures() (all []prometheus.Metric, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("reading the switch panicked: %v", p)
		}
	}()
	begun := time.Now()
	kernel, words, err := x.read(x.name)
	if err != nil {
		return nil, err
	}
	m := &moment{kernel: kernel, words: words, took: time.Since(begun), events: x.events}
	for i := range switchMetrics {
		d := &switchMetrics[i]
		d.of(m, func(v float64, labels ...string) {
			all = append(all, d.is(v, append([]string{x.name}, labels...)...))
		})
	}
	for _, p := range m.ports() {
		name := label(p.Port)
		for i := range portMetrics {
			d := &portMetrics[i]
			d.of(p, func(v float64, labels ...string) {
				all = append(all, d.is(v, append([]string{x.name, name}, labels...)...))
			})
		}
	}
	x.setHealth(words.State, words.Reason)
	return all, nil
}

// ports returns each name once. A port pinned in another namespace may have the same name as a port of this one, which
// is preferred.
func (m *moment) ports() []*portMoment {
	at := map[string]int{}
	var out []*portMoment
	for i := range m.kernel.Ports {
		p := &portMoment{Pinned: &m.kernel.Ports[i], words: &m.words.Ports[i]}
		before, twice := at[p.Port]
		switch {
		case !twice:
			at[p.Port] = len(out)
			out = append(out, p)
		case p.Local && !out[before].Local:
			out[before] = p
		}
	}
	return out
}

// label makes a name fit for a label: the kernel allows any byte in a device's name.
func label(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	var out strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && n == 1 {
			fmt.Fprintf(&out, `\x%02x`, s[0])
		} else {
			out.WriteRune(r)
		}
		s = s[n:]
	}
	return out.String()
}

// serveMetrics starts the server of the metrics. A busy default address, or that of the process that is taken over,
// must not prevent the start.
func (r *role) serveMetrics() error {
	x := newExporter(&r.cfg.Laws[0], r.cfg.Name, r.cfg.Version, &r.events, r.log)
	r.metrics = metrics.New(metrics.Source{Gather: x.registry(), Health: x.health, Log: r.log})
	listen := r.cfg.Metrics.Listen
	return r.metrics.Listen(listen, r.cfg.TakeOver || listen == metrics.DefaultListen)
}
