package fairq

import (
	"fmt"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"weir/datapath/attach"
	"weir/datapath/park"
	"weir/datapath/reading"
)

// View reads what is pinned, and changes nothing.
type View struct {
	dir  string
	maps *fairqMaps
}

// Open opens the tables pinned in dir. Errors: fs.ErrNotExist if there are none, *OtherSchema if they cannot be
// read.
func Open(dir string) (*View, error) {
	if err := attach.CheckSchema(dir, fairqMapControls, schemaVersion); err != nil {
		return nil, err
	}
	m, err := openPinned(dir, &ebpf.LoadPinOptions{ReadOnly: true})
	if err != nil {
		return nil, err
	}
	return &View{dir, m}, nil
}

// Close closes the view's tables.
func (v *View) Close() error { return v.maps.Close() }

// Stats reads one port by its id in the tables.
func (v *View) Stats(id uint32) (Stats, error) { return v.maps.stats(id) }

// Read reads the switch and all its ports.
func (v *View) Read() (*Switch, error) {
	var c fairqControl
	if err := v.maps.Controls.Lookup(uint32(0), &c); err != nil {
		return nil, fmt.Errorf("read control: %w", err)
	}
	s := &Switch{
		Holder: attach.ReadHolder(v.dir), HeartbeatAge: attach.Age(c.HeartbeatNs), Lease: time.Duration(c.LeaseNs), Releasing: c.Releasing != 0,
	}
	sources, err := v.SignedSources(SignedSourcesShown)
	if err != nil {
		return nil, err
	}
	s.SignedSources = sources
	if s.Ports, err = reading.ReadPinned(v.dir, v.port); err != nil {
		return nil, err
	}
	if slices.ContainsFunc(s.Ports, func(p Pinned) bool { return p.Local && p.Credits.Paces }) {
		s.Parking = park.Read(parkOptions(v.dir))
	}
	return s, nil
}

// port returns what the tables have of a port.
func (v *View) port(id uint32) (*Pinned, error) {
	stats, err := v.maps.stats(id)
	if err != nil {
		return nil, err
	}
	var c fairqPortConfig
	if err := v.maps.Configs.Lookup(id, &c); err != nil {
		return nil, fmt.Errorf("read its configuration: %w", err)
	}
	return &Pinned{Stats: stats, NetnsCookie: c.NetnsCookie, Ifindex: int(c.Ifindex), Releasing: c.Releasing != 0}, nil
}
