package switchd

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/invopop/jsonschema"

	"weir/agent/metrics"
	"weir/config"
	"weir/datapath/fairq"
	"weir/law"
	fairqlaw "weir/law/fairq"
)

// File is a file of `kind: Switch`, as its author wrote it. This is the contract with its users; Config is
// what it becomes.
type File struct {
	Kind     string         `json:"kind" jsonschema:"required,enum=Switch" jsonschema_description:"Switch"`
	Version  int            `json:"version" jsonschema:"required,enum=2" jsonschema_description:"of the keys: 2. A file without it is of version 1, which is still read"`
	Name     string         `json:"name,omitempty" jsonschema:"maxLength=32,pattern=^[A-Za-z0-9_-]+$" jsonschema_description:"1 to 32 of a-z, A-Z, 0-9, - and _ (default: default)"`
	Defaults PortSettings   `json:"defaults,omitzero" jsonschema_description:"any key of a port, for all ports that do not say otherwise"`
	Ports    []filePort     `json:"ports" jsonschema:"required,minItems=1,maxItems=20000" jsonschema_description:"the ports to manage; the first entry that matches a device counts"`
	Scope    []netip.Prefix `json:"scope,omitempty" jsonschema:"maxItems=4096" jsonschema_description:"manage only flows with both ends in one of these prefixes (default: all)"`
	Enforce  fileEnforce    `json:"enforce,omitzero" jsonschema_description:"where windows are held; elsewhere flows are only observed (default: everywhere)"`
	Rollback fileRollback   `json:"rollback,omitzero" jsonschema_description:"when to stop enforcing on a port (default: never)"`
	FairQ    fileFairQ      `json:"fairq,omitzero" jsonschema_description:"FairQ, on all ports"`
	Metrics  fileMetrics    `json:"metrics,omitzero" jsonschema_description:"figures for Prometheus"`

	warning string // of a file of version 1: what is to be written instead
}

// PortSettings say how a port is managed. What is zero was not said.
type PortSettings struct {
	Rate   law.Rate     `json:"rate,omitempty" jsonschema_description:"of the port (default: that of its own tbf or htb)"`
	Buffer law.Bytes    `json:"buffer,omitempty" jsonschema_description:"of the port, below 4.29GB (default: that of its own tbf or htb; with shape what is sent in 1 ms)"`
	Shape  law.Rate     `json:"shape,omitempty" jsonschema_description:"give the port a tbf of this rate while Weir runs; only where the kernel's default queue discipline stands"`
	RTT    law.Duration `json:"rtt,omitempty" jsonschema_description:"of flows when nothing queues, up to 1s (default: 250us)"`
	FairQ  PortFairQ    `json:"fairq,omitzero" jsonschema_description:"FairQ, on this port"`
	Mark   *Mark        `json:"mark,omitempty" jsonschema_description:"ECN marking beside FairQ, such as {threshold: 200KB}"`
}

// PortFairQ are FairQ's keys of a port. What is zero was not said.
type PortFairQ struct {
	TargetFraction float64      `json:"target_fraction,omitempty" jsonschema:"exclusiveMinimum=0,exclusiveMaximum=1" jsonschema_description:"queue to keep, of the buffer (alpha; default: 0.2)"`
	Interval       law.Duration `json:"interval,omitempty" jsonschema_description:"sampling interval (T), 10us to 1s (default: 50us)"`
	Updates        int          `json:"updates,omitempty" jsonschema:"minimum=1,maximum=100000" jsonschema_description:"samples a window update (M; default: 10)"`
	Gain           string       `json:"gain,omitempty" jsonschema:"enum=paper,enum=code" jsonschema_description:"how strongly windows answer the queue: as the paper has it (default), or as the authors' program"`
	MinWindow      *law.Bytes   `json:"min_window,omitempty" jsonschema_description:"least window of a flow; 0B: one segment (default)"`
	Paths          int          `json:"paths,omitempty" jsonschema:"minimum=1,maximum=1024" jsonschema_description:"equal paths of which the port is one (ECMP): flows whose data takes another switch than their acknowledgements are held to the port's window divided by it (default: 1, they pass)"`
}

