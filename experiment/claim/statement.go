package claim

import (
	"bytes"
	"encoding/json"

	"github.com/invopop/jsonschema"
)

// Statement is a claim in a file, with its source and, if it does not hold, the cause as far as it is known. In
// the file it is a text alone, or a mapping.
type Statement struct {
	Claim string `json:"claim"` // LEFT op RIGHT
	// Paper is the paper's statement, in its words. Ours is what this project asks, with the reason. At most one
	// of them is given.
	Paper string `json:"paper,omitempty"`
	Ours  string `json:"ours,omitempty"`
	// Source is the place in the paper. Value is the paper's value of LEFT, as a text for readers. Figure is the
	// file's figure that shows it.
	Source string `json:"source,omitempty"`
	Value  string `json:"value,omitempty"`
	Figure string `json:"figure,omitempty"`
	// Because is the measured cause. It is shown if the claim is refuted.
	Because string `json:"because,omitempty"`
}

// MarshalJSON writes a bare claim as a text.
func (s Statement) MarshalJSON() ([]byte, error) {
	if s == (Statement{Claim: s.Claim}) {
		return json.Marshal(s.Claim)
	}
	type plain Statement
	return json.Marshal(plain(s))
}

// UnmarshalJSON reads a text or a mapping. The schema rejects other keys in the mapping.
func (s *Statement) UnmarshalJSON(b []byte) error {
	if b = bytes.TrimSpace(b); len(b) > 0 && b[0] == '"' {
		*s = Statement{}
		return json.Unmarshal(b, &s.Claim)
	}
	type plain Statement
	return json.Unmarshal(b, (*plain)(s))
}

// JSONSchema describes both forms in one schema: rules on keys bind mappings only.
func (Statement) JSONSchema() *jsonschema.Schema {
	properties := jsonschema.NewProperties()
	for _, p := range []struct{ key, text string }{
		{"claim", "LEFT op RIGHT over the results, decided on the median over seeds"},
		{"paper", "what the paper says, in its words"},
		{"ours", "what this project asks, and why"},
		{"source", "the place in the paper, such as Fig. 3b (default: the file's paper)"},
		{"value", "the paper's value of LEFT, as a text: 6.3 (860 against 137 ms)"},
		{"figure", "the name of the file's figure that shows it"},
		{"because", "the measured cause if it does not hold; shown if it is refuted"},
	} {
		properties.Set(p.key, &jsonschema.Schema{Type: "string", Description: p.text})
	}
	return &jsonschema.Schema{
		Properties: properties, Required: []string{"claim"}, AdditionalProperties: jsonschema.FalseSchema,
		Description: "a claim, or a mapping: claim, paper or ours, source, value, figure, because",
		Extras:      map[string]any{"type": []string{"string", "object"}},
	}
}
