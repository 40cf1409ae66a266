package main

import (
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"weir/agent/switchd"
	"weir/datapath/testnet"
	"weir/internal/nic"
)

const (
	tcxNext = -1
	tcxPass = 0 // ends the chain

	seenWithin = 2 * time.Second // limit for reporting a fault, and for reporting that it is gone
)

// ailing is a running machine with a fault, and the observations.
type ailing struct {
	*machine
	t       *testing.T
	p       *process // weir switch
	streams *testnet.Streams
	table   *[]string
}

// attachOther attaches a foreign program to the data's port.
func (m *machine) attachOther(name string, verdict int32, anchor link.Anchor) link.Link {
	m.t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: name, Type: ebpf.SchedCLS, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, verdict), asm.Return()},
	})
	if err != nil {
		m.t.Fatal(err)
	}
	var l link.Link
	m.Switch.Must(m.t, func() (err error) {
		l, err = link.AttachTCX(link.TCXOptions{Interface: m.Port.Ifindex, Program: p, Attach: ebpf.AttachTCXEgress, Anchor: anchor})
		return err
	})
	m.t.Cleanup(func() { _, _ = l.Close(), p.Close() })
	return l
}

// strangers lists the programs at the egress of the switch's devices that are not FairQ's, and all queue disciplines.
func (m *machine) strangers() (out []string) {
	m.t.Helper()
	for _, line := range m.chains() {
		var id uint32
		if i := strings.Index(line, " program "); i > 0 {
			if _, err := fmt.Sscanf(line[i:], " program %d", &id); err != nil {
				m.t.Fatal(err)
			}
			p, err := ebpf.NewProgramFromID(ebpf.ProgramID(id))
			if err != nil {
				continue // removed meanwhile
			}
			info, err := p.Info()
			_ = p.Close()
			if err != nil {
				m.t.Fatal(err)
			}
			if strings.HasPrefix(info.Name, "weir_") {
				continue
			}
		}
		out = append(out, line)
	}
	return out
}

// await repeats `weir status` until it reports this, and returns the report and the time it took.
func (a *ailing) await(what string, from time.Time, says func(s *switchd.Switch, code int) bool) (s switchd.Switch, took time.Duration) {
	a.t.Helper()
	s = a.said(what, says)
	took = time.Since(from)
	limit(a.t, "status says it is "+what, took, seenWithin)
	return s, took
}

// ails waits until status reports this word and reason for the data's port.
func (a *ailing) ails(fault string, from time.Time, state switchd.State, word, reason string) {
	a.t.Helper()
	s, took := a.await(word, from, func(s *switchd.Switch, _ int) bool {
		p := portNamed(s, "out0")
		return p.State == state && p.Word == word && strings.Contains(p.Reason, reason)
	})
	p := portNamed(&s, "out0")
	*a.table = append(*a.table, fmt.Sprintf("%-38s %-8s %-15s %4d ms  %s", fault, p.State, p.Word, took.Milliseconds(), p.Reason))
}

func (a *ailing) isWell(fault string, from time.Time) {
	a.t.Helper()
	_, took := a.await("enforced again", from, func(s *switchd.Switch, code int) bool {
		return code == 0 && portNamed(s, "out0").State == switchd.Enforced
	})
	a.until(a.p, "windows are limited again", a.limited)
	*a.table = append(*a.table, fmt.Sprintf("%-38s %-8s %-15s %4d ms", fault, switchd.Enforced, "", took.Milliseconds()))
}

