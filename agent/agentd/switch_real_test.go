package agentd_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"google.golang.org/protobuf/proto"

	"weir/agent/agentd"
	"weir/bus/weirv1"
	"weir/datapath/host"
	"weir/datapath/testnet"
	"weir/law"
)

const (
	uplinkBps    = 200e6
	uplinkBuffer = 250_000
)

// switchFile is a file with the role switch, for the uplink and a device d0. more are further keys.
func (m *machine) switchFile(more string) string {
	return m.header() + "switch:\n  number: 3\n  interval: 5ms\n" + more +
		"  ports:\n    - {port: up0, number: 1, labels: {rack: r1}}\n    - {port: d0, number: 2}\n" +
		fmt.Sprintf("  sources: [{vm: 9, addresses: [%s]}]\n", testnet.GuestIPv4(0))
}

// dummy makes the device d0 with a shaper, or removes it.
func (m *machine) dummy(there bool) {
	m.Host.Must(m.t, func() error {
		if !there {
			l, err := netlink.LinkByName("d0")
			if err != nil {
				return err
			}
			return netlink.LinkDel(l)
		}
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "d0"}, PeerName: "d1"}); err != nil {
			return err
		}
		l, err := netlink.LinkByName("d0")
		if err != nil {
			return err
		}
		return netlink.QdiscAdd(&netlink.Tbf{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: l.Attrs().Index, Parent: netlink.HANDLE_ROOT}, Rate: 1e6, Limit: 50_000, Buffer: 100_000})
	})
}

// ports returns the ports of the newest inventory.
func (m *machine) ports() []*weirv1.SwitchPort {
	return m.newest(func(e *weirv1.Events) bool { return e.GetSwitch() != 0 && e.GetInventory() != nil }).GetInventory().GetPorts()
}

// totals follows a port's telemetry: the newest totals, the largest backlog, and how many messages.
type totals struct {
	last     *weirv1.PortReport
	backlog  uint64
	messages int
	gaps     uint64 // sequence numbers that are missing
	sequence uint64
}

// follow reads what has come of port 1 since the last call.
func (m *machine) follow(f *totals) {
	for {
		agent, t, ok := m.runner.Control().Inbox().Next()
		if !ok {
			return
		}
		if agent != agentName || t.GetSwitch() != 3 {
			m.t.Errorf("%s: %v", agent, t)
		}
		f.messages++
		if n := t.GetOrigin().GetSequence(); f.sequence != 0 {
			f.gaps += n - f.sequence - 1
		}
		f.sequence = t.GetOrigin().GetSequence()
		for _, p := range t.GetPorts() {
			if p.GetPort() == 1 {
				f.last, f.backlog = proto.CloneOf(p), max(f.backlog, p.GetPeakBytes())
			}
		}
	}
}

