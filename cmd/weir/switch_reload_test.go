package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"weir/datapath/fairq"
	"weir/datapath/testnet"
)

// configured is a machine whose switch runs from a file.
type configured struct {
	*machine
	path string
	p    *process
}

// switchFrom starts `weir switch -f FILE` with this text and waits until it is attached.
func (m *machine) switchFrom(text string, args ...string) *configured {
	m.t.Helper()
	c := &configured{machine: m, path: filepath.Join(m.t.TempDir(), "switch.yaml")}
	c.write(text)
	c.p = m.start("weir", append([]string{"switch", "-f", c.path}, args...)...)
	m.until(c.p, "weir switch -f is attached", func() bool {
		s := m.read()
		return strings.Contains(c.p.log.String(), "begun") && s != nil && s.Holder.PID == c.p.cmd.Process.Pid && s.Alive()
	})
	return c
}

func (c *configured) write(text string) {
	c.t.Helper()
	if err := os.WriteFile(c.path, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
}

// reload reloads this text and returns the exit code and the output.
func (c *configured) reload(text string) (code int, says string) {
	c.t.Helper()
	c.write(text)
	p := c.start("weir", "switch", "reload")
	return p.wait(), p.log.String()
}

// applied reloads a text that must be applied.
func (c *configured) applied(text string) string {
	c.t.Helper()
	code, says := c.reload(text)
	if code != 0 {
		c.t.Fatalf("reload ends with %d: %s\nits file:\n%s\nthe switch:\n%s", code, says, text, c.p.log)
	}
	return says
}

const both = "kind: Switch\nversion: 2\nmetrics: {listen: \"\"}\ndefaults: {fairq: {target_fraction: 0.025}}\nports:\n  - match: [out0, in0]\n"

// variants are files whose differences reach the kernel in different ways: the law, a constant of the programs, the
// scope, marking.
var variants = []string{
	both,
	both + "    fairq: {target_fraction: 0.025}\n    rtt: 200us\n",
	both + "    fairq: {target_fraction: 0.02}\n",
	both + "fairq: {scale: shim}\n",
	both + "scope: [10.0.0.0/8]\n",
	both + "scope: [10.0.0.0/8, 192.168.0.0/16]\n",
	both + "    fairq: {updates: 12}\nscope: [10.0.0.0/8]\n",
	both + "    mark: {threshold: 100KB}\n",
}

// losses counts what a reload may lose: drops of the port and of both ends of its link, and retransmissions of the
// senders. ungoverned counts acknowledgements that passed unchanged: after a time without data, and while windows are
// released.
type lost struct{ queue, device, again, ungoverned uint64 }

func (m *machine) lost() (l lost) {
	m.t.Helper()
	l.queue = uint64(testnet.Queue(m.t, m.Port).Drops)
	l.again = m.Sender.SNMP(m.t, "Tcp", "RetransSegs")
	l.ungoverned = portOf(m.read(), "in0").Ungoverned
	m.Switch.Must(m.t, func() error {
		for _, name := range ports {
			dev, err := netlink.LinkByName(name)
			if err != nil {
				return err
			}
			s := dev.Attrs().Statistics
			l.device += s.TxDropped + s.RxDropped
		}
		return nil
	})
	return l
}

func (l lost) since(before lost) lost {
	return lost{l.queue - before.queue, l.device - before.device, l.again - before.again, l.ungoverned - before.ungoverned}
}

// A reload loses no packet and breaks no connection: drops and retransmissions are those of the same load without
// reloads, except for loss probes of senders that wait for a busy CPU. The port's buffer is ten times the bytes in
// flight of four streams with limited windows (C*RTT + αB each, 28 KB), so that late wakeups cause no drop. If the
// windows were released, it would be full within two round trips. The port is so slow that a busy machine keeps it filled:
// after a time without data acknowledgements pass unchanged.
func TestSwitch_ReloadUnderLoad(t *testing.T) {
	parallel(t)
	const slower = 5 // than 100 Mbit/s, for which the counts of acknowledgements below are
	m := newMachine(t)
	testnet.Shape(t, m.Port, 100e6/slower, 1_000_000, 2*1514)
	c := m.switchFrom(variants[0])
	m.patient(c.p)
	streams := m.NewStreams(t, testnet.ReceiverIPv4, 4) // started after it, so that their window scale is known
	m.until(c.p, "windows are limited", m.limited)
	streams.Progress(t, 500_000)
	first := m.read()

	reloads := rounds(2*len(variants), 1000)
	// The fewest acknowledgements that passed unchanged in the reloads to each file. On a busy machine, where streams
	// wait, some pass in one reload or the other; a file that releases windows has some in each reload. If two reloads
	// to each file do not decide, up to ten are made.
	fewest := make([]uint64, len(variants))
	before, began, bytes := m.lost(), time.Now(), streams.Bytes()
	governed := func() bool { return slower*slices.Max(fewest) <= uint64(len(variants)) }
	n := 0
	for was := before.ungoverned; n < reloads || !governed() && n < 10*len(variants); n++ {
		to := (n + 1) % len(variants)
		c.applied(variants[to])
		now := portOf(m.read(), "in0").Ungoverned
		if n < len(variants) || now-was < fewest[to] {
			fewest[to] = now - was
		}
		was = now
	}
	reloads = n
	streams.Progress(t, 10_000)
	with, took, bytes := m.lost().since(before), time.Since(began), streams.Bytes()-bytes
	c.applied(variants[0])

	before, began = m.lost(), time.Now()
	for from := streams.Bytes(); streams.Bytes()-from < bytes; {
		streams.Progress(t, 10_000)
	}
	without, tookWithout := m.lost().since(before), time.Since(began)
	t.Logf("%d reloads in %v (%v each), %d bytes: lost %+v; the same load without, %v: %+v", reloads, took.Round(time.Millisecond),
		(took / time.Duration(reloads)).Round(time.Millisecond), bytes, with, tookWithout.Round(time.Millisecond), without)
	// A retransmission without a drop was a loss probe: loading programs takes a CPU for 0.1 s, and on a busy machine
	// everything is late. On a quiet one there is less than one per reload.
	if with.queue+with.device > 0 || without.queue+without.device > 0 || *soak && with.again > 2*without.again+uint64(reloads) {
		t.Errorf("reloads lost %+v, the same load without them %+v", with, without)
	}
	// Counts are those at 100 Mbit/s. If one file of the eight released windows, more than 8 at each of its
	// reloads would be more than one per reload above the same load without reloads in as much time. Some pass on a busy
	// machine, where streams wait, also because of the reloads.
	expected := uint64(float64(without.ungoverned) * max(1, took.Seconds()/tookWithout.Seconds()))
	if (!governed() || *soak) && slower*with.ungoverned > slower*expected+uint64(reloads) { // in 10 ms, 8
		t.Errorf("%d acknowledgements passed unchanged during reloads, %d without in as much time; at the fewest, by file: %v", with.ungoverned, expected, fewest)
	}
	now := m.read()
	for i := range now.Ports {
		is, was := &now.Ports[i], portOf(first, now.Ports[i].Port)
		if is.LinkID != was.LinkID || is.Opened != was.Opened || is.ID != was.ID {
			t.Errorf("%s did not stay what it was: %+v, before %+v", is.Port, is, was)
		}
	}
	if strings.Contains(c.p.log.String(), "refused") {
		t.Errorf("the switch refused something:\n%s", c.p.log)
	}
	c.p.signal(syscall.SIGTERM)
	if code := c.p.wait(); code != 0 {
		t.Errorf("ended with %d:\n%s", code, c.p.log)
	}
}

// standing is the state that a refused reload must not change.
type standing struct {
	chains []string
	pins   []string
	laws   []fairq.Pinned
}

func (m *machine) standing() (s standing) {
	s.chains, s.pins = m.chains(), m.pins()
	for _, p := range m.read().Ports {
		s.laws = append(s.laws, fairq.Pinned{ID: p.ID, LinkID: p.LinkID, ProgramID: p.ProgramID, Ifindex: p.Ifindex, Releasing: p.Releasing,
			Stats: fairq.Stats{Port: p.Port, TargetBytes: p.TargetBytes, Mode: p.Mode, LimitedBuckets: p.LimitedBuckets}})
	}
	return s
}

// For any fault in a file, the reload is refused with the reason, and the switch stays unchanged.
func TestSwitch_ReloadRefused(t *testing.T) {
	parallel(t)
	m := newMachine(t)
	c := m.switchFrom(both)
	var taken string
	m.Switch.Must(t, func() error {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = l.Close() })
		taken = l.Addr().String()
		return nil
	})
	was := m.standing()
	try := func(name, text, says string) {
		t.Helper()
		code, got := c.reload(text)
		if code != exitError || !strings.Contains(got, "refused, nothing has changed") || !strings.Contains(got, says) {
			t.Errorf("%s: ends with %d, without %q:\n%s", name, code, says, got)
		}
		if now := m.standing(); !reflect.DeepEqual(now, was) {
			t.Errorf("%s: refused, and changed something:\n%+v\n%+v", name, was, now)
		}
	}
	broken, err := filepath.Glob("../../agent/switchd/testdata/broken/*.yaml")
	if err != nil || len(broken) < 30 {
		t.Fatalf("%d broken files, %v", len(broken), err)
	}
	for _, path := range broken {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		try(path, string(text), c.path+":") // the exact text is tested by TestLoad_BrokenFilesGetPreciseErrors
	}
	rows := []struct{ name, text, says string }{
		{"another name", both + "name: other\n", "a running switch cannot change its name: restart it"},
		{"unify", both + "fairq: {scale: unify}\n", "not while it runs: restart"},
		{"count", both + "fairq: {count: handshake}\n", "count: not while it runs: restart"},
		{"flows", both + "fairq: {flows: 131072}\n", "flows: not while it runs: restart with --renew"},
		{"shrink avoid", both + "fairq: {shrink: avoid}\n", "shrink from allow to avoid: not while it runs: restart"},
		{"a port without a queue", strings.Replace(both, "in0]", "in0, br0]", 1), `port br0: its queue discipline "noqueue" keeps no backlog`},
		{"a shaper of somebody else", strings.Replace(both, "in0]\n", "in0]\n    shape: 90Mbit\n", 1), `its queue discipline "tbf" was not set by Weir`},
		{"an address that another has", strings.Replace(both, `""`, taken, 1), "another program, or another switch of this machine, has this port"},
	}
	for _, row := range rows {
		try(row.name, row.text, row.says)
	}
	m.until(c.p, "the switch runs", func() bool { return m.read().Alive() })
	if n := strings.Count(c.p.log.String(), "reload refused, nothing has changed"); n != len(broken)+len(rows) {
		t.Errorf("the log has %d refused reloads of %d", n, len(broken)+len(rows))
	}
	c.applied(variants[2])
	if got := portOf(m.read(), "out0").TargetBytes; got != machineBuffer/50 {
		t.Errorf("afterwards a good file is not applied: target %d", got)
	}
}

