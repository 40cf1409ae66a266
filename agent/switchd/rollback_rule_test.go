package switchd

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestParseRule(t *testing.T) {
	for _, row := range []struct {
		text string
		want Rule
		says string // of the error
	}{
		{"goodput < 0.9", Rule{Goodput, 0.9}, ""},
		{"goodput < 1", Rule{Goodput, 1}, ""},
		{"retransmissions > 2", Rule{Retransmissions, 2}, ""},
		{"retransmissions > 2.0", Rule{Retransmissions, 2}, ""},
		{"drops > 1.5", Rule{Drops, 1.5}, ""},
		{"drops > 1000", Rule{Drops, 1000}, ""},
		{"", Rule{}, "three words"},
		{"goodput", Rule{}, "three words"},
		{"goodput<0.9", Rule{}, "three words"},
		{"goodput  < 0.9", Rule{}, "three words"},
		{" goodput < 0.9", Rule{}, "three words"},
		{"goodput < 0.9 ", Rule{}, "three words"},
		{"goodput < 0.9 of free", Rule{}, "three words"},
		{"Goodput < 0.9", Rule{}, `unknown figure "Goodput": use goodput, retransmissions or drops`},
		{"latency > 2", Rule{}, `unknown figure "latency"`},
		{"goodput > 0.9", Rule{}, "goodput is bad when it falls: write goodput < NUMBER"},
		{"drops < 2", Rule{}, "drops is bad when it rises: write drops > NUMBER"},
		{"drops >= 2", Rule{}, `">=" is not a comparison: use < or >`},
		{"drops = 2", Rule{}, `"=" is not a comparison`},
		{"goodput < 90%", Rule{}, `"90%" is not a number such as 0.9`},
		{"goodput < -1", Rule{}, "not a number"},
		{"goodput < 1e-1", Rule{}, "not a number"},
		{"goodput < 0x1", Rule{}, "not a number"},
		{"goodput < NaN", Rule{}, "not a number"},
		{"drops > Inf", Rule{}, "not a number"},
		{"goodput < .", Rule{}, "not a number"},
		{"goodput < 0", Rule{}, "above 0 and up to 1"},
		{"goodput < 1.1", Rule{}, "above 0 and up to 1"},
		{"drops > 0.5", Rule{}, "from 1 (as bad as without Weir) to 1000"},
		{"retransmissions > 1001", Rule{}, "from 1"},
	} {
		r, err := ParseRule(row.text)
		switch {
		case row.says == "" && (err != nil || r != row.want):
			t.Errorf("%q: %+v, %v", row.text, r, err)
		case row.says != "" && (err == nil || !strings.Contains(err.Error(), row.says)):
			t.Errorf("%q: %v, no %q", row.text, err, row.says)
		case row.says != "" && (!strings.Contains(err.Error(), row.text) || r != Rule{}):
			t.Errorf("%q: the error does not name it, or leaves a rule: %v, %+v", row.text, err, r)
		}
	}
}

// A parsed rule is written the same way; nothing else is accepted.
func TestParseRule_RoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := Rule{Figure: rapid.SampledFrom(figures).Draw(t, "figure")}
		if r.Figure.below() {
			r.Than = rapid.Float64Range(1e-6, 1).Draw(t, "than")
		} else {
			r.Than = rapid.Float64Range(1, ruleMost).Draw(t, "than")
		}
		got, err := ParseRule(r.String())
		if err != nil || got != r {
			t.Fatalf("%q: %+v, %v", r, got, err)
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text")
		if r, err := ParseRule(text); err == nil && r.check() != nil {
			t.Fatalf("%q is read as %+v", text, r)
		}
	})
}