// A controller sees what a shaped port of the switch queued and sent, as the kernel counts it, and the connections that began
// there. A port that is deleted and made again is reported about again.
func TestTelemetry(t *testing.T) {
	m := newMachine(t, 1, testnet.PathOptions{UplinkBps: uplinkBps, UplinkLimit: uplinkBuffer, GSO: true, ChecksumOffload: true})
	m.dummy(true)
	m.start(m.switchFile("") + strings.TrimPrefix(m.hostFile("", 0), m.header()))
	testnet.Until(t, "the controller knows the ports", func() bool { return len(m.ports()) == 2 })
	want := &weirv1.SwitchPort{Port: 1, Name: "up0", Rate: uplinkBps, BufferBytes: uplinkBuffer, Labels: map[string]string{"rack": "r1"}}
	if got := m.ports()[0]; got.String() != want.String() {
		t.Errorf("inventory: %v, want %v", got, want)
	}
	begin := testnet.Queue(t, m.Uplink)
	s := m.Path(0).NewStreams(t, testnet.PeerIPv4(0), 2)
	var f totals
	testnet.Until(t, "telemetry", func() bool { m.follow(&f); return f.last.GetSentBytes() > 5e6 })
	s.Stop()
	testnet.Quiet(t, m.Uplink)
	sent := testnet.Queue(t, m.Uplink).SentBytes - begin.SentBytes
	testnet.Until(t, "the totals are those of the kernel", func() bool { m.follow(&f); return f.last.GetSentBytes() >= sent })
	if got := f.last.GetSentBytes(); got > sent+sent/20 { // the totals begin a little before begin
		t.Errorf("%d bytes sent, the kernel has %d", got, sent)
	}
	if f.backlog < 20_000 || f.backlog > uplinkBuffer+3000 || f.gaps > m.runner.Control().Inbox().Counts()["replaced"] {
		t.Errorf("%+v %v", f, m.runner.Control().Inbox().Counts())
	}
	e := m.newest(func(e *weirv1.Events) bool { return len(e.GetArrivals()) > 0 })
	if a := e.GetArrivals()[0]; a.GetPort() != 1 || a.GetSyn() != 2 || e.GetSwitch() != 3 {
		t.Errorf("arrivals: %v", e)
	}
	status := m.until("all is well", func(s *agentd.Status) bool { return len(s.Well()) == 0 })
	t.Logf("%+v, %d messages", status.Switch.Counts, f.messages)
	m.dummy(false)
	m.until("the port is gone", func(s *agentd.Status) bool { return s.Switch.Ports[1].Off != "" })
	testnet.Until(t, "the controller knows it", func() bool { return len(m.ports()) == 1 })
	m.dummy(true)
	m.until("the port is back", func(s *agentd.Status) bool { return s.Switch.Ports[1].Off == "" })
	testnet.Until(t, "the controller knows it, too", func() bool { return len(m.ports()) == 2 })
	m.until("readings go on", func(s *agentd.Status) bool { return s.Switch.Counts.Readings > status.Switch.Counts.Readings+10 })
}

// A reload adds, changes and removes ports, and changes T. The totals of the others continue.
func TestReload_Ports(t *testing.T) {
	m := newMachine(t, 1, testnet.PathOptions{UplinkBps: uplinkBps, UplinkLimit: uplinkBuffer, GSO: true, ChecksumOffload: true})
	file := m.switchFile("")
	m.start(strings.ReplaceAll(file, "    - {port: d0, number: 2}\n", ""))
	testnet.Until(t, "the controller knows the port", func() bool { return len(m.ports()) == 1 })
	m.Path(0).NewStreams(t, testnet.PeerIPv4(0), 1)
	var f totals
	testnet.Until(t, "telemetry", func() bool { m.follow(&f); return f.last.GetSentBytes() > 1e6 })
	before := f.last.GetSentBytes()
	if got := m.reload(strings.ReplaceAll(file, "interval: 5ms", "interval: 20ms")); !slices.Equal(got.Changes, []string{"port d0: added", "interval: 5ms became 20ms"}) {
		t.Errorf("%+v", got)
	}
	m.until("d0 is waited for", func(s *agentd.Status) bool { return strings.Contains(s.Switch.Ports[1].Off, "waiting for it") })
	m.dummy(true)
	testnet.Until(t, "the controller knows d0", func() bool { return len(m.ports()) == 2 })
	// d1 has no queue, so this reload is refused. Afterwards the agent still reports arrivals, which the refused file does not ask for.
	refused := strings.ReplaceAll(file, "interval: 5ms", "signals: [marks]")
	refused = strings.Replace(refused, "number: 2}\n", "number: 2}\n    - {port: d1, number: 4}\n", 1)
	if got := m.reload(refused); !strings.Contains(got.Refused, "port d1") {
		t.Errorf("%+v", got)
	}
	arrivals := func(e *weirv1.Events) bool { return len(e.GetArrivals()) > 0 }
	last := m.newest(arrivals).GetOrigin().GetSequence()
	m.Path(0).NewStreams(t, testnet.PeerIPv4(0), 1)
	testnet.Until(t, "a new connection is reported", func() bool { return m.newest(arrivals).GetOrigin().GetSequence() > last })
	if got := m.reload(strings.ReplaceAll(file, "interval: 5ms", "signals: [marks]")); got.Refused != "" {
		t.Errorf("%+v", got)
	}
	testnet.Until(t, "telemetry goes on", func() bool { m.follow(&f); return f.last.GetSentBytes() > before+1e6 })
	if got := m.reload(strings.ReplaceAll(file, "number: 2}", "number: 1}")); !strings.Contains(got.Refused, "the number 1 is there twice") {
		t.Errorf("%+v", got)
	}
}

