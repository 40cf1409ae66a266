package datapath

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
)

// FairQView reads what is pinned, and changes nothing.
type FairQView struct {
	dir  string
	maps *fairqMaps
}

// FairQSwitch is what the kernel knows of the ports of one pin directory.
type FairQSwitch struct {
	Holder    FairQHolder // the process that attached last
	BeatAge   time.Duration
	Lease     time.Duration // what a beat lasts for
	Releasing bool          // the process is about to leave
	Ports     []FairQPinned // by name
	// SignedSources are the sources of most signed segments, FairQSignedSourcesShown at most.
	SignedSources []FairQSignedSource
}

// Alive says whether a process holds windows.
func (s *FairQSwitch) Alive() bool { return !s.Releasing && s.BeatAge < s.Lease }

// FairQPinned is one port that FairQ is pinned to.
type FairQPinned struct {
	FairQStats
	ID          uint32 // in the tables
	Ifindex     int
	NetnsCookie uint64
	LinkID      uint32
	ProgramID   uint32
	HasDevice   bool
	Releasing   bool // FairQ is about to leave the port

	// What can be seen only from the port's own namespace.
	Local   bool     // the caller is in it
	Before  []string // programs that run before FairQ, by name: they may end the chain
	Queue   RootQueue
	NoQueue *NoQueue // the queue discipline that is there now keeps no backlog
}

// OpenFairQ opens what is pinned in dir. fs.ErrNotExist: nothing is; *OtherSchema: it cannot be read.
func OpenFairQ(dir string) (*FairQView, error) {
	if err := checkSchema(dir, fairqMapControls, fairQSchema); err != nil {
		return nil, err
	}
	m, err := openPinned(dir, &ebpf.LoadPinOptions{ReadOnly: true})
	if err != nil {
		return nil, err
	}
	return &FairQView{dir, m}, nil
}

// Close gives back what the view holds.
func (v *FairQView) Close() error { return v.maps.Close() }

// Stats reads one port, by its number in the tables, and nothing around it.
func (v *FairQView) Stats(id uint32) (FairQStats, error) { return v.maps.stats(id) }

// Read reads the switch and all its ports.
func (v *FairQView) Read() (*FairQSwitch, error) {
	var c fairqControl
	if err := v.maps.Controls.Lookup(uint32(0), &c); err != nil {
		return nil, fmt.Errorf("read control: %w", err)
	}
	s := &FairQSwitch{
		Holder: readHolder(v.dir), BeatAge: age(c.HeartbeatNs), Lease: time.Duration(c.LeaseNs), Releasing: c.Releasing != 0,
	}
	sources, err := v.SignedSources(FairQSignedSourcesShown)
	if err != nil {
		return nil, err
	}
	s.SignedSources = sources
	pinned, err := readPins(v.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil // purged this moment
	}
	if err != nil {
		return nil, err
	}
	here, err := NetnsCookie()
	if err != nil {
		return nil, err
	}
	queues, err := ReadRootQueues()
	if err != nil {
		return nil, err
	}
	for _, l := range pinned.links {
		p, err := v.port(l, here, queues)
		if errors.Is(err, fs.ErrNotExist) {
			continue // detached this moment
		}
		if err != nil {
			return nil, err
		}
		s.Ports = append(s.Ports, *p)
	}
	slices.SortFunc(s.Ports, func(a, b FairQPinned) int { return strings.Compare(a.Port, b.Port) })
	return s, nil
}

// port reads one port; here is the caller's namespace, and queues are its.
func (v *FairQView) port(l pinnedLink, here uint64, queues RootQueues) (*FairQPinned, error) {
	stats, err := v.maps.stats(l.id)
	if err != nil {
		return nil, fmt.Errorf("port %d: %w", l.id, err)
	}
	var c fairqPortConfig
	if err := v.maps.Configs.Lookup(l.id, &c); err != nil {
		return nil, fmt.Errorf("port %d: read its configuration: %w", l.id, err)
	}
	p := &FairQPinned{FairQStats: stats, ID: l.id, NetnsCookie: c.NetnsCookie, Ifindex: int(c.Ifindex), Releasing: c.Releasing != 0}
	opened, err := link.LoadPinnedLink(l.path, nil) // the kernel opens links only for both
	if err != nil {
		return nil, fmt.Errorf("port %s: open its link: %w", p.Port, err)
	}
	defer func() { _ = opened.Close() }()
	info, err := opened.Info()
	if err != nil {
		return nil, fmt.Errorf("port %s: its link: %w", p.Port, err)
	}
	p.LinkID, p.ProgramID, p.HasDevice = uint32(info.ID), uint32(info.Program), hasDevice(opened)
	p.Local = c.NetnsCookie == here
	if !p.Local || !p.HasDevice {
		return p, nil
	}
	err = p.lookAround(queues)
	if errors.Is(err, unix.ENODEV) { // deleted this moment
		p.HasDevice, err = false, nil
	}
	return p, err
}

// lookAround sees what only the port's own namespace shows.
func (p *FairQPinned) lookAround(queues RootQueues) error {
	p.Queue = queues.Of(p.Ifindex)
	_ = errors.As(CheckQueue(p.Port, p.Queue.Kind), &p.NoQueue)
	chain, err := ProgramsAt(p.Ifindex, ebpf.AttachTCXEgress)
	if err != nil {
		return fmt.Errorf("port %s: programs at its egress: %w", p.Port, err)
	}
	for _, other := range chain {
		if uint32(other.ID) == p.ProgramID {
			break
		}
		p.Before = append(p.Before, programName(other.ID))
	}
	return nil
}

// programName is a program's name, or its id where it has none.
func programName(id ebpf.ProgramID) string {
	prog, err := ebpf.NewProgramFromID(id)
	if err == nil {
		defer func() { _ = prog.Close() }()
		if info, err := prog.Info(); err == nil && info.Name != "" {
			return info.Name
		}
	}
	return fmt.Sprintf("program %d", id)
}
