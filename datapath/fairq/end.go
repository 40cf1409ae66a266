package fairq

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/cilium/ebpf"

	"weir/datapath/attach"
)

const (
	releasePoll = 10 * time.Millisecond
	// otherRelease is how long programs of another layout take to release their flows after the last heartbeat:
	// their lease and the half second that follows.
	otherRelease = 1500 * time.Millisecond
)

// Release releases all flows gradually: a sender whose limit ends at once sends its whole congestion window in
// one burst. It returns when every port is done, or ctx is.
func (f *Attachment) Release(ctx context.Context) error {
	if err := f.setControl(func(c *fairqControl) { c.Releasing = 1 }); err != nil {
		return err
	}
	var ids []uint32
	for i := range f.ports {
		ids = append(ids, f.ports[i].id)
	}
	ticker := time.NewTicker(releasePoll)
	defer ticker.Stop()
	for {
		limited, err := f.maps.anyLimited(ids)
		if err != nil || !limited {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// Detach detaches the program from every port and stops every timer. Pinned tables stay, so that the next
// Attach knows the flows.
func (f *Attachment) Detach() error {
	if err := errors.Join(f.detachPorts(), f.leaveParks(true), f.Leave()); err != nil {
		return fmt.Errorf("detach fairq: %w", err)
	}
	return nil
}

// Close removes everything: programs, timers, tables, pins. It ignores ports whose device is gone.
func (f *Attachment) Close() error {
	if err := errors.Join(f.detachPorts(), f.leaveParks(true), f.unpinTables(), f.Leave()); err != nil {
		return fmt.Errorf("detach fairq: %w", err)
	}
	return nil
}

// Leave closes what this process has open. Pinned programs continue without it until the lease expires; the
// others are detached.
func (f *Attachment) Leave() error {
	var errs []error
	for i := range f.ports {
		if l := f.ports[i].link; l != nil {
			errs = append(errs, l.Close())
		}
		errs = append(errs, f.ports[i].program.Close())
	}
	f.ports = nil
	errs = append(errs, f.leaveParks(false), f.control.close())
	if f.maps != nil {
		errs = append(errs, f.maps.Close())
	}
	errs = append(errs, f.lock.Close())
	f.control, f.maps, f.lock = nil, nil, nil
	return errors.Join(errs...)
}

// abandon undoes an Attach that failed: it detaches new links. Links taken over and tables that existed before
// stay.
func (f *Attachment) abandon() error {
	var errs []error
	for i := range f.ports {
		if f.ports[i].isNew {
			errs = append(errs, f.detachPort(&f.ports[i]))
		}
	}
	errs = append(errs, f.leaveNewParks())
	if f.fresh {
		errs = append(errs, f.leaveParks(true), f.unpinTables())
	}
	return errors.Join(append(errs, f.Leave())...)
}

func (f *Attachment) detachPorts() error {
	var errs []error
	for i := range f.ports {
		errs = append(errs, f.detachPort(&f.ports[i]))
	}
	f.ports = nil
	return errors.Join(errs...)
}

// detachPort detaches the program from one port and stops its timer. The port must not be used afterwards.
func (f *Attachment) detachPort(p *attachedPort) error {
	var errs []error
	if p.link != nil {
		errs = append(errs, attach.DetachLink(p.link))
		if f.cfg.Pin != "" {
			errs = append(errs, p.link.Unpin())
		}
		errs = append(errs, p.link.Close())
	}
	if at := f.parks[p.cookie]; at != nil {
		errs = append(errs, at.RemovePort(p.id))
	}
	errs = append(errs, p.program.Close(), f.stop(p.id))
	p.link, p.program = nil, nil
	return errors.Join(errs...)
}

// unpinTables removes the pinned maps and the directory.
func (f *Attachment) unpinTables() error {
	if f.cfg.Pin == "" || f.lock == nil {
		return nil
	}
	return errors.Join(attach.RemoveTables(f.cfg.Pin), attach.RemovePinDir(f.cfg.Pin))
}

// Purge removes everything pinned in dir, whichever version of Weir pinned it. It releases flows, then removes
// programs, timers, tables and the parking in the caller's namespace. Then it calls also, if not nil, for what the caller must remove while no other
// process can start there. A missing directory is no error. If a running process has it, the error is
// *attach.Busy, and nothing changes.
func Purge(dir string, also func() error) error {
	if also == nil {
		also = func() error { return nil }
	}
	return attach.Purge(dir, func() error { return clearPins(dir) }, func() error { return errors.Join(removePark(nil, dir), also()) })
}

// clearPins releases all flows and removes all pins but those in keep. The kernel stops the timers of a table
// when nobody refers to it.
func clearPins(dir string, keep ...string) error {
	pinned, err := attach.ReadPins(dir)
	if err != nil {
		return err
	}
	var errs []error
	if len(pinned.Links) > 0 {
		if err := releasePinned(dir, pinned); err != nil {
			// The programs of another layout release their flows by themselves.
			time.Sleep(otherRelease)
		}
	}
	for _, l := range pinned.Links {
		errs = append(errs, l.Remove())
	}
	return errors.Join(append(errs, attach.RemoveTables(dir, keep...))...)
}

// releasePinned releases the flows of all pinned ports. An error means that the tables cannot be used.
func releasePinned(dir string, pinned *attach.Pins) error {
	if err := attach.CheckSchema(dir, fairqMapControls, schemaVersion); err != nil {
		return err
	}
	m, err := openPinned(dir, nil)
	if err != nil {
		return err
	}
	f := &Attachment{maps: m}
	defer func() { _ = m.Close() }()
	if err := f.setControl(func(c *fairqControl) { c.Releasing = 1 }); err != nil {
		return err
	}
	var ids []uint32
	for _, l := range pinned.Links {
		ids = append(ids, l.ID)
	}
	return m.awaitReleased(ids, time.Second, func() error { return nil })
}

// openPinned opens the pinned tables. A table that the version that pinned them did not have is made: it is empty.
func openPinned(dir string, o *ebpf.LoadPinOptions) (*fairqMaps, error) {
	m := &fairqMaps{}
	for name, at := range m.byName() {
		opened, err := ebpf.LoadPinnedMap(filepath.Join(dir, pinName(name)), o)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("open the pinned tables: %w", err), m.Close())
		}
		*at = opened
	}
	return m, nil
}
