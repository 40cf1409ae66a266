// Package park holds packets in the kernel and sends them later, in order, at a rate. It has one veth pair for each switch.
// A law's egress program redirects packets into it (bpf/lib/park.h). docs/park.md has a picture.
package park

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weir/datapath/attach"
	"weir/internal/nic"
)

// Ports is the number of ids that ports can have: 0 .. Ports-1.
const Ports = 1024

const (
	defaultName         = "weir-park"
	defaultLimitBytes   = 4 << 20
	defaultLimitPackets = 8192
	defaultBurst        = time.Millisecond
	nameMax             = unix.IFNAMSIZ - 2 // a digit and the 0 byte follow
	ownerMax            = 128
	limitBytesMax       = 64 << 20
	limitPacketsMax     = 1 << 16
	burstMax            = 10 * time.Millisecond
	rateMin             = 8_000
	rateMax             = 1e12
)

// Options are the properties of a parking. The zero value has the defaults.
type Options struct {
	// Name begins the names of the two devices, Name0 and Name1. At most 14 bytes. Empty: weir-park.
	Name string
	// Owner is in the alias of both devices. Open takes over devices with the same owner only. At most 128 bytes.
	Owner string
	// Pin is a directory in a BPF file system where the maps are pinned. Without it, a later process needs CAP_SYS_ADMIN to take over
	// the parking with what waits in it, or to read it.
	Pin string
	// LimitBytes and LimitPackets are the most that may wait, in all classes together. Further packets are not parked. A
	// packet counts for the bytes that it stands for. At most 64 MiB and 65536 packets; 0: 4 MiB and 8192 packets.
	LimitBytes, LimitPackets uint32
	// Burst is what a class may send at once after it was idle, in time at its rate. It also is the delay of the kernel's
	// timer that does not reduce the rate. After a longer delay padding is cut until the class has caught up. At most 10 ms; 0: 1 ms.
	Burst time.Duration
}

func (o *Options) complete() error {
	if o.Name == "" {
		o.Name = defaultName
	}
	if o.LimitBytes == 0 {
		o.LimitBytes = defaultLimitBytes
	}
	if o.LimitPackets == 0 {
		o.LimitPackets = defaultLimitPackets
	}
	if o.Burst == 0 {
		o.Burst = defaultBurst
	}
	switch {
	case len(o.Name) > nameMax || strings.ContainsAny(o.Name, "/: \t\n\x00") || o.Name == "." || o.Name == "..":
		return fmt.Errorf("name %q: at most %d bytes, without slashes, colons and spaces", o.Name, nameMax)
	case len(o.Owner) > ownerMax || strings.ContainsRune(o.Owner, 0):
		return fmt.Errorf("owner %q: at most %d bytes, none of them 0", o.Owner, ownerMax)
	case o.LimitBytes > limitBytesMax:
		return fmt.Errorf("limit of %d bytes: at most %d", o.LimitBytes, limitBytesMax)
	case o.LimitPackets > limitPacketsMax:
		return fmt.Errorf("limit of %d packets: at most %d", o.LimitPackets, limitPacketsMax)
	case o.Burst < 0 || o.Burst > burstMax:
		return fmt.Errorf("burst of %v: at most %v", o.Burst, burstMax)
	}
	return nil
}

// Park is an open parking. Its methods may be called by several goroutines at a time.
type Park struct {
	mu      sync.Mutex
	o       Options
	enter   func(f func() error) error
	net     *netlink.Handle
	in, out netlink.Link // where packets enter, and where they come back
	cookie  uint64       // of the namespace
	dir     *os.File     // of the pins; nil: none
	pins    string       // its path
	maps    map[string]*ebpf.Map
	learn   *ebpf.Program
	perFlow bool
	adopted bool
	classes map[uint32]class // of the ids that have one
	closed  bool
	kept    int    // calls of Keep: one at a time
	gone    uint64 // Stats.PassedGone at the last of them
	keeping atomic.Bool
}

