package main

import (
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weir/datapath/attach"
	"weir/datapath/fairq"
	"weir/datapath/testnet"
	"weir/internal/testlog"
)

// soak repeats tests as often as `make soak-switch` does, and enforces the limits on their figures. Without it the
// tests are short and only log the figures.
var soak = flag.Bool("soak", false, "run the switch's life cycle tests at full length, with limits on times")

// rounds returns the number of repetitions.
func rounds(short, full int) int {
	if *soak {
		return full
	}
	return short
}

// parallel runs a test in parallel with others: each has its own namespaces, and waits for its line, not for the
// processors. A soak enforces limits on times, so its tests have the machine to themselves.
func parallel(t *testing.T) {
	t.Helper()
	if !*soak {
		t.Parallel()
	}
}

// limit fails a soak whose figure exceeds its limit.
func limit(t *testing.T, what string, worst, most time.Duration) {
	t.Helper()
	t.Logf("%s: worst %v (limit %v)", what, worst.Round(10*time.Microsecond), most)
	if *soak && worst > most {
		t.Errorf("%s: %v, over the limit of %v", what, worst, most)
	}
}

const (
	bpffs   = "/sys/fs/bpf"
	pinRoot = bpffs + "/weir/switch"
	pinDir  = pinRoot + "/default"
	tables  = 17 // pins without a port: 16 tables and the holder

	machineBps    = 50e6
	machineBuffer = 125_000
)

// machine is a switch between a sender and a receiver. The switch's namespace has a BPF file system of its own at the
// usual place, so weir runs in it as on any machine, and everything ends with the test.
type machine struct {
	*testnet.Path
	t *testing.T
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	p := testnet.NewPath(t, testnet.PathOptions{PortBps: machineBps, Limit: machineBuffer, NoIPv6: true})
	testnet.Shape(t, p.In, 1e9, 1_000_000, 10_000)
	m := &machine{p, t}
	p.Switch.Must(t, func() error {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return err
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return err
		}
		return unix.Mount("bpf", bpffs, "bpf", 0, "") // over the machine's own mount
	})
	return m
}

// ports are the names of the switch's devices; data leaves by the first.
var ports = []string{"out0", "in0"}

// process is a weir that runs on the machine's switch.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	log  *testlog.Log
	done chan error
}

// start starts a weir in the switch's namespace. It ends with the test at the latest.
func (m *machine) start(program string, args ...string) *process {
	m.t.Helper()
	p := &process{t: m.t, cmd: exec.Command(program, args...), log: &testlog.Log{}, done: make(chan error, 1)}
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	m.Switch.Must(m.t, p.cmd.Start)
	go func() { p.done <- p.cmd.Wait() }()
	m.t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		if m.t.Failed() {
			m.t.Logf("weir %v:\n%s", args, p.log)
		}
	})
	return p
}

// switchUp starts `weir switch` on both ports and waits until it is attached.
func (m *machine) switchUp(program string, args ...string) *process {
	m.t.Helper()
	p := m.start(program, append(append([]string{"switch"}, ports...), args...)...)
	pid := p.cmd.Process.Pid
	m.until(p, "weir switch is attached to both ports", func() bool {
		s := m.read()
		return strings.Contains(p.log.String(), "begun") && s != nil && s.Holder.PID == pid && s.Alive() && len(s.Ports) == len(ports)
	})
	return p
}

// changeControl changes the control entry that user space writes for the pinned programs.
func (m *machine) changeControl(change func(value []byte)) {
	m.t.Helper()
	m.Switch.Must(m.t, func() error {
		controls, err := ebpf.LoadPinnedMap(pinDir+"/controls", nil)
		if err != nil {
			return err
		}
		defer func() { _ = controls.Close() }()
		value, err := controls.LookupBytes(uint32(0))
		if err != nil {
			return err
		}
		change(value)
		return controls.Put(uint32(0), value)
	})
}

// patient sets the lease to an hour: a busy machine may delay the heartbeats of p by more than the usual second, and
// the test would measure released windows.
func (m *machine) patient(p *process) {
	m.t.Helper()
	const leaseAt, hour = 16, time.Hour // in bpf/fairq/flows.h's struct control
	var written time.Time
	m.until(p, "the kernel's lease is an hour", func() bool {
		s := m.read()
		if s.Lease == hour { // p may have read the entry before, and write it back: wait for another heartbeat
			return time.Since(written) > s.HeartbeatAge
		}
		m.changeControl(func(value []byte) { binary.NativeEndian.PutUint64(value[leaseAt:], uint64(hour)) })
		written = time.Now()
		return false
	})
}

// until waits for a condition while p runs.
func (m *machine) until(p *process, what string, condition func() bool) {
	m.t.Helper()
	testnet.Until(m.t, what, func() bool {
		select {
		case err := <-p.done:
			m.t.Fatalf("weir ended before %s: %v\n%s", what, err, p.log)
		default:
		}
		return condition()
	})
}

// wait waits until the process has ended and returns its exit code.
func (p *process) wait() int {
	p.t.Helper()
	select {
	case err := <-p.done:
		p.done <- err // for the next caller
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return exit.ExitCode()
		}
		if err != nil {
			p.t.Fatal(err)
		}
		return 0
	case <-time.After(testnet.Patience):
		p.t.Fatalf("weir %v does not end:\n%s", p.cmd.Args, p.log)
		return 0
	}
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// kill ends the process like a crash.
func (p *process) kill() { p.signal(syscall.SIGKILL); p.wait() }

