package fairq

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"

	"weir/datapath/attach"
	"weir/datapath/reading"
)

// own locks the pins for this process, and opens the tables.
func (f *Attachment) own() (err error) {
	if f.cfg.Pin != "" {
		if err := attach.MakePinDir(f.cfg.Pin); err != nil {
			return err
		}
		if f.lock, err = attach.LockPins(f.cfg.Pin, f.cfg.Version, f.cfg.TakeOver, f.source.rehearse); err != nil {
			return err
		}
	}
	if err := f.openTables(); err != nil {
		return err
	}
	// Send a heartbeat before the slow part: the process we replace has stopped sending its own.
	return f.begin()
}

func (f *Attachment) attachAll(ports []Port) (err error) {
	if f.control, err = f.source.loadControl(f.maps); err != nil {
		return err
	}
	pinned, err := attach.ReadPins(f.cfg.Pin)
	if err != nil {
		return err
	}
	if err := pinned.RemoveDead(); err != nil {
		return err
	}
	for _, p := range ports {
		if err := f.attach(p, pinned, len(ports)); err != nil {
			return fmt.Errorf("attach fairq to %s: %w", p.Name, err)
		}
	}
	return errors.Join(f.giveUp(pinned), f.removeFormerParks())
}

// openTables opens the maps: new, pinned, or new in the place of maps of another layout.
func (f *Attachment) openTables() (err error) {
	f.fresh = f.cfg.Pin == "" || !tablesPinned(f.cfg.Pin)
	f.maps, err = f.source.openMaps()
	var other *attach.OtherSchema
	if !errors.As(err, &other) || !f.cfg.Renew {
		return err
	}
	if err := clearPins(f.cfg.Pin, attach.OwnerPin); err != nil {
		return err
	}
	f.fresh = true
	f.maps, err = f.source.openMaps()
	return err
}

// giveUp removes FairQ from pinned ports that are no longer configured, as gradually as at the end.
func (f *Attachment) giveUp(pinned *attach.Pins) error {
	var ids []uint32
	for _, l := range pinned.Links {
		ids = append(ids, l.ID)
	}
	errs := []error{f.releasePorts(ids)}
	for _, l := range pinned.Links {
		errs = append(errs, l.Remove(), f.stop(l.ID))
	}
	return errors.Join(errs...)
}

// Attach puts FairQ on one more port. If a port was deleted and made again under its name, it continues with
// the same flows and counters.
func (f *Attachment) Attach(port Port) error {
	if err := port.Law.check(); err != nil {
		return fmt.Errorf("fairq: port %s: %w", port.Name, err)
	}
	if len(f.ports) >= maxPorts {
		return fmt.Errorf("fairq: port %s: there are %d ports: at most %d", port.Name, len(f.ports), maxPorts)
	}
	pinned := &attach.Pins{Used: map[uint32]bool{}}
	for i := range f.ports {
		pinned.Used[f.ports[i].id] = true
	}
	before := len(f.ports)
	if err := f.attach(port, pinned, before+1); err != nil {
		if len(f.ports) > before {
			err = errors.Join(err, f.detachPort(&f.ports[before]))
			f.ports = f.ports[:before]
		}
		return fmt.Errorf("fairq: attach to %s: %w", port.Name, err)
	}
	return f.configureAll()
}

// Configure changes a port's law at once, without an effect on other ports. It limits the port's flows again if
// they were released. Another Mode never makes windows jump: flows that are no longer limited are released
// within half a second, and the law begins afresh when all are.
func (f *Attachment) Configure(name string, law Law) error {
	if err := law.check(); err != nil {
		return fmt.Errorf("fairq: port %s: %w", name, err)
	}
	i := f.index(name)
	if i < 0 {
		return fmt.Errorf("fairq: port %s: FairQ is not on it", name)
	}
	f.ports[i].Law, f.ports[i].released = law, false
	if err := f.configure(&f.ports[i], len(f.ports)); err != nil {
		return fmt.Errorf("fairq: port %s: %w", name, err)
	}
	return f.arm(f.ports[i].id) // start the port's timer now
}

// ReleasePort releases a port's flows gradually, and stays on the port: it still learns flows, and its state
// can be read. Configure limits the flows again.
func (f *Attachment) ReleasePort(name string) error {
	i := f.index(name)
	if i < 0 {
		return fmt.Errorf("fairq: port %s: FairQ is not on it", name)
	}
	f.ports[i].released = true
	return f.configure(&f.ports[i], len(f.ports))
}

