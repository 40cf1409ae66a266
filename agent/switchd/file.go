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

// File is a file of `kind: Switch` as its author wrote it: the interface to users. Config is made from it.
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

	laws    []LawKeys // those that the switch runs, with their keys of all ports
	warning string    // for a file of version 1: how to convert it
}

// PortSettings say how to manage a port. A zero value is not set.
type PortSettings struct {
	Rate   law.Rate     `json:"rate,omitempty" jsonschema_description:"rate of the port, which replaces the shape of defaults (default: the rate of its tbf or htb)"`
	Buffer law.Bytes    `json:"buffer,omitempty" jsonschema_description:"buffer of the port, below 4.29GB (default: the buffer of its tbf or htb; with shape: the bytes sent in 1 ms)"`
	Shape  law.Rate     `json:"shape,omitempty" jsonschema_description:"give the port a tbf of this rate while Weir runs; it replaces only the kernel's default queue discipline"`
	RTT    law.Duration `json:"rtt,omitempty" jsonschema_description:"round-trip time of flows with an empty queue, up to 1s (default: 250us)"`
	// Percent is of the port's flows; nil: enforce.percent.
	Percent *int  `json:"percent,omitempty" jsonschema:"minimum=0,maximum=100" jsonschema_description:"percentage of the port's flows to limit (default: enforce.percent, or 0 if enforce.ports leaves the port out)"`
	Mark    *Mark `json:"mark,omitempty" jsonschema_description:"ECN marking in addition to the law, such as {threshold: 200KB}"`

	Laws []any `json:"-"` // of each law that the switch runs: its keys of the port, with the type of Facts.Port
}

// Mark is ECN marking of a port: ECN-capable packets that meet a backlog above Threshold are marked.
type Mark struct {
	Threshold law.Bytes `json:"threshold" jsonschema:"required" jsonschema_description:"mark ECN-capable packets above this backlog (K); 0B: do not mark"`
}

// over returns the settings of s, with those of base where s has none. A rate of s replaces the shape of base.
func (s PortSettings) over(base PortSettings) PortSettings {
	laws := s.Laws
	if laws == nil {
		laws = base.Laws
	}
	if s.Rate != 0 {
		base.Shape = 0
	}
	return PortSettings{
		Rate: cmp.Or(s.Rate, base.Rate), Buffer: cmp.Or(s.Buffer, base.Buffer), Shape: cmp.Or(s.Shape, base.Shape),
		RTT: cmp.Or(s.RTT, base.RTT), Mark: cmp.Or(s.Mark, base.Mark), Percent: cmp.Or(s.Percent, base.Percent), Laws: laws,
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

// deviceNames are names of devices or patterns: one, or a list.
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

// JSONSchema is the schema of a string or a list of strings.
func (deviceNames) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{
		Extras:   map[string]any{"type": []string{"string", "array"}},
		Items:    &jsonschema.Schema{Type: "string"},
		MaxItems: new(uint64(maxNames)),
	}
}

const maxNames = 4096 // of one entry

// fileLimits allow a file with ten thousand ports listed one by one, each with every key.
var fileLimits = config.Limits{Bytes: 16 << 20, Nodes: 500_000}

// FileVersion is the newest version of the keys of `kind: Switch`. In version 2 the keys of a law are nested under
// its name.
const FileVersion = 2

func version(laws []Law) config.Version {
	v := config.Version{Newest: FileVersion, Command: "weir switch --newest -f"}
	for _, l := range laws {
		f := l.Facts()
		under := func(at string, keys []string) {
			for _, key := range keys {
				v.Moved = append(v.Moved, config.Move{From: at + key, To: at + f.Spec.Name + "." + key})
			}
		}
		under("", f.MovedAll)
		under("defaults.", f.MovedPort)
		under("ports.*.", f.MovedPort)
	}
	return v
}

// kindSwitch returns `kind: Switch` with the keys of the agent's laws.
func kindSwitch(a *Agent) *config.Kind[File] {
	extend := func(s *jsonschema.Schema) {
		of := func(s *jsonschema.Schema, key string) *jsonschema.Schema {
			property, _ := s.Properties.Get(key)
			return property
		}
		for _, l := range a.laws {
			f := l.Facts()
			under := func(s *jsonschema.Schema, keys any, where string) {
				own := config.SchemaOf(keys)
				own.Version, own.ID, own.Description = "", "", f.Title+", "+where
				s.Properties.Set(f.Spec.Name, own)
			}
			under(s, f.All, "on all ports")
			under(of(s, "defaults"), f.Port, "on this port")
			under(of(s, "ports").Items, f.Port, "on this port")
		}
	}
	return config.NewKind("Switch", version(a.laws), fileLimits, defaultFile, func(c *config.Checker, f *File) {
		f.warning = c.Warning
		k := fileChecker{Checker: c, agent: a}
		k.readLaws(f)
		k.check(f)
	}, extend)
}

// defaultFile has the default values. Ports have their own: defaultPort.
func defaultFile() *File {
	return &File{
		Name:    DefaultName,
		Enforce: fileEnforce{Percent: 100}, Rollback: fileRollback{Over: RollbackOver},
		Metrics: fileMetrics{Listen: metrics.DefaultListen},
	}
}

// Schema is the JSON schema of `kind: Switch`.
func (a *Agent) Schema() []byte { return a.kind().Schema() }

// Load reads and checks a file of `kind: Switch`. Faults in the file are config.Errors.
func (a *Agent) Load(path string) (*Config, error) {
	f, err := a.kind().Load(path)
	if err != nil {
		return nil, err
	}
	c := a.config(f)
	c.File = path
	return c, nil
}

// Parse is Load for a file in memory; name stands for it in errors.
func (a *Agent) Parse(name string, data []byte) (*Config, error) {
	f, err := a.kind().Parse(name, data)
	if err != nil {
		return nil, err
	}
	return a.config(f), nil
}

// FromOptions makes a configuration from options instead of a file. The tree has the form of a file, and each value is
// labelled with its option.
func (a *Agent) FromOptions(t *config.Tree) (*Config, error) {
	f, err := a.kind().FromTree("", t)
	if err != nil {
		return nil, err
	}
	return a.config(f), nil
}

// Newest returns the text of a file of `kind: Switch` in the newest version, with its comments. A file of that version
// is returned unchanged. Errors are config.Errors, or those of reading the file.
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

// NewestOf is Newest for a file in memory. It returns nil if the file is of the newest version, or of another kind.
func (a *Agent) NewestOf(name string, data []byte) ([]byte, error) {
	return a.kind().Newest(name, data)
}

// config makes a complete configuration from a checked file.
func (a *Agent) config(f *File) *Config {
	c := &Config{
		Name: f.Name, Scope: f.Scope, Laws: f.laws,
		Enforce: Enforce{Ports: f.Enforce.Ports, Percent: f.Enforce.Percent},
		Metrics: Metrics{Listen: f.Metrics.Listen},
		Warning: f.warning, agent: a,
	}
	base := f.Defaults.over(defaultPort(f.laws))
	for _, p := range f.Ports {
		c.Ports = append(c.Ports, PortRule{Match: p.Match, PortSettings: p.over(base)})
	}
	c.Rollback.Over = f.Rollback.Over
	for _, text := range f.Rollback.If {
		if rule, err := ParseRule(text); err == nil { // the file was checked before
			c.Rollback.If = append(c.Rollback.If, rule)
		}
	}
	return c
}
