package park

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"

	"weir/datapath/attach"
)

// The names of the pins end with the cookie of the network namespace, because a switch has a parking in each.

func (p *Park) pin(name string) string {
	return filepath.Join(p.pins, fmt.Sprintf("%s-%d", name, p.cookie))
}

// openPins opens the directory of the pins. enter may run in another mount namespace, which does not show its path.
func (p *Park) openPins() error {
	if p.o.Pin == "" {
		return nil
	}
	dir, err := os.Open(p.o.Pin)
	if errors.Is(err, fs.ErrNotExist) { // removed meanwhile
		return nil
	}
	if err != nil {
		return fmt.Errorf("read pins: %w", err)
	}
	p.dir, p.pins = dir, fmt.Sprintf("/proc/self/fd/%d", dir.Fd())
	return nil
}

// openPinned opens the pinned maps. It returns fs.ErrNotExist if one is not pinned, errUnusable if one has another layout.
func (p *Park) openPinned() error {
	if p.pins == "" {
		return fs.ErrNotExist
	}
	spec, err := loadPark()
	if err != nil {
		return fmt.Errorf("read the embedded program: %w", err)
	}
	p.maps = map[string]*ebpf.Map{}
	for _, name := range mapNames() {
		m, err := ebpf.LoadPinnedMap(p.pin(name), nil)
		if err != nil {
			p.closeMaps()
			return fmt.Errorf("open the pinned map %s: %w", name, err)
		}
		p.maps[name] = m
		if spec.Maps[name].Compatible(m) != nil {
			p.closeMaps()
			return errUnusable
		}
	}
	return nil
}

// pinMaps pins the maps that are not opened by their pins, in the place of those of a parking that is gone.
func (p *Park) pinMaps() error {
	if p.pins == "" {
		return nil
	}
	if err := p.unpinEnded(); err != nil {
		return err
	}
	for name, m := range p.maps {
		if m.IsPinned() {
			continue
		}
		if err := errors.Join(removePin(p.pin(name)), m.Pin(p.pin(name))); err != nil {
			return fmt.Errorf("pin map %s: %w", name, err)
		}
	}
	return nil
}

// unpin removes the pins of the maps.
func (p *Park) unpin() error {
	if p.pins == "" {
		return nil
	}
	var errs []error
	for _, name := range mapNames() {
		errs = append(errs, removePin(p.pin(name)))
	}
	return errors.Join(errs...)
}

func removePin(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove a pin of the parking: %w", err)
	}
	return nil
}

// unpinEnded removes the pins of the parkings in other namespaces, if no port there is pinned any more.
func (p *Park) unpinEnded() error {
	entries, err := os.ReadDir(p.pins)
	if err != nil {
		return fmt.Errorf("read pins: %w", err)
	}
	alive := map[uint64]bool{p.cookie: true}
	for _, e := range entries {
		if cookie, _, _, isPort := attach.ParsePortPin(e.Name()); isPort {
			alive[cookie] = true
		}
	}
	var errs []error
	for _, e := range entries {
		name, of, _ := strings.Cut(e.Name(), "-")
		cookie, err := strconv.ParseUint(of, 10, 64)
		if err == nil && slices.Contains(mapNames(), name) && !alive[cookie] {
			errs = append(errs, removePin(filepath.Join(p.pins, e.Name())))
		}
	}
	return errors.Join(errs...)
}
