package law

import (
	"fmt"
	"reflect"
	"slices"
)

// Spec is everything that the rest of Weir knows about a law. Rooms that belong to no law read it and name no law.
type Spec struct {
	Name string
	// Folder is the directory of its paper's experiments below experiments/. Title is their heading. Laws of one paper
	// have the same. "": the law has no paper.
	Folder, Title string
	// Baseline: switches have this law without Weir, or no law is simpler. Other laws are compared with it.
	Baseline bool
	// Params returns a pointer to the law's parameters with their defaults: a struct whose fields have tags for JSON and for
	// the JSON schema. A field with the tag above:"0" cannot be 0.
	Params func() any
	// Idle lists parameters, by name, that have no effect on this law. A file that sets one is refused with the reason.
	Idle map[string]Idle
	// Worlds lists the worlds that the law is meant for. A scheme that names the law is skipped in others.
	Worlds []string
	// Sites lists the kinds of places where it runs.
	Sites []Site
	// Signals lists its inputs. Telemetry is switched on only where a law asks for it.
	Signals []Signal
	// Claims lists the resources that it writes.
	Claims []Resource
	// Metrics lists what it measures of itself, in display order.
	Metrics []Metric
	// Report evaluates the tally of one run. totals are the values of the metrics of kind Total. trouble lists what kept
	// the law from working as it should: sentences without numbers, so that they are equal for all runs. nil: the law
	// counts nothing.
	Report func(t Tally) (totals []Value, trouble []string)
	// Interval returns, from the parameters, how often switches report to the law. nil: it is at no controller, or needs no reports.
	Interval func(params any) Duration
	// Clear returns, from the parameters of a law that claims ECN, what hosts do with the ECN field: ClearAll or
	// ClearNotNegotiated. nil: nothing.
	Clear func(params any) string
	// Excess returns, from the parameters of a law that limits VMs' rates, what hosts do with packets above a rate: ExcessQueue or
	// ExcessDrop. nil: ExcessQueue.
	Excess func(params any) string
	// Agents returns why agents cannot run the law with these parameters, and what to do. nil: they always can.
	Agents func(params any) error
	// New makes the law at a site of a network. nil: C in datapath/core makes all its decisions. A law with the site Uplink
	// has a half there: the rates of VMs, from telemetry.Marked and telemetry.Sent. If it has the site VMPort and no Controller, it has
	// a half there, too: it gets telemetry.Came, and its MarksGrants for a pair go to the host of the pair's Peer.
	New func(site Site, params any, topo *Topology) (Law, error)
}

// ReturnsMarks reports whether hosts return marks to one another, without a controller.
func (s *Spec) ReturnsMarks() bool {
	return s.New != nil && slices.Contains(s.Sites, VMPort) && slices.Contains(s.Sites, Uplink) && !slices.Contains(s.Sites, Controller)
}

// Idle is why a parameter has no effect, and what to do about it.
type Idle struct{ Why, Do string }

// A host treats the ECN field for a law that claims ECN in one of these ways (datapath/core/vmecn.h).
const (
	ClearAll           = "all"            // all that leaves a VM is ECT, and the field of all that arrives is cleared
	ClearNotNegotiated = "not_negotiated" // not for connections that negotiated ECN
)

// A host does one of these with packets of a VM above its rate.
const (
	ExcessQueue = "queue" // they wait in a queue with a limit in bytes
	ExcessDrop  = "drop"  // one packet waits, and others are dropped
)

// Site is a kind of place where a law runs.
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

// Signal is an input of a law.
type Signal uint8

// The signals.
const (
	Backlog  Signal = iota // bytes that wait at a port
	Flows                  // how many flows send
	Arrivals               // flows that begin and end
	Marks                  // packets with CE
	Drops                  // packets that a port dropped
	Deadline               // when an application needs its data
	Progress               // which flows a port has, and how far each has come
	Copies                 // SYN, FIN and RST segments where they enter the fabric, from OpenFlow switches
)

// Resource is something that a law writes and another may write too.
type Resource uint8

// The resources. An exclusive resource has one owner at a place. For the others the smallest grant counts.
const (
	Marking       Resource = iota // CE at a switch's port; exclusive
	ECN                           // ECT and CE between a guest and the network; exclusive
	Shim                          // bits and options that guests do not see; exclusive
	FirstPlace                    // the first program at a switch's port, which sees each packet once; exclusive
	ReceiveWindow                 // the window field of acknowledgements; the smallest
	SendRate                      // of a guest; the smallest
)

func (r Resource) String() string {
	return [...]string{"marking", "ECN", "shim", "the first place at a port", "receive window", "send rate"}[r]
}

// Exclusive reports whether only one law can claim r at a place.
func (r Resource) Exclusive() bool { return r <= FirstPlace }

// MetricKind is how a Metric is collected.
type MetricKind uint8

// The kinds of metrics.
const (
	OverTime MetricKind = iota // a state of a port, sampled over time: a distribution
	Total                      // counted at all ports together over the whole run: a number
)

// Metric is a quantity that a law measures of itself. Its path in results and claims is law.NAME, of a port or, of
// kind Total, of all ports.
type Metric struct {
	Name string // a-z, 0-9 and _, ending with the unit: grant_bytes; a count has no unit
	Kind MetricKind
	Text string // what it is
	// Main is the statistic that comparisons and tables use: mean, p50, ...; "-" for kind Total. "": none, the metric is
	// shown among the details only.
	Main string
	// Heading and Unit head its column in tables. The numbers there are multiplied by Scale (0: 1). "": no column.
	Heading, Unit string
	Scale         float64
}

// Path returns the metric's main path below a port: "law.flows.mean", "law.acks".
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

// Tally holds a law's counters by name: those of its metrics, and others that its Report reads.
type Tally map[string]uint64

// Since returns the differences to an earlier tally.
func (t Tally) Since(before Tally) Tally {
	out := make(Tally, len(t))
	for name, n := range t {
		out[name] = n - before[name]
	}
	return out
}

// ReportTotals returns a Spec.Report of these metrics, as far as a world counts them, each in total.
func ReportTotals(metrics []Metric) func(Tally) ([]Value, []string) {
	return func(t Tally) (totals []Value, trouble []string) {
		for _, m := range metrics {
			if n, counted := t[m.Name]; counted {
				totals = append(totals, Value{Metric: m.Name, Value: float64(n)})
			}
		}
		if t["failed"] > 0 {
			trouble = append(trouble, "a message or a grant failed")
		}
		return totals, trouble
	}
}

// Topology is what a law may know of its network.
type Topology struct {
	RTT   Duration // with empty queues
	Links []Link
}

// Link is two ports, each the other's peer.
type Link struct {
	A, B   string // nodes
	Rate   Rate   // of each direction; 0: no limit
	Buffer Limit  // of each port
}

// Specs lists the laws of a build, in the order of the documentation.
type Specs []Spec

// Named returns the law with this name.
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

// Metrics lists the metrics of all laws, each name once: a name means the same in all laws.
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

// Pointer returns a pointer to a copy of a law's parameters, as Spec.New and Spec.Interval take them.
func Pointer(params any) any {
	p := reflect.New(reflect.TypeOf(params))
	p.Elem().Set(reflect.ValueOf(params))
	return p.Interface()
}

// Params returns the parameters of the law with this name as a P.
func Params[P any](params map[string]any, name string) (P, error) {
	p, ok := params[name].(P)
	if !ok {
		return p, fmt.Errorf("law %s: parameters are %T", name, params[name])
	}
	return p, nil
}
