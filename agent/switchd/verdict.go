package switchd

import (
	"weir/law"
)

// Verdict describes what a configuration would do with a device; `weir doctor` shows it in advance.
type Verdict struct {
	Ifindex int
	Err     error // why it cannot be managed (*attach.NoQueue, *NoRate or *ForeignQueue), or nil

	Rate    law.Rate  // of the port, from its shaper or the configuration
	Buffer  law.Bytes // B
	Target  law.Bytes // αB
	Windows law.Bytes // C*RTT + αB: sum of all windows
	Shape   law.Rate  // of the shaper that Weir would add; 0: none
}

// Verdicts returns a verdict for each device of this network namespace that the configuration names. It changes
// nothing.
func (c *Config) Verdicts() ([]Verdict, error) {
	r := newRules(c.laws(), c.Ports)
	if made, err := openShapes(c.Name); err == nil { // without root, shapers made by Weir are not recognised
		defer func() { _ = made.close() }()
		r.made = made
	}
	return r.verdicts()
}

// DefaultVerdicts returns a verdict for every device, with the default settings. A shaper that Weir made counts as the
// port's own.
func (a *Agent) DefaultVerdicts() ([]Verdict, error) {
	first := a.chosen(0)
	return newRules(a.laws[:1], []PortRule{{Match: []string{"*"}, PortSettings: defaultPort(first)}}).verdicts()
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
			f := c.params[0].Figures()
			v.Rate, v.Buffer, v.Target, v.Windows = law.Rate(c.line.rate*8), law.Bytes(f.Buffer), law.Bytes(f.Target), law.Bytes(f.Cap)
		}
		out = append(out, v)
	}
	return out, nil
}