// A reload adds and removes ports; SIGHUP asks for one, too; without a file it is refused.
func TestSwitch_ReloadsPorts(t *testing.T) {
	parallel(t)
	m := newMachine(t)
	one := "kind: Switch\nversion: 2\nmetrics: {listen: \"\"}\nports: [{match: out0}]\n"
	c := m.switchFrom(one)
	if n := len(m.read().Ports); n != 1 {
		t.Fatalf("%d ports", n)
	}
	if says := c.applied(both); !strings.Contains(says, "port in0: attached") {
		t.Errorf("said: %s", says)
	}
	if s := m.read(); len(s.Ports) != 2 {
		t.Errorf("after a port was added: %+v", s.Ports)
	}
	streams := m.NewStreams(t, testnet.ReceiverIPv4, 4)
	m.until(c.p, "windows are limited", m.limited)
	opened := portOf(m.read(), "out0").Opened

	c.write(one)
	c.p.signal(syscall.SIGHUP)
	m.until(c.p, "the port is detached", func() bool { return len(m.read().Ports) == 1 })
	m.until(c.p, "it has no programs", func() bool { return !m.programmed("in0") })
	c.write(both)
	c.p.signal(syscall.SIGHUP)
	m.until(c.p, "the port is back", func() bool { return len(m.read().Ports) == 2 })
	m.until(c.p, "windows are limited again", m.limited)
	if now := portOf(m.read(), "out0").Opened; now != opened {
		t.Errorf("connections entered: %d, then %d", opened, now)
	}
	if says := c.applied(both); !strings.Contains(says, "nothing changed") {
		t.Errorf("said of the same file: %s", says)
	}
	streams.Progress(t, 100_000)
	c.p.signal(syscall.SIGTERM)
	c.p.wait()

	p := m.switchUp("weir")
	q := m.start("weir", "switch", "reload")
	if code := q.wait(); code != exitError || !strings.Contains(q.log.String(), "started without a file") {
		t.Errorf("reload of a switch without a file ends with %d: %s", code, q.log)
	}
	p.signal(syscall.SIGTERM)
	p.wait()
	q = m.start("weir", "switch", "reload")
	if code := q.wait(); code != exitError || !strings.Contains(q.log.String(), "no switch named ") {
		t.Errorf("reload without a switch ends with %d: %s", code, q.log)
	}
}

