package switchd

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"weir/datapath/attach"
	"weir/law"
)

// A port with `shape` gets a tbf of Weir's own as its root, if the queue discipline that stands there is
// the kernel's default: one whose handle is 0, for nobody asked for it. The kernel itself refuses to put
// another in the place of one that somebody asked for, or to delete one by another handle than its own,
// so nothing that Weir did not make can be changed. What Weir made is recorded in a pinned table before
// it is made: whoever comes after a crash knows.
const (
	ShapeMajor = 0x7765 // of the handle: "we"
	// wakeLate is how late the kernel may wake the tbf. What cannot be sent meanwhile has to fit the bucket.
	wakeLate     = 200 * time.Microsecond
	leastFrames  = 2 // that fit the bucket
	shapedFor    = time.Millisecond
	shapesMax    = 4096
	drainedPause = time.Millisecond
	drainedTries = 100
	drainRate    = math.MaxUint32 // bytes/s, 34 Gbit/s: the queue runs empty before it goes
)

var shapeHandle = netlink.MakeHandle(ShapeMajor, 0)

// shapeRoot is where the records are pinned, beside the switches.
var shapeRoot = filepath.Join(filepath.Dir(pinRoot), "shape")

// tbf is a token bucket filter as Weir makes it. Zero: none.
type tbf struct {
	Rate  law.Rate
	Limit uint32 // bytes that may wait
}

// wantedTBF is the one that the settings ask for.
func (s *PortSettings) wantedTBF() tbf {
	if s.Shape == 0 {
		return tbf{}
	}
	limit := s.Buffer
	if limit == 0 {
		limit = max(leastBuffer, law.Bytes(float64(s.Shape)/8*shapedFor.Seconds()))
	}
	return tbf{s.Shape / 8 * 8, uint32(min(limit, math.MaxUint32))}
}

func (t tbf) qdisc(ifindex int, mtu int) *netlink.Tbf {
	rate := uint64(t.Rate) / 8
	frame := mtu + 14
	burst := max(float64(rate)*wakeLate.Seconds(), float64(leastFrames*frame))
	return &netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: ifindex, Parent: netlink.HANDLE_ROOT, Handle: shapeHandle},
		Rate:       rate, Limit: t.Limit, Buffer: netlink.Xmittime(rate, uint32(min(burst, math.MaxInt32))),
	}
}

// shapeKey is a port, as the table of records has it: 16 bytes.
type shapeKey struct {
	Cookie  uint64 // of its namespace
	Ifindex uint32
	_       uint32
}

// shapeRecord says what stood there before: 16 bytes.
type shapeRecord struct{ Former [16]byte }

// shapes are the tbfs that Weir made on this machine's ports under one name.
type shapes struct {
	dir, pin string
	cookie   uint64
	records  *ebpf.Map         // nil: none yet
	made     map[uint32]string // by ifindex, in this namespace: what stood there before
	alive    func()            // called between two ports, where many are restored; nil: nobody waits
}

// openShapes reads what a former process recorded.
func openShapes(name string) (*shapes, error) {
	cookie, err := attach.NetnsCookie()
	if err != nil {
		return nil, err
	}
	s := &shapes{dir: shapeRoot, pin: filepath.Join(shapeRoot, name), cookie: cookie, made: map[uint32]string{}}
	s.records, err = ebpf.LoadPinnedMap(s.pin, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open the records of shaped ports: %w", err)
	}
	var k shapeKey
	var r shapeRecord
	all := s.records.Iterate()
	for all.Next(&k, &r) {
		if k.Cookie == cookie {
			s.made[k.Ifindex] = nl.BytesToString(r.Former[:])
		}
	}
	return s, all.Err()
}

// recordedShapes reads the records and gives back the table: it is for who only looks.
func recordedShapes(name string) (*shapes, error) {
	s, err := openShapes(name)
	if err != nil || s.records == nil {
		return s, err
	}
	err = s.records.Close()
	s.records = nil
	return s, err
}

// own says whether a root queue discipline is one that Weir made, and what stood there before.
func (s *shapes) own(ifindex int, root *qdisc) (former string, own bool) {
	if s == nil {
		return "", false
	}
	former, recorded := s.made[uint32(ifindex)]
	return former, recorded && root.kind == "tbf" && root.handle == shapeHandle
}

