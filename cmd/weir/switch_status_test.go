package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"weir/agent/switchd"
	"weir/datapath/testnet"
)

// status runs `weir status --json` on the machine and returns its exit code, too.
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

// said repeats `weir status` until it reports this, and returns the report and the time it took.
func (m *machine) said(what string, says func(s *switchd.Switch, code int) bool) switchd.Switch {
	m.t.Helper()
	for began := time.Now(); ; {
		s, code := m.status()
		if says(&s, code) {
			return s
		}
		if time.Since(began) > time.Minute {
			m.t.Fatalf("status does not say that it is %s: %d, %+v", what, code, s)
		}
	}
}

// Status reports the state from the kernel alone: with and without a running process, with a foreign program in front,
// without the queue, without the device, without anything.
func TestSwitch_Status(t *testing.T) {
	parallel(t)
	m := newMachine(t)
	if s, code := m.status(); code != exitError || s.Name != "" {
		t.Errorf("nothing pinned: %d, %+v", code, s)
	}
	streams := m.NewStreams(t, testnet.ReceiverIPv4, 4)
	p := m.switchUp("weir")
	m.until(p, "windows are limited", m.limited)
	streams.Progress(t, 100_000)

	// A stream that waits for its retransmission timer does not count, and does not progress in every 200 ms. On a busy
	// machine a heartbeat may be late.
	s := m.said("at work, with 4 streams", func(s *switchd.Switch, code int) bool {
		out, in := portNamed(s, "out0"), portNamed(s, "in0")
		return code == 0 && s.State == switchd.Enforced && out.State == switchd.Enforced && out.Flows == 4 && out.GrantBytes > 0 &&
			out.Rates != nil && out.Rates.Packets > 0 && in.Rates != nil && in.Rates.Rewritten > 0
	})
	if out := portNamed(&s, "out0"); out.TargetBytes != machineBuffer/5 || out.QueueMax == 0 || out.Data == 0 {
		t.Errorf("4 streams: %+v", out)
	}
	if s.PID != p.cmd.Process.Pid || s.RSSBytes == 0 || s.UptimeSeconds == 0 || s.Version == "" || portNamed(&s, "in0").Rewritten == 0 {
		t.Errorf("of the process: %+v", s)
	}
	m.attachOthers()
	m.said("with a program in front", func(s *switchd.Switch, code int) bool {
		out := portNamed(s, "out0")
		return code == exitError && out.Word == "not-first" && strings.Contains(out.Reason, "others")
	})

	p.kill()
	testnet.Until(t, "windows are released", m.released)
	streams.Stop()
	testnet.Quiet(t, m.Port)
	m.said("at rest, each packet accounted for", func(s *switchd.Switch, _ int) bool {
		return len(s.Ports) == len(ports) && !slices.ContainsFunc(s.Ports, func(port switchd.Port) bool {
			sum := port.Rewritten
			for _, n := range port.Passed {
				sum += n
			}
			return sum != port.Packets || sum == 0
		})
	})
	m.said("killed", func(s *switchd.Switch, code int) bool {
		return code == exitError && s.State == switchd.Off && s.Word == "released" && strings.Contains(s.Reason, "no weir switch") && portNamed(s, "out0").GrantBytes == 0
	})
	testnet.Shape(t, m.In, 1e9, 1_000_000, 10_000)
	m.Switch.Must(t, func() error {
		return netlink.QdiscDel(&netlink.Tbf{QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: m.In.Ifindex, Parent: netlink.HANDLE_ROOT, Handle: netlink.MakeHandle(1, 0),
		}})
	})
	if s, code := m.status(); code != exitError || !found(portNamed(&s, "in0"), "no-queue", "noqueue") {
		t.Errorf("without a queue: %d, %+v", code, s)
	}
	m.deletePort()
	if s, code := m.status(); code != exitError || portNamed(&s, "out0").State != switchd.Off || !strings.Contains(portNamed(&s, "out0").Reason, "gone") {
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

// found reports whether a port has a finding with this word and text.
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
