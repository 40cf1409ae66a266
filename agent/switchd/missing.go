package switchd

import (
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
)

// NoDevice is the error for a port that is configured and does not exist when the switch begins.
type NoDevice struct {
	Port string   // a name, or a pattern that matches nothing
	Here []string // devices of the namespace that may be meant
}

func (e *NoDevice) Error() string {
	what := "no device " + e.Port
	if isPattern(e.Port) {
		what = "no device matches " + e.Port
	}
	here := "this network namespace has no port"
	if n := len(e.Here); n > 0 {
		here = "this network namespace has " + strings.Join(e.Here[:min(n, portsListed)], ", ")
		if n > portsListed {
			here += fmt.Sprintf(" and %d more", n-portsListed)
		}
	}
	return what + "; " + here + "; correct the name, or wait for it with --wait"
}

const portsListed = 10 // listed in an error

// missing returns *NoDevice if a name or pattern matches no device, unless --wait is set or a file is used. A file may
// name devices that appear later, because its unit starts with the machine.
func (r *role) missing(found []candidate) error {
	if r.cfg.Wait || r.cfg.File != "" {
		return nil
	}
	for i := range r.cfg.Ports {
		rule := &r.cfg.Ports[i]
		for _, match := range rule.Match {
			alone := newRules(nil, []PortRule{{Match: []string{match}}})
			matches := func(name string) bool { return alone.of(name) != nil }
			if !slices.ContainsFunc(found, func(c candidate) bool { return matches(c.name) }) {
				here, err := portsHere()
				if err != nil {
					return err
				}
				return &NoDevice{match, here}
			}
		}
	}
	return nil
}

// portsHere lists the devices of the namespace that can be ports.
func portsHere() (names []string, err error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list devices: %w", err)
	}
	for _, l := range links {
		if a := l.Attrs(); a.Flags&net.FlagLoopback == 0 {
			names = append(names, a.Name)
		}
	}
	slices.Sort(names)
	return names, nil
}
