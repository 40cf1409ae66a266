package fairq_test

import (
	"path/filepath"
	"testing"
	"time"

	"weir/datapath/fairq"
	"weir/datapath/testnet"
)

// A switch counts what flows do only while a process needs it. A plain switch does not count. One does while
// another process watches it, and no longer once that stops. One that is configured to watch counts.
func TestFairQ_CountsWhatFlowsDoForWhoWatches(t *testing.T) {
	dir := filepath.Join(testnet.Mount(t, "bpf"), "a")
	p, ports := pinnedPath(t)
	config := fairq.Config{Pin: dir, Lease: time.Hour}
	f := attachTo(t, config, ports...)
	acked := func() uint64 {
		t.Helper()
		p.Transfer(t, testnet.ReceiverIPv4, "reno", 1, 200_000)
		var sum uint64
		for i := range ports {
			groups := statsOfPort(t, f, ports[i].Name).Groups
			sum += groups[0].AckedBytes + groups[1].AckedBytes
		}
		return sum
	}
	if n := acked(); n != 0 {
		t.Errorf("a plain switch counted %d bytes", n)
	}
	v, err := fairq.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	if err := v.Watch(); err != nil {
		t.Fatal(err)
	}
	heartbeat(t, f, 1)
	watched := acked()
	if watched < 200_000 {
		t.Errorf("another process watches, and %d bytes of 200000 were counted", watched)
	}
	if err := v.Unwatch(); err != nil {
		t.Fatal(err)
	}
	heartbeat(t, f, 1)
	if n := acked(); n != watched {
		t.Errorf("nobody watches, and %d bytes more were counted", n-watched)
	}
	config.Watch = true
	if _, err := f.Change(config); err != nil {
		t.Fatal(err)
	}
	if n := acked(); n < watched+200_000 {
		t.Errorf("the switch is to watch, and %d bytes of 200000 were counted", n-watched)
	}
}
