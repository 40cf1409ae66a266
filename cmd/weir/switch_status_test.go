package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"weir/agent/switchd"
	"weir/datapath/testnet"
)

// status runs `weir status --json` on the machine and gives its exit code too.
func (m *machine) status() (s switchd.Switch, code int) {
	m.t.Helper()
	p := m.start("weir", "status", "--json", "--name", "default")
	code = p.wait()
	var r switchd.Report
	if err := json.Unmarshal([]byte(p.log.String()), &r); err != nil {
		m.t.Fatalf("%v: %s", err, p.log)
	}
	if len(r.Switches) > 1 {
		m.t.Fatalf("%d switches: %s", len(r.Switches), p.log)
	}
	if len(r.Switches) == 1 {
		s = r.Switches[0]
	}
	return s, code
}

// Status says what holds, by the kernel alone: with a living process and without, with a program of
// somebody else's in front, without the queue, without the device, without anything.
func TestSwitch_Status(t *testing.T) {
	m := newMachine(t)
	if s, code := m.status(); code != exitError || s.Name != "" {
		t.Errorf("nothing pinned: %d, %+v", code, s)
	}
	streams := m.NewStreams(t, testnet.ReceiverIPv4, 4)
	p := m.switchUp("weir")
	m.until(p, "windows are held", m.held)
	streams.Progress(t, 100_000)

	var s switchd.Switch
	var code int
	var out switchd.Port
	m.until(p, "all streams count", func() bool { // one that waits for its retransmission timer does not
		s, code = m.status()
		out = portNamed(&s, "out0")
		return out.Flows == 4
	})
	if code != 0 || s.State != switchd.Enforced || out.State != switchd.Enforced || s.PID != p.cmd.Process.Pid {
		t.Errorf("at work: %d, %+v", code, s)
	}
	if out.GrantBytes == 0 || out.TargetBytes != machineBuffer/5 || out.QueueMax == 0 || out.Data == 0 {
		t.Errorf("4 streams: %+v", out)
	}
	if in := portNamed(&s, "in0"); in.Rewritten == 0 {
		t.Errorf("no acknowledgement was rewritten: %+v", in)
	}
	if out.Rates == nil || out.Rates.Packets == 0 || portNamed(&s, "in0").Rates.Rewritten == 0 || s.RSSBytes == 0 || s.UptimeSeconds == 0 || s.Version == "" {
		t.Errorf("of two readings and of the process: %+v, %+v", s, out.Rates)
	}
	m.attachOthers()
	if s, code = m.status(); code != exitError || portNamed(&s, "out0").Word != "not-first" || !strings.Contains(portNamed(&s, "out0").Reason, "others") {
		t.Errorf("with a program in front: %d, %+v", code, portNamed(&s, "out0"))
	}

	p.kill()
	testnet.Until(t, "windows are let go", m.released)
	streams.Stop()
	testnet.Quiet(t, m.Port)
	s, _ = m.status()
	for _, port := range s.Ports {
		sum := port.Rewritten
		for _, n := range port.Passed {
			sum += n
		}
		if sum != port.Packets || sum == 0 {
			t.Errorf("%s: %d packets, accounted for %d: %v", port.Port, port.Packets, sum, port.Passed)
		}
	}
	if s, code = m.status(); code != exitError || s.State != switchd.Off || s.Word != "released" || !strings.Contains(s.Reason, "no weir switch") || portNamed(&s, "out0").GrantBytes != 0 {
		t.Errorf("killed: %d, %+v", code, s)
	}
	testnet.Shape(t, m.In, 1e9, 1_000_000, 10_000)
	m.Switch.Must(t, func() error {
		return netlink.QdiscDel(&netlink.Tbf{QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: m.In.Ifindex, Parent: netlink.HANDLE_ROOT, Handle: netlink.MakeHandle(1, 0),
		}})
	})
	if s, code = m.status(); code != exitError || !found(portNamed(&s, "in0"), "no-queue", "noqueue") {
		t.Errorf("without a queue: %d, %+v", code, s)
	}
	m.deletePort()
	if s, code = m.status(); code != exitError || portNamed(&s, "out0").State != switchd.Off || !strings.Contains(portNamed(&s, "out0").Reason, "gone") {
		t.Errorf("without a device: %d, %+v", code, s)
	}
	text := m.start("weir", "status")
	text.wait()
	for _, want := range []string{"switch default: off", "PORT", "REWRITTEN/S", "out0: off (no-device): its device is gone", "windows small enough", "to do: "} {
		if !strings.Contains(text.log.String(), want) {
			t.Errorf("the table has no %q:\n%s", want, text.log)
		}
	}
}

// found says whether a port has a finding with this word, whose reason has a text.
func found(p switchd.Port, word, text string) bool {
	return slices.ContainsFunc(p.Findings, func(f switchd.Finding) bool { return f.Word == word && strings.Contains(f.Reason, text) })
}

func portNamed(s *switchd.Switch, name string) switchd.Port {
	for _, p := range s.Ports {
		if p.Port == name {
			return p
		}
	}
	return switchd.Port{}
}