// read reads the pinned state; nil: it cannot be read.
func (m *machine) read() (s *fairq.Switch) {
	m.t.Helper()
	m.Switch.Must(m.t, func() error {
		v, err := fairq.Open(pinDir)
		if err != nil {
			return nil // not pinned yet, or removed
		}
		defer func() { _ = v.Close() }()
		s, err = v.Read()
		return err
	})
	return s
}

// watch makes the switch count what flows do, like an observer.
func (m *machine) watch() {
	m.t.Helper()
	m.Switch.Must(m.t, func() error {
		v, err := fairq.Open(pinDir)
		if err != nil {
			return err
		}
		return errors.Join(v.Watch(), v.Close())
	})
}

// port is the reading of one port.
func portOf(s *fairq.Switch, name string) *fairq.Pinned {
	for i := range s.Ports {
		if s.Ports[i].Port == name {
			return &s.Ports[i]
		}
	}
	return &fairq.Pinned{}
}

// limited reports whether windows are limited on the port by which data leaves.
func (m *machine) limited() bool {
	s := m.read()
	return s != nil && s.Alive() && portOf(s, "out0").GrantBytes > 0
}

// released reports whether no port limits any window.
func (m *machine) released() bool {
	s := m.read()
	return s != nil && !slices.ContainsFunc(s.Ports, func(p fairq.Pinned) bool { return p.GrantBytes > 0 })
}

// pins lists the directory weir of the BPF file system.
func (m *machine) pins() (names []string) {
	m.t.Helper()
	m.Switch.Must(m.t, func() error {
		return filepath.WalkDir(bpffs+"/weir", func(path string, _ fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			names = append(names, path)
			return err
		})
	})
	return names
}

// chains lists the programs at the egress of the switch's ports, and their queue disciplines.
func (m *machine) chains() (out []string) {
	m.t.Helper()
	m.Switch.Must(m.t, func() error {
		links, err := netlink.LinkList()
		if err != nil {
			return err
		}
		for _, l := range links {
			chain, err := attach.ProgramsAt(l.Attrs().Index, ebpf.AttachTCXEgress)
			if err != nil {
				return err
			}
			for _, p := range chain {
				out = append(out, fmt.Sprintf("%s program %d", l.Attrs().Name, p.ID))
			}
			qdiscs, err := netlink.QdiscList(l)
			if err != nil {
				return err
			}
			for _, q := range qdiscs {
				out = append(out, fmt.Sprintf("%s %v %s", l.Attrs().Name, q, q.Type()))
			}
		}
		return nil
	})
	return out
}

// kernelObjects returns the ids of the pinned maps, of the programs that use them, and of the other maps of these
// programs.
type kernelObjects struct {
	maps     []ebpf.MapID
	programs []ebpf.ProgramID
}

func (m *machine) objects() (o kernelObjects) {
	m.t.Helper()
	m.Switch.Must(m.t, func() error {
		entries, err := os.ReadDir(pinDir)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		for _, e := range entries {
			p, err := ebpf.LoadPinnedMap(filepath.Join(pinDir, e.Name()), nil)
			if err != nil {
				continue // a link
			}
			info, err := p.Info()
			_ = p.Close()
			if err != nil {
				return err
			}
			if id, ok := info.ID(); ok {
				o.maps = append(o.maps, id)
			}
		}
		return err
	})
	var others []ebpf.MapID
	for id, err := ebpf.ProgramGetNextID(0); err == nil; id, err = ebpf.ProgramGetNextID(id) {
		used := mapsOf(id)
		if slices.ContainsFunc(used, func(m ebpf.MapID) bool { return slices.Contains(o.maps, m) }) {
			o.programs, others = append(o.programs, id), append(others, used...)
		}
	}
	o.maps = append(o.maps, others...)
	slices.Sort(o.maps)
	o.maps = slices.Compact(o.maps)
	return o
}

func mapsOf(id ebpf.ProgramID) []ebpf.MapID {
	p, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return nil // ended meanwhile
	}
	defer func() { _ = p.Close() }()
	info, err := p.Info()
	if err != nil {
		return nil
	}
	ids, _ := info.MapIDs()
	return ids
}

// left returns the objects that still exist.
func (o kernelObjects) left() (out []string) {
	for _, id := range o.programs {
		if p, err := ebpf.NewProgramFromID(id); err == nil {
			_ = p.Close()
			out = append(out, fmt.Sprintf("program %d", id))
		}
	}
	for _, id := range o.maps {
		if m, err := ebpf.NewMapFromID(id); err == nil {
			_ = m.Close()
			out = append(out, fmt.Sprintf("map %d", id))
		}
	}
	return out
}

// goneWithoutTrace waits until nothing of Weir is left on the machine. The kernel frees objects a moment after their
// last user has ended.
func (m *machine) goneWithoutTrace(o kernelObjects, chains []string) {
	m.t.Helper()
	if pins := m.pins(); len(pins) != 0 {
		m.t.Errorf("pins are left: %v", pins)
	}
	if now := m.chains(); !slices.Equal(now, chains) {
		m.t.Errorf("programs and queues of the ports:\n%s", difference(chains, now))
	}
	var left []string
	testnet.Until(m.t, "the kernel has freed programs and maps", func() bool {
		left = o.left()
		return len(left) == 0
	})
}
