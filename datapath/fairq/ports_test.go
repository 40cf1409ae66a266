package fairq_test

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"weir/datapath/fairq"
	"weir/datapath/testnet"
)

func statsOfPort(t *testing.T, f *fairq.Attachment, name string) fairq.Stats {
	t.Helper()
	all, err := f.Stats()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(s fairq.Stats) bool { return s.Port == name })
	if i < 0 {
		t.Fatalf("no port %s: %+v", name, all)
	}
	return all[i]
}

// A port that is removed releases its flows before; the others stay as they are. It comes back with the flows
// that it had.
func TestFairQ_RemoveAndAttach(t *testing.T) {
	dir := filepath.Join(testnet.Mount(t, "bpf"), "a")
	p, ports := pinnedPath(t)
	f := attachTo(t, pinnedConfig(dir), ports...)
	defer f.Close()
	streams := p.NewStreams(t, testnet.ReceiverIPv4, 2)
	testnet.Until(t, "windows are limited", func() bool { return f.Heartbeat() == nil && statsOfPort(t, f, p.Port.Name).GrantBytes > 0 })
	v, err := fairq.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	id := portOf(t, readSwitch(t, dir), p.Port).ID
	opened := statsOfPort(t, f, p.Port.Name).Opened + statsOfPort(t, f, p.In.Name).Opened

	if err := f.Remove(p.Port.Name); err != nil {
		t.Fatal(err)
	}
	s, err := v.Stats(id)
	if err != nil {
		t.Fatal(err)
	}
	if s.GrantBytes != 0 || testnet.AttachedTo(t, p.Port) != 0 || testnet.AttachedTo(t, p.In) != 1 {
		t.Errorf("a port was left with %d bytes granted; %d and %d programs", s.GrantBytes, testnet.AttachedTo(t, p.Port), testnet.AttachedTo(t, p.In))
	}
	streams.Progress(t, 100_000)
	if now, err := v.Stats(id); err != nil || now.Samples != s.Samples {
		t.Errorf("its timer runs: %d samples, then %d (%v)", s.Samples, now.Samples, err)
	}
	if err := f.Remove(p.Port.Name); err != nil {
		t.Errorf("removed twice: %v", err)
	}

	if err := f.Attach(ports[0]); err != nil {
		t.Fatal(err)
	}
	testnet.Until(t, "windows are limited again", func() bool { return f.Heartbeat() == nil && statsOfPort(t, f, p.Port.Name).GrantBytes > 0 })
	if now := statsOfPort(t, f, p.Port.Name).Opened + statsOfPort(t, f, p.In.Name).Opened; now != opened {
		t.Errorf("%d connections entered, then %d: they were lost", opened, now)
	}
	if got := portOf(t, readSwitch(t, dir), p.Port).ID; got != id {
		t.Errorf("port %d became %d", id, got)
	}
	law := ports[0].Law
	law.TargetBytes = 12345
	if err := f.Configure(p.Port.Name, law); err != nil || statsOfPort(t, f, p.Port.Name).TargetBytes != 12345 {
		t.Errorf("configured: %v, target %d", err, statsOfPort(t, f, p.Port.Name).TargetBytes)
	}
	law.TargetBytes = 0
	if err := f.Configure(p.Port.Name, law); err == nil {
		t.Error("a law without a target was accepted")
	}
	streams.Progress(t, 100_000)
}

// The timer of a port whose device is deleted does not read the freed memory. Windows end with the flows.
func TestFairQ_DeviceDeleted(t *testing.T) {
	dir := filepath.Join(testnet.Mount(t, "bpf"), "a")
	p, ports := pinnedPath(t)
	ports[0].Law.Active = 4 * time.Second // the timer rests without flows, and would not see that the device is gone
	f := attachTo(t, pinnedConfig(dir), ports...)
	defer f.Close()
	p.NewStreams(t, testnet.ReceiverIPv4, 2)
	testnet.Until(t, "windows are limited", func() bool { return f.Heartbeat() == nil && statsOfPort(t, f, p.Port.Name).GrantBytes > 0 })
	if gone := f.Gone(); len(gone) != 0 {
		t.Fatalf("gone: %v", gone)
	}
	p.Switch.Must(t, func() error {
		return netlink.LinkDel(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: p.Port.Ifindex}})
	})
	if gone := f.Gone(); !slices.Equal(gone, []string{p.Port.Name}) {
		t.Errorf("gone: %v", gone)
	}
	// Windows also end if this test missed its heartbeats for a second: the timer may not have run yet.
	testnet.Until(t, "the timer refuses the device and its windows end", func() bool {
		s := statsOfPort(t, f, p.Port.Name)
		return f.Heartbeat() == nil && s.DeviceRefused > 0 && s.GrantBytes == 0
	})
	s := statsOfPort(t, f, p.Port.Name)
	if s.QueueMax > 100_000 || s.QueueBytes != 0 {
		t.Errorf("a queue of %d, at most %d, of 100000", s.QueueBytes, s.QueueMax)
	}
	if !portOf(t, readSwitch(t, dir), p.In).HasDevice || portOf(t, readSwitch(t, dir), p.Port).HasDevice {
		t.Errorf("read: %+v", readSwitch(t, dir))
	}
	// The next start ignores the stale pin.
	if err := f.Leave(); err != nil {
		t.Fatal(err)
	}
	again := attachTo(t, pinnedConfig(dir), ports[1])
	defer again.Close()
	if s := readSwitch(t, dir); len(s.Ports) != 1 || s.Ports[0].Port != p.In.Name {
		t.Errorf("after a start: %+v", s)
	}
}

// A port's count of connections may be too low; it still accepts connections.
func TestFairQ_CountBelowZero(t *testing.T) {
	p, ports := pinnedPath(t)
	f := attachTo(t, fairq.Config{Flows: 4096}, ports...)
	defer f.Close()
	if err := f.SetOwned(^uint32(0)); err != nil {
		t.Fatal(err)
	}
	p.NewStreams(t, testnet.ReceiverIPv4, 2)
	out, in := statsOfPort(t, f, p.Port.Name), statsOfPort(t, f, p.In.Name)
	if out.Opened+in.Opened != 2 || out.TableFull+in.TableFull != 0 {
		t.Errorf("of 2 connections %d were entered, %d found no room", out.Opened+in.Opened, out.TableFull+in.TableFull)
	}
}