// faults are injected one at a time into a running machine of their own. Each ends without the fault.
var faults = []struct {
	name   string
	inject func(a *ailing)
}{
	{"queue discipline replaced", func(a *ailing) {
		from := a.replaceQueue("bfifo")
		a.ails("qdisc replaced by bfifo", from, switchd.Degraded, "unknown-rate", `"bfifo"`)
		from = a.replaceQueue("mq")
		a.ails("mq root", from, switchd.Degraded, "no-queue", `"mq"`)
		a.await("released", from, func(s *switchd.Switch, _ int) bool { return portNamed(s, "out0").GrantBytes == 0 })
		from = a.replaceQueue("pfifo_fast")
		a.ails("qdisc replaced by pfifo_fast", from, switchd.Degraded, "no-queue", `"pfifo_fast"`)
		from = time.Now()
		testnet.Shape(a.t, a.Port, machineBps, 2*machineBuffer, 2*1514)
		a.isWell("tbf again, of another size: followed", from)
		a.await("of the new queue", time.Now(), func(s *switchd.Switch, _ int) bool { return portNamed(s, "out0").TargetBytes == 2*machineBuffer/5 })
		testnet.Shape(a.t, a.Port, machineBps, machineBuffer, 2*1514)
	}},
	{"program detached", func(a *ailing) {
		a.detach()
	}},
	{"another program in front ends the chain", func(a *ailing) {
		from := time.Now()
		front := a.attachOther("greedy", tcxPass, link.Head())
		a.ails("a program in front ends the chain", from, switchd.Degraded, "not-reached", "greedy")
		a.await("with a program in front", time.Now(), func(s *switchd.Switch, code int) bool {
			return code == exitError && found(portNamed(s, "out0"), "not-first", "greedy")
		})
		from = time.Now()
		if err := front.Close(); err != nil {
			a.t.Fatal(err)
		}
		a.isWell("that program taken away", from)
	}},
	{"user space killed", func(a *ailing) {
		from := time.Now()
		a.p.kill()
		a.ails("user space killed", from, switchd.Off, "released", "no weir switch")
		from = time.Now()
		a.p = a.switchUp("weir")
		a.isWell("started again", from)
	}},
	{"port down and up", func(a *ailing) {
		from := a.setPort(false)
		a.ails("port down", from, switchd.Off, "down", "the port is down")
		a.await("well: a port that is down is no fault of the switch", time.Now(), func(s *switchd.Switch, code int) bool { return code == 0 && s.State == switchd.Enforced })
		from = a.setPort(true)
		a.isWell("port up", from)
	}},
	{"port deleted and made again", func(a *ailing) {
		from := time.Now()
		a.deletePort()
		a.ails("port deleted", from, switchd.Off, "no-device", "its device is gone")
		from = time.Now()
		a.Port.Ifindex = a.makePort()
		a.isWell("port made again", from)
	}},
	{"offloads changed", func(a *ailing) {
		from := a.setFeatures(map[string]bool{"tx-generic-segmentation": true, "rx-gro": true, "tx-checksum-ip-generic": true, "tx-tcp-segmentation": true})
		a.isWell("TSO, GSO, GRO, checksums on: nothing hidden", from)
		from = a.setFeatures(map[string]bool{"rx-gro-list": true})
		a.ails("rx-gro-list on", from, switchd.Degraded, "hidden-segments", "rx-gro-list")
		from = a.setFeatures(map[string]bool{"rx-gro-list": false})
		a.isWell("rx-gro-list off", from)
	}},
	{"heartbeat stale", func(a *ailing) {
		from := time.Now()
		a.p.signal(syscall.SIGSTOP)
		a.ails("heartbeat stale", from, switchd.Degraded, "stale-heartbeat", "sent no heartbeat")
		_, _ = a.await("released", from, func(s *switchd.Switch, code int) bool {
			p := portNamed(s, "out0")
			return code == exitError && p.GrantBytes == 0 && strings.Contains(p.Reason, "it is stopped, windows are not limited")
		})
		from = time.Now()
		a.p.signal(syscall.SIGCONT)
		a.isWell("it goes on", from)
	}},
}

// With each fault status reports the right word and reason, and none without it. Programs and queue disciplines of
// others stay unchanged.
func TestSwitch_StatusUnderFaults(t *testing.T) {
	parallel(t)
	var table []string
	for _, f := range faults {
		t.Run(strings.ReplaceAll(f.name, " ", "_"), func(t *testing.T) {
			m := newMachine(t)
			m.bridgeReceiver()
			m.deletePort()
			m.Port.Ifindex = m.makePort()
			m.attachOther("theirs", tcxNext, link.Tail())
			a := &ailing{machine: m, t: t, streams: m.NewStreams(t, testnet.ReceiverIPv4, 4), table: &table}
			a.p = m.switchUp("weir")
			m.until(a.p, "windows are limited", m.limited)
			a.await("enforced", time.Now(), func(s *switchd.Switch, code int) bool { return code == 0 && s.State == switchd.Enforced })
			before := m.strangers()
			f.inject(a)
			a.streams.Progress(t, 100_000)
			if strings.Contains(f.name, "deleted") {
				return // with all that others had attached
			}
			if now := m.strangers(); !slices.Equal(now, before) {
				t.Errorf("others' programs and queues changed:\n%s", difference(before, now))
			}
		})
	}
	t.Logf("fault, and what status says after how long:\n%s", strings.Join(table, "\n"))
}

