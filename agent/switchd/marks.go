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

// markRoot is where marking is pinned, beside the switches.
var markRoot = filepath.Join(filepath.Dir(pinRoot), "mark")

// marks is ECN marking on the ports that ask for it. Its program stands behind the law's, and outlives the
// process as that does: marking needs nobody.
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

// change makes these ports mark above these thresholds, and no others. Those that marked before are taken
// over in place. It gives what undoes that; with an error it is undone already.
func (m *marks) change(want map[markPort]uint32) (undo func() error, err error) {
	before := m.set
	if before != nil && maps.Equal(want, before) {
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
	_ = m.leave() // what it held is the new one's
	m.at, m.set = at, maps.Clone(want)
	return nil
}

// leave gives back what this process holds; marking goes on.
func (m *marks) leave() error {
	if m.at == nil {
		return nil
	}
	err := m.at.Leave()
	m.at = nil
	return err
}

// end takes marking off every port, also off those where a former process left it.
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
	at, err := mark.Attach(nil, mark.Config{Pin: dir}) // takes it off the ports that are not asked for
	if err != nil {
		return fmt.Errorf("remove marking: %w", err)
	}
	return at.Close()
}
