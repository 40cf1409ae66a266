package datapath

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// A pin directory holds the two maps under their names and, for each port, its link under a name that
// says which port it is and what its id in the maps is: "port-COOKIE-IFINDEX-ID". Cookies of namespaces
// are never used twice, so a name never means another port.

// pinnedLink is a link found in a pin directory.
type pinnedLink struct {
	path string
	id   uint32
}

// pins is what is in a pin directory; the zero value is an empty one.
type pins struct {
	links map[string]pinnedLink // by the name without the id
	used  map[uint32]bool
}

// makePinDir makes sure that the directory exists. The mount of the file system is the machine's
// business.
func makePinDir(dir string) error {
	if dir == "" {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make %s, in a BPF file system (mount -t bpf bpf /sys/fs/bpf): %w", dir, err)
	}
	return nil
}

// removePinDir removes the directory if nothing is left in it.
func removePinDir(dir string) error {
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		return err
	}
	return os.Remove(dir)
}

func readPins(dir string) (*pins, error) {
	p := &pins{links: map[string]pinnedLink{}, used: map[uint32]bool{}}
	if dir == "" {
		return p, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read pins: %w", err)
	}
	for _, e := range entries {
		var cookie uint64
		var ifindex int
		var id uint32
		if n, _ := fmt.Sscanf(e.Name(), "port-%d-%d-%d", &cookie, &ifindex, &id); n != 3 {
			continue
		}
		p.links[portPin(cookie, ifindex)] = pinnedLink{filepath.Join(dir, e.Name()), id}
		p.used[id] = true
	}
	return p, nil
}

func portPin(cookie uint64, ifindex int) string { return fmt.Sprintf("port-%d-%d", cookie, ifindex) }

// pinName is the name of a port's pin, without the id; not asked for when nothing is pinned.
func pinName(p PortRef, dir string) (name string, err error) {
	if dir == "" {
		return "", nil
	}
	err = p.In(func() error {
		cookie, err := NetnsCookie()
		name = portPin(cookie, p.Ifindex)
		return err
	})
	return name, err
}

// take removes a port's link from the pins and gives it, if there is one that still has its device.
func (p *pins) take(name string) (pinnedLink, bool) {
	l, ok := p.links[name]
	if !ok || !l.alive() {
		return pinnedLink{}, false
	}
	delete(p.links, name)
	return l, true
}

// freeID gives an id that no pinned port has.
func (p *pins) freeID() uint32 {
	for id := uint32(0); ; id++ {
		if !p.used[id] {
			p.used[id] = true
			return id
		}
	}
}

// alive says whether the link can be opened and its device still exists.
func (l pinnedLink) alive() bool {
	opened, err := link.LoadPinnedLink(l.path, nil)
	if err != nil {
		return false
	}
	defer func() { _ = opened.Close() }()
	info, err := opened.Info()
	return err == nil && info.TCX() != nil && info.TCX().Ifindex != 0
}

// update puts another program in the link's place in the chain, between two packets.
func (l pinnedLink) update(prog *ebpf.Program) (link.Link, error) {
	opened, err := link.LoadPinnedLink(l.path, nil)
	if err != nil {
		return nil, fmt.Errorf("open the pinned link %s: %w", l.path, err)
	}
	if err := opened.Update(prog); err != nil {
		return nil, errors.Join(fmt.Errorf("replace the program of %s: %w", l.path, err), opened.Close())
	}
	return opened, nil
}

// remove detaches what the link holds.
func (l pinnedLink) remove() error {
	if err := os.Remove(l.path); err != nil {
		return fmt.Errorf("remove a pin of a port that is not asked for: %w", err)
	}
	return nil
}

func pinLink(l link.Link, dir, name string, id uint32) error {
	path := filepath.Join(dir, fmt.Sprintf("%s-%d", name, id))
	if err := l.Pin(path); err != nil {
		return fmt.Errorf("pin to %s: %w", path, err)
	}
	return nil
}
