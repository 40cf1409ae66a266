package agentd_test

import (
	"encoding/binary"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/agent/agentd"
	"weir/agent/switchd"
	"weir/agent/switchd/fairq"
	"weir/bus/weirv1"
	"weir/datapath/testnet"
)

// fairqPlan is a plan with fairq at the ports. Without ports it is empty.
func fairqPlan(t *testing.T, params string, percent uint32, ports ...uint32) *weirv1.PortPlan {
	t.Helper()
	return lawPlan(t, "fairq", params, percent, ports...)
}

func lawPlan(t *testing.T, law, params string, percent uint32, ports ...uint32) *weirv1.PortPlan {
	t.Helper()
	p := &weirv1.PortPlan{}
	for _, n := range ports {
		p.Settings = []*weirv1.LawSetting{{Law: law, Params: []byte(params), Percent: percent}}
		p.Ports = append(p.Ports, &weirv1.PlannedPort{Port: n, Settings: []uint32{0}})
	}
	if err := p.Number(); err != nil {
		t.Fatal(err)
	}
	return p
}

// send sends a plan until the agent reports about it, and returns the report.
func (m *machine) send(p *weirv1.PortPlan) (state *weirv1.PlanState) {
	m.t.Helper()
	testnet.Until(m.t, "the agent reports about the plan", func() bool {
		state = m.planState()
		if state.GetSerial() == p.GetSerial() {
			return true
		}
		m.mu.Lock()
		origin := m.origin
		m.mu.Unlock()
		if origin != nil {
			_ = m.runner.Plan(agentName, origin, p, nil) // sent again
		}
		return false
	})
	return state
}

func (m *machine) planState() *weirv1.PlanState {
	return m.newest(func(e *weirv1.Events) bool { return e.GetState().GetPlan() != nil }).GetState().GetPlan()
}

// reports waits until the agent reports that the plan holds at all ports.
func (m *machine) reports(what string) {
	m.t.Helper()
	testnet.Until(m.t, what, func() bool {
		s := m.planState()
		return s.GetProblem() == "" && len(s.GetPorts()) == 0
	})
}

// enforces waits until the kernel limits this share of the flows of the uplink.
func (m *machine) enforces(want string) {
	m.t.Helper()
	laws := switchd.New(fairq.Law{})
	got := ""
	testnet.Until(m.t, "the kernel limits "+want, func() bool {
		m.Host.Must(m.t, func() error {
			r, err := laws.Status(agentName)
			if err == nil && len(r.Switches) == 1 && len(r.Switches[0].Ports) == 1 {
				got = r.Switches[0].Ports[0].Enforce
			}
			return nil // not attached yet
		})
		return got == want
	})
}

// numbered sends numbered UDP packets in both directions between the guest and the peer. stop ends it when there were enough of them to
// show a loss, and returns how many were sent and how many of them came.
func (m *machine) numbered() (stop func() (sent, came uint64)) {
	m.t.Helper()
	socket := func(ns *testnet.Namespace, ip net.IP) (c *net.UDPConn) {
		ns.Must(m.t, func() (err error) {
			c, err = net.ListenUDP("udp4", &net.UDPAddr{IP: ip, Port: 7777})
			return err
		})
		return c
	}
	a, b := socket(m.Guests[0], testnet.GuestIPv4(0)), socket(m.Peer, testnet.PeerIPv4(0))
	type count struct {
		sent, came uint64
		ended      chan struct{}
	}
	counts := [2]count{{ended: make(chan struct{})}, {ended: make(chan struct{})}}
	var number atomic.Uint64
	end := make(chan struct{})
	for i, c := range []struct{ from, to *net.UDPConn }{{a, b}, {b, a}} {
		of, sent := &counts[i], make(chan uint64, 1)
		go send(m.t, c.from, c.to.LocalAddr(), &number, end, sent)
		go func() {
			defer close(of.ended)
			of.sent, of.came = receive(m.t, c.to, sent)
		}()
	}
	return func() (sent, came uint64) {
		m.t.Helper()
		testnet.Until(m.t, "500 packets were sent", func() bool { return number.Load() >= 500 })
		close(end)
		for i := range counts {
			<-counts[i].ended
			sent, came = sent+counts[i].sent, came+counts[i].came
		}
		_, _ = a.Close(), b.Close()
		return sent, came
	}
}