// Remove removes FairQ from ports. It first releases the flows of those that still exist, all together and
// within a second. Windows of ports that are gone end with their flows.
func (f *Attachment) Remove(names ...string) error {
	var there []uint32
	for _, name := range names {
		if i := f.index(name); i >= 0 && attach.HasDevice(f.ports[i].link) {
			there = append(there, f.ports[i].id)
		}
	}
	errs := []error{f.releasePorts(there)}
	for _, name := range names {
		i := f.index(name)
		if i < 0 {
			continue
		}
		if err := f.detachPort(&f.ports[i]); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
		f.ports = append(f.ports[:i], f.ports[i+1:]...)
	}
	if err := errors.Join(append(errs, f.configureAll())...); err != nil {
		return fmt.Errorf("fairq: detach: %w", err)
	}
	return nil
}

// Gone returns the names of the ports whose device is gone.
func (f *Attachment) Gone() (names []string) {
	for i := range f.ports {
		info, err := f.ports[i].link.Info()
		if err == nil && info.TCX() != nil && info.TCX().Ifindex == 0 {
			names = append(names, f.ports[i].Name)
		}
	}
	return names
}

func (f *Attachment) index(name string) int {
	for i := range f.ports {
		if f.ports[i].Name == name {
			return i
		}
	}
	return -1
}

// attach configures a port and loads its instance of the program. It puts it in front of the port's chain or in
// the place of the pinned one. of is the number of ports that share the table.
func (f *Attachment) attach(port Port, pinned *attach.Pins, of int) error {
	if _, err := port.QueueWithBacklog(); err != nil {
		return err
	}
	var cookie uint64
	err := port.In(func() (err error) {
		cookie, err = attach.NetnsCookie()
		return err
	})
	if err != nil {
		return err
	}
	name := attach.PortPin(cookie, port.Ifindex)
	old, takeOver := pinned.Take(name)
	p := attachedPort{Port: port, id: old.ID, cookie: cookie, isNew: !takeOver}
	if !takeOver {
		if p.id, err = f.portID(port.Name, cookie, pinned.Used); err != nil {
			return err
		}
		pinned.Used[p.id] = true
	}
	if _, err := f.openPark(&f.cfg, &p.Port, cookie); err != nil {
		return err
	}
	if err := f.configure(&p, of); err != nil {
		return err
	}
	err = f.withHeartbeats(func() (err error) {
		p.program, err = f.source.loadPort(p.id, f.maps, f.parkMaps(cookie))
		return err
	})
	if err != nil {
		return err
	}
	f.ports = append(f.ports, p)
	attached := &f.ports[len(f.ports)-1]
	if takeOver {
		attached.link, err = old.Update(p.program)
		return errors.Join(err, f.arm(p.id), f.heartbeat())
	}
	// Start the timer first: a program without one would sample its queue by packets only.
	if err := f.arm(p.id); err != nil {
		return err
	}
	only := sole()
	if f.cfg.Observe {
		only = nil
	}
	if attached.link, err = only.AttachFirst(p.PortRef, f.cfg.Pin, p.program); err != nil {
		return err
	}
	if f.cfg.Pin != "" {
		if err := attach.PinLink(attached.link, f.cfg.Pin, name, p.id); err != nil {
			return err
		}
	}
	return f.heartbeat() // attaching many ports takes longer than a lease
}

// portID returns the id of a new port in the maps: the one that it had before, which connections of the table
// may still name. Otherwise it returns an id that no port had, or that of the port that is gone for longest.
func (f *Attachment) portID(name string, cookie uint64, used map[uint32]bool) (uint32, error) {
	var unused, oldest uint32 = maxPorts, maxPorts
	var oldestNs uint64
	for id := range uint32(maxPorts) {
		if used[id] {
			continue
		}
		var c fairqPortConfig
		if err := f.maps.Configs.Lookup(id, &c); err != nil {
			return 0, fmt.Errorf("read the configuration of port %d: %w", id, err)
		}
		if c.NetnsCookie == cookie && c.Name == portName(name) {
			return id, nil
		}
		if c.NetnsCookie == 0 {
			unused = min(unused, id)
			continue
		}
		var p fairqPort
		if err := f.maps.Ports.Lookup(id, &p); err != nil {
			return 0, fmt.Errorf("read the state of port %d: %w", id, err)
		}
		if oldest == maxPorts || p.TickedNs < oldestNs {
			oldest, oldestNs = id, p.TickedNs
		}
	}
	id := min(unused, oldest)
	if unused < maxPorts {
		id = unused
	}
	if id == maxPorts {
		return 0, fmt.Errorf("all %d ids of ports are in use", maxPorts)
	}
	return id, f.clearPort(id)
}

// clearPort makes sure that a port does not begin with the state of a former port with its id. Connections that
// name the former one stay in the table. Their epochs and registers are over, but they still count in its
// share.
func (f *Attachment) clearPort(id uint32) error {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("number of CPUs: %w", err)
	}
	return errors.Join(
		f.clear(id, true),
		f.maps.Counts.Put(id, make([]fairqPortCounts, cpus)),
		f.maps.Groups.Put(id, make([]fairqPortGroups, cpus)),
		f.maps.RepairPorts.Put(id, &fairqRepairPort{}),
		f.maps.RepairStats.Put(id, make([]reading.RepairCounts, cpus)),
	)
}

