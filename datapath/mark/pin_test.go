package mark_test

import (
	"path/filepath"
	"testing"

	"weir/datapath/attach"
	"weir/datapath/mark"
	"weir/datapath/testnet"
)

// With a pin directory the program continues when its process ends. The next process takes it over in place,
// with its counters, and Close leaves nothing behind.
func TestMark_HandOver(t *testing.T) {
	dir := filepath.Join(testnet.Mount(t, "bpf"), "weir", "mark")
	p := testnet.NewPath(t, testnet.PathOptions{PortBps: 50e6, Limit: 1_000_000, UplinkBps: 200e6})
	ports := []attach.PortRef{p.Port, p.Uplink}
	first, err := mark.Attach(ports, mark.Config{ThresholdBytes: 1, Action: mark.ActionDrop, Pin: dir})
	if err != nil {
		t.Fatal(err)
	}
	warm := p.NewUDP(t, testnet.ReceiverIPv4, 0)
	warm.Send(t, 1, 100)
	warm.Arrived(t, 1)
	before := statsOf(t, first)
	if err := first.Leave(); err != nil { // as if the process had ended
		t.Fatal(err)
	}
	if testnet.AttachedTo(t, p.Port) != 1 || testnet.AttachedTo(t, p.Uplink) != 1 || len(testnet.Pinned(t, dir)) != 4 {
		t.Fatalf("after the first process: %d and %d programs, pins %v", testnet.AttachedTo(t, p.Port), testnet.AttachedTo(t, p.Uplink), testnet.Pinned(t, dir))
	}
	old := attachedFirst(t, p.Port)
	defer old.Close()
	oldInfo, err := old.Info()
	if err != nil {
		t.Fatal(err)
	}

	// The second process wants the switch's port only, with another configuration.
	second, err := mark.Attach([]attach.PortRef{p.Port}, mark.Config{ThresholdBytes: 1_000_000, Pin: dir})
	if err != nil {
		t.Fatal(err)
	}
	now := attachedFirst(t, p.Port)
	defer now.Close()
	info, err := now.Info()
	if err != nil {
		t.Fatal(err)
	}
	oldID, _ := oldInfo.ID()
	if id, _ := info.ID(); id == oldID {
		t.Error("the program was not replaced")
	}
	if testnet.AttachedTo(t, p.Port) != 1 || testnet.AttachedTo(t, p.Uplink) != 0 {
		t.Errorf("after the second: %d and %d programs", testnet.AttachedTo(t, p.Port), testnet.AttachedTo(t, p.Uplink))
	}
	warm.Send(t, 20, 1000)
	if n := warm.Arrived(t, 20); n != 20 {
		t.Errorf("%d of 20 packets arrived: the old configuration still drops", n)
	}
	if s := statsOf(t, second); s.Seen < before.Seen+20 || before.Seen == 0 {
		t.Errorf("the counters began again: %d after %d", s.Seen, before.Seen)
	}

	// A failed Attach changes nothing for the running program.
	if _, err := mark.Attach([]attach.PortRef{p.Port, p.In}, mark.Config{Pin: dir}); err == nil {
		t.Error("a port without a queue was accepted")
	}
	if testnet.AttachedTo(t, p.Port) != 1 {
		t.Error("a failed Attach detached a pinned program")
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	if testnet.AttachedTo(t, p.Port) != 0 || len(testnet.Pinned(t, dir)) != 0 {
		t.Errorf("after Close: %d programs, pins %v", testnet.AttachedTo(t, p.Port), testnet.Pinned(t, dir))
	}
	if err := second.Close(); err != nil {
		t.Errorf("closed twice: %v", err)
	}
	if _, err := mark.Attach([]attach.PortRef{p.Port, p.In}, mark.Config{Pin: dir}); err == nil || len(testnet.Pinned(t, dir)) != 0 {
		t.Errorf("a failed first Attach left %v, error %v", testnet.Pinned(t, dir), err)
	}
}
