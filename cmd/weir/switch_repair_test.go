package main

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"

	"weir/agent/switchd"
	"weir/cmd/weir/laws"
	"weir/datapath/testnet"
)

const repairing = "kind: Switch\nversion: 2\nmetrics: {listen: \"127.0.0.1:0\"}\nports: [{match: [out0, in0], lossrepair: {park: 100KB}}]\n"

// repairer is a machine whose switch repairs losses.
type repairer struct {
	*configured
	status switchd.Switch // at the last reading
}

// up starts `weir switch` from the file and waits until it repairs.
func (r *repairer) up(args ...string) {
	r.t.Helper()
	r.p = r.start("weir", append([]string{"switch", "-f", r.path}, args...)...)
	r.until(r.p, "losses are repaired at both ports", func() bool {
		return strings.Contains(r.p.log.String(), "begun") && r.read() && r.status.PID == r.p.cmd.Process.Pid && r.status.State == switchd.Enforced && len(r.status.Ports) == 2
	})
}

// read reads the state of the law, and reports whether there is one.
func (r *repairer) read() bool {
	r.t.Helper()
	found := false
	r.Switch.Must(r.t, func() error {
		report, err := laws.Switch().Status("default")
		if err != nil || len(report.Switches) == 0 {
			return err
		}
		r.status, found = report.Switches[0], report.Switches[0].Law == "lossrepair"
		return nil
	})
	return found
}

// out is the port that data leaves by.
func (r *repairer) out() *switchd.Port {
	if p := portNamed(&r.status, "out0"); p.Repairs != nil {
		return &p
	}
	return &switchd.Port{Repairs: &switchd.Repairs{}}
}

// repairs waits until more packets have been repaired.
func (r *repairer) repairs(what string) {
	r.t.Helper()
	r.read()
	before := r.out().Repairs.Repaired
	r.until(r.p, what, func() bool { return r.read() && r.out().Repairs.Repaired > before })
}

// waits returns the device of the parking, 0 if there is none.
func (r *repairer) waits() (ifindex int) {
	r.t.Helper()
	r.Switch.Must(r.t, func() error {
		l, err := netlink.LinkByName("weir-repair0")
		if errors.As(err, new(netlink.LinkNotFoundError)) {
			return nil
		}
		if err == nil {
			ifindex = l.Attrs().Index
		}
		return err
	})
	return ifindex
}

