package result

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"weir/law"
)

// LawResult is the laws' own metrics at a port. Its JSON is an object: each metric over time is a distribution
// under its name, each total a number.
type LawResult []LawMetric

// LawMetric is one metric: Over, or if that is nil, Total.
type LawMetric struct {
	Name  string
	Over  *Distribution
	Total int64
}

// formerMetrics has the former names of laws' metrics: claims, documents and stored runs of earlier builds use them.
var formerMetrics = map[string]string{"acks_told": "acks_advertised"}

// PresentPath returns the path of a metric with its present name, if it ends in law and the former name of a metric.
func PresentPath(path []string) []string {
	if n := len(path); n > 1 && path[n-2] == "law" && formerMetrics[path[n-1]] != "" {
		return append(slices.Clone(path[:n-1]), formerMetrics[path[n-1]])
	}
	return path
}

func presentMetric(name string) string { return cmp.Or(formerMetrics[name], name) }

// MarshalJSON keeps the order.
func (r LawResult) MarshalJSON() ([]byte, error) {
	var out bytes.Buffer
	out.WriteByte('{')
	for i, m := range r {
		if i > 0 {
			out.WriteByte(',')
		}
		var value any = m.Over
		if m.Over == nil {
			value = m.Total
		}
		text, err := json.Marshal(value)
		if err != nil {
			return nil, fmt.Errorf("metric %s of a law: %w", m.Name, err)
		}
		fmt.Fprintf(&out, "%q:%s", m.Name, text)
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

// UnmarshalJSON keeps the order.
func (r *LawResult) UnmarshalJSON(text []byte) error {
	in := json.NewDecoder(bytes.NewReader(text))
	if t, err := in.Token(); err != nil || t != json.Delim('{') {
		return fmt.Errorf("metrics of laws: not a JSON object: %w", err)
	}
	*r = LawResult{}
	for in.More() {
		name, err := in.Token()
		if err != nil {
			return err
		}
		var value json.RawMessage
		if err := in.Decode(&value); err != nil {
			return err
		}
		m := LawMetric{Name: presentMetric(fmt.Sprint(name))}
		into := any(&m.Total)
		if value[0] == '{' {
			into = &m.Over
		}
		if err := json.Unmarshal(value, into); err != nil {
			return fmt.Errorf("metric %s of a law: %w", m.Name, err)
		}
		*r = append(*r, m)
	}
	return nil
}

// metric returns a metric's value by its path below law, such as "flows mean" or "acks".
func (r LawResult) metric(path []string) any {
	for i := range r {
		if m := &r[i]; len(path) > 0 && m.Name == presentMetric(path[0]) {
			if m.Over != nil {
				return m.Over
			}
			return m.Total
		}
	}
	return nil
}

// paths lists the metrics of laws at this port: paths of numbers below a port (law.flows.mean), and of
// distributions (law.flows).
func (r LawResult) paths() (numbers, distributions []string) {
	for _, m := range r {
		if m.Over == nil {
			numbers = append(numbers, "law."+m.Name)
			continue
		}
		numbers = append(numbers, distributionNumbers("law."+m.Name)...)
		distributions = append(distributions, "law."+m.Name)
	}
	return numbers, distributions
}

// lawPaths lists the paths below a port of laws' metrics of one kind, with all numbers of each.
func lawPaths(metrics []law.Metric, kind law.MetricKind) []string {
	var out []string
	for _, m := range metrics {
		switch {
		case m.Kind != kind:
		case kind == law.OverTime:
			out = append(out, distributionNumbers("law."+m.Name)...)
		default:
			out = append(out, "law."+m.Name)
		}
	}
	return out
}

// laws summarises the laws' samples of a port; nothing if there are none.
func (b *builder) laws(out *PortResult, p *Port, s span) {
	var order []string
	values := map[string][]float64{}
	for i := range b.raw.LawSamples {
		l := &b.raw.LawSamples[i]
		if l.Port != p.Name || !s.has(l.At) {
			continue
		}
		if values[l.Metric] == nil {
			order = append(order, l.Metric)
		}
		values[l.Metric] = append(values[l.Metric], l.Value.Value)
	}
	if len(order) == 0 {
		return
	}
	slices.Sort(order)
	out.values = map[string][]float64{}
	for _, name := range order {
		out.Law = append(out.Law, LawMetric{Name: name, Over: distribute(values[name])})
		out.values["law."+name] = values[name]
	}
}

// lawTotals returns what laws counted at all their ports.
func (b *builder) lawTotals() LawResult {
	var out LawResult
	for _, v := range b.raw.LawTotals {
		out = append(out, LawMetric{Name: presentMetric(v.Metric), Total: int64(v.Value)})
	}
	return out
}
