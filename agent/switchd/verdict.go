package switchd

import (
	"weir/law"
)

// Verdict is what a configuration would make of a device: what `weir doctor` tells of it beforehand.
type Verdict struct {
	Ifindex int
	Err     error // why it cannot be managed: *attach.NoQueue, *NoRate or *ForeignQueue; nil: it can be

	Rate   law.Rate  // of the port, by its shaper or the configuration
	Buffer law.Bytes // B
	Target law.Bytes // αB
	Pipe   law.Bytes // C*RTT + αB: what all windows together come to
	Shape  law.Rate  // of the shaper that Weir would put there; 0: none
}

// Verdicts judges the devices of this network namespace that the configuration names. Nothing is changed.
func (c *Config) Verdicts() ([]Verdict, error) {
	r := newRules(c.agent.law, c.Ports)
	if made, err := openShapes(c.Name); err == nil { // else, without root, none of Weir's is known
		defer func() { _ = made.close() }()
		r.made = made
	}
	return r.verdicts()
}

// DefaultVerdicts judges all devices by the settings that hold when nothing is configured. A shaper of
// Weir's own counts as the port's.
func (a *Agent) DefaultVerdicts() ([]Verdict, error) {
	return newRules(a.law, []PortRule{{Match: []string{"*"}, PortSettings: defaultPort(a.law)}}).verdicts()
}

func (r *rules) verdicts() ([]Verdict, error) {
	found, err := r.look()
	if err != nil {
		return nil, err
	}
	var out []Verdict
	for i := range found {
		c := &found[i]
		v := Verdict{Ifindex: c.ifindex, Err: c.err, Shape: c.tbf.Rate}
		if c.err == nil {
			f := c.params.Figures()
			v.Rate, v.Buffer, v.Target, v.Pipe = law.Rate(c.line.rate*8), law.Bytes(f.Buffer), law.Bytes(f.Target), law.Bytes(f.Cap)
		}
		out = append(out, v)
	}
	return out, nil
}