// ErrClosed is the error of calls after Close or Leave.
var ErrClosed = errors.New("the parking is closed")

// Foreign is the error for a device that has the name of a parking device and belongs to somebody else.
type Foreign struct{ Device, Why string }

func (e *Foreign) Error() string {
	return fmt.Sprintf("device %s is not this parking's (%s): rename or remove it", e.Device, e.Why)
}

// Check checks that Open can work on this kernel and for this user. Errors: attach.ErrPermission or
// *attach.MissingFeature. It does not check for veth, HTB and cls_bpf, which may be modules: Open names what is missing.
func Check() error { return attach.CheckAll(attach.QueueProbes()) }

// Open makes the parking of a network namespace, or takes over the one that an earlier process with the same owner left
// there, without losing what waits in it. enter runs a function inside the namespace; nil: the caller is inside, in every
// later call too. The namespace stays alive until Close or Leave. Only one process may have the parking at a time; the
// caller makes sure of that. Errors: *Foreign, attach.ErrPermission, *attach.MissingFeature, or the kernel's. After an
// error no new device remains.
func Open(enter func(f func() error) error, o Options) (*Park, error) {
	if err := o.complete(); err != nil {
		return nil, fmt.Errorf("park: %w", err)
	}
	if err := Check(); err != nil {
		return nil, fmt.Errorf("park: %w", err)
	}
	p := &Park{o: o, enter: enter, classes: map[uint32]class{}}
	if p.enter == nil {
		p.enter = func(f func() error) error { return f() }
	}
	if err := p.openPins(); err != nil {
		return nil, fmt.Errorf("park: %w", err)
	}
	if err := p.enter(p.open); err != nil {
		return nil, errors.Join(fmt.Errorf("park: %w", err), p.release())
	}
	return p, nil
}

// open does the work of Open, inside the namespace.
func (p *Park) open() (err error) {
	if err := p.look(); err != nil {
		return err
	}
	exists, err := p.find()
	if err != nil {
		return err
	}
	if exists {
		err := p.adopt()
		if !errors.Is(err, errUnusable) {
			p.adopted = err == nil
			return err
		}
		if err := p.replace(); err != nil {
			return err
		}
	}
	if err = p.createMaps(); err == nil {
		err = p.create()
	}
	if err != nil {
		return errors.Join(err, p.unpin())
	}
	return nil
}

// look opens what it takes to look at the namespace.
func (p *Park) look() (err error) {
	if p.net, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	p.cookie, err = attach.NetnsCookie()
	return err
}

// create makes the pair and puts the queue and the program on it. After an error it does not exist.
func (p *Park) create() error {
	err := p.createPair()
	if err == nil {
		err = p.createRoot()
	}
	for id, c := range p.classes {
		if err == nil {
			err = p.setClass(id, c)
		}
		if err == nil {
			err = p.beginSchedule(id) // packets were lost with a removed device
		}
	}
	if err == nil {
		err = p.start()
	}
	if err != nil {
		return errors.Join(err, p.remove())
	}
	return nil
}

// start puts the program on the pair, brings it up, and lets packets in.
func (p *Park) start() error {
	if err := p.attach(); err != nil {
		return err
	}
	if err := p.configure(); err != nil {
		return err
	}
	p.perFlow = nic.SteerFlows(p.out.Attrs().Name, p.out.Attrs().Index) == nil // else two packets of a flow that leave HTB on two processors can be exchanged
	return p.admit()
}

// Bursts are what a port's packets may do at once after nothing has left for a while, in time at the port's rate. A timer that is later
// takes from their rate. Paced: those of its class; 0: Options.Burst. Kept: segments that its queue had no room for; 0: 200 us.
type Bursts struct{ Paced, Kept time.Duration }

