package main

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"weir/datapath/testnet/timers"
)

// tickWatch finds the longest time between two ticks of a port's timer: the kernel's own account of when
// timers expired.
type tickWatch struct {
	t    *testing.T
	w    *timers.Watch
	slot uint32
}

// watchTicks watches a port that is pinned now, for the length of the test.
func (m *machine) watchTicks(name string) *tickWatch {
	m.t.Helper()
	slot := portOf(m.read(), name).ID
	var id ebpf.MapID
	m.Switch.Must(m.t, func() error {
		pinned, err := ebpf.LoadPinnedMap(filepath.Join(pinDir, "timers"), nil)
		if err != nil {
			return err
		}
		defer func() { _ = pinned.Close() }()
		info, err := pinned.Info()
		if err == nil {
			id, _ = info.ID()
		}
		return err
	})
	return &tickWatch{m.t, timers.NewWatch(m.t, id), slot}
}

// mark begins anew.
func (w *tickWatch) mark() { w.w.Mark(w.t, w.slot) }

// since gives the longest gap since the mark, and how many ticks there were.
func (w *tickWatch) since() (longest time.Duration, ticks uint64) {
	w.t.Helper()
	t := w.w.Since(w.t, w.slot)
	return t.Longest, t.Count
}
