package reading

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"weir/datapath/attach"
)

// ReadPinned reads the ports whose links are pinned in dir, in the order of their names. of returns what a law's tables have of a
// port, by its id in the tables: Stats, NetnsCookie, Ifindex and Releasing. Ports that are detached meanwhile are left out. A
// directory that does not exist has none.
func ReadPinned(dir string, of func(id uint32) (*Pinned, error)) (ports []Pinned, err error) {
	pinned, err := attach.ReadPins(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // purged meanwhile
	}
	here, err2 := attach.NetnsCookie()
	queues, err3 := attach.ReadRootQueues()
	if err := errors.Join(err, err2, err3); err != nil {
		return nil, err
	}
	for _, l := range pinned.Links {
		p, err := of(l.ID)
		if err == nil {
			p.ID = l.ID
			err = p.look(l, here, queues)
		}
		if errors.Is(err, fs.ErrNotExist) {
			continue // detached meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("port %d: %w", l.ID, err)
		}
		ports = append(ports, *p)
	}
	slices.SortFunc(ports, func(a, b Pinned) int { return strings.Compare(a.Port, b.Port) })
	return ports, nil
}

// look reads what the link shows and, in the port's own namespace, its device. here is the cookie of the caller's namespace, and queues
// are its queues.
func (p *Pinned) look(l attach.PinnedLink, here uint64, queues attach.RootQueues) error {
	opened, err := link.LoadPinnedLink(l.Path, nil) // the kernel opens links for reading and writing only
	if err != nil {
		return fmt.Errorf("open its link: %w", err)
	}
	defer func() { _ = opened.Close() }()
	info, err := opened.Info()
	if err != nil {
		return fmt.Errorf("its link: %w", err)
	}
	p.LinkID, p.ProgramID, p.HasDevice = uint32(info.ID), uint32(info.Program), attach.HasDevice(opened)
	p.Local = p.NetnsCookie == here
	if !p.Local || !p.HasDevice {
		return nil
	}
	p.Queue = queues.Of(p.Ifindex)
	_ = errors.As(attach.CheckQueue(p.Port, p.Queue.Kind), &p.NoQueue)
	p.Before, err = attach.ProgramsBefore(p.Ifindex, p.ProgramID)
	switch {
	case errors.Is(err, unix.ENODEV): // deleted meanwhile
		p.HasDevice = false
	case err != nil:
		return fmt.Errorf("programs at its egress: %w", err)
	}
	return nil
}