// SetPort sets the port with this id: packets parked for it leave by the device with this ifindex, and packets in its
// class leave at bps bit/s, 8 kbit/s to 1 Tbit/s. A change of the rate keeps the packets that wait. After a change of the
// ifindex, packets that wait for the earlier device are dropped.
func (p *Park) SetPort(id uint32, ifindex int, bps uint64, b Bursts) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.setPort(id, ifindex, class{bps, b}); err != nil {
		return fmt.Errorf("park: port %d: %w", id, err)
	}
	return nil
}

func (p *Park) setPort(id uint32, ifindex int, c class) error {
	switch {
	case p.closed:
		return ErrClosed
	case id >= Ports:
		return fmt.Errorf("the id is out of range: 0 to %d", Ports-1)
	case ifindex <= 0 || ifindex > 1<<31-1:
		return fmt.Errorf("ifindex %d is out of range", ifindex)
	case c.bps < rateMin || c.bps > rateMax:
		return fmt.Errorf("rate of %d bit/s: %d to %.0f", c.bps, rateMin, float64(rateMax))
	case c.Paced < 0 || c.Paced > burstMax || c.Kept < 0 || c.Kept > burstMax:
		return fmt.Errorf("bursts of %v and %v: at most %v", c.Paced, c.Kept, burstMax)
	}
	if err := p.setClass(id, c); err != nil {
		return err
	}
	entry, err := p.port(id)
	if err != nil {
		return err
	}
	if entry.Ifindex != uint32(ifindex) {
		entry.Generation = (entry.Generation + 1) % generations
	}
	entry.Ifindex = uint32(ifindex)
	entry.Open, entry.ByteNsQ20 = 1, uint64(8e9*(1<<20)/float64(c.bps))
	return p.putPort(id, entry) // with its schedule: packets may wait
}

// RemovePort stops parking for the port with this id and in its class. Packets that wait in the class leave as soon as the
// cost of the last packet that left has passed at the class's rate. Those that wait for the port in other classes leave in
// their turn. A port that was never set is not an error.
func (p *Park) RemovePort(id uint32) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.removePort(id); err != nil {
		return fmt.Errorf("park: port %d: %w", id, err)
	}
	return nil
}

func (p *Park) removePort(id uint32) error {
	if p.closed {
		return ErrClosed
	}
	if id >= Ports {
		return fmt.Errorf("the id is out of range: 0 to %d", Ports-1)
	}
	entry, err := p.port(id)
	if err != nil {
		return err
	}
	if entry.Open != 0 {
		entry.Open = 0
		if err := p.putPort(id, entry); err != nil {
			return err
		}
	}
	if p.classes[id].bps == 0 {
		return nil
	}
	err = p.setClass(id, class{bps: rateMax})
	if errors.Is(err, syscall.ENODEV) || errors.Is(err, syscall.ENOENT) { // somebody removed the device: nothing waits
		delete(p.classes, id)
		return nil
	}
	return err
}

// Restore repairs the parking after somebody has removed or changed its devices: with the same ports, classes and maps, so
// that the law's programs continue. Packets that waited in a removed device are lost. Call it when Stats.Queue is false or
// Stats.PassedGone grows. It does not disturb a parking that works. Errors: *Foreign, or the kernel's.
func (p *Park) Restore() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := ErrClosed
	if !p.closed {
		err = p.enter(p.restore)
	}
	if err != nil {
		return fmt.Errorf("restore the parking: %w", err)
	}
	return nil
}

func (p *Park) restore() error {
	p.in, p.out = nil, nil
	exists, err := p.find()
	if err != nil {
		return err
	}
	if exists {
		_, _, has, err := p.backlog()
		if err != nil {
			return err
		}
		if has {
			return p.start()
		}
		if err := p.remove(); err != nil {
			return err
		}
	}
	return p.create()
}