// stop ends a port's timer. Nothing may stay granted by a port without a timer: connections may still name it.
func (f *Attachment) stop(id uint32) error {
	if err := f.disarm(id); err != nil {
		return err
	}
	return f.clear(id, false)
}

// releasePorts releases the flows of some ports and waits until that is done, a second at most.
func (f *Attachment) releasePorts(ids []uint32) error {
	for _, id := range ids {
		var c fairqPortConfig
		if err := f.maps.Configs.Lookup(id, &c); err != nil {
			return fmt.Errorf("read the configuration of port %d: %w", id, err)
		}
		c.Releasing = 1
		if err := f.maps.Configs.Put(id, &c); err != nil {
			return fmt.Errorf("write the configuration of port %d: %w", id, err)
		}
	}
	return f.maps.awaitReleased(ids, time.Second, f.heartbeat)
}

// awaitReleased waits until no flow of the ports is limited, or the time is over. Meanwhile it calls heartbeat
// repeatedly.
func (m *fairqMaps) awaitReleased(ids []uint32, limit time.Duration, heartbeat func() error) error {
	deadline := time.Now().Add(limit)
	for polls := 1; ; polls++ {
		limited, err := m.anyLimited(ids)
		if err != nil || !limited || time.Now().After(deadline) {
			return err
		}
		time.Sleep(releasePoll)
		if polls%int(HeartbeatInterval/releasePoll) == 0 {
			if err := heartbeat(); err != nil {
				return err
			}
		}
	}
}

// anyLimited reports whether any flow of the ports is still limited.
func (m *fairqMaps) anyLimited(ids []uint32) (bool, error) {
	for _, id := range ids {
		var p fairqPort
		if err := m.Ports.Lookup(id, &p); err != nil {
			return false, fmt.Errorf("read the state of port %d: %w", id, err)
		}
		if p.GrantQ8 != 0 || p.ReleaseQ8 != 0 {
			return true, nil
		}
	}
	return false, nil
}

// configureAll configures all ports again: their shares of the table depend on the number of ports.
func (f *Attachment) configureAll() error {
	var errs []error
	for i := range f.ports {
		errs = append(errs, f.configure(&f.ports[i], len(f.ports)))
	}
	return errors.Join(errs...)
}

func (f *Attachment) configure(p *attachedPort, of int) error {
	c := f.portConfig(&p.Port, p.cookie, of)
	if p.released {
		c.Releasing = 1
	}
	if err := f.setWatch(p); err != nil {
		return err
	}
	if err := f.maps.Configs.Put(p.id, c); err != nil {
		return fmt.Errorf("configure: %w", err)
	}
	return f.setCredit(p)
}

func (f *Attachment) portConfig(p *Port, cookie uint64, of int) *fairqPortConfig {
	l := &p.Law
	mtu := l.MTU
	if mtu == 0 {
		mtu = attach.DefaultMTU
	}
	active := max(l.Active, 10*time.Millisecond)
	idle := l.Idle
	if idle == 0 {
		idle = time.Second
	}
	flows := l.Flows
	if flows == 0 {
		flows = max(f.cfg.Flows/8, f.cfg.Flows/uint32(max(of, 1)))
	}
	c := &fairqPortConfig{
		NetnsCookie: cookie, Ifindex: uint32(p.Ifindex),
		EpochNs: uint32(active.Nanoseconds() / (liveEpochs - 1)), IdleNs: uint32(idle.Nanoseconds()),
		FlowsMax: flows, MssUnknown: max(mtu, attach.DefaultMTU) - attach.SegmentOverhead, Name: portName(p.Name),
		PipeBytes: l.PipeBytes, Mode: uint32(l.Mode), LimitedBuckets: l.LimitedBuckets,
		Paths: l.Paths, Divisor: max(l.Paths, 1),
	}
	if l.Undivided {
		c.Divisor = 1
	}
	c.Credit = f.creditConfig(l).Config.Mode
	c.Law.TargetBytes, c.Law.BufferBytes = l.TargetBytes, l.BufferBytes
	c.Law.TickNs, c.Law.PeriodNs = uint32(l.Tick.Nanoseconds()), uint32(l.Period.Nanoseconds())
	c.Law.FloorBytes, c.Law.CapBytes, c.Law.StartBytes = l.FloorBytes, l.CapBytes, l.StartBytes
	c.Law.MssMaxBytes = uint16(min(mtu-attach.SegmentOverhead, 0xffff))
	c.Law.Gain, c.Law.SlowStart, c.Law.Variant = uint8(l.Gain), uint8(l.SlowStart), uint8(l.Variant)
	return c
}

// portName returns a name for struct port_config.
func portName(name string) (b [portNameBytes]int8) {
	for i := range min(len(name), portNameBytes-1) {
		b[i] = int8(name[i])
	}
	return b
}