// Without a bus the agent runs, with what it enforces. It connects again by itself, and reports what it has. Grants that it
// cannot carry out are refused and counted, and so is a device that does not exist.
func TestFailOpen(t *testing.T) {
	m := newMachine(t, 1, testnet.PathOptions{})
	m.stopServer()
	m.start(strings.ReplaceAll(m.hostFile("", 0), "port: up0", "port: up9"))
	m.until("the uplink is waited for", func(s *agentd.Status) bool {
		return !s.Bus.Connected && s.Host.Off == "there is no device up9: waiting for it" && len(s.Well()) == 3
	})
	m.Host.Must(t, func() error {
		l, err := netlink.LinkByName("up0")
		if err != nil {
			return err
		}
		return netlink.LinkSetName(l, "up9")
	})
	m.until("the VM is there", func(s *agentd.Status) bool { return s.Host.VMs[0].Off == "" })
	m.startServer()
	m.stopController()
	m.startController()
	testnet.Until(t, "the controller knows the VM", func() bool { return slices.Equal(m.guests(), []uint32{1}) })
	rate, unknown, owner, silly := window(1, testnet.PeerIPv4(0), 1), window(5, testnet.PeerIPv4(0), 1), window(1, testnet.PeerIPv4(0), 1), window(1, testnet.PeerIPv4(0), 1)
	rate.Kind, rate.Key.Peer = law.RateGrant, addr(nil)
	owner.Owner, silly.Key.Flow.Proto = 200, 17
	testnet.Until(t, "a command is sent", func() bool { return m.command(rate, unknown, owner, silly, window(1, testnet.PeerIPv4(0), 1)) })
	s := m.until("it is obeyed", func(s *agentd.Status) bool { return s.Bus.Commands["obeyed"] > 1 && s.Host.Set == 1 })
	for why, n := range map[string]uint64{"vm": 1, "owner": 1, "no_rate": 1, "key": 1, "full": 0, "off": 0, "lease": 0, "not_set": 0} {
		if s.Host.Refused[why] != n {
			t.Errorf("refused for %s: %d, want %d", why, s.Host.Refused[why], n)
		}
	}
	// An announcement has the grants reported that are live.
	m.keep(window(1, testnet.PeerIPv4(0), 1))
	m.until("a grant is live", func(s *agentd.Status) bool { return s.Host.Live == 1 })
	var seen *weirv1.SeenTerm
	testnet.Until(t, "the controller knows the term", func() bool {
		e := m.newest(func(e *weirv1.Events) bool { return len(e.GetState().GetTerms()) > 0 })
		if e != nil {
			seen = e.GetState().GetTerms()[0]
		}
		return e != nil
	})
	reported := m.newest(func(e *weirv1.Events) bool { return e.GetState() != nil }).GetOrigin().GetSequence()
	announcement := &weirv1.Command{Bucket: seen.GetBucket(), Term: seen.GetTerm(), Controller: seen.GetController(), Sequence: 1 << 40}
	if err := m.runner.Control().Command(agentName, announcement); err != nil {
		t.Fatal(err)
	}
	testnet.Until(t, "the controller knows the grants", func() bool {
		e := m.newest(func(e *weirv1.Events) bool { return len(e.GetState().GetGrants()) > 0 })
		if e == nil || e.GetOrigin().GetSequence() <= reported { // a controller that heard nothing for long may have asked, too
			return false
		}
		g := e.GetState().GetGrants()[0]
		return g.GetGrant().GetValue() == 1 && g.GetTerm() == seen.GetTerm() && g.GetGrant().GetLeaseNs() > 0 && g.GetGrant().GetLeaseNs() <= 1e9
	})
}