// Maps returns the maps that a law's programs share with the parking, by their names in bpf/lib/park.h. The loader of the
// law replaces its own by them. They are valid until Close or Leave.
func (p *Park) Maps() map[string]*ebpf.Map {
	return map[string]*ebpf.Map{
		parkMapParking: p.maps[parkMapParking], parkMapParkPorts: p.maps[parkMapParkPorts], parkMapParkStats: p.maps[parkMapParkStats],
	}
}

// Leave closes what this process has open. The parking continues: packets leave at their rate, and laws may park more. A
// later Open takes it over.
func (p *Park) Leave() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	return p.release()
}

// release closes what this process has open.
func (p *Park) release() error {
	p.closed = true
	var errs []error
	for _, m := range p.maps {
		errs = append(errs, m.Close())
	}
	errs = append(errs, p.learn.Close())
	if p.dir != nil {
		errs = append(errs, p.dir.Close())
	}
	if p.net != nil {
		p.net.Close()
	}
	return errors.Join(errs...)
}

// Close stops the parking: later packets pass, packets that wait leave, and the devices are removed. Packets wait up to
// 200 ms for their turn. The rest then leaves at once, but not before the cost of the last packet that left has passed at
// the class's rate. Close waits up to 150 ms for that; later packets are lost.
func (p *Park) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	drained := p.drain()
	removed := p.enter(p.remove)
	if err := errors.Join(drained, removed, p.unpin(), p.release()); err != nil {
		return fmt.Errorf("close the parking: %w", err)
	}
	return nil
}

// Adopted reports whether Open took over the parking of an earlier process.
func (p *Park) Adopted() bool { return p.adopted }

// Look reads the counters of a parking that any process made in a namespace, if it has this name and owner. It changes
// nothing. exists reports whether the devices and the program are there; Stats.Queue reports the queue. Errors: *Foreign,
// or the kernel's.
func Look(enter func(f func() error) error, o Options) (s Stats, exists bool, err error) {
	err = outside(enter, o, func(p *Park) error {
		found, err := p.find()
		if err != nil || !found {
			return err
		}
		if err := p.openMaps(); err != nil {
			if errors.Is(err, errUnusable) && !attach.IsPermission(err) {
				return nil
			}
			return err
		}
		if s, err = p.counters(); err != nil {
			return err
		}
		exists = true
		s.FlowPerCPU = p.steersFlows()
		s.BacklogBytes, s.BacklogPackets, s.Queue, err = p.backlog()
		return err
	})
	if err != nil {
		return s, false, fmt.Errorf("read the parking: %w", err)
	}
	return s, exists, nil
}

// steersFlows reports whether the device steers flows, or that cannot be read.
func (p *Park) steersFlows() bool {
	a := p.out.Attrs()
	on, err := nic.SteersFlows(a.Name, a.Index)
	return on || err != nil && !errors.Is(err, fs.ErrNotExist)
}

// Remove removes the parking that an earlier process left in a namespace, if it has this name and owner, after what waits
// in it has left. No parking is not an error. Errors: *Foreign, or the kernel's.
func Remove(enter func(f func() error) error, o Options) error {
	err := outside(enter, o, func(p *Park) error {
		exists, err := p.find()
		if err != nil {
			return err
		}
		if !exists {
			return p.unpin()
		}
		return p.replace()
	})
	if err != nil {
		return fmt.Errorf("remove the parking: %w", err)
	}
	return nil
}

// outside calls do with a parking that this process does not have open, inside the namespace.
func outside(enter func(f func() error) error, o Options, do func(p *Park) error) error {
	if err := o.complete(); err != nil {
		return err
	}
	p := &Park{o: o, enter: enter, classes: map[uint32]class{}}
	if p.enter == nil {
		p.enter = func(f func() error) error { return f() }
	}
	if err := p.openPins(); err != nil {
		return err
	}
	err := p.enter(func() error {
		if err := p.look(); err != nil {
			return err
		}
		return do(p)
	})
	return errors.Join(err, p.release())
}
