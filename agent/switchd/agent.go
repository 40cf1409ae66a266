package switchd

import (
	"errors"
	"path/filepath"
	"strings"
	"sync"

	"weir/config"
	"weir/datapath/attach"
)

// Agent implements `weir switch`, `weir status` and `weir observe` with a list of laws.
type Agent struct {
	laws []Law
	kind func() *config.Kind[File]
}

// New returns the agent of laws. A switch runs those of them whose sections its file has; without any section it runs the
// first.
func New(laws ...Law) *Agent {
	a := &Agent{laws: laws}
	a.kind = sync.OnceValue(func() *config.Kind[File] { return kindSwitch(a) })
	return a
}

// Title returns the first law's name for people.
func (a *Agent) Title() string { return a.laws[0].Facts().Title }

// Flags returns the flags of all laws.
func (a *Agent) Flags() (flags []Flag) {
	for _, l := range a.laws {
		flags = append(flags, l.Facts().Flags...)
	}
	return flags
}

// Needs lists the kernel features that the programs of all laws use.
func (a *Agent) Needs() (needs []attach.Needs) {
	for _, l := range a.laws {
		needs = append(needs, l.Facts().Needs...)
	}
	return needs
}

// Rehearse has the kernel verify the programs of all laws.
func (a *Agent) Rehearse() error {
	var errs []error
	for _, l := range a.laws {
		errs = append(errs, l.Rehearse())
	}
	return errors.Join(errs...)
}

// Memory returns the capacity of the tables of a configuration in connections, and their size in bytes. With nil it is the
// default configuration. Of several laws it returns the sums.
func (a *Agent) Memory(c *Config, processors int) (connections int, bytes uint64, err error) {
	chosen := a.chosen(0)
	if c != nil {
		chosen = c.Laws
	}
	for _, l := range chosen {
		n, b, err := l.Law.Memory(l.Keys, processors)
		if err != nil {
			return 0, 0, err
		}
		connections, bytes = connections+n, bytes+b
	}
	return connections, bytes, nil
}

// chosen returns laws of the agent, by their places in its list, with the default values of their keys.
func (a *Agent) chosen(places ...int) (out []LawKeys) {
	for _, i := range places {
		f, pins := a.laws[i].Facts(), pinRoot
		if i > 0 {
			pins = filepath.Join(filepath.Dir(pinRoot), f.Spec.Name)
		}
		out = append(out, LawKeys{Law: a.laws[i], Keys: f.All, name: f.Spec.Name, title: f.Title, pins: pins})
	}
	return out
}

// every returns all laws of the agent.
func (a *Agent) every() []LawKeys {
	places := make([]int, len(a.laws))
	for i := range places {
		places[i] = i
	}
	return a.chosen(places...)
}

// Open reads what the first law has pinned of the switch with this name.
func (a *Agent) Open(name string) (View, error) {
	first := a.chosen(0)[0]
	return first.Law.Open(first.pin(name))
}

// LawKeys is a law of a switch with its keys of all ports.
type LawKeys struct {
	Law  Law
	Keys any // with the type of Facts.All

	name  string // the law's key in a file
	title string // its name for people
	pins  string // directory of all switches with this law
}

// pin is the directory where the law is pinned for a switch.
func (l *LawKeys) pin(name string) string { return filepath.Join(l.pins, name) }

// wholePorts reports whether the law is a WholePorts.
func (l *LawKeys) wholePorts() bool {
	_, is := l.Law.(WholePorts)
	return is
}

// SameLaws reports whether two configurations have the same laws, with whatever parameters. A switch that runs can change these alone.
func (c *Config) SameLaws(o *Config) bool { return titles(c.Laws) == titles(o.Laws) }

// titles returns the names of laws for people.
func titles(laws []LawKeys) string {
	var out []string
	for i := range laws {
		out = append(out, laws[i].title)
	}
	return strings.Join(out, " and ")
}
