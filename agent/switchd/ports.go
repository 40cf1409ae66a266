package switchd

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/vishvananda/netlink"

	"weir/datapath"
)

// candidate is a device that the configuration names, as it is now.
type candidate struct {
	name    string
	ifindex int
	law     datapath.FairQLaw
	err     error // why it cannot be managed
}

func (c *candidate) port() datapath.FairQPort {
	return datapath.FairQPort{PortRef: datapath.PortRef{Name: c.name, Ifindex: c.ifindex}, Law: c.law}
}

// isPattern says whether a port was given as a pattern and not by its name.
func isPattern(port string) bool { return strings.ContainsAny(port, `*?[\`) }

// wants says whether the configuration names a device, and whether by its very name.
func (c *Config) wants(device string) (wanted, byName bool) {
	for _, p := range c.Ports {
		if p == device {
			return true, true
		}
		if ok, err := path.Match(p, device); err == nil && ok {
			wanted = true
		}
	}
	return wanted, false
}

// look lists the devices of the namespace that the configuration names.
func (c *Config) look() ([]candidate, error) {
	links, err := netlink.LinkList()
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) { // then a change is reported, too
		return nil, fmt.Errorf("list devices: %w", err)
	}
	var qdiscs map[int][]qdisc
	var out []candidate
	for _, l := range links {
		a := l.Attrs()
		if wanted, _ := c.wants(a.Name); !wanted {
			continue
		}
		if qdiscs == nil {
			if qdiscs, err = listQdiscs(); err != nil {
				return nil, err
			}
		}
		out = append(out, c.judge(a, qdiscs[a.Index]))
	}
	return out, nil
}

// judge says how a device is to be managed, or why it cannot be.
func (c *Config) judge(dev *netlink.LinkAttrs, list []qdisc) candidate {
	n := candidate{name: dev.Name, ifindex: dev.Index}
	s, err := readShaper(dev, list)
	if err == nil {
		err = datapath.CheckQueue(dev.Name, s.Kind)
	}
	if err == nil {
		n.law, err = c.law(dev.Name, s, dev.MTU)
	}
	n.err = err
	return n
}
