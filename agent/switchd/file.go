package switchd

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"

	"github.com/invopop/jsonschema"

	"weir/agent/metrics"
	"weir/config"
	"weir/law"
)

// File is a file of `kind: Switch`, as its author wrote it. This is the contract with its users; Config is
// what it becomes.
type File struct {
	Kind     string         `json:"kind" jsonschema:"required,enum=Switch" jsonschema_description:"Switch"`
	Version  int            `json:"version" jsonschema:"required,enum=2" jsonschema_description:"version of the keys. A file without it is read as version 1"`
	Name     string         `json:"name,omitempty" jsonschema:"maxLength=32,pattern=^[A-Za-z0-9_-]+$" jsonschema_description:"1 to 32 of a-z, A-Z, 0-9, - and _: name of the switch and of its pins (default: default)"`
	Defaults PortSettings   `json:"defaults,omitzero" jsonschema_description:"any key of a port; it holds for each port that does not set the key itself"`
	Ports    []filePort     `json:"ports" jsonschema:"required,minItems=1,maxItems=20000" jsonschema_description:"ports to manage; the first entry that matches a device applies to it"`
	Scope    []netip.Prefix `json:"scope,omitempty" jsonschema:"maxItems=4096" jsonschema_description:"manage only flows with both ends in one of these prefixes (default: all)"`
	Enforce  fileEnforce    `json:"enforce,omitzero" jsonschema_description:"where windows are limited; all other flows are only observed (default: everywhere)"`
	Rollback fileRollback   `json:"rollback,omitzero" jsonschema_description:"when to stop enforcing on a port (default: never)"`
	Metrics  fileMetrics    `json:"metrics,omitzero" jsonschema_description:"metrics for Prometheus"`

	law     any    // the law's keys of all ports
	warning string // of a file of version 1: what is to be written instead
}

// PortSettings say how a port is managed. What is zero was not said.
type PortSettings struct {
	Rate   law.Rate     `json:"rate,omitempty" jsonschema_description:"rate of the port (default: the rate of its tbf or htb)"`
	Buffer law.Bytes    `json:"buffer,omitempty" jsonschema_description:"buffer of the port, below 4.29GB (default: the buffer of its tbf or htb; with shape: the bytes sent in 1 ms)"`
	Shape  law.Rate     `json:"shape,omitempty" jsonschema_description:"give the port a tbf of this rate while Weir runs; it replaces only the kernel's default queue discipline"`
	RTT    law.Duration `json:"rtt,omitempty" jsonschema_description:"round-trip time of flows with an empty queue, up to 1s (default: 250us)"`
	Mark   *Mark        `json:"mark,omitempty" jsonschema_description:"ECN marking in addition to the law, such as {threshold: 200KB}"`

	Law any `json:"-"` // what Keys.PortKeys made, as the file has it
}

// Mark is ECN marking of a port: ECT packets that find more than Threshold in the queue.
type Mark struct {
	Threshold law.Bytes `json:"threshold" jsonschema:"required" jsonschema_description:"mark ECN-capable packets above this backlog (K); 0B: do not mark"`
}

// over gives s where it says something, and base elsewhere.
func (s PortSettings) over(base PortSettings) PortSettings {
	return PortSettings{
		Rate: cmp.Or(s.Rate, base.Rate), Buffer: cmp.Or(s.Buffer, base.Buffer), Shape: cmp.Or(s.Shape, base.Shape),
		RTT: cmp.Or(s.RTT, base.RTT), Mark: cmp.Or(s.Mark, base.Mark), Law: cmp.Or(s.Law, base.Law),
	}
}

type filePort struct {
	Match deviceNames `json:"match" jsonschema:"required" jsonschema_description:"a name, a pattern (swp*), or a list of them"`
	PortSettings
}

type fileEnforce struct {
	Ports   deviceNames `json:"ports,omitempty" jsonschema_description:"a name, a pattern (swp*), or a list of them (default: all ports)"`
	Percent int         `json:"percent" jsonschema:"minimum=0,maximum=100" jsonschema_description:"percentage of each port's flows to limit, chosen by a hash (default: 100)"`
}

type fileRollback struct {
	If   []string     `json:"if,omitempty" jsonschema:"maxItems=16" jsonschema_description:"rules such as goodput < 0.5, retransmissions > 2, drops > 1.5"`
	Over law.Duration `json:"over,omitempty" jsonschema_description:"how long a rule must be broken, 1s to 1h (default: 10s)"`
}

