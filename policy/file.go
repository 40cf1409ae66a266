package policy

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/invopop/jsonschema"

	"weir/config"
	"weir/law"
)

// Limits of policies.
const (
	MaxFile     = 64 << 10 // bytes of a file
	MaxPolicies = 2000
	MaxName     = 63 // letters of any name
	MaxLabels   = 32 // of a selection, or of a port, host or VM
	MaxValues   = 64 // of a label in a selection
	MaxLaws     = 8  // of a policy
)

// fileLimits fit a file with the longest lists. A longer file is refused after the first MaxFile bytes.
var fileLimits = config.Limits{Bytes: MaxFile, Nodes: 10_000}

// file is a file of `kind: Policy` as its author wrote it.
type file struct {
	Kind      string                    `json:"kind" jsonschema:"required,enum=Policy" jsonschema_description:"Policy"`
	Version   int                       `json:"version" jsonschema:"required,enum=1" jsonschema_description:"version of the keys"`
	Name      string                    `json:"name" jsonschema:"required,maxLength=63,pattern=^[a-z0-9][a-z0-9-]*$" jsonschema_description:"1 to 63 of a-z, 0-9 and -: name of the policy"`
	Select    fileSelect                `json:"select" jsonschema:"required" jsonschema_description:"what the policy is for: ports, hosts, VMs"`
	Laws      map[string]map[string]any `json:"laws,omitempty" jsonschema_description:"laws that run there: their names, each with its parameters ({}: defaults)"`
	Guarantee Guarantee                 `json:"guarantee,omitzero" jsonschema_description:"what each selected VM gets"`
	Enforce   fileEnforce               `json:"enforce,omitzero" jsonschema_description:"how much is enforced; all else is only observed (default: everything)"`
}

type fileSelect struct {
	Ports *Selector `json:"ports,omitempty" jsonschema_description:"ports of switches"`
	Hosts *Selector `json:"hosts,omitempty" jsonschema_description:"hosts, at their uplinks"`
	VMs   *Selector `json:"vms,omitempty" jsonschema_description:"VMs"`
}

type fileEnforce struct {
	Percent int `json:"percent" jsonschema:"minimum=0,maximum=100" jsonschema_description:"percentage of the flows that the laws limit, chosen by a hash; 0: they only observe (default: 100)"`
}

// Guarantee is what a VM gets at its host's uplink. A zero field is not set.
type Guarantee struct {
	Rate   law.Rate `json:"rate,omitempty" jsonschema_description:"least rate of each VM"`
	Weight int      `json:"weight,omitempty" jsonschema:"minimum=1,maximum=1000" jsonschema_description:"VMs share the uplink by weight, and none has less than its rate (default: 1)"`
	Cap    law.Rate `json:"cap,omitempty" jsonschema_description:"largest rate of each VM (default: none)"`
	Excess string   `json:"excess,omitempty" jsonschema:"enum=queue,enum=drop" jsonschema_description:"packets above a rate of the VM wait in a queue, or are dropped (default: what the law at its host says)"`
}

// Values are the values of a label: one of them must match. In a file, one value or a list.
type Values []string

// UnmarshalJSON reads one text or a list.
func (v *Values) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*v = Values{one}
		return nil
	}
	return json.Unmarshal(b, (*[]string)(v))
}

// MarshalJSON writes one text, or a list.
func (v Values) MarshalJSON() ([]byte, error) {
	if len(v) == 1 {
		return json.Marshal(v[0])
	}
	return json.Marshal([]string(v))
}

// JSONSchema is the schema of a text or a list of texts.
func (Values) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{
		Extras: map[string]any{"type": []string{"string", "array"}}, Items: &jsonschema.Schema{Type: "string"}, MinItems: new(uint64(1)), MaxItems: new(uint64(MaxValues)),
	}
}

// Policy is a checked policy.
type Policy struct {
	Name string
	// Since is the number of the change that applied the policy first: of two policies the one with the smaller number is older.
	// 0: not applied yet, and younger than all others.
	Since     uint64
	Version   int
	Select    map[Kind]*Selector
	Laws      []Setting // sorted by law
	Guarantee Guarantee // of each selected VM
	Percent   int       // of the flows that the laws limit; 0: they only observe
	// Broken is why this build cannot use a stored policy; "": it can.
	Broken string
}

// Setting is a law with its parameters.
type Setting struct {
	Law    string
	Params json.RawMessage // all of them, in a fixed form
	Given  string          // those that differ from the defaults, for people; "": none
}

// Reader reads policies for the laws of a build.
type Reader struct {
	specs law.Specs
	kind  *config.Kind[file]
	laws  map[string]*lawReader
}

// NewReader makes a Reader.
func NewReader(specs law.Specs) *Reader {
	r := &Reader{specs: specs, laws: map[string]*lawReader{}}
	for i := range specs {
		r.laws[specs[i].Name] = newLawReader(&specs[i])
	}
	r.kind = config.NewKind("Policy", config.Version{Newest: 1}, fileLimits,
		func() *file { return &file{Enforce: fileEnforce{Percent: 100}} },
		func(c *config.Checker, f *file) { (&checker{Checker: c, Reader: r}).check(f) })
	return r
}

// Schema returns the JSON schema of `kind: Policy`.
func (r *Reader) Schema() []byte { return r.kind.Schema() }

// Load reads and checks a file, and returns its text too. Faults of the file are config.Errors.
func (r *Reader) Load(path string) (*Policy, []byte, error) {
	text, err := config.ReadFile(path, fileLimits)
	if err != nil {
		return nil, nil, err
	}
	p, err := r.Parse(path, text)
	return p, text, err
}

// Parse checks the text of a file; name stands for the file in errors.
func (r *Reader) Parse(name string, text []byte) (*Policy, error) {
	f, err := r.kind.Parse(name, text)
	if err != nil {
		return nil, err
	}
	p := &Policy{Name: f.Name, Select: f.selectors(), Guarantee: f.Guarantee, Percent: f.Enforce.Percent}
	if p.Guarantee != (Guarantee{}) && p.Guarantee.Weight == 0 {
		p.Guarantee.Weight = 1
	}
	for name, given := range f.Laws {
		s, err := r.laws[name].setting(given)
		if err != nil {
			return nil, err
		}
		p.Laws = append(p.Laws, s)
	}
	slices.SortFunc(p.Laws, func(a, b Setting) int { return strings.Compare(a.Law, b.Law) })
	return p, nil
}

func (f *file) selectors() map[Kind]*Selector {
	out := map[Kind]*Selector{}
	for k, s := range map[Kind]*Selector{Port: f.Select.Ports, Host: f.Select.Hosts, VM: f.Select.VMs} {
		if s != nil {
			out[k] = s
		}
	}
	return out
}