// fileFairQ are FairQ's keys of all ports together.
type fileFairQ struct {
	Count      string    `json:"count,omitempty" jsonschema:"enum=opening,enum=active,enum=handshake" jsonschema_description:"flows that sent lately, with SYN-ACKs held to the share beside open handshakes (opening, default) or without (active), or opened and not closed, the paper's register"`
	Scale      string    `json:"scale,omitempty" jsonschema:"enum=learn,enum=shim,enum=unify" jsonschema_description:"how the window scale of a flow is known: from the SYNs (default), also from a shim at the hosts, or every SYN is made to announce the same one"`
	UnifyShift int       `json:"unify_shift,omitempty" jsonschema:"minimum=0,maximum=14" jsonschema_description:"scale: unify: the window scale that SYNs announce, 0 to 14 (default: 7)"`
	Flows      int       `json:"flows,omitempty" jsonschema:"minimum=1024,maximum=1048576" jsonschema_description:"connections that the flow table holds, some 310 B of kernel memory each; others pass (default: 65536)"`
	Shrink     string    `json:"shrink,omitempty" jsonschema:"enum=allow,enum=avoid" jsonschema_description:"whether the right edge of a window may move to the left (default: allow)"`
	Signed     string    `json:"signed,omitempty" jsonschema:"enum=pass,enum=limit,enum=drop" jsonschema_description:"segments that both ends sign (TCP-MD5, TCP-AO), whose windows cannot be rewritten: let them pass (default), drop data beyond the window that the port grants, or drop them all"`
	Edge       *fileEdge `json:"edge,omitempty" jsonschema_description:"edge mode: windows are told on some ACKs to weir's edge at the senders, which applies them to all (default: off)"`
}

// Mark is ECN marking of a port: ECT packets that find more than Threshold in the queue.
type Mark struct {
	Threshold law.Bytes `json:"threshold" jsonschema:"required" jsonschema_description:"mark above this backlog (K); 0B: do not mark"`
}

// over gives s where it says something, and base elsewhere.
func (s PortSettings) over(base PortSettings) PortSettings {
	return PortSettings{
		Rate: cmp.Or(s.Rate, base.Rate), Buffer: cmp.Or(s.Buffer, base.Buffer), Shape: cmp.Or(s.Shape, base.Shape),
		RTT: cmp.Or(s.RTT, base.RTT), FairQ: s.FairQ.over(base.FairQ), Mark: cmp.Or(s.Mark, base.Mark),
	}
}

func (s PortFairQ) over(base PortFairQ) PortFairQ {
	return PortFairQ{
		TargetFraction: cmp.Or(s.TargetFraction, base.TargetFraction), Interval: cmp.Or(s.Interval, base.Interval),
		Updates: cmp.Or(s.Updates, base.Updates), Gain: cmp.Or(s.Gain, base.Gain),
		MinWindow: cmp.Or(s.MinWindow, base.MinWindow), Paths: cmp.Or(s.Paths, base.Paths),
	}
}

type filePort struct {
	Match deviceNames `json:"match" jsonschema:"required" jsonschema_description:"a name, a pattern (swp*), or a list of them"`
	PortSettings
}

type fileEdge struct {
	Interval law.Duration `json:"interval,omitempty" jsonschema_description:"a flow is told its window this often, 1ms to 10s (default: 10ms)"`
	Change   float64      `json:"change,omitempty" jsonschema:"minimum=0.00390625,maximum=1" jsonschema_description:"and at once when it has moved by more than this fraction, 1/256 to 1 (default: 0.125)"`
	Lease    law.Duration `json:"lease,omitempty" jsonschema_description:"how long the edge remembers, at least twice the interval, up to 60s (default: 1s)"`
}

// edge gives the edge mode that the file asks for.
func (f *fileFairQ) edge() fairq.EdgeMode {
	if f.Edge == nil {
		return fairq.EdgeMode{}
	}
	return fairq.EdgeMode{
		Interval: cmp.Or(f.Edge.Interval.Std(), fairq.EdgeInterval),
		Change:   cmp.Or(f.Edge.Change, edgeChange), Lease: cmp.Or(f.Edge.Lease.Std(), edgeLease),
	}
}

// DefaultFlows is how many connections the flow table holds where a file does not say.
const DefaultFlows = fairq.DefaultFlows

const (
	edgeChange = 1.0 / 8
	edgeLease  = time.Second
)

type fileEnforce struct {
	Ports   deviceNames `json:"ports,omitempty" jsonschema_description:"a name, a pattern (swp*), or a list of them (default: all ports)"`
	Percent int         `json:"percent" jsonschema:"minimum=0,maximum=100" jsonschema_description:"of the flows of each, chosen by a hash (default: 100)"`
}

type fileRollback struct {
	If   []string     `json:"if,omitempty" jsonschema:"maxItems=16" jsonschema_description:"figures of held flows by those of free ones: goodput < 0.9, retransmissions > 2.0, drops > 1.5"`
	Over law.Duration `json:"over,omitempty" jsonschema_description:"for as long as this, 1s to 1h (default: 10s)"`
}

type fileMetrics struct {
	Listen string `json:"listen" jsonschema_description:"address and port to serve on (default: 127.0.0.1:9187); an empty text: nowhere"`
}

