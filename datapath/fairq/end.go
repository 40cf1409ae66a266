package fairq

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/cilium/ebpf"

	"weir/datapath/attach"
	"weir/internal/lockfile"
)

const (
	releasePoll = 10 * time.Millisecond
	// otherRelease is how long programs of another layout take to let their windows go once nobody
	// beats: their lease and the half second that follows.
	otherRelease = 1500 * time.Millisecond
)

// Release lets the windows go, gradually: a sender that is let off at once sends its whole
// congestion window in one burst. It returns when every port has, or ctx is done.
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
		held, err := f.maps.holding(ids)
		if err != nil || !held {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// Detach takes the program off every port and stops every timer. Pinned tables stay, for the next
// Attach to know the flows by.
func (f *Attachment) Detach() error {
	if err := errors.Join(f.detachPorts(), f.Leave()); err != nil {
		return fmt.Errorf("detach fairq: %w", err)
	}
	return nil
}

// Close takes everything away: programs, timers, tables, pins. A port that is gone already is no error.
func (f *Attachment) Close() error {
	if err := errors.Join(f.detachPorts(), f.unpinTables(), f.Leave()); err != nil {
		return fmt.Errorf("detach fairq: %w", err)
	}
	return nil
}

// Leave gives back what this process holds. What is pinned goes on without it, until its lease ends;
// what is not is detached.
func (f *Attachment) Leave() error {
	var errs []error
	for i := range f.ports {
		if l := f.ports[i].link; l != nil {
			errs = append(errs, l.Close())
		}
		errs = append(errs, f.ports[i].program.Close())
	}
	f.ports = nil
	errs = append(errs, f.control.close())
	if f.maps != nil {
		errs = append(errs, f.maps.Close())
	}
	errs = append(errs, f.lock.Close())
	f.control, f.maps, f.lock = nil, nil, nil
	return errors.Join(errs...)
}

// abandon undoes an Attach that failed: new links go, those taken over stay, and so do tables that
// were there.
func (f *Attachment) abandon() error {
	var errs []error
	for i := range f.ports {
		if f.ports[i].isNew {
			errs = append(errs, f.detachPort(&f.ports[i]))
		}
	}
	if f.fresh {
		errs = append(errs, f.unpinTables())
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

// detachPort takes the program off one port and stops its timer. The port is not to be used after it.
func (f *Attachment) detachPort(p *attachedPort) error {
	var errs []error
	if p.link != nil {
		errs = append(errs, attach.DetachLink(p.link))
		if f.cfg.Pin != "" {
			errs = append(errs, p.link.Unpin())
		}
		errs = append(errs, p.link.Close())
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

// Purge removes all that is pinned in dir, whichever version of Weir left it: windows are let go,
// then programs, timers and tables go; then it calls beside, for what its caller has to remove with them, while no
// other process can begin there. A directory that is not there is no error, and nil stands for no beside;
// *attach.Busy is the error when a living process has it: then nothing is touched.
func Purge(dir string, beside func() error) error {
	if beside == nil {
		beside = func() error { return nil }
	}
	if _, err := os.Stat(filepath.Dir(dir)); errors.Is(err, fs.ErrNotExist) {
		return beside() // no file system for pins, or none of Weir's in it
	}
	if err := attach.MakePinDir(dir); err != nil { // to have what to lock: a process that begins now makes it too
		return fmt.Errorf("purge %s: %w", dir, err)
	}
	d, err := lockfile.Take(dir)
	switch {
	case errors.Is(err, lockfile.ErrHeld):
		return &attach.Busy{Dir: dir, Holder: attach.ReadHolder(dir)}
	case err != nil:
		return fmt.Errorf("purge %s: %w", dir, err)
	}
	err = errors.Join(clearPins(dir), beside(), attach.RemovePinDir(dir), d.Close())
	if err != nil {
		return fmt.Errorf("purge %s: %w", dir, err)
	}
	return nil
}

// clearPins lets the windows go and removes all pins but those to keep. The kernel stops the timers of a
// table that nobody has any more.
func clearPins(dir string, keep ...string) error {
	pinned, err := attach.ReadPins(dir)
	if err != nil {
		return err
	}
	var errs []error
	if len(pinned.Links) > 0 {
		if err := releasePinned(dir, pinned); err != nil {
			// Of another layout: its programs let their windows go by themselves.
			time.Sleep(otherRelease)
		}
	}
	for _, l := range pinned.Links {
		errs = append(errs, l.Remove())
	}
	return errors.Join(append(errs, attach.RemoveTables(dir, keep...))...)
}

// releasePinned lets the windows of all pinned ports go. An error: the tables cannot be used.
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

// openPinned opens the pinned tables.
func openPinned(dir string, o *ebpf.LoadPinOptions) (*fairqMaps, error) {
	m := &fairqMaps{}
	for name, at := range m.byName() {
		opened, err := ebpf.LoadPinnedMap(filepath.Join(dir, name), o)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("open the pinned tables: %w", err), m.Close())
		}
		*at = opened
	}
	return m, nil
}
