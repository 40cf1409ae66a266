package law

import (
	"fmt"
	"slices"
)

// Spec is everything that the rest of Weir knows about a law. Rooms that are no law's own name no law: they read here.
type Spec struct {
	Name string
	// Folder is the directory of its paper's experiments below experiments/, and Title the heading that they stand under.
	// Laws of one paper have the same. "": it has none.
	Folder, Title string
	// Baseline: switches have it without Weir, or it is the simplest there is; others are held against it.
	Baseline bool
	// Params gives a pointer to the law's parameters with their defaults: a struct whose fields have tags for JSON and for
	// the JSON schema. A field with the tag above:"0" cannot be 0.
	Params func() any
	// Idle are parameters, by name, that have no effect on this law. Who gives one is told so.
	Idle map[string]Idle
	// Worlds are those that the law is meant for. A scheme that names it is skipped in others.
	Worlds []string
	// Sites are the places where it works.
	Sites []Site
	// Signals are what it has to be told. Telemetry is switched on only where a law asks for it.
	Signals []Signal
	// Claims are the resources that it writes.
	Claims []Resource
	// Metrics are what it measures of itself, in the order in which they are shown.
	Metrics []Metric
	// Report says what a tally of one run comes to: values of the metrics of kind Total, and what kept the law from working as
	// it should, as sentences without numbers, so that they read the same for all runs. nil: the law counts nothing.
	Report func(t Tally) (totals []Value, trouble []string)
	// New makes the law at a site of a network. nil: every decision of it is C in datapath/core.
	New func(site Site, params any, topo *Topology) (Law, error)
}

// Idle says why a parameter has no effect, and what to do about it.
type Idle struct{ Why, Do string }

// Site is a kind of place where a law works.
type Site uint8

// The sites.
const (
	SwitchPort Site = iota // a port of a switch, where it sends
	Uplink                 // a hypervisor's port to the network
	VMPort                 // a hypervisor's port to a guest
	Controller
)

func (s Site) String() string {
	return [...]string{"switch port", "uplink", "VM port", "controller"}[s]
}

// Signal is something that a law wants to be told.
type Signal uint8

// The signals.
const (
	Backlog  Signal = iota // bytes that wait at a port
	Flows                  // how many flows send
	Arrivals               // flows that begin and end
	Marks                  // packets with CE
	Drops                  // packets that a port dropped
	Deadline               // when an application needs its data
)

// Resource is something that a law writes and another may write too.
type Resource uint8

// The resources. Of the exclusive ones a place can have one owner; of the others the smallest grant counts.
const (
	Marking       Resource = iota // CE at a switch's port; exclusive
	ECN                           // ECT and CE between a guest and the network; exclusive
	Shim                          // bits and options that guests do not see; exclusive
	ReceiveWindow                 // the window field of acknowledgements; the smallest
	SendRate                      // of a guest; the smallest
)

func (r Resource) String() string {
	return [...]string{"marking", "ECN", "shim", "receive window", "send rate"}[r]
}

// Exclusive tells whether only one law can have r at a place.
func (r Resource) Exclusive() bool { return r <= Shim }

// MetricKind says what a Metric is of.
type MetricKind uint8

// The kinds of metrics.
const (
	OverTime MetricKind = iota // held of a port and sampled over time: a distribution
	Total                      // counted at all ports together, in the whole run: a number
)

// Metric is a quantity that a law measures of itself. Its path in results and claims is law.NAME, of a port or, of
// kind Total, of all ports.
type Metric struct {
	Name string // a-z, 0-9 and _, with the unit behind it: grant_bytes; of a count none
	Kind MetricKind
	Text string // what it is
	// Main is the statistic that comparisons and tables use: mean, p50, ...; of kind Total "-". "": none, the metric is
	// among the details only.
	Main string
	// Heading and Unit head its column in tables, whose numbers are multiplied by Scale (0: 1). "": it has none.
	Heading, Unit string
	Scale         float64
}

// Path is the metric's main path below a port: "law.flows.mean", "law.acks".
func (m *Metric) Path() string {
	if m.Kind == Total {
		return "law." + m.Name
	}
	return "law." + m.Name + "." + m.Main
}

// Value is a metric's value.
type Value struct {
	Metric string // Metric.Name
	Value  float64
}

// Tally is what a law counted so far, by name of the counter: those of its metrics, and others that its Report looks at.
type Tally map[string]uint64

// Since is what was counted since before.
func (t Tally) Since(before Tally) Tally {
	out := make(Tally, len(t))
	for name, n := range t {
		out[name] = n - before[name]
	}
	return out
}

// Topology is what a law may know of its network.
type Topology struct {
	RTT   Duration // when nothing queues
	Links []Link
}

// Link is two ports, each the other's peer.
type Link struct {
	A, B   string // nodes
	Rate   Rate   // of each direction; 0: no limit
	Buffer Limit  // of each port
}

// Specs are the laws of a build, in the order of the documentation.
type Specs []Spec

// Named gives the law called name.
func (s Specs) Named(name string) (*Spec, bool) {
	i := slices.IndexFunc(s, func(l Spec) bool { return l.Name == name })
	if i < 0 {
		return nil, false
	}
	return &s[i], true
}

// Names lists the laws.
func (s Specs) Names() []string {
	out := make([]string, len(s))
	for i := range s {
		out[i] = s[i].Name
	}
	return out
}

// Metrics lists the metrics of all laws, each name once: laws that have one of the same name mean the same by it.
func (s Specs) Metrics() []Metric {
	var out []Metric
	for i := range s {
		for _, m := range s[i].Metrics {
			if !slices.ContainsFunc(out, func(o Metric) bool { return o.Name == m.Name }) {
				out = append(out, m)
			}
		}
	}
	return out
}

// Params gives a law's parameters as a P, however params holds them.
func Params[P any](params map[string]any, name string) (P, error) {
	p, ok := params[name].(P)
	if !ok {
		return p, fmt.Errorf("law %s: parameters are %T", name, params[name])
	}
	return p, nil
}
