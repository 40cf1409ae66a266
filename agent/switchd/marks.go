package switchd

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"weir/datapath/attach"
	"weir/datapath/mark"
)

// markRoot is where marking is pinned, next to the switches.
var markRoot = filepath.Join(filepath.Dir(pinRoot), "mark")

// marks is the ECN marking on the ports that ask for it. Its program runs after the law's. Like that, it stays attached
// after the process ends; it needs no heartbeat.
type marks struct {
	dir string
	at  *mark.Mark // nil: nowhere
	set map[markPort]uint32
}

type markPort struct {
	name    string
	ifindex int
}

func newMarks(name string) *marks { return &marks{dir: filepath.Join(markRoot, name)} }

// change sets the marking thresholds of these ports and removes marking from all others. Ports that already mark are
// updated in place, and those where somebody detached the program get it again. It returns a function that undoes the change; on error the change is undone already.
func (m *marks) change(want map[markPort]uint32) (undo func() error, err error) {
	before := m.set
	detached := m.at != nil && len(m.at.Gone()) > 0
	if before != nil && maps.Equal(want, before) && !detached {
		return func() error { return nil }, nil
	}
	if err := m.apply(want); err != nil {
		return nil, errors.Join(err, m.apply(before))
	}
	return func() error { return m.apply(before) }, nil
}

func (m *marks) apply(want map[markPort]uint32) error {
	if len(want) == 0 {
		return m.end()
	}
	c := mark.Config{Pin: m.dir, Tail: true, PortThresholds: map[string]uint32{}}
	var ports []attach.PortRef
	for _, p := range slices.SortedFunc(maps.Keys(want), func(a, b markPort) int { return a.ifindex - b.ifindex }) {
		ports = append(ports, attach.PortRef{Name: p.name, Ifindex: p.ifindex})
		c.PortThresholds[p.name] = want[p]
	}
	at, err := mark.Attach(ports, c)
	if err != nil {
		return err
	}
	_ = m.leave() // its programs and tables now belong to the new one
	m.at, m.set = at, maps.Clone(want)
	return nil
}

// leave closes what this process has open; marking continues.
func (m *marks) leave() error {
	if m.at == nil {
		return nil
	}
	err := m.at.Leave()
	m.at = nil
	return err
}

// end removes marking from every port, also from those where an earlier process left it.
func (m *marks) end() error {
	errs := []error{m.leave(), purgeMarks(m.dir)}
	m.set = map[markPort]uint32{}
	return errors.Join(errs...)
}

// purgeMarks removes what is pinned in dir.
func purgeMarks(dir string) error {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	at, err := mark.Attach(nil, mark.Config{Pin: dir}) // removes it from all ports, since none is listed
	if err != nil {
		return fmt.Errorf("remove marking: %w", err)
	}
	return at.Close()
}