// A switch repairs losses of real connections. A reload changes how much waits; a kill has packets pass; the next start, and a process
// that takes over, continue at the same link; the end and a purge leave nothing.
func TestSwitchRepair_LifeCycle(t *testing.T) {
	parallel(t)
	m := newMachine(t)
	r := &repairer{configured: &configured{machine: m, path: t.TempDir() + "/switch.yaml"}}
	m.loopback()
	chains := m.chains()
	r.write(repairing)
	r.up()
	streams := m.NewStreams(t, testnet.ReceiverIPv4, 8)
	r.repairs("cubic overflows the queue, and packets come back")
	link, parking := r.out().LinkID, r.waits()
	if p := r.status.Parking; parking == 0 || p == nil || !p.Present || r.out().Repairs.MostBytes != 100_000 || r.out().Repairs.Refused != 0 {
		t.Errorf("%+v, %+v", p, r.out().Repairs)
	}
	for _, line := range []string{"weir_switch_port_repaired_packets_total{port=\"out0\"", "weir_switch_parking_present{switch=\"default\"} 1"} {
		if _, body := m.get(m.servedAt(r.p), "/metrics"); !strings.Contains(body, line) {
			t.Errorf("metrics without %s", line)
		}
	}
	if says := r.applied(strings.Replace(repairing, "100KB", "60KB", 1)); !strings.Contains(says, "port out0: keeps 60KB") {
		t.Errorf("reload: %s", says)
	}
	r.repairs("repaired with another limit")
	if r.out().Repairs.MostBytes != 60_000 {
		t.Errorf("%+v", r.out().Repairs)
	}
	refused(t, r)
	r.write(repairing)

	r.p.kill()
	testnet.Until(t, "its lease is over", func() bool { return r.read() && r.out().Word == "released" })
	before := *r.out()
	streams.Progress(t, 1_000_000)
	if r.read(); r.out().Repairs.Over != before.Repairs.Over || r.out().Packets == before.Packets || r.waits() != parking {
		t.Errorf("without a process: %+v, then %+v; device %d became %d", before, r.out(), parking, r.waits())
	}
	r.up()
	r.repairs("repaired again after a kill")
	m.Switch.Must(t, func() error {
		l, err := netlink.LinkByName("weir-repair0")
		if err != nil {
			return err
		}
		return netlink.LinkDel(l)
	})
	r.until(r.p, "the parking is made again", func() bool { return r.read() && r.waits() != 0 && r.status.Parking != nil && r.status.Parking.Present })
	was := r.p
	r.up("--take-over")
	if code := was.wait(); code != 0 || r.out().LinkID != link {
		t.Errorf("taken over: %d, link %d became %d", code, link, r.out().LinkID)
	}
	r.repairs("repaired by the process that took over")
	r.p.signal(syscall.SIGTERM)
	if code := r.p.wait(); code != 0 || r.waits() != 0 {
		t.Errorf("ended with %d, device %d", code, r.waits())
	}
	r.up()
	r.p.kill()
	if code := m.start("weir", "switch", "--purge").wait(); code != 0 || r.waits() != 0 || len(m.pins()) != 0 {
		t.Errorf("purge ends with %d, device %d, pins %v", code, r.waits(), m.pins())
	}
	if now := m.chains(); difference(chains, now) != "" {
		t.Errorf("programs and queues of the ports:\n%s", difference(chains, now))
	}
	streams.Progress(t, 1_000_000)
}

// The tables that a switch left when it ran another law are no part of its state, as long as it runs.
func TestSwitchRepair_AfterFairQ(t *testing.T) {
	parallel(t)
	m := newMachine(t)
	p := m.switchUp("weir")
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		t.Fatalf("ended with %d", code)
	}
	if s, code := m.status(); code == 0 || s.Word != "stopped" {
		t.Errorf("stopped: %d, %+v", code, s)
	}
	r := &repairer{configured: &configured{machine: m, path: t.TempDir() + "/switch.yaml"}}
	r.write(repairing)
	r.p = r.start("weir", "switch", "-f", r.path)
	r.until(r.p, "it repairs losses", func() bool { return strings.Contains(r.p.log.String(), "begun") })
	m.Switch.Must(t, func() error {
		report, err := laws.Switch().Status("default")
		if err != nil {
			return err
		}
		if len(report.Switches) != 1 || report.Switches[0].Law != "lossrepair" || !report.Enforced() {
			t.Errorf("with another law: %+v", report.Switches)
		}
		return nil
	})
}

// refused checks what cannot share a port: FairQ of another switch, and FairQ in the same file. Both laws are named.
func refused(t *testing.T, r *repairer) {
	t.Helper()
	p := r.start("weir", "switch", "out0", "--name", "other")
	if code := p.wait(); code == 0 || !strings.Contains(p.log.String(), "already runs loss repair here") {
		t.Errorf("FairQ at the same port: %d, %s", code, p.log)
	}
	code, says := r.reload(repairing + "fairq: {}\n")
	if code == 0 || !strings.Contains(says, "laws fairq and lossrepair cannot run at one place: both claim the first place at a port") {
		t.Errorf("both laws: %d, %s", code, says)
	}
	for text, want := range map[string]string{
		"enforce: {percent: 10}\n":                "lossrepair acts on all packets of a port",
		"rollback: {if: [drops > 2]}\n":           "lossrepair counts no flows",
		"scope: [10.0.0.0/8]\n":                   "lossrepair acts on all packets of a port",
		"defaults: {lossrepair: {park: 100MB}}\n": "park: at most",
	} {
		if code, says := r.reload(repairing + text); code == 0 || !strings.Contains(says, want) {
			t.Errorf("%s: %d, %s", text, code, says)
		}
	}
}
