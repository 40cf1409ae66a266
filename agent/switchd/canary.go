package switchd

import (
	"fmt"
	"path"
)

// Enforce says where windows are held: on which ports, and of how many of their flows. The other ports, and
// the other flows, are only observed.
type Enforce struct {
	Ports   []string // names or patterns; empty: all
	Percent int      // of the flows of each, 0 to 100, chosen by a hash
}

// EnforceAll is what a switch does that is not told otherwise.
func EnforceAll() Enforce { return Enforce{Percent: 100} }

// Check says what is wrong with it.
func (e *Enforce) Check() error {
	if e.Percent < 0 || e.Percent > 100 {
		return fmt.Errorf("enforce %d percent of the flows: 0 to 100", e.Percent)
	}
	for _, p := range e.Ports {
		if _, err := path.Match(p, ""); err != nil || p == "" {
			return fmt.Errorf("enforce: port %q: neither a name nor a pattern", p)
		}
	}
	return nil
}

// percent is how many of a port's flows are to be held.
func (e *Enforce) percent(port string) int {
	if len(e.Ports) == 0 {
		return e.Percent
	}
	for _, p := range e.Ports {
		if ok, err := path.Match(p, port); p == port || err == nil && ok {
			return e.Percent
		}
	}
	return 0
}
