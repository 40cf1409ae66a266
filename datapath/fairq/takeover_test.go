package fairq_test

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"weir/datapath/attach"
	"weir/datapath/fairq"
	"weir/datapath/testnet"
)

// pinnedConfig is a configuration pinned to dir.
func pinnedConfig(dir string) fairq.Config {
	return fairq.Config{Flows: 4096, Pin: dir, Version: "test"}
}

func lawFor(p attach.PortRef, buffer uint32) fairq.Port {
	return fairq.Port{PortRef: p, Law: fairq.Law{
		TargetBytes: buffer / 5, BufferBytes: buffer, Tick: 200 * time.Microsecond, Period: 2 * time.Millisecond,
	}}
}

// pinnedPath is a path and both ports of its switch: data leaves by the first, acknowledgements by the second.
func pinnedPath(t *testing.T) (*testnet.Path, []fairq.Port) {
	t.Helper()
	p := testnet.NewPath(t, testnet.PathOptions{PortBps: 50e6, Limit: 100_000})
	testnet.Shape(t, p.In, 1e9, 1_000_000, 10_000)
	return p, []fairq.Port{lawFor(p.Port, 100_000), lawFor(p.In, 1_000_000)}
}

// portOf returns the state of one port.
func portOf(t *testing.T, s *fairq.Switch, p attach.PortRef) *fairq.Pinned {
	t.Helper()
	for i := range s.Ports {
		if s.Ports[i].Port == p.Name {
			return &s.Ports[i]
		}
	}
	t.Fatalf("no port %s: %+v", p.Name, s)
	return nil
}