// deviceNames are names of devices or patterns of them: in a file one, or a list.
type deviceNames []string

// UnmarshalJSON reads one name or a list.
func (n *deviceNames) UnmarshalJSON(text []byte) error {
	var one string
	if json.Unmarshal(text, &one) == nil {
		*n = deviceNames{one}
		return nil
	}
	return json.Unmarshal(text, (*[]string)(n))
}

// JSONSchema is of a text or a list of texts.
func (deviceNames) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{
		Extras:   map[string]any{"type": []string{"string", "array"}},
		Items:    &jsonschema.Schema{Type: "string"},
		MaxItems: new(uint64(maxNames)),
	}
}

const maxNames = 4096 // of one entry

// fileLimits let a file list ten thousand ports one by one, with every key of each.
var fileLimits = config.Limits{Bytes: 16 << 20, Nodes: 500_000}

// FileVersion is the newest version of the keys of `kind: Switch`.
const FileVersion = 2

// version is 2: the keys of one law stand under its name, and those that any law has do not.
func version() config.Version {
	v := config.Version{Newest: FileVersion, Command: "weir switch --newest -f"}
	for _, key := range []string{"count", "scale", "unify_shift", "flows", "shrink", "signed", "edge"} {
		v.Moved = append(v.Moved, config.Move{From: key, To: "fairq." + key})
	}
	for _, key := range []string{"target_fraction", "interval", "updates", "gain", "min_window", "paths"} {
		for _, at := range []string{"defaults.", "ports.*."} {
			v.Moved = append(v.Moved, config.Move{From: at + key, To: at + "fairq." + key})
		}
	}
	return v
}

// Newest gives the text of a file of `kind: Switch` in the newest version, with its comments; one that is of that
// version already as it is. Errors are config.Errors, or those of reading the file.
func Newest(path string) ([]byte, error) {
	data, err := config.ReadFile(path, fileLimits)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	text, err := kindSwitch().Newest(path, data)
	if err == nil && text == nil {
		text = data
	}
	return text, err
}

// kindSwitch is `kind: Switch`.
var kindSwitch = sync.OnceValue(func() *config.Kind[File] {
	return config.NewKind("Switch", version(), fileLimits, defaultFile, func(c *config.Checker, f *File) {
		f.warning = c.Warning
		(&fileChecker{Checker: c}).check(f)
	})
})

// defaultFile is what holds where a file says nothing. Ports have defaults of their own: defaultPort.
func defaultFile() *File {
	return &File{
		Name:    "default",
		FairQ:   fileFairQ{Count: fairqlaw.DefaultCount, Scale: "learn", UnifyShift: 7, Flows: DefaultFlows, Shrink: "allow", Signed: "pass"},
		Enforce: fileEnforce{Percent: 100}, Rollback: fileRollback{Over: RollbackOver},
		Metrics: fileMetrics{Listen: metrics.DefaultListen},
	}
}

// Schema is the JSON schema of `kind: Switch`.
func Schema() []byte { return kindSwitch().Schema() }

// Load reads and checks a file of `kind: Switch`. What is wrong with it is config.Errors.
func Load(path string) (*Config, error) {
	f, err := kindSwitch().Load(path)
	if err != nil {
		return nil, err
	}
	c := f.config()
	c.File = path
	return c, nil
}

// FromOptions makes a configuration of options instead of a file: the tree is what a file would hold,
// each value labelled with the option that it came from.
func FromOptions(t *config.Tree) (*Config, error) {
	f, err := kindSwitch().FromTree("", t)
	if err != nil {
		return nil, err
	}
	return f.config(), nil
}

// config gives what a checked file says, with nothing left open.
func (f *File) config() *Config {
	q := &f.FairQ
	c := &Config{
		Name: f.Name, Count: q.Count, Scale: q.Scale, UnifyShift: q.UnifyShift, Flows: q.Flows, Shrink: q.Shrink, Signed: q.Signed, Scope: f.Scope, Edge: q.edge(),
		Enforce: Enforce{Ports: f.Enforce.Ports, Percent: f.Enforce.Percent},
		Metrics: Metrics{Listen: f.Metrics.Listen},
		Warning: f.warning,
	}
	base := f.Defaults.over(defaultPort())
	for _, p := range f.Ports {
		c.Ports = append(c.Ports, PortRule{Match: p.Match, PortSettings: p.over(base)})
	}
	c.Rollback.Over = f.Rollback.Over
	for _, text := range f.Rollback.If {
		if rule, err := ParseRule(text); err == nil { // checked
			c.Rollback.If = append(c.Rollback.If, rule)
		}
	}
	return c
}
