package fairq

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/cilium/ebpf"

	"weir/datapath/attach"
)

// The programs count what flows do while a process needs it: the switch's own process (Config.Watch), or
// another one that only reads (View.Watch). The latter writes the end of its request into a table of user
// space, pinned with the others; the switch's process reads it at each heartbeat.
const (
	watchPin   = "watch"
	watchLease = 5 * time.Second
)

// Watch makes the switch's process count what flows do, from its next heartbeat on, for 5 s. A caller repeats it, for
// example each second. Without a running process nothing is counted.
func (v *View) Watch() error { return v.watchUntil(attach.MonotonicNs() + uint64(watchLease)) }

// Unwatch ends the counting with the next heartbeat, also for other processes.
func (v *View) Unwatch() error { return v.watchUntil(0) }

func (v *View) watchUntil(ns uint64) error {
	m, err := ebpf.NewMapWithOptions(&ebpf.MapSpec{
		Name: watchPin, Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1, Pinning: ebpf.PinByName,
	}, ebpf.MapOptions{PinPath: v.dir})
	if err != nil {
		return fmt.Errorf("watch the flows of %s: %w", v.dir, err)
	}
	defer func() { _ = m.Close() }()
	if err := m.Put(uint32(0), ns); err != nil {
		return fmt.Errorf("watch the flows of %s: %w", v.dir, err)
	}
	return nil
}

// watched returns 1 if what flows do must be counted until the next sweep.
func (f *Attachment) watched() (uint32, error) {
	if f.watch.Load() {
		return 1, nil
	}
	if f.cfg.Pin == "" {
		return 0, nil
	}
	m, err := ebpf.LoadPinnedMap(filepath.Join(f.cfg.Pin, watchPin), &ebpf.LoadPinOptions{ReadOnly: true})
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read until when flows are watched: %w", err)
	}
	defer func() { _ = m.Close() }()
	var until uint64
	if err := m.Lookup(uint32(0), &until); err != nil {
		return 0, fmt.Errorf("read until when flows are watched: %w", err)
	}
	if attach.MonotonicNs() < until {
		return 1, nil
	}
	return 0, nil
}

// setWatch updates whether this process needs what flows do; p is a port that is being configured, or nil.
// Counting begins at once, and ends with the next sweep.
func (f *Attachment) setWatch(p *attachedPort) error {
	watch := f.cfg.Watch || f.cfg.Observe || p != nil && p.Law.Mode != EnforceAll
	for i := range f.ports {
		watch = watch || f.ports[i].Law.Mode != EnforceAll
	}
	if f.watch.Swap(watch) || !watch {
		return nil
	}
	return f.setControl(func(c *fairqControl) { c.Watched = 1 })
}
