package switchd

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"

	"weir/datapath/attach"
	"weir/law"
)

// candidate is an existing device that the configuration names.
type candidate struct {
	name    string
	ifindex int
	mtu     int
	byName  bool // not by a pattern
	set     PortSettings
	params  []Params // of each law
	line    line
	err     error // why it cannot be managed

	// With shape: the tbf it must have, and the tbf of Weir that it has; the kind of queue discipline it replaces.
	tbf, has tbf
	former   string
}

// enforce limits this share of the flows.
func (c *candidate) enforce(e Enforcement) {
	for i, p := range c.params {
		c.params[i] = p.With(e)
	}
}

func (c *candidate) port() PortLaws {
	return PortLaws{PortRef: attach.PortRef{Name: c.name, Ifindex: c.ifindex}, Params: c.params}
}

// isPattern reports whether a port is given as a pattern, not by name.
func isPattern(port string) bool { return strings.ContainsAny(port, `*?[\`) }

// rules finds the first rule that matches a device without trying all of them; there may be ten thousand.
type rules struct {
	laws     []Law
	list     []PortRule
	exact    map[string]int
	patterns []ruledPattern
	made     *shapes // nil: none
}

type ruledPattern struct {
	pattern string
	rule    int
}

func newRules(laws []Law, list []PortRule) *rules {
	r := &rules{laws: laws, list: list, exact: map[string]int{}}
	for i := range list {
		for _, m := range list[i].Match {
			if _, twice := r.exact[m]; !twice {
				r.exact[m] = i // the name of a device may contain such characters
			}
			if isPattern(m) {
				r.patterns = append(r.patterns, ruledPattern{m, i})
			}
		}
	}
	return r
}

// of returns the rule for a device, or nil.
func (r *rules) of(device string) *PortRule {
	best, found := r.exact[device]
	for _, p := range r.patterns {
		if found && best <= p.rule {
			break
		}
		if ok, err := path.Match(p.pattern, device); err == nil && ok {
			best, found = p.rule, true
			break
		}
	}
	if !found {
		return nil
	}
	return &r.list[best]
}

// byName reports whether the rule lists a device by its name.
func (r *PortRule) byName(device string) bool { return slices.Contains(r.Match, device) }

// byName reports whether the rule that applies to a device lists it by its name.
func (r *rules) byName(device string) bool {
	rule := r.of(device)
	return rule != nil && rule.byName(device)
}

// names lists the devices that are given by name.
func (r *rules) names() (out []string) {
	for i := range r.list {
		for _, m := range r.list[i].Match {
			if !isPattern(m) {
				out = append(out, m)
			}
		}
	}
	return out
}

// Device is a device of this network namespace. Rate and Buffer are what its queue discipline reports; 0: nothing.
type Device struct {
	Ifindex int
	MTU     int
	Rate    law.Rate
	Buffer  law.Bytes
}

// Devices lists the devices that wanted names, by name. With queues it reads their queue disciplines, too.
func Devices(wanted func(name string) bool, queues bool) (map[string]Device, error) {
	links, err := netlink.LinkList()
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, fmt.Errorf("list devices: %w", err)
	}
	var qdiscs map[int][]qdisc
	if queues {
		if qdiscs, err = listQdiscs(); err != nil {
			return nil, err
		}
	}
	out := map[string]Device{}
	for _, l := range links {
		a := l.Attrs()
		if !wanted(a.Name) || attach.IsParking(l) {
			continue
		}
		d := Device{Ifindex: a.Index, MTU: a.MTU}
		if queues {
			s, err := readShaper(a, qdiscs[a.Index])
			if err != nil {
				return nil, fmt.Errorf("port %s: %w", a.Name, err)
			}
			d.Rate, d.Buffer = s.Rate, s.Buffer
		}
		out[a.Name] = d
	}
	return out, nil
}

// look lists the devices of the namespace that the configuration names.
func (r *rules) look() ([]candidate, error) {
	links, err := netlink.LinkList()
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) { // an interrupted list is read again on the change that follows
		return nil, fmt.Errorf("list devices: %w", err)
	}
	var qdiscs map[int][]qdisc
	var out []candidate
	for _, l := range links {
		a := l.Attrs()
		rule := r.of(a.Name)
		if rule == nil || attach.IsParking(l) {
			continue
		}
		if qdiscs == nil {
			if qdiscs, err = listQdiscs(); err != nil {
				return nil, err
			}
		}
		out = append(out, rule.judge(r.laws, a, qdiscs[a.Index], r.made))
	}
	return out, nil
}

// judge returns how to manage a device, or why that is not possible.
func (r *PortRule) judge(laws []Law, dev *netlink.LinkAttrs, list []qdisc, made *shapes) candidate {
	n := candidate{name: dev.Name, ifindex: dev.Index, mtu: dev.MTU, byName: r.byName(dev.Name), set: r.PortSettings, tbf: r.wantedTBF().forMTU(dev.MTU)}
	s, err := readShaper(dev, list)
	if err != nil {
		n.err = err
		return n
	}
	root := rootOf(list)
	n.former = root.kind
	before, own := made.own(dev.Index, root)
	if own {
		n.has, n.former = tbf{s.Rate, uint32(s.Buffer), s.Bucket}, before
	}
	switch {
	case n.tbf == tbf{} && own:
		s = shaper{Kind: before} // what it will be when Weir's tbf is removed
	case n.tbf == tbf{}:
	case !own && root.handle != 0:
		n.err = &ForeignQueue{dev.Name, root.kind}
		return n
	default:
		s = shaper{Kind: "tbf", Rate: n.tbf.Rate, Buffer: law.Bytes(n.tbf.Limit)}
		n.set.Rate, n.set.Buffer = 0, 0 // the shaper's values apply
	}
	if n.err = attach.CheckQueue(dev.Name, s.Kind); n.err == nil {
		n.err = n.decide(laws, s)
	}
	return n
}

// ForeignQueue is the error for a port with shape whose queue discipline was configured by somebody else.
type ForeignQueue struct{ Port, Kind string }

func (e *ForeignQueue) Error() string {
	return fmt.Sprintf("port %s: its queue discipline %q was not set by Weir, and shape replaces only the kernel's default; leave shape out, or remove the queue discipline (tc qdisc del dev %s root)", e.Port, e.Kind, e.Port)
}

// decide sets the laws' parameters of the port.
func (c *candidate) decide(laws []Law, own shaper) error {
	site, err := c.set.site(c.name, own, c.mtu)
	if err != nil {
		return err
	}
	if c.params, err = ParamsAt(laws, site, c.set.Laws); err != nil {
		return fmt.Errorf("port %s: %w", c.name, err)
	}
	f := c.params[0].Figures()
	c.line = line{
		rate: float64(site.Rate) / 8, rtt: site.RTT.Std(),
		target: float64(f.Target), buffer: float64(f.Buffer), segment: float64(f.MTU) - tcpOverhead + ethernet,
	}
	return nil
}
