package fairq

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"weir/datapath/attach"
	"weir/datapath/park"
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
	pinned, err := attach.ReadPins(v.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil // purged meanwhile
	}
	if err != nil {
		return nil, err
	}
	here, err := attach.NetnsCookie()
	if err != nil {
		return nil, err
	}
	queues, err := attach.ReadRootQueues()
	if err != nil {
		return nil, err
	}
	for _, l := range pinned.Links {
		p, err := v.port(l, here, queues)
		if errors.Is(err, fs.ErrNotExist) {
			continue // detached meanwhile
		}
		if err != nil {
			return nil, err
		}
		s.Ports = append(s.Ports, *p)
	}
	slices.SortFunc(s.Ports, func(a, b Pinned) int { return strings.Compare(a.Port, b.Port) })
	if slices.ContainsFunc(s.Ports, func(p Pinned) bool { return p.Local && p.Credits.Paces }) {
		s.Parking = park.Read(parkOptions(v.dir))
	}
	return s, nil
}

// port reads one port. here is the cookie of the caller's namespace, and queues are its queues.
func (v *View) port(l attach.PinnedLink, here uint64, queues attach.RootQueues) (*Pinned, error) {
	stats, err := v.maps.stats(l.ID)
	if err != nil {
		return nil, fmt.Errorf("port %d: %w", l.ID, err)
	}
	var c fairqPortConfig
	if err := v.maps.Configs.Lookup(l.ID, &c); err != nil {
		return nil, fmt.Errorf("port %d: read its configuration: %w", l.ID, err)
	}
	p := &Pinned{Stats: stats, ID: l.ID, NetnsCookie: c.NetnsCookie, Ifindex: int(c.Ifindex), Releasing: c.Releasing != 0}
	opened, err := link.LoadPinnedLink(l.Path, nil) // the kernel opens links for reading and writing only
	if err != nil {
		return nil, fmt.Errorf("port %s: open its link: %w", p.Port, err)
	}
	defer func() { _ = opened.Close() }()
	info, err := opened.Info()
	if err != nil {
		return nil, fmt.Errorf("port %s: its link: %w", p.Port, err)
	}
	p.LinkID, p.ProgramID, p.HasDevice = uint32(info.ID), uint32(info.Program), attach.HasDevice(opened)
	p.Local = c.NetnsCookie == here
	if !p.Local || !p.HasDevice {
		return p, nil
	}
	err = lookAround(p, queues)
	if errors.Is(err, unix.ENODEV) { // deleted meanwhile
		p.HasDevice, err = false, nil
	}
	return p, err
}

// lookAround reads what only the port's own namespace shows.
func lookAround(p *Pinned, queues attach.RootQueues) error {
	p.Queue = queues.Of(p.Ifindex)
	_ = errors.As(attach.CheckQueue(p.Port, p.Queue.Kind), &p.NoQueue)
	var err error
	if p.Before, err = attach.ProgramsBefore(p.Ifindex, p.ProgramID); err != nil {
		return fmt.Errorf("port %s: programs at its egress: %w", p.Port, err)
	}
	return nil
}
