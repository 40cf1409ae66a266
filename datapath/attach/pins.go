package attach

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// A pin directory has the maps under their names. Each port's link has a name made of the namespace's cookie,
// the device's ifindex and the port's id in the maps: "port-COOKIE-IFINDEX-ID". The kernel never uses a cookie
// twice, so a name never means another port.

// PinnedLink is a link found in a pin directory.
type PinnedLink struct {
	Path string
	ID   uint32
}

// Pins is the contents of a pin directory. The zero value is an empty directory.
type Pins struct {
	Links map[string]PinnedLink // by the name without the id
	Used  map[uint32]bool
}

// MakePinDir makes sure that the directory exists. It does not mount the file system: that is the operator's
// task.
func MakePinDir(dir string) error {
	if dir == "" {
		return nil
	}
	if err := inBPFFS(dir); err != nil {
		return err
	}
	var err error
	// A purge removes parents that are empty. A parent can vanish before the next directory is made in it.
	for range 3 {
		if err = os.MkdirAll(dir, 0o700); !errors.Is(err, os.ErrNotExist) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("make the directory for pins: %w", err)
	}
	return nil
}

// inBPFFS returns an error unless dir is in a BPF file system, or would be.
func inBPFFS(dir string) error {
	const magic = 0xcafe4a11 // BPF_FS_MAGIC
	for at := filepath.Clean(dir); ; at = filepath.Dir(at) {
		var s unix.Statfs_t
		err := unix.Statfs(at, &s)
		switch {
		case err == nil && uint32(s.Type) == magic:
			return nil
		case err == nil:
			return fmt.Errorf("%s is not in a BPF file system: mount one first: mount -t bpf bpf /sys/fs/bpf", dir)
		case !errors.Is(err, unix.ENOENT):
			return fmt.Errorf("file system of %s: %w", at, err)
		case at == filepath.Dir(at):
			return fmt.Errorf("file system of %s: %w", dir, err)
		}
	}
}

// RemovePinDir removes the directory if nothing is left in it.
func RemovePinDir(dir string) error {
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		return err
	}
	return os.Remove(dir)
}

// ReadPins reads the links of ports in a pin directory; dir "" has none.
func ReadPins(dir string) (*Pins, error) {
	p := &Pins{Links: map[string]PinnedLink{}, Used: map[uint32]bool{}}
	if dir == "" {
		return p, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read pins: %w", err)
	}
	for _, e := range entries {
		cookie, ifindex, id, ok := ParsePortPin(e.Name())
		if !ok {
			continue
		}
		p.Links[PortPin(cookie, ifindex)] = PinnedLink{filepath.Join(dir, e.Name()), id}
		p.Used[id] = true
	}
	return p, nil
}

// ParsePortPin splits the name of a port's pin.
func ParsePortPin(name string) (cookie uint64, ifindex int, id uint32, ok bool) {
	n, _ := fmt.Sscanf(name, "port-%d-%d-%d", &cookie, &ifindex, &id)
	return cookie, ifindex, id, n == 3
}

// PortPin returns the name of a port's pin, without its id.
func PortPin(cookie uint64, ifindex int) string { return fmt.Sprintf("port-%d-%d", cookie, ifindex) }

// PinName returns the name of a port's pin, without the id; "" without a pin directory.
func PinName(p PortRef, dir string) (name string, err error) {
	if dir == "" {
		return "", nil
	}
	err = p.In(func() error {
		cookie, err := NetnsCookie()
		name = PortPin(cookie, p.Ifindex)
		return err
	})
	return name, err
}

// Take removes a port's link from the pins and returns it, if there is one whose device still exists.
func (p *Pins) Take(name string) (PinnedLink, bool) {
	l, ok := p.Links[name]
	if !ok || !l.Alive() {
		return PinnedLink{}, false
	}
	delete(p.Links, name)
	return l, true
}

// FreeID returns an id that no pinned port has.
func (p *Pins) FreeID() uint32 {
	for id := uint32(0); ; id++ {
		if !p.Used[id] {
			p.Used[id] = true
			return id
		}
	}
}

// Alive reports whether the link can be opened and its device still exists.
func (l PinnedLink) Alive() bool {
	opened, err := link.LoadPinnedLink(l.Path, nil)
	if err != nil {
		return false
	}
	defer func() { _ = opened.Close() }()
	return HasDevice(opened)
}

// HasDevice reports whether the link's device still exists.
func HasDevice(l link.Link) bool {
	if l == nil {
		return false
	}
	info, err := l.Info()
	return err == nil && info.TCX() != nil && info.TCX().Ifindex != 0
}

// RemoveDead removes the pins of links whose device is gone.
func (p *Pins) RemoveDead() error {
	for name, l := range p.Links {
		if l.Alive() {
			continue
		}
		if err := os.Remove(l.Path); err != nil {
			return fmt.Errorf("remove the pin of a port that is gone: %w", err)
		}
		delete(p.Links, name)
		delete(p.Used, l.ID)
	}
	return nil
}

// Update replaces the program of the link, at its place in the chain. No packet passes in between.
func (l PinnedLink) Update(prog *ebpf.Program) (link.Link, error) {
	opened, err := link.LoadPinnedLink(l.Path, nil)
	if err != nil {
		return nil, fmt.Errorf("open the pinned link %s: %w", l.Path, err)
	}
	if err := opened.Update(prog); err != nil {
		return nil, errors.Join(fmt.Errorf("replace the program of %s: %w", l.Path, err), opened.Close())
	}
	return opened, nil
}

// Remove detaches the link and removes its pin.
func (l PinnedLink) Remove() error {
	// The kernel detaches a link that only loses its pin a moment later.
	if opened, err := link.LoadPinnedLink(l.Path, nil); err == nil {
		if err := errors.Join(DetachLink(opened), opened.Close()); err != nil {
			return fmt.Errorf("detach the program of %s: %w", l.Path, err)
		}
	}
	if err := os.Remove(l.Path); err != nil {
		return fmt.Errorf("remove the pin of a port: %w", err)
	}
	return nil
}

// PinLink pins a port's link under its name and id in the maps.
func PinLink(l link.Link, dir, name string, id uint32) error {
	path := filepath.Join(dir, fmt.Sprintf("%s-%d", name, id))
	if err := l.Pin(path); err != nil {
		return fmt.Errorf("pin to %s: %w", path, err)
	}
	return nil
}

// DetachLink detaches a link now. The kernel detaches a link that is only closed a moment later.
func DetachLink(l link.Link) error {
	if !HasDevice(l) {
		return nil
	}
	if err := l.Detach(); err != nil && !errors.Is(err, unix.ENOLINK) { // the device vanished in between
		return fmt.Errorf("detach: %w", err)
	}
	return nil
}

// RemoveTables removes everything from a pin directory except the links of ports and the names in keep.
func RemoveTables(dir string, keep ...string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read pins: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if _, _, _, ok := ParsePortPin(e.Name()); !ok && !slices.Contains(keep, e.Name()) {
			errs = append(errs, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}

// Program returns the id of the program of a pinned link; 0 if it has none.
func (l PinnedLink) Program() uint32 {
	if l.Path == "" {
		return 0
	}
	opened, err := link.LoadPinnedLink(l.Path, nil)
	if err != nil {
		return 0
	}
	defer func() { _ = opened.Close() }()
	info, err := opened.Info()
	if err != nil {
		return 0
	}
	return uint32(info.Program)
}