// record notes what is about to be made.
func (s *shapes) record(ifindex int, former string) error {
	if s.records == nil {
		if err := os.MkdirAll(s.dir, 0o700); err != nil {
			return fmt.Errorf("make the directory for pins: %w", err)
		}
		m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "weir_shapes", Type: ebpf.Hash, KeySize: 16, ValueSize: 16, MaxEntries: shapesMax})
		if err != nil {
			return fmt.Errorf("table for records of shaped ports: %w", err)
		}
		if err := m.Pin(s.pin); err != nil {
			return errors.Join(fmt.Errorf("pin the records of shaped ports: %w", err), m.Close())
		}
		s.records = m
	}
	var r shapeRecord
	copy(r.Former[:len(r.Former)-1], former)
	if err := s.records.Put(s.key(ifindex), r); err != nil {
		return fmt.Errorf("record that port %d is shaped: %w", ifindex, err)
	}
	s.made[uint32(ifindex)] = former
	return nil
}

func (s *shapes) key(ifindex int) shapeKey {
	return shapeKey{Cookie: s.cookie, Ifindex: uint32(ifindex)}
}

// make gives a port a tbf, in the place of the kernel's default.
func (s *shapes) make(name string, ifindex, mtu int, former string, t tbf) error {
	if err := s.record(ifindex, former); err != nil {
		return err
	}
	if err := netlink.QdiscAdd(t.qdisc(ifindex, mtu)); err != nil {
		err = fmt.Errorf("shape port %s to %v: %w", name, t.Rate, err)
		return errors.Join(err, s.forget(ifindex))
	}
	return nil
}

// change gives Weir's own tbf another rate or limit; what waits in it stays.
func (s *shapes) change(name string, ifindex, mtu int, t tbf) error {
	if err := netlink.QdiscChange(t.qdisc(ifindex, mtu)); err != nil {
		return fmt.Errorf("shape port %s to %v: %w", name, t.Rate, err)
	}
	return nil
}

// restore takes Weir's own tbf off: the kernel's default takes its place. What waits is sent first. A port
// that is gone, or that somebody else gave another queue discipline since, is no error.
func (s *shapes) restore(ifindex int) error {
	dev, err := netlink.LinkByIndex(ifindex)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return s.forget(ifindex)
	}
	if err != nil {
		return fmt.Errorf("restore the queue discipline of device %d: %w", ifindex, err)
	}
	own := func() (bool, error) {
		list, err := listQdiscs()
		if err != nil {
			return false, err
		}
		_, own := s.own(ifindex, rootOf(list[ifindex]))
		return own, nil
	}
	if is, err := own(); err != nil || !is {
		return errors.Join(err, s.forget(ifindex))
	}
	drain := tbf{Rate: drainRate * 8, Limit: math.MaxInt32}
	_ = netlink.QdiscChange(drain.qdisc(ifindex, dev.Attrs().MTU)) // else what waits is dropped
	for range drainedTries {
		if q, err := attach.ReadRootQueue(ifindex); err != nil || q.BacklogBytes == 0 {
			break
		}
		time.Sleep(drainedPause)
	}
	err = netlink.QdiscDel(&netlink.Tbf{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: ifindex, Parent: netlink.HANDLE_ROOT, Handle: shapeHandle}})
	if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENODEV) {
		if is, lookErr := own(); lookErr != nil || is {
			return errors.Join(fmt.Errorf("restore the queue discipline of port %s: %w", dev.Attrs().Name, err), lookErr)
		}
	}
	return s.forget(ifindex)
}

func (s *shapes) forget(ifindex int) error {
	delete(s.made, uint32(ifindex))
	if err := s.records.Delete(s.key(ifindex)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("forget that device %d is shaped: %w", ifindex, err)
	}
	return nil
}

// restoreAll takes off all that Weir made in this namespace but what is to be kept.
func (s *shapes) restoreAll(keep func(ifindex int) bool) error {
	var errs []error
	for ifindex := range s.made {
		if keep == nil || !keep(int(ifindex)) {
			errs = append(errs, s.restore(int(ifindex)))
			if s.alive != nil {
				s.alive()
			}
		}
	}
	return errors.Join(errs...)
}

// close gives the table back, and removes it when nothing is recorded in it.
func (s *shapes) close() error {
	if s.records == nil {
		return nil
	}
	var k shapeKey
	var r shapeRecord
	var errs []error
	if all := s.records.Iterate(); !all.Next(&k, &r) && all.Err() == nil {
		errs = append(errs, s.records.Unpin())
		_ = os.Remove(s.dir) // another switch may have its records there
	}
	errs = append(errs, s.records.Close())
	s.records = nil
	return errors.Join(errs...)
}