func attachTo(t *testing.T, c fairq.Config, ports ...fairq.Port) *fairq.Attachment {
	t.Helper()
	f, err := fairq.Attach(ports, c)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// readSwitch reads the tables pinned in dir.
func readSwitch(t *testing.T, dir string) *fairq.Switch {
	t.Helper()
	v, err := fairq.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	s, err := v.Read()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A second process takes program, timers, tables and flows over without detaching, and only if it asks to; the
// first one learns of it at its next heartbeat.
func TestFairQ_TakeOver(t *testing.T) {
	dir := filepath.Join(testnet.Mount(t, "bpf"), "weir", "switch", "a")
	p, ports := pinnedPath(t)
	first := attachTo(t, pinnedConfig(dir), ports...)
	streams := p.NewStreams(t, testnet.ReceiverIPv4, 2)
	streams.Progress(t, 100_000)
	before := readSwitch(t, dir)

	var busy *attach.Busy
	if _, err := fairq.Attach(ports, pinnedConfig(dir)); !errors.As(err, &busy) || busy.Holder.PID != os.Getpid() || busy.Holder.Version != "test" {
		t.Fatalf("a second process was admitted, or its error does not name the first: %v", err)
	}
	if err := fairq.Purge(dir, nil); !errors.As(err, &busy) {
		t.Fatalf("purged under a running process: %v", err)
	}
	if err := first.Heartbeat(); err != nil {
		t.Fatalf("one that was refused disturbs: %v", err)
	}

	c := pinnedConfig(dir)
	c.TakeOver, c.Version = true, "next"
	// A process that could not do the work does not ask for it.
	setSchema(t, dir, 99)
	var other *attach.OtherSchema
	if _, err := fairq.Attach(ports, c); !errors.As(err, &other) {
		t.Errorf("tables of another layout were accepted for a takeover: %v", err)
	}
	setSchema(t, dir, fairq.Schema)
	c.Flows *= 2
	if _, err := fairq.Attach(ports, c); !errors.As(err, &other) || other.Size != c.Flows {
		t.Errorf("tables of another size were accepted for a takeover: %v", err)
	}
	c.Flows /= 2
	if err := first.Heartbeat(); err != nil {
		t.Fatalf("one that could not take over disturbs: %v", err)
	}

	// (The pins are mounted for this goroutine only.)
	left := make(chan error)
	go func() {
		var err error
		for err == nil {
			err = first.Heartbeat()
		}
		if errors.Is(err, attach.ErrTakenOver) {
			err = first.Leave()
		}
		left <- err
	}()
	second := attachTo(t, c, ports...)
	if err := <-left; err != nil {
		t.Fatal(err)
	}
	if err := second.Heartbeat(); err != nil {
		t.Fatal(err)
	}
	var after *fairq.Switch
	was := portOf(t, before, p.Port)
	is := was
	testnet.Until(t, "flows that send are counted", func() bool { // on a slow machine they pause for longer than the count remembers them
		after = readSwitch(t, dir)
		is = portOf(t, after, p.Port)
		return is.Flows > 0
	})
	if is.LinkID != was.LinkID || is.ProgramID == was.ProgramID {
		t.Errorf("link %d became %d, program %d became %d", was.LinkID, is.LinkID, was.ProgramID, is.ProgramID)
	}
	if is.Opened != was.Opened || is.Adopted != was.Adopted || is.Samples < was.Samples {
		t.Errorf("flows were not taken over: %+v", is)
	}
	if after.Holder.Version != "next" || !after.Alive() || testnet.AttachedTo(t, p.Port) != 1 {
		t.Errorf("after: %+v, %d programs", after, testnet.AttachedTo(t, p.Port))
	}
	samples := is.Samples
	testnet.Until(t, "the timer continues", func() bool { return portOf(t, readSwitch(t, dir), p.Port).Samples > samples+10 })
	streams.Progress(t, 100_000)
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) || testnet.AttachedTo(t, p.Port) != 0 {
		t.Errorf("after Close: %d programs, directory: %v", testnet.AttachedTo(t, p.Port), err)
	}
}

// Detach leaves only the tables; the next start continues with the flows it knows. A port that is no longer
// configured is given up.
func TestFairQ_DetachAndAgain(t *testing.T) {
	dir := filepath.Join(testnet.Mount(t, "bpf"), "a")
	p, ports := pinnedPath(t)
	first := attachTo(t, pinnedConfig(dir), ports...)
	streams := p.NewStreams(t, testnet.ReceiverIPv4, 2)
	streams.Progress(t, 100_000)
	if err := first.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, port := range readSwitch(t, dir).Ports {
		if port.GrantBytes != 0 {
			t.Errorf("released, and %s still grants %d", port.Port, port.GrantBytes)
		}
	}
	if err := first.Detach(); err != nil {
		t.Fatal(err)
	}
	s := readSwitch(t, dir)
	if len(s.Ports) != 0 || s.Alive() || testnet.AttachedTo(t, p.Port)+testnet.AttachedTo(t, p.In) != 0 {
		t.Errorf("after Detach: %+v, %d and %d programs", s, testnet.AttachedTo(t, p.Port), testnet.AttachedTo(t, p.In))
	}

	second := attachTo(t, pinnedConfig(dir), ports...)
	testnet.Until(t, "the flows are known", func() bool {
		return portOf(t, readSwitch(t, dir), p.Port).Flows == 2
	})
	for _, port := range readSwitch(t, dir).Ports {
		if port.Adopted != 0 || port.Opened > 2 {
			t.Errorf("%s: %d connections entered, %d of them adopted: the table was lost", port.Port, port.Opened, port.Adopted)
		}
	}
	if err := second.Leave(); err != nil { // as if the process had ended
		t.Fatal(err)
	}
	third := attachTo(t, pinnedConfig(dir), ports[0])
	if s := readSwitch(t, dir); len(s.Ports) != 1 || testnet.AttachedTo(t, p.In) != 0 || testnet.AttachedTo(t, p.Port) != 1 {
		t.Errorf("after a start with one port: %+v, %d and %d programs", s, testnet.AttachedTo(t, p.Port), testnet.AttachedTo(t, p.In))
	}
	if err := third.Close(); err != nil {
		t.Fatal(err)
	}
}

// Tables of another layout are refused, unchanged, with their number; Renew puts new ones in their place.
func TestFairQ_OtherSchema(t *testing.T) {
	dir := filepath.Join(testnet.Mount(t, "bpf"), "a")
	p := testnet.NewPath(t, testnet.PathOptions{PortBps: 50e6, Limit: 100_000})
	port := lawFor(p.Port, 100_000)
	if err := attachTo(t, pinnedConfig(dir), port).Leave(); err != nil {
		t.Fatal(err)
	}
	was, table := readSwitch(t, dir).Ports[0], tableID(t, dir)
	setSchema(t, dir, 99)
	pins := testnet.Pinned(t, dir)
	var other *attach.OtherSchema
	if _, err := fairq.Attach([]fairq.Port{port}, pinnedConfig(dir)); !errors.As(err, &other) || other.Have != 99 {
		t.Fatalf("tables of another layout: %v", err)
	}
	if _, err := fairq.Open(dir); !errors.As(err, &other) {
		t.Errorf("tables of another layout were read: %v", err)
	}
	if testnet.AttachedTo(t, p.Port) != 1 || !slices.Equal(pins, testnet.Pinned(t, dir)) {
		t.Errorf("the refusal removed: %d programs, pins %v", testnet.AttachedTo(t, p.Port), testnet.Pinned(t, dir))
	}

	c := pinnedConfig(dir)
	c.Renew = true
	f := attachTo(t, c, port)
	is := readSwitch(t, dir).Ports[0]
	if is.LinkID == was.LinkID || tableID(t, dir) == table || testnet.AttachedTo(t, p.Port) != 1 || !slices.Equal(pins, testnet.Pinned(t, dir)) {
		t.Errorf("after Renew: %+v, %d programs, pins %v", is, testnet.AttachedTo(t, p.Port), testnet.Pinned(t, dir))
	}
	if err := f.Leave(); err != nil {
		t.Fatal(err)
	}

	// A purge works without knowledge of the layout.
	setSchema(t, dir, 100)
	if err := fairq.Purge(dir, nil); err != nil || testnet.AttachedTo(t, p.Port) != 0 {
		t.Errorf("purge: %v, %d programs", err, testnet.AttachedTo(t, p.Port))
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the directory is still there: %v, %v", err, testnet.Pinned(t, dir))
	}
	if err := fairq.Purge(dir, nil); err != nil {
		t.Errorf("purged twice: %v", err)
	}
}

// tableID returns the kernel's id of the pinned table of connections.
func tableID(t *testing.T, dir string) ebpf.MapID {
	t.Helper()
	m, err := ebpf.LoadPinnedMap(filepath.Join(dir, "flows"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	info, err := m.Info()
	if err != nil {
		t.Fatal(err)
	}
	id, _ := info.ID()
	return id
}

// setSchema marks the tables as those of another layout: the number is their first word in every layout.
func setSchema(t *testing.T, dir string, schema uint32) {
	t.Helper()
	m, err := ebpf.LoadPinnedMap(filepath.Join(dir, "controls"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	value, err := m.LookupBytes(uint32(0))
	if err != nil {
		t.Fatal(err)
	}
	binary.NativeEndian.PutUint32(value, schema)
	if err := m.Put(uint32(0), value); err != nil {
		t.Fatal(err)
	}
}

// A start that fails leaves the former state, and nothing of its own.
func TestFairQ_FailedStart(t *testing.T) {
	dir := filepath.Join(testnet.Mount(t, "bpf"), "a")
	p := testnet.NewPath(t, testnet.PathOptions{PortBps: 50e6, Limit: 100_000})
	good, bad := lawFor(p.Port, 100_000), lawFor(p.In, 100_000)
	fails := func() {
		t.Helper()
		var none *attach.NoQueue
		if _, err := fairq.Attach([]fairq.Port{good, bad}, pinnedConfig(dir)); !errors.As(err, &none) {
			t.Fatalf("a port without a queue: %v", err)
		}
	}
	fails()
	if _, err := os.Stat(dir); !os.IsNotExist(err) || testnet.AttachedTo(t, p.Port) != 0 {
		t.Errorf("a failed first start left %d programs, pins %v", testnet.AttachedTo(t, p.Port), testnet.Pinned(t, dir))
	}
	f := attachTo(t, pinnedConfig(dir), good)
	if err := f.Leave(); err != nil {
		t.Fatal(err)
	}
	fails()
	if s := readSwitch(t, dir); len(s.Ports) != 1 || testnet.AttachedTo(t, p.Port) != 1 {
		t.Errorf("a failed start took away what was pinned: %+v", s)
	}
	f = attachTo(t, pinnedConfig(dir), good)
	if err := f.Detach(); err != nil {
		t.Fatal(err)
	}
	tables := testnet.Pinned(t, dir)
	fails()
	if !slices.Equal(tables, testnet.Pinned(t, dir)) || testnet.AttachedTo(t, p.Port) != 0 {
		t.Errorf("a failed start took tables away or left programs: %v", testnet.Pinned(t, dir))
	}
	if err := fairq.Purge(dir, nil); err != nil {
		t.Fatal(err)
	}
}