// replaceQueue replaces the root queue discipline of the data's port.
func (a *ailing) replaceQueue(kind string) time.Time {
	a.t.Helper()
	from := time.Now()
	a.Switch.Must(a.t, func() error {
		return netlink.QdiscReplace(&netlink.GenericQdisc{
			QdiscAttrs: netlink.QdiscAttrs{LinkIndex: a.Port.Ifindex, Parent: netlink.HANDLE_ROOT}, QdiscType: kind,
		})
	})
	return from
}

// detach detaches FairQ's program from the data's port. weir switch is stopped meanwhile, because it would attach it
// again before status can see it.
func (a *ailing) detach() {
	a.t.Helper()
	s, _ := a.status()
	l, err := link.NewFromID(link.ID(portNamed(&s, "out0").LinkID))
	if err != nil {
		a.t.Fatal(err)
	}
	a.p.signal(syscall.SIGSTOP)
	from := time.Now()
	err = l.Detach()
	_ = l.Close()
	if err != nil {
		a.t.Fatal(err)
	}
	a.ails("program detached", from, switchd.Off, "detached", "detached by somebody else")
	from = time.Now()
	a.p.signal(syscall.SIGCONT)
	a.isWell("attached again by weir switch", from)
}

// setPort sets the data's port down or up.
func (a *ailing) setPort(up bool) time.Time {
	a.t.Helper()
	from := time.Now()
	a.Switch.Must(a.t, func() error {
		l, err := netlink.LinkByIndex(a.Port.Ifindex)
		if err != nil {
			return err
		}
		if up {
			return netlink.LinkSetUp(l)
		}
		return netlink.LinkSetDown(l)
	})
	return from
}

// setFeatures changes offloads of the data's port.
func (a *ailing) setFeatures(features map[string]bool) time.Time {
	a.t.Helper()
	from := time.Now()
	a.Switch.Must(a.t, func() error {
		e, err := nic.Open()
		if err != nil {
			return err
		}
		defer e.Close()
		return e.Change("out0", features)
	})
	return from
}

// Without a fault status never reports one, while traffic begins, ends, fills queues and is dropped. A late heartbeat
// is no false alarm: this traffic uses all CPUs of a small machine, and the process must wait. A soak has a machine of
// its own.
func TestSwitch_StatusHasNoFalseAlarms(t *testing.T) {
	m := newMachine(t)
	m.switchUp("weir")
	stop, done := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(stop); <-done })
	l := m.Listen(t, testnet.ReceiverIPv4)
	go func() { // read from every client
		for {
			c, err := l.AcceptTCP()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(io.Discard, c); _ = c.Close() }()
		}
	}()
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			_ = m.Sender.Enter(func() error { // bursts of connections of 1 KB to 4 MB
				c, err := net.DialTimeout("tcp4", l.Addr().String(), time.Second)
				if err == nil {
					go func() { _, _ = c.Write(make([]byte, 1000<<(i%13))); _ = c.Close() }()
				}
				return nil
			})
		}
	}()
	var opened, drops uint64
	late := 0
	for round := 0; round < rounds(10, 200) || opened < 100; round++ { // with traffic even on a slow machine
		s, code := m.status()
		out, in := portNamed(&s, "out0"), portNamed(&s, "in0")
		findings := slices.Concat(out.Findings, in.Findings)
		others := slices.DeleteFunc(slices.Clone(findings), func(f switchd.Finding) bool { return f.Word == "stale-heartbeat" && !*soak })
		if len(findings) > len(others) {
			late++
		} else if code != 0 {
			t.Errorf("without a fault: %d, %s", code, s.Reason)
		}
		if len(others) > 0 {
			t.Errorf("without a fault: %+v", others)
		}
		if opened, drops = in.Opened+out.Opened, out.QueueDrops; round == 2000 {
			t.Fatalf("only %d connections were opened: that is no traffic", opened)
		}
	}
	t.Logf("%d connections, %d drops; the heartbeat was late %d times", opened, drops, late)
}

// A switch that manages only the port of the data reports it: no acknowledgement passes FairQ.
func TestSwitch_StatusOfOnePort(t *testing.T) {
	parallel(t)
	m := newMachine(t)
	m.NewStreams(t, testnet.ReceiverIPv4, 4)
	p := m.start("weir", "switch", "out0")
	m.until(p, "it is attached", func() bool { s := m.read(); return s != nil && len(s.Ports) == 1 })
	a := &ailing{machine: m, t: t, p: p, table: &[]string{}}
	a.ails("one port", time.Now(), switchd.Degraded, "one-sided", "the data of 4 flows leaves here, and its acknowledgements pass no")
}
