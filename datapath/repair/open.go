package repair

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
	pinned, err := attach.ReadPins(v.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil // purged meanwhile
	}
	here, err2 := attach.NetnsCookie()
	queues, err3 := attach.ReadRootQueues()
	if err := errors.Join(err, err2, err3); err != nil {
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
	slices.SortFunc(s.Ports, func(a, b reading.Pinned) int { return strings.Compare(a.Port, b.Port) })
	if slices.ContainsFunc(s.Ports, func(p reading.Pinned) bool { return p.Local }) {
		s.Parking = park.Read(parking(v.dir))
	}
	return s, nil
}

// port reads one port. here is the cookie of the caller's namespace, and queues are its queues.
func (v *View) port(l attach.PinnedLink, here uint64, queues attach.RootQueues) (*reading.Pinned, error) {
	stats, c, err := v.tables.read(l.ID)
	if err != nil {
		return nil, err
	}
	p := &reading.Pinned{Stats: stats, ID: l.ID, NetnsCookie: c.NetnsCookie, Ifindex: int(c.Ifindex), Releasing: c.Off == offLeaving}
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
	p.Queue = queues.Of(p.Ifindex)
	_ = errors.As(attach.CheckQueue(p.Port, p.Queue.Kind), &p.NoQueue)
	p.Before, err = attach.ProgramsBefore(p.Ifindex, p.ProgramID)
	switch {
	case errors.Is(err, unix.ENODEV): // deleted meanwhile
		p.HasDevice, err = false, nil
	case err != nil:
		err = fmt.Errorf("port %s: programs at its egress: %w", p.Port, err)
	}
	return p, err
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
