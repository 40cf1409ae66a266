package fairq

import (
	"errors"
	"fmt"
)

// EachFlow walks the flows of all ports in one pass over the table, until do returns false. With many ports
// that is far less work than Flows of each.
func (f *Attachment) EachFlow(do func(port string, flow Flow) bool) error {
	names := map[uint32]string{}
	for i := range f.ports {
		names[f.ports[i].id] = f.ports[i].Name
	}
	return f.maps.eachFlow(names, do)
}

// EachFlow does the same for ports given by their ids in the tables.
func (v *View) EachFlow(names map[uint32]string, do func(port string, flow Flow) bool) error {
	return v.maps.eachFlow(names, do)
}

func (m *fairqMaps) eachFlow(names map[uint32]string, do func(port string, flow Flow) bool) error {
	var control fairqControl
	err := m.Controls.Lookup(uint32(0), &control)
	ports := map[uint32]*fairqPort{}
	for id := range names {
		p := &fairqPort{}
		err = errors.Join(err, m.Ports.Lookup(id, p))
		ports[id] = p
	}
	if err == nil {
		err = m.eachConnection(func(_ *fairqFlowKey, c *fairqConnection) bool {
			for side := range c.End {
				id := uint32(c.End[side].Port) - 1
				if p := ports[id]; p != nil && !do(names[id], c.flow(side, p, control.Sweep)) {
					return false
				}
			}
			return true
		})
	}
	if err != nil {
		return fmt.Errorf("read the flow table: %w", err)
	}
	return nil
}

// PortStats reads one port.
func (f *Attachment) PortStats(port string) (Stats, error) {
	i := f.index(port)
	if i < 0 {
		return Stats{}, fmt.Errorf("statistics of %s: FairQ is not on this port", port)
	}
	s, err := f.maps.stats(f.ports[i].id)
	if err != nil {
		return s, fmt.Errorf("statistics of %s: %w", port, err)
	}
	s.Port = port
	return s, nil
}
