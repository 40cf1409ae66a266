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

// A port with `shape` gets a tbf as its root, if its root is the kernel's default: handle 0, configured by nobody. The
// kernel itself refuses to replace a configured root, or to delete one by another handle than its own, so Weir can
// change only what it made. A pinned table records each tbf before it is made, so that the next process knows of it
// after a crash.
const (
	ShapeMajor = 0x7765 // of the handle: "we"
	// wakeLate is how late the kernel may wake the tbf. The token bucket must hold what cannot be sent meanwhile.
	wakeLate     = 200 * time.Microsecond
	leastFrames  = 2                   // that fit in the token bucket
	mostTicks    = math.MaxUint32 >> 6 // of a bucket: a tick is 64 ns, and the kernel counts 32 bits of ns
	shapedFor    = time.Millisecond
	shapesMax    = 4096
	drainedPause = time.Millisecond
	drainedTries = 100
	drainRate    = math.MaxUint32 // bytes/s (34 Gbit/s): drains the queue before the tbf is removed
)

var shapeHandle = netlink.MakeHandle(ShapeMajor, 0)

// shapeRoot is where the records are pinned, next to the switches.
var shapeRoot = filepath.Join(filepath.Dir(pinRoot), "shape")

// tbf is a token bucket filter that Weir makes. Zero: none.
type tbf struct {
	Rate   law.Rate
	Limit  uint32 // of the queue, bytes
	Bucket uint32 // in the kernel's ticks at the rate
}

// wantedTBF returns the tbf that the settings require.
func (s *PortSettings) wantedTBF() tbf {
	if s.Shape == 0 {
		return tbf{}
	}
	limit := s.Buffer
	if limit == 0 {
		limit = max(leastBuffer, law.Bytes(float64(s.Shape)/8*shapedFor.Seconds()))
	}
	return tbf{Rate: s.Shape / 8 * 8, Limit: uint32(min(limit, math.MaxUint32))}
}

// forMTU returns the tbf with a bucket for a device with this MTU. The kernel drops what does not fit in the bucket.
func (t tbf) forMTU(mtu int) tbf {
	if t == (tbf{}) {
		return t
	}
	rate := uint64(t.Rate) / 8
	frame := mtu + 14
	burst := max(float64(rate)*wakeLate.Seconds(), float64(leastFrames*frame))
	t.Bucket = min(netlink.Xmittime(rate, uint32(min(burst, math.MaxInt32))), mostTicks)
	return t
}

func (t tbf) qdisc(ifindex int) *netlink.Tbf {
	return &netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: ifindex, Parent: netlink.HANDLE_ROOT, Handle: shapeHandle},
		Rate:       uint64(t.Rate) / 8, Limit: t.Limit, Buffer: t.Bucket,
	}
}

// shapeKey is a port in the table of records: 16 bytes.
type shapeKey struct {
	Cookie  uint64 // of its network namespace
	Ifindex uint32
	_       uint32
}

// shapeRecord names the kind of queue discipline that was replaced: 16 bytes.
type shapeRecord struct{ Former [16]byte }

// shapes are the tbfs that Weir made on this machine's ports for one switch.
type shapes struct {
	dir, pin string
	cookie   uint64
	records  *ebpf.Map         // nil: none yet
	made     map[uint32]string // by ifindex, in this namespace: the kind that was replaced
	alive    func()            // called after each port when many are restored, or nil
}

// openShapes reads the records of an earlier process.
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
		return nil, fmt.Errorf("open the table of shaped ports: %w", err)
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

// recordedShapes reads the records and closes the table, for a caller that makes no change.
func recordedShapes(name string) (*shapes, error) {
	s, err := openShapes(name)
	if err != nil || s.records == nil {
		return s, err
	}
	err = s.records.Close()
	s.records = nil
	return s, err
}

// own reports whether Weir made a root queue discipline, and the kind that it replaced.
func (s *shapes) own(ifindex int, root *qdisc) (former string, own bool) {
	if s == nil {
		return "", false
	}
	former, recorded := s.made[uint32(ifindex)]
	return former, recorded && root.kind == "tbf" && root.handle == shapeHandle
}

// record records a tbf before it is made.
func (s *shapes) record(ifindex int, former string) error {
	if s.records == nil {
		if err := os.MkdirAll(s.dir, 0o700); err != nil {
			return fmt.Errorf("create the directory for pins: %w", err)
		}
		m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "weir_shapes", Type: ebpf.Hash, KeySize: 16, ValueSize: 16, MaxEntries: shapesMax})
		if err != nil {
			return fmt.Errorf("create the table of shaped ports: %w", err)
		}
		if err := m.Pin(s.pin); err != nil {
			return errors.Join(fmt.Errorf("pin the table of shaped ports: %w", err), m.Close())
		}
		s.records = m
	}
	var r shapeRecord
	copy(r.Former[:len(r.Former)-1], former)
	if err := s.records.Put(s.key(ifindex), r); err != nil {
		return fmt.Errorf("record that device %d is shaped: %w", ifindex, err)
	}
	s.made[uint32(ifindex)] = former
	return nil
}

func (s *shapes) key(ifindex int) shapeKey {
	return shapeKey{Cookie: s.cookie, Ifindex: uint32(ifindex)}
}

// make gives a port a tbf in place of the kernel's default.
func (s *shapes) make(name string, ifindex int, former string, t tbf) error {
	if err := s.record(ifindex, former); err != nil {
		return err
	}
	if err := netlink.QdiscAdd(t.qdisc(ifindex)); err != nil {
		err = fmt.Errorf("shape port %s to %v: %w", name, t.Rate, err)
		return errors.Join(err, s.forget(ifindex))
	}
	return nil
}

// change gives a tbf of Weir another rate, limit or bucket. Its queue stays.
func (s *shapes) change(name string, ifindex int, t tbf) error {
	if err := netlink.QdiscChange(t.qdisc(ifindex)); err != nil {
		return fmt.Errorf("shape port %s to %v: %w", name, t.Rate, err)
	}
	return nil
}

// restore sends what is queued, then removes Weir's tbf: the kernel's default takes its place. It is no error if the
// device is gone, or has another queue discipline by now.
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
	drain := tbf{Rate: drainRate * 8, Limit: math.MaxInt32}.forMTU(dev.Attrs().MTU)
	_ = netlink.QdiscChange(drain.qdisc(ifindex)) // otherwise queued packets are dropped
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
		return fmt.Errorf("delete the record of device %d: %w", ifindex, err)
	}
	return nil
}

// restoreAll removes every tbf that Weir made in this namespace, except those that keep returns true for.
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

// close closes the table, and removes it if it is empty.
func (s *shapes) close() error {
	if s.records == nil {
		return nil
	}
	var k shapeKey
	var r shapeRecord
	var errs []error
	if all := s.records.Iterate(); !all.Next(&k, &r) && all.Err() == nil {
		errs = append(errs, s.records.Unpin())
		_ = os.Remove(s.dir) // fails if another switch has its records there
	}
	errs = append(errs, s.records.Close())
	s.records = nil
	return errors.Join(errs...)
}
