package config

import (
	"errors"
	"testing"

	"weir/law"
)

type tuned struct {
	Gain float64      `json:"gain" jsonschema:"exclusiveMinimum=0,maximum=1"`
	Wait law.Duration `json:"wait" above:"0"`
	Most law.Limit    `json:"most" above:"0" jsonschema:"required"`
}

func (p *tuned) Check() error {
	if p.Wait > 1e9 && p.Gain < 0.5 {
		return errors.New("a wait over 1s needs a gain of 0.5 at least")
	}
	return nil
}

type withParams struct {
	Kind string                    `json:"kind" jsonschema:"required,enum=Tuned"`
	Laws map[string]map[string]any `json:"laws,omitempty"`
}

func TestParams(t *testing.T) {
	var got *tuned
	k := NewKind("Tuned", Version{}, DefaultLimits, func() *withParams { return &withParams{} }, func(c *Checker, _ *withParams) {
		got = &tuned{Gain: 0.25, Wait: 5}
		c.Params(got, "laws", "a")
	})
	if _, err := k.Parse("a.yaml", []byte("kind: Tuned\nlaws: {a: {most: 3pkt, gain: 1}}\n")); err != nil || got.Gain != 1 || got.Wait != 5 || got.Most.N != 3 {
		t.Errorf("%+v, %v", got, err)
	}
	for _, row := range []struct{ a, says string }{
		{"{most: 3pkt, wait: 0s}", "a.yaml:2: laws.a.wait: 0 is not allowed; above 0"},
		{"{most: 0pkt}", "a.yaml:2: laws.a.most: 0 is not allowed; above 0"},
		{"{most: 3pkt, gain: 2}", `a.yaml:2: laws.a.gain: "2" is out of range; above 0 and at most 1`},
		{"{most: 3pkt, gian: 1}", "a.yaml:2: laws.a.gian: unknown key; did you mean gain? allowed: gain, most, wait"},
		{"{}", "a.yaml:2: laws.a.most: the key is missing; it must be given: a limit is a number and B, KB, MB, KiB, MiB or pkt"},
		{"{most: 3pkt, wait: 2s}", "a.yaml:2: laws.a: a wait over 1s needs a gain of 0.5 at least"},
	} {
		if _, err := k.Parse("a.yaml", []byte("kind: Tuned\nlaws: {a: "+row.a+"}\n")); err == nil || err.Error() != row.says {
			t.Errorf("%s:\n%v\nwanted\n%s", row.a, err, row.says)
		}
	}
}

func TestDecodeParams(t *testing.T) {
	p := &tuned{Wait: 5}
	if err := DecodeParams([]byte(`{"gain": 0.5}`), p); err != nil || p.Gain != 0.5 || p.Wait != 5 {
		t.Errorf("%+v, %v", p, err)
	}
	if DecodeParams([]byte(`{"gian": 0.5}`), p) == nil {
		t.Error("an unknown key is accepted")
	}
}
