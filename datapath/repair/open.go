package repair

import (
	"errors"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"weir/datapath/attach"
	"weir/datapath/park"
	"weir/datapath/reading"
)

// View reads what is pinned, and changes nothing.
type View struct {
	dir    string
	tables *tables
}

// Open opens the tables pinned in dir. Errors: fs.ErrNotExist if there are none, *attach.OtherSchema if they cannot be read.
func Open(dir string) (*View, error) {
	t, err := openTables(dir, &ebpf.LoadPinOptions{ReadOnly: true})
	if err != nil {
		return nil, err
	}
	return &View{dir, t}, nil
}

// Close closes the view's tables.
func (v *View) Close() error { return v.tables.close() }

// Stats reads one port by its id in the tables.
func (v *View) Stats(id uint32) (reading.Stats, error) {
	s, _, err := v.tables.read(id)
	return s, err
}

// Watch does nothing: the counters count anyway.
func (v *View) Watch() error { return nil }

// EachFlow does nothing: the table has only flows that wait.
func (v *View) EachFlow(map[uint32]string, func(port string, f reading.Flow) bool) error { return nil }

// Read reads the switch and all its ports.
func (v *View) Read() (*reading.Switch, error) {
	c, err := v.tables.control()
	if err != nil {
		return nil, err
	}
	s := &reading.Switch{
		Holder: attach.ReadHolder(v.dir), HeartbeatAge: attach.Age(c.HeartbeatNs), Lease: time.Duration(c.LeaseNs), Releasing: c.Releasing != 0,
	}
	if s.Ports, err = reading.ReadPinned(v.dir, v.port); err != nil {
		return nil, err
	}
	if slices.ContainsFunc(s.Ports, func(p reading.Pinned) bool { return p.Local }) {
		s.Parking = park.Read(parking(v.dir))
	}
	return s, nil
}

// port returns what the tables have of a port.
func (v *View) port(id uint32) (*reading.Pinned, error) {
	stats, c, err := v.tables.read(id)
	return &reading.Pinned{Stats: stats, NetnsCookie: c.NetnsCookie, Ifindex: int(c.Ifindex), Releasing: c.Off == offLeaving}, err
}

// sendsHeartbeats reports whether a process sends heartbeats to what is pinned in dir.
func sendsHeartbeats(dir string) bool {
	v, err := Open(dir)
	if err != nil {
		return false
	}
	defer func() { _ = v.Close() }()
	c, err := v.tables.control()
	return err == nil && isAlive(&c)
}

// Purge removes everything pinned in dir: programs, tables, and the parking in the caller's namespace, whose packets leave. Then it
// calls also for what the caller must remove while no other process can start there. A missing directory is no error. If a
// running process has it, the error is *attach.Busy, and nothing changes.
func Purge(dir string, also func() error) error {
	return attach.Purge(dir, func() error { return clearPins(dir) }, func() error { return errors.Join(removePark(nil, dir), also()) })
}

// clearPins removes all pins but those in keep.
func clearPins(dir string, keep ...string) error {
	pinned, err := attach.ReadPins(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, l := range pinned.Links {
		errs = append(errs, l.Remove())
	}
	return errors.Join(append(errs, attach.RemoveTables(dir, keep...))...)
}

// removePark removes the parking that the switch pinned in dir left in a namespace. Devices of others are left alone.
func removePark(enter func(f func() error) error, dir string) error {
	err := park.Remove(enter, parking(dir))
	if errors.As(err, new(*park.Foreign)) {
		return nil
	}
	return err
}
