package repair

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"weir/datapath/attach"
	"weir/datapath/park"
	"weir/datapath/reading"
)

const releasePoll = 2 * time.Millisecond

// Repair is the program at the ports of one switch. One goroutine may call Heartbeat while another calls the rest.
type Repair struct {
	cfg    Config
	lock   *attach.PinLock
	tables *tables
	fresh  bool // no earlier process left tables
	began  bool // Attach was called
	cookie uint64
	ports  []*port

	mu   sync.Mutex // guards the control entry of the tables, and park
	park *park.Park // nil: no port yet
}

type port struct {
	Port
	id      uint32
	program *ebpf.Program
	link    link.Link // kept here: the garbage collector would close it, which detaches the program
	isNew   bool      // not taken over
}

// Own locks the pins of a switch for this process. Nothing is attached yet. Errors: *attach.Busy, *attach.OtherSchema,
// *attach.MissingFeature or attach.ErrPermission.
func Own(c Config) (*Repair, error) {
	c.Lease = cmp.Or(c.Lease, defaultLease)
	r := &Repair{cfg: c}
	if err := errors.Join(Check(), r.own()); err != nil {
		return nil, errors.Join(fmt.Errorf("repair: %w", err), r.leave())
	}
	return r, nil
}

func (r *Repair) own() (err error) {
	if r.cfg.Pin != "" {
		if err := attach.MakePinDir(r.cfg.Pin); err != nil {
			return err
		}
		if r.lock, err = attach.LockPins(r.cfg.Pin, r.cfg.Version, r.cfg.TakeOver, r.rehearse); err != nil {
			return err
		}
	}
	r.fresh = r.cfg.Pin == "" || errors.Is(attach.CheckSchema(r.cfg.Pin, kernelMapRepairControls, schemaVersion), os.ErrNotExist)
	r.tables, err = makeTables(r.cfg.Pin)
	if r.cfg.Renew && errors.As(err, new(*attach.OtherSchema)) {
		if err := clearPins(r.cfg.Pin, attach.OwnerPin); err != nil {
			return err
		}
		r.fresh = true
		r.tables, err = makeTables(r.cfg.Pin)
	}
	if err != nil {
		return err
	}
	return r.tables.begin(r.cfg.Lease)
}