// The process that took over receives the request.
func TestSwitch_ReloadAfterTakeOver(t *testing.T) {
	parallel(t)
	m := newMachine(t)
	c := m.switchFrom(both)
	next := m.start("weir", "switch", "-f", c.path, "--take-over")
	c.p.wait()
	m.until(next, "the other process has it", func() bool { return m.read().Holder.PID == next.cmd.Process.Pid })
	c.p = next
	testnet.Until(t, "it answers", func() bool {
		code, _ := c.reload(variants[2])
		return code == 0
	})
	if got := portOf(m.read(), "out0").TargetBytes; got != machineBuffer/50 {
		t.Errorf("target %d", got)
	}
}

// unshaped restores the kernel's default queue discipline of the data's port.
func (m *machine) unshaped() {
	m.t.Helper()
	m.Switch.Must(m.t, func() error {
		dev, err := netlink.LinkByName("out0")
		if err != nil {
			return err
		}
		return netlink.QdiscDel(&netlink.Tbf{QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: dev.Attrs().Index, Parent: netlink.HANDLE_ROOT, Handle: netlink.MakeHandle(1, 0),
		}})
	})
}

// root returns the root queue discipline of the data's port.
func (m *machine) root() (says string) {
	m.t.Helper()
	m.Switch.Must(m.t, func() error {
		dev, err := netlink.LinkByName("out0")
		if err != nil {
			return err
		}
		list, err := netlink.QdiscList(dev)
		if err != nil {
			return err
		}
		for _, q := range list {
			if q.Attrs().Parent != netlink.HANDLE_ROOT {
				continue
			}
			says = fmt.Sprintf("%s %s", q.Type(), netlink.HandleStr(q.Attrs().Handle))
			if t, ok := q.(*netlink.Tbf); ok {
				says += fmt.Sprintf(" rate %d limit %d", t.Rate*8, t.Limit)
			}
		}
		return nil
	})
	return says
}