// The laws of a file of kind: Switch run in the agent's process, as those of weir switch. A fault of theirs does not end the
// agent.
func TestLawsInTheAgent(t *testing.T) {
	m := newMachine(t, 1, testnet.PathOptions{UplinkBps: uplinkBps, UplinkLimit: uplinkBuffer, GSO: true, ChecksumOffload: true})
	laws := filepath.Join(m.dir, "switch.yaml")
	write := func(text string) {
		if err := os.WriteFile(laws, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const good = "kind: Switch\nversion: 2\nports: [{match: up0}]\nmetrics: {listen: \"\"}\n"
	write(good)
	systemd, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(m.dir, "notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer systemd.Close()
	a := m.start(m.switchFile("  file: "+laws+"\n"), "NOTIFY_SOCKET="+filepath.Join(m.dir, "notify"))
	attached := func() int { return testnet.AttachedTo(t, m.Uplink) }
	m.until("laws and telemetry are attached", func(s *agentd.Status) bool { return attached() == 2 && s.Switch.Laws.Off == "" })
	file := m.switchFile("  file: " + laws + "\n")
	write(good + "enforce: {percent: 50}\n")
	if got := m.reload(file); got.Refused != "" || len(got.Changes) == 0 {
		t.Errorf("%+v", got)
	}
	write(good + "enforce: {percent: 101}\n")
	if got := m.reload(strings.ReplaceAll(file, "interval: 5ms", "interval: 6ms")); !strings.Contains(got.Refused, "switch.yaml:5: enforce.percent") {
		t.Errorf("%+v", got)
	}
	if s := m.status(); time.Duration(s.Switch.Interval) != 5*time.Millisecond {
		t.Errorf("after the refused reload: %+v", s.Switch)
	}
	a.end()
	if n := attached(); n != 0 {
		t.Errorf("%d programs are left", n)
	}
	// The laws report nothing of their own to systemd: it would stop the unit when they end.
	var said []string
	buf := make([]byte, 4096)
	for systemd.SetReadDeadline(time.Now().Add(100*time.Millisecond)) == nil {
		n, err := systemd.Read(buf)
		if err != nil {
			break
		}
		if text, _, _ := strings.Cut(string(buf[:n]), "\n"); text != "WATCHDOG=1" {
			said = append(said, text)
		}
	}
	if want := []string{"READY=1", "RELOADING=1", "READY=1", "RELOADING=1", "READY=1", "STOPPING=1"}; !slices.Equal(said, want) {
		t.Errorf("systemd is notified of %q, want %q", said, want)
	}
}

// A second process takes over: grants and the check of sources continue. On a machine that is so late that a grant expires in between, the
// pair is released, as it must be. Then another process takes over.
func TestTakeOver(t *testing.T) {
	m, a, s, _ := limit(t)
	if err := m.another(); !strings.Contains(err, "is running on /sys/fs/bpf/weir/agent/h7") {
		t.Errorf("a second process: %q", err)
	}
	for try := 1; ; try++ {
		s.Mark()
		begun := time.Now()
		next := m.start(m.hostFile("", 0), overVariable+"=1")
		if err := <-a.done; err != nil {
			t.Errorf("process %d: %v", try, err)
		}
		a.done <- nil
		a = next
		m.until("the next one answers", func(s *agentd.Status) bool { return s.PID == next.cmd.Process.Pid && s.Host.Live == 1 })
		late := time.Since(begun) > host.OwnerLease
		s.Progress(t, 500*1460)
		most := inFlight(t, s.Pair(0), 2000)
		if most <= nearly && s.Stall() <= 300*time.Millisecond {
			return
		}
		t.Logf("process %d: %d bytes in flight, longest stall %v", try+1, most, s.Stall())
		if !late || try == 10 {
			t.Errorf("grants do not continue: late %v", late)
			return
		}
		testnet.Until(t, "the pair is limited again", func() bool { return inFlight(t, s.Pair(0), 1) <= nearly })
	}
}
