package switchd

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"weir/datapath/attach"
	"weir/datapath/reading"
)

// observeSource supplies the counters and flows of an observation.
type observeSource interface {
	name() string // of the running switch whose tables are read, or ""
	heartbeat() error
	stats(port string) (reading.Stats, error)
	eachFlow(func(port string, f reading.Flow) bool) error
	close() error
}

// ObserveApart is the error for ports of which a running switch has only some. A flow is known by its data at one port
// and its acknowledgements at another, so both must be in one table.
type ObserveApart struct {
	Switch          string
	Its, Others     []string
	SeveralSwitches bool
}

func (e *ObserveApart) Error() string {
	if e.SeveralSwitches {
		return fmt.Sprintf("%s belong to several switches, and each switch knows only its own flows; observe the ports of one switch at a time", strings.Join(e.Its, ", "))
	}
	return fmt.Sprintf("weir switch %s manages %s and not %s; observe one or the other, or configure it with both and let it observe (enforce: {percent: 0})",
		e.Switch, strings.Join(e.Its, ", "), strings.Join(e.Others, ", "))
}

// newObserveSource reads the tables of a running switch that has the ports, or attaches a program that only observes.
func newObserveSource(c *Config, found []candidate) (observeSource, error) {
	names, err := switchNames(c.Laws[:1])
	if err != nil {
		return nil, err
	}
	apart := &ObserveApart{}
	var along *alongSource
	for _, name := range names {
		s, its, err := openAlong(&c.Laws[0], name, found)
		if err != nil {
			return nil, err
		}
		if s == nil {
			continue
		}
		if along != nil {
			apart.SeveralSwitches, apart.Its = true, append(apart.Its, its...)
			return nil, errors.Join(apart, along.close(), s.close())
		}
		along, apart.Switch, apart.Its = s, name, its
	}
	if along == nil {
		return newOwnSource(c, found)
	}
	for i := range found {
		if !slices.Contains(apart.Its, found[i].name) {
			apart.Others = append(apart.Others, found[i].name)
		}
	}
	if len(apart.Others) > 0 {
		return nil, errors.Join(apart, along.close())
	}
	return along, nil
}

// ownSource is a program of the observation's own. It limits nothing and is not pinned, so that it ends with the
// process even after a crash.
type ownSource struct{ law Running }

func newOwnSource(c *Config, found []candidate) (*ownSource, error) {
	var ports []LawPort
	for i := range found {
		n := found[i]
		quiet := n.params[0].With(Enforcement{Mode: reading.EnforceNone, BDP: n.line.bdp(0)})
		ports = append(ports, LawPort{n.port().PortRef, quiet})
	}
	common := c.settings()[0].Common
	common.Pin, common.TakeOver, common.Renew, common.Observe = "", false, false, true
	l, err := c.Laws[0].Law.Own(&common)
	if err != nil {
		return nil, err
	}
	if err := l.Attach(ports...); err != nil {
		return nil, errors.Join(err, l.End(Purge))
	}
	return &ownSource{l}, nil
}

func (s *ownSource) name() string     { return "" }
func (s *ownSource) heartbeat() error { return s.law.Heartbeat() }
func (s *ownSource) close() error     { return s.law.End(Purge) }
func (s *ownSource) eachFlow(do func(string, reading.Flow) bool) error {
	return s.law.EachFlow(do)
}

func (s *ownSource) stats(port string) (reading.Stats, error) {
	all, err := s.law.Stats(port)
	if err != nil || len(all) == 0 {
		return reading.Stats{}, err
	}
	return all[0], nil
}

// alongSource reads what is pinned of a running switch. It changes nothing except that the switch counts what flows do.
type alongSource struct {
	view  View
	of    string
	ids   map[string]uint32
	names map[uint32]string
}

// openAlong opens a running switch that has some of the ports, and returns which; nil: it has none.
func openAlong(l *LawKeys, name string, found []candidate) (*alongSource, []string, error) {
	v, err := l.Law.Open(l.pin(name))
	var other *attach.OtherSchema
	if errors.Is(err, fs.ErrNotExist) || errors.As(err, &other) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("switch %s: %w", name, err)
	}
	kernel, err := v.Read()
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("switch %s: %w", name, err), v.Close())
	}
	s := &alongSource{view: v, of: name, ids: map[string]uint32{}, names: map[uint32]string{}}
	var its []string
	for i := range kernel.Ports {
		p := &kernel.Ports[i]
		if !kernel.Alive() || !p.Local || !p.HasDevice {
			continue
		}
		for k := range found {
			if found[k].ifindex == p.Ifindex {
				s.ids[found[k].name], s.names[p.ID] = p.ID, found[k].name
				its = append(its, found[k].name)
			}
		}
	}
	if len(its) == 0 {
		return nil, nil, v.Close()
	}
	if err := v.Watch(); err != nil {
		return nil, nil, errors.Join(err, v.Close())
	}
	return s, its, nil
}

func (s *alongSource) name() string     { return s.of }
func (s *alongSource) heartbeat() error { return s.view.Watch() }
func (s *alongSource) close() error     { return s.view.Close() }
func (s *alongSource) eachFlow(do func(string, reading.Flow) bool) error {
	return s.view.EachFlow(s.names, do)
}

func (s *alongSource) stats(port string) (reading.Stats, error) {
	return s.view.Stats(s.ids[port])
}