// send sends packets with the numbers from 1, one each millisecond, until end, and counts them in all. Then it says how many there were,
// and sends number 0.
func send(t testing.TB, c *net.UDPConn, to net.Addr, all *atomic.Uint64, end <-chan struct{}, sent chan<- uint64) {
	every := time.NewTicker(time.Millisecond)
	defer every.Stop()
	number := func(n uint64) {
		if _, err := c.WriteTo(binary.BigEndian.AppendUint64(nil, n), to); err != nil {
			t.Error(err)
		}
	}
	for n := uint64(0); ; {
		select {
		case <-end:
			sent <- n
			number(0)
			return
		case <-every.C:
		}
		n++
		number(n)
		all.Add(1)
	}
}

// receive counts the numbers that come, until all have come, or none for twenty seconds after the end.
func receive(t testing.TB, c *net.UDPConn, ended <-chan uint64) (sent, came uint64) {
	seen := map[uint64]bool{}
	buf := make([]byte, 64)
	_ = c.SetReadDeadline(time.Now().Add(time.Hour)) // fails only for a closed socket
	for sent == 0 || uint64(len(seen)) < sent {
		n, err := c.Read(buf)
		if err != nil || n != 8 {
			if sent == 0 {
				t.Errorf("%d bytes, %v", n, err)
			}
			break
		}
		if number := binary.BigEndian.Uint64(buf); number > 0 {
			seen[number] = true
		} else {
			sent = <-ended
		}
		if sent > 0 {
			_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
		}
	}
	return sent, uint64(len(seen))
}