type fileMetrics struct {
	Listen string `json:"listen" jsonschema_description:"address and port to serve on; an empty string: none (default: 127.0.0.1:9187)"`
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

// FileVersion is the newest version of the keys of `kind: Switch`. In version 2 the keys of one law stand under its name,
// and those that any law has do not.
const FileVersion = 2

func version(l Law) config.Version {
	v := config.Version{Newest: FileVersion, Command: "weir switch --newest -f"}
	under := func(at string, keys []string) {
		for _, key := range keys {
			v.Moved = append(v.Moved, config.Move{From: at + key, To: at + l.Name() + "." + key})
		}
	}
	all, port := l.Before()
	under("", all)
	under("defaults.", port)
	under("ports.*.", port)
	return v
}

// kindSwitch is `kind: Switch` with the keys of a law.
func kindSwitch(l Law) *config.Kind[File] {
	extend := func(s *jsonschema.Schema) {
		under := func(s *jsonschema.Schema, keys any, where string) {
			own := config.SchemaOf(keys)
			own.Version, own.ID, own.Description = "", "", l.Title()+", "+where
			s.Properties.Set(l.Name(), own)
		}
		of := func(s *jsonschema.Schema, key string) *jsonschema.Schema {
			property, _ := s.Properties.Get(key)
			return property
		}
		under(s, l.AllKeys(), "on all ports")
		under(of(s, "defaults"), l.PortKeys(), "on this port")
		under(of(s, "ports").Items, l.PortKeys(), "on this port")
	}
	def := func() *File { return defaultFile(l) }
	return config.NewKind("Switch", version(l), fileLimits, def, func(c *config.Checker, f *File) {
		f.warning = c.Warning
		k := fileChecker{Checker: c, law: l}
		k.readLaw(f)
		k.check(f)
	}, extend)
}

// defaultFile is what holds where a file says nothing. Ports have defaults of their own: defaultPort.
func defaultFile(l Law) *File {
	return &File{
		Name: DefaultName, law: l.AllKeys(),
		Enforce: fileEnforce{Percent: 100}, Rollback: fileRollback{Over: RollbackOver},
		Metrics: fileMetrics{Listen: metrics.DefaultListen},
	}
}

// Schema is the JSON schema of `kind: Switch`.
func (a *Agent) Schema() []byte { return a.kind().Schema() }

// Load reads and checks a file of `kind: Switch`. Its faults are config.Errors.
func (a *Agent) Load(path string) (*Config, error) {
	f, err := a.kind().Load(path)
	if err != nil {
		return nil, err
	}
	c := a.config(f)
	c.File = path
	return c, nil
}

// Parse is Load of a file that is in memory; name stands for it in errors.
func (a *Agent) Parse(name string, data []byte) (*Config, error) {
	f, err := a.kind().Parse(name, data)
	if err != nil {
		return nil, err
	}
	return a.config(f), nil
}

// FromOptions makes a configuration of options instead of a file: the tree is what a file would hold,
// each value labelled with the option that it came from.
func (a *Agent) FromOptions(t *config.Tree) (*Config, error) {
	f, err := a.kind().FromTree("", t)
	if err != nil {
		return nil, err
	}
	return a.config(f), nil
}

// Newest gives the text of a file of `kind: Switch` in the newest version, with its comments; one that is of that
// version already as it is. Errors are config.Errors, or those of reading the file.
func (a *Agent) Newest(path string) ([]byte, error) {
	data, err := config.ReadFile(path, fileLimits)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	text, err := a.NewestOf(path, data)
	if err == nil && text == nil {
		text = data
	}
	return text, err
}

// NewestOf is Newest of a file that is in memory; nil: it is of that version already, or not of this kind.
func (a *Agent) NewestOf(name string, data []byte) ([]byte, error) {
	return a.kind().Newest(name, data)
}

// config gives what a checked file says, with nothing left open.
func (a *Agent) config(f *File) *Config {
	c := &Config{
		Name: f.Name, Scope: f.Scope, Law: f.law,
		Enforce: Enforce{Ports: f.Enforce.Ports, Percent: f.Enforce.Percent},
		Metrics: Metrics{Listen: f.Metrics.Listen},
		Warning: f.warning, agent: a,
	}
	base := f.Defaults.over(defaultPort(a.law))
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