const shaped = "kind: Switch\nversion: 2\nmetrics: {listen: \"\"}\nports:\n  - {match: out0, shape: 100Mbit, buffer: 125KB}\n  - match: in0\n"

// A port without a queue gets one while Weir runs. However Weir ends, the kernel's default is restored, and a queue
// discipline set by somebody else stays.
func TestSwitch_Shape(t *testing.T) {
	parallel(t)
	m := newMachine(t)
	m.unshaped()
	chains := m.chains()
	plain := m.root()
	const ours = "tbf 7765:0 rate 100000000 limit 125000"
	c := m.switchFrom(shaped)
	if got := m.root(); got != ours {
		t.Errorf("shaped: %s", got)
	}
	streams := m.NewStreams(t, testnet.ReceiverIPv4, 4)
	m.until(c.p, "windows are limited", m.limited)

	// Another rate, in place; then the same again.
	c.applied(strings.Replace(shaped, "100Mbit", "50Mbit", 1))
	if got := m.root(); got != "tbf 7765:0 rate 50000000 limit 125000" {
		t.Errorf("another rate: %s", got)
	}
	c.applied(shaped)

	// After a kill it stays; the next start takes it over; a purge removes it.
	c.p.kill()
	if got := m.root(); got != ours {
		t.Errorf("killed: %s", got)
	}
	c = m.switchFrom(shaped)
	streams.Progress(t, 100_000)
	c.p.kill()
	if code := m.start("weir", "switch", "--purge").wait(); code != 0 || m.root() != plain {
		t.Errorf("purge ends with %d: %s", code, m.root())
	}
	if pins := m.pins(); len(pins) != 0 {
		t.Errorf("pins are left: %v", pins)
	}

	// Killed, and the next start does not configure it.
	c = m.switchFrom(shaped)
	c.p.kill()
	c = m.switchFrom("kind: Switch\nversion: 2\nmetrics: {listen: \"\"}\nports: [{match: in0}]\n")
	testnet.Until(t, "the kernel's default is back", func() bool { return m.root() == plain })
	c.applied(shaped)
	if got := m.root(); got != ours {
		t.Errorf("shaped by a reload: %s", got)
	}

	// If somebody removes it, it is made again. If somebody sets another, that one stays.
	port := m.Port
	m.Switch.Must(t, func() error {
		return netlink.QdiscDel(&netlink.Tbf{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: port.Ifindex, Parent: netlink.HANDLE_ROOT, Handle: netlink.MakeHandle(0x7765, 0)}})
	})
	testnet.Until(t, "it is back", func() bool { return m.root() == ours })
	m.Switch.Must(t, func() error {
		return netlink.QdiscReplace(&netlink.Tbf{
			QdiscAttrs: netlink.QdiscAttrs{LinkIndex: port.Ifindex, Parent: netlink.HANDLE_ROOT, Handle: netlink.MakeHandle(1, 0)},
			Rate:       machineBps / 8, Limit: machineBuffer, Buffer: netlink.Xmittime(machineBps/8, 3028),
		})
	})
	m.until(c.p, "it logs whose it is", func() bool { return strings.Contains(c.p.log.String(), "was not set by Weir") })
	theirs := fmt.Sprintf("tbf 1:0 rate %d limit %d", int(machineBps), machineBuffer)
	c.p.signal(syscall.SIGTERM)
	if code := c.p.wait(); code != 0 || m.root() != theirs {
		t.Errorf("ended with %d, somebody else's became %s:\n%s", code, m.root(), c.p.log)
	}
	m.unshaped()

	// Removed by Weir at its end.
	c = m.switchFrom(shaped, "--purge")
	streams.Progress(t, 100_000)
	objects := m.objects()
	c.p.signal(syscall.SIGTERM)
	if code := c.p.wait(); code != 0 {
		t.Errorf("ended with %d:\n%s", code, c.p.log)
	}
	m.goneWithoutTrace(objects, chains)
	if got := m.root(); got != plain {
		t.Errorf("restored: %s", got)
	}
}