// The laws of ports come from the controller: they begin, change and end while packets pass, and none is lost. They stay when the controller is
// away, and when the agent restarts meanwhile. A plan that cannot run leaves the one before in force.
func TestLawsByPolicy(t *testing.T) {
	m := newMachine(t, 1, testnet.PathOptions{UplinkBps: uplinkBps, UplinkLimit: uplinkBuffer, GSO: true, ChecksumOffload: true})
	file := m.switchFile("  laws: policy\n")
	a := m.start(file)
	attached := func(n int) {
		t.Helper()
		testnet.Until(t, "the number of programs", func() bool { return testnet.AttachedTo(t, m.Uplink) == n })
	}
	attached(1) // telemetry alone
	m.until("it waits for policies", func(s *agentd.Status) bool { return s.Switch.Laws.Off == "no policy has a law for its ports" })
	testnet.Until(t, "the controller knows the laws of the agent", func() bool {
		e := m.newest(func(e *weirv1.Events) bool { return e.GetSwitch() != 0 && e.GetInventory() != nil })
		return strings.Join(e.GetInventory().GetLaws(), " ") == "ecn fairq lossrepair"
	})
	stop := m.numbered()
	if s := m.send(fairqPlan(t, `{}`, 100, 1)); s.GetProblem() != "" {
		t.Fatal(s)
	}
	attached(2)
	m.enforces("all")
	m.reports("the law holds")
	m.send(fairqPlan(t, `{"target_fraction":0.3}`, 10, 1))
	m.enforces("part")
	m.reports("the canary holds")
	if s := m.send(fairqPlan(t, `{"interval":"1us"}`, 100, 1)); len(s.GetPorts()) != 1 || !s.GetPorts()[0].GetOff() || !strings.Contains(s.GetPorts()[0].GetReason(), "interval") {
		t.Errorf("parameters that the switch refuses: %v", s)
	}
	attached(1)
	m.send(fairqPlan(t, `{"target_fraction":0.3}`, 10, 1))
	m.enforces("part")
	m.stopController()
	next := m.start(file, overVariable+"=1")
	if err := <-a.done; err != nil {
		t.Errorf("the first process: %v", err)
	}
	a.done <- nil
	m.until("the second answers", func(s *agentd.Status) bool { return s.PID == next.cmd.Process.Pid && s.Switch.Laws.Off == "" })
	attached(2) // without a controller
	next.kill()
	m.start(file)
	m.until("the third answers", func(s *agentd.Status) bool { return s.PID != next.cmd.Process.Pid && s.Switch.Laws.Off == "" })
	attached(2)
	m.enforces("part")
	m.startController()
	m.send(fairqPlan(t, `{"target_fraction":0.3}`, 0, 1))
	m.enforces("none")
	m.reports("observing is what was asked for")
	m.send(lawPlan(t, "lossrepair", `{}`, 100, 1))
	m.reports("another law holds")
	attached(2)
	m.until("the switch has that law", func(s *agentd.Status) bool { return s.Switch.Laws.Off == "" })
	m.send(fairqPlan(t, `{}`, 100, 1))
	m.reports("the first one holds again")
	m.enforces("all")
	m.send(fairqPlan(t, "", 0))
	attached(1)
	sent, came := stop()
	if lost := sent - came; lost > 0 {
		t.Errorf("%d of %d packets were lost", lost, sent)
	}
	refused := fairqPlan(t, `{}`, 100, 1)
	m.mu.Lock()
	stale := &weirv1.Origin{Incarnation: m.origin.GetIncarnation() + 1, StampNs: m.origin.GetStampNs()}
	m.mu.Unlock()
	before := m.status().Bus.Commands["incarnation"]
	if err := m.runner.Plan(agentName, stale, refused, nil); err != nil {
		t.Fatal(err)
	}
	m.until("a plan for another run of the agent is refused", func(s *agentd.Status) bool {
		return s.Bus.Commands["incarnation"] > before || s.Bus.Commands["obeyed"] == 0
	})
	m.mu.Lock()
	now := m.origin
	m.mu.Unlock()
	seen := m.newest(func(e *weirv1.Events) bool { return len(e.GetState().GetTerms()) > 0 }).GetState().GetTerms()[0]
	if err := m.runner.Control().Command(agentName, &weirv1.Command{
		Bucket: seen.GetBucket(), Term: seen.GetTerm() - 1, Controller: seen.GetController(), Sequence: 1 << 40,
		Incarnation: now.GetIncarnation(), EchoNs: now.GetStampNs(), Plan: refused,
	}); err != nil {
		t.Fatal(err)
	}
	m.until("a plan of a former term is refused", func(s *agentd.Status) bool { return s.Bus.Commands["stale_term"] > 0 })
	if m.planState().GetSerial() == refused.GetSerial() {
		t.Error("the plan was obeyed")
	}
}

// The inventory says what the operator configured of the machine.
func TestInventory_OfTheMachine(t *testing.T) {
	m := newMachine(t, 1, testnet.PathOptions{})
	host := strings.Replace(m.hostFile(", rate: 1Gbit", 0), "number: 7", "number: 7\n  labels: {rack: r1}\n  switches: [tor1, tor2]", 1)
	m.start(host + "switch:\n  number: 3\n  ports: [{port: up0, number: 1, rate: 2Gbit, buffer: 1MB, peer: h9}]\n")
	testnet.Until(t, "the host", func() bool {
		e := m.newest(func(e *weirv1.Events) bool { return e.GetHost() != 0 && e.GetInventory() != nil })
		h := e.GetInventory().GetHypervisor()
		return h.GetRate() == 1e9 && h.GetLabels()["rack"] == "r1" && slices.Equal(h.GetSwitches(), []string{"tor1", "tor2"})
	})
	testnet.Until(t, "the port", func() bool {
		p := m.ports()
		return len(p) == 1 && p[0].GetRate() == 2e9 && p[0].GetBufferBytes() == 1e6 && p[0].GetPeer() == "h9"
	})
}