// rehearse checks that the program loads here and could take over the pinned tables. It changes nothing.
func (r *Repair) rehearse() error {
	if !r.cfg.Renew {
		err := attach.CheckSchema(r.cfg.Pin, kernelMapRepairControls, schemaVersion)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return Rehearse()
}

// Attach attaches the program to ports, which are all in one network namespace; a port that has it already gets this configuration.
// The first call also takes over what an earlier process left pinned, and gives up the pinned ports that are not listed. Errors name
// the port; they can be *attach.NoQueue, *attach.Taken or *park.Foreign. After an error of the first call only End may follow; after
// an error of another call, nothing has changed at a port that is alone in it.
func (r *Repair) Attach(ports ...Port) error {
	pinned := &attach.Pins{Used: map[uint32]bool{}}
	var err error
	if !r.began {
		if pinned, err = attach.ReadPins(r.cfg.Pin); err == nil {
			err = pinned.RemoveDead()
		}
		if err != nil {
			return fmt.Errorf("repair: %w", err)
		}
		r.began = true
	}
	for _, p := range r.ports {
		pinned.Used[p.id] = true
	}
	if len(ports) > park.Ports || len(r.ports)+len(ports) > park.Ports && r.index(ports[0].Name) < 0 {
		return fmt.Errorf("repair: at most %d ports", park.Ports)
	}
	for _, p := range ports {
		if err := r.put(p, pinned); err != nil {
			return fmt.Errorf("repair: port %s: %w", p.Name, err)
		}
	}
	for _, l := range pinned.Links {
		if err := l.Remove(); err != nil {
			return fmt.Errorf("repair: %w", err)
		}
	}
	return nil
}

// put attaches to a port, or configures it.
func (r *Repair) put(p Port, pinned *attach.Pins) error {
	if err := p.check(); err != nil {
		return err
	}
	if i := r.index(p.Name); i >= 0 {
		r.ports[i].Port = p
		return r.configure(r.ports[i], false)
	}
	before := len(r.ports)
	err := r.attach(p, pinned)
	if err != nil && len(r.ports) > before {
		err = errors.Join(err, r.detach(r.ports[before]))
		r.ports = r.ports[:before]
	}
	return err
}

// configure writes the configuration of a port, and its rate. off: packets pass until Attach is called for it.
func (r *Repair) configure(p *port, off bool) error {
	return errors.Join(r.park.SetPort(p.id, p.Ifindex, p.Bps, park.Bursts{Paced: p.Burst}), r.tables.configure(p.id, r.cookie, &p.Port, off))
}

func (r *Repair) attach(of Port, pinned *attach.Pins) error {
	if _, err := of.QueueWithBacklog(); err != nil {
		return err
	}
	if err := r.openPark(&of); err != nil {
		return err
	}
	name := attach.PortPin(r.cookie, of.Ifindex)
	old, takeOver := pinned.Take(name)
	p := &port{Port: of, id: old.ID, isNew: !takeOver}
	if !takeOver {
		p.id = pinned.FreeID()
		if err := r.tables.clear(p.id); err != nil {
			return err
		}
	}
	err := r.configure(p, false)
	if err == nil {
		p.program, err = r.tables.program(p.id, r.park.Maps())
	}
	if err != nil {
		return err
	}
	r.ports = append(r.ports, p)
	if takeOver {
		p.link, err = old.Update(p.program)
		return errors.Join(err, r.heartbeat())
	}
	if p.link, err = sole().AttachFirst(of.PortRef, r.cfg.Pin, p.program); err != nil {
		return err
	}
	if r.cfg.Pin != "" {
		if err := attach.PinLink(p.link, r.cfg.Pin, name, p.id); err != nil {
			return err
		}
	}
	return r.heartbeat() // attaching many ports takes longer than a lease
}

// openPark opens the parking of the ports' namespace with the first port.
func (r *Repair) openPark(p *Port) error {
	var cookie uint64
	err := p.In(func() (err error) {
		cookie, err = attach.NetnsCookie()
		return err
	})
	switch {
	case err != nil:
		return err
	case r.park != nil && cookie != r.cookie:
		return errors.New("it is in another network namespace than the other ports of this switch")
	case r.park != nil:
		return nil
	}
	o := parking(r.cfg.Pin)
	opened, err := park.Open(p.Enter, o)
	if err != nil {
		return err
	}
	r.cookie = cookie
	r.mu.Lock()
	r.park = opened
	r.mu.Unlock()
	return nil
}

// ReleasePort has packets pass at a port, until Attach is called for it.
func (r *Repair) ReleasePort(name string) error {
	i := r.index(name)
	if i < 0 {
		return fmt.Errorf("repair: port %s: the program is not on it", name)
	}
	if err := r.configure(r.ports[i], true); err != nil {
		return fmt.Errorf("repair: port %s: %w", name, err)
	}
	return nil
}

// Remove detaches the program from ports. Packets that wait leave.
func (r *Repair) Remove(names ...string) error {
	var errs []error
	for _, name := range names {
		i := r.index(name)
		if i < 0 {
			continue
		}
		if err := r.detach(r.ports[i]); err != nil {
			errs = append(errs, fmt.Errorf("repair: detach from %s: %w", name, err))
		}
		r.ports = slices.Delete(r.ports, i, i+1)
	}
	return errors.Join(errs...)
}

func (r *Repair) detach(p *port) error {
	var errs []error
	if p.link != nil {
		errs = append(errs, attach.DetachLink(p.link))
		if r.cfg.Pin != "" {
			errs = append(errs, p.link.Unpin())
		}
		errs = append(errs, p.link.Close())
	}
	return errors.Join(append(errs, p.program.Close(), r.park.RemovePort(p.id))...)
}

// Gone returns the names of the ports whose device is gone, or from which somebody detached the program.
func (r *Repair) Gone() (names []string) {
	for _, p := range r.ports {
		if !attach.HasDevice(p.link) {
			names = append(names, p.Name)
		}
	}
	return names
}

func (r *Repair) index(name string) int {
	return slices.IndexFunc(r.ports, func(p *port) bool { return p.Name == name })
}

// Heartbeat shows the kernel program that user space runs, and has a parking restored that somebody has removed: until then packets pass.
// It returns attach.ErrTakenOver when another process asks for the pins: then call End.
func (r *Repair) Heartbeat() error {
	if r.lock != nil {
		claimed, err := r.lock.Claimed()
		if err != nil {
			return err
		}
		if claimed {
			return attach.ErrTakenOver
		}
	}
	if err := r.heartbeat(); err != nil {
		return err
	}
	r.mu.Lock()
	at := r.park
	r.mu.Unlock()
	if at != nil {
		at.KeepSoon()
	}
	return nil
}

func (r *Repair) heartbeat() error {
	return r.setControl(func(c *kernelRepairControl) { c.HeartbeatNs = attach.MonotonicNs() })
}

func (r *Repair) setControl(change func(c *kernelRepairControl)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tables.setControl(change)
}

// Release has packets pass at all ports. It waits until none waits, or ctx is done.
func (r *Repair) Release(ctx context.Context) error {
	if err := r.setControl(func(c *kernelRepairControl) { c.Releasing = 1 }); err != nil {
		return fmt.Errorf("repair: %w", err)
	}
	poll := time.NewTicker(releasePoll)
	defer poll.Stop()
	for until := time.Now().Add(longestWait); ; {
		waiting, err := r.waiting()
		if err != nil || waiting == 0 || time.Now().After(until) { // a packet that waits longer was lost with its device
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-poll.C:
		}
	}
}

// waiting returns the bytes that wait at all ports.
func (r *Repair) waiting() (bytes uint64, err error) {
	for _, p := range r.ports {
		s, _, err := r.tables.read(p.id)
		if err != nil {
			return 0, fmt.Errorf("repair: %w", err)
		}
		bytes += uint64(s.Repairs.WaitingBytes)
	}
	return bytes, nil
}

// Stats reads the figures of ports; none listed: of all, in the order in which they were attached.
func (r *Repair) Stats(names ...string) (out []reading.Stats, err error) {
	for _, p := range r.ports {
		if len(names) > 0 && !slices.Contains(names, p.Name) {
			continue
		}
		s, _, err := r.tables.read(p.id)
		if err != nil {
			return nil, fmt.Errorf("repair: %w", err)
		}
		s.Port = p.Name // the tables have its first bytes
		out = append(out, s)
	}
	return out, nil
}

// Parking reads the counters of the parking.
func (r *Repair) Parking() (park.Stats, error) { return r.park.Stats() }

// Detach detaches the program from every port, sends the packets that wait, and removes the parking. Pinned tables stay for the next
// process. It ignores ports whose device is gone.
func (r *Repair) Detach() error {
	var errs []error
	for _, p := range r.ports {
		errs = append(errs, r.detach(p))
	}
	r.ports = nil
	if r.park != nil {
		errs = append(errs, r.park.Close())
	}
	return errors.Join(append(errs, r.leave())...)
}

// Close is Detach, and removes the pinned tables.
func (r *Repair) Close() error {
	var err error
	if r.cfg.Pin != "" {
		err = attach.RemoveTables(r.cfg.Pin)
	}
	lock := r.lock
	r.lock = nil
	err = errors.Join(err, r.Detach())
	if r.cfg.Pin != "" {
		err = errors.Join(err, attach.RemovePinDir(r.cfg.Pin))
	}
	return errors.Join(err, lock.Close())
}

// Leave closes what this process has open. Pinned programs continue until their lease expires; others are detached.
func (r *Repair) Leave() error {
	if r.cfg.Pin == "" {
		return r.Detach()
	}
	return r.leave()
}

func (r *Repair) leave() error {
	var errs []error
	for _, p := range r.ports {
		errs = append(errs, p.link.Close(), p.program.Close())
	}
	r.ports = nil
	if r.park != nil {
		errs = append(errs, r.park.Leave())
	}
	if r.tables != nil {
		errs = append(errs, r.tables.close())
	}
	return errors.Join(append(errs, r.lock.Close())...)
}

// GiveUp ends a Repair whose first Attach failed, or was not called. The pins of an earlier process stay.
func (r *Repair) GiveUp() error {
	var errs []error
	for _, p := range slices.Clone(r.ports) {
		if p.isNew {
			errs = append(errs, r.Remove(p.Name))
		}
	}
	if r.park != nil && !r.park.Adopted() {
		errs = append(errs, r.park.Close())
	}
	if r.fresh {
		return errors.Join(append(errs, r.Close())...)
	}
	return errors.Join(append(errs, r.leave())...)
}
