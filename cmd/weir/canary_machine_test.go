package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/datapath/fairq"
	"weir/datapath/testnet"
	"weir/internal/testroot"
)

// switchFile starts `weir switch -f` with more keys in the file than its ports, and waits until it is attached.
func (m *machine) switchFile(says string) *process {
	m.t.Helper()
	path := filepath.Join(m.t.TempDir(), "switch.yaml")
	writeSwitchFile(m.t, path, says)
	p := m.start("weir", "switch", "-f", path)
	m.until(p, "weir switch is attached to both ports", func() bool {
		s := m.read()
		return s != nil && s.Holder.PID == p.cmd.Process.Pid && s.Alive() && len(s.Ports) == len(ports)
	})
	return p
}

func writeSwitchFile(t *testing.T, path, says string) {
	t.Helper()
	text := "kind: Switch\nversion: 2\nmetrics: {listen: \"\"}\nports: [{match: [out0, in0]}]\n" + says
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// rewrite changes the file that p was started with; it is not read yet.
func (p *process) rewrite(says string) {
	p.t.Helper()
	writeSwitchFile(p.t, p.cmd.Args[len(p.cmd.Args)-1], says)
}

// flows reads the flows of the port by which the data leaves.
func (m *machine) flows() (limited, unlimited []fairq.Flow) {
	m.t.Helper()
	m.Switch.Must(m.t, func() error {
		v, err := fairq.Open(pinDir)
		if err != nil {
			return err
		}
		defer func() { _ = v.Close() }()
		s, err := v.Read()
		if err != nil {
			return err
		}
		for f, err := range v.Flows(portOf(s, "out0").ID) {
			if err != nil {
				return err
			}
			if f.InFlightBytes == 0 {
				continue
			}
			if f.Limited {
				limited = append(limited, f)
			} else {
				unlimited = append(unlimited, f)
			}
		}
		return nil
	})
	return limited, unlimited
}

// noteOf reads the note of the port by which the data leaves.
func (m *machine) noteOf() (text string) {
	m.t.Helper()
	m.Switch.Must(m.t, func() error {
		v, err := fairq.Open(pinDir)
		if err != nil {
			return err
		}
		defer func() { _ = v.Close() }()
		s, err := v.Read()
		if err != nil {
			return err
		}
		text, err = v.Note(portOf(s, "out0").ID)
		return err
	})
	return text
}

// Only the configured share is limited, to windows that leave it a share of a queue that the other flows fill. The
// others are not changed.
func TestCanary_LimitsItsShare(t *testing.T) {
	parallel(t)
	const streams = 32
	for _, row := range []struct{ percent, least, most int }{{10, 0, 12}, {50, 6, 26}} { // four deviations
		t.Run(fmt.Sprintf("%d percent", row.percent), func(t *testing.T) {
			m := newMachine(t)
			p := m.switchFile(fmt.Sprintf("enforce: {percent: %d}\n", row.percent))
			s := m.NewStreams(t, testnet.ReceiverIPv4, streams)
			s.Progress(t, 200_000)
			var limited, unlimited []fairq.Flow
			m.until(p, "all streams have data in flight", func() bool {
				limited, unlimited = m.flows()
				return len(limited)+len(unlimited) == streams
			})
			if len(limited) < row.least || len(limited) > row.most {
				t.Errorf("%d of %d streams are limited", len(limited), streams)
			}
			m.until(p, "an unlimited stream has more in flight than a limited one could", func() bool {
				_, unlimited = m.flows()
				return slices.ContainsFunc(unlimited, func(f fairq.Flow) bool { return f.InFlightBytes > f.GrantedBytes })
			})
			m.until(p, "limited streams keep to their windows", func() bool {
				limited, _ = m.flows()
				for _, f := range limited {
					// The grant changes with the count of flows and the queue: observe for a quarter of a second.
					if f.InFlightBytes > 2*f.GrantedBytes {
						return false
					}
				}
				return true
			})
			var in, out *fairq.Pinned
			m.until(p, "acknowledgements are rewritten", func() bool {
				in = portOf(m.read(), "in0") // read first: both continue to count
				out = portOf(m.read(), "out0")
				return out.GrantBytes > 0 && out.Groups[0].AckedBytes > 0 && (len(limited) == 0 || in.Rewritten > 0 && out.Groups[1].Limited > 0)
			})
			if out.Mode != fairq.EnforcePart || in.Rewritten > out.Groups[1].Acks {
				t.Errorf("%d acknowledgements rewritten, of %d to limited streams: %+v", in.Rewritten, out.Groups[1].Acks, out)
			}
			p.signal(syscall.SIGTERM)
			p.wait()
		})
	}
}

// A port that is not among the ports to enforce on is only observed.
func TestCanary_OtherPortsAreObserved(t *testing.T) {
	parallel(t)
	m := newMachine(t)
	p := m.switchFile("enforce: {ports: [in0], percent: 100}\n")
	s := m.NewStreams(t, testnet.ReceiverIPv4, 4)
	m.until(p, "the streams are counted", func() bool { return portOf(m.read(), "out0").Flows == 4 })
	s.Progress(t, 1_000_000)
	var out, in *fairq.Pinned
	m.until(p, "the expected window is calculated", func() bool {
		k := m.read()
		out, in = portOf(k, "out0"), portOf(k, "in0")
		return out.EquilibriumBytes > 0 && out.Groups[0].Limited > 0
	})
	if out.Mode != fairq.EnforceNone || out.GrantBytes != 0 || in.Mode != fairq.EnforceAll || in.Rewritten != 0 {
		t.Errorf("out0 has mode %s, in0 %s; %d rewritten", out.Mode, in.Mode, in.Rewritten)
	}
}

// starved configures a hundredth of the port's rate: windows are then one segment.
const starved = "defaults: {rate: 1Mbit, buffer: 2KB, rtt: 1us, fairq: {target_fraction: 0.01}}\n"

// A canary with parameters that starve its flows is rolled back with a reason, and stays so until a reload or restart.
func TestCanary_RollsBack(t *testing.T) {
	parallel(t)
	m := newMachine(t)
	p := m.switchFile(starved + "enforce: {percent: 50}\nrollback: {if: [goodput < 0.9], over: 2s}\n")
	s := m.NewStreams(t, testnet.ReceiverIPv4, 32)
	m.until(p, "the canary is rolled back", func() bool { return strings.Contains(p.log.String(), "rolled back") })
	for _, want := range []string{"level=WARN", "port=out0", "percent=50", "goodput < 0.9: it was 0.", "limited flows had", "unlimited flows"} {
		if !strings.Contains(p.log.String(), want) {
			t.Errorf("the log has no %q:\n%s", want, p.log)
		}
	}
	m.until(p, "windows are released", m.released)
	if note := m.noteOf(); !strings.HasPrefix(note, "rolled back: goodput < 0.9: it was 0.") {
		t.Errorf("the kernel's note is %q", note)
	}
	s.Progress(t, 500_000)
	k := m.read()
	if out := portOf(k, "out0"); out.Mode != fairq.EnforceNone || out.GrantBytes != 0 {
		t.Errorf("limited again: %+v", out.Stats)
	}
	t.Log(m.noteOf())
	p.rewrite("enforce: {percent: 40}\nrollback: {if: [goodput < 0.1], over: 2s}\n")
	p.signal(syscall.SIGHUP)
	m.until(p, "a reload enforces again", func() bool { return portOf(m.read(), "out0").Mode == fairq.EnforcePart && m.noteOf() == "" })
	p.signal(syscall.SIGTERM)
	p.wait()
	p = m.switchFile("enforce: {percent: 50}\n")
	m.until(p, "a restart enforces again", func() bool { return portOf(m.read(), "out0").Mode == fairq.EnforcePart })
	if note := m.noteOf(); note != "" {
		t.Errorf("the note is still %q", note)
	}
}

// With all flows limited there is no control group: the time before enforcement is compared.
func TestCanary_RollsBackAllFlows(t *testing.T) {
	parallel(t)
	m := newMachine(t)
	// With a window below a segment Linux hardly sends.
	p := m.switchFile("defaults: {rtt: 1us, fairq: {target_fraction: 0.001, min_window: 500B}}\nrollback: {if: [goodput < 0.9], over: 1s}\n")
	s := m.NewStreams(t, testnet.ReceiverIPv4, 8)
	rolledBack := func() bool { return strings.Contains(p.log.String(), "rolled back") }
	m.until(p, "the port is measured first, and then enforced", func() bool { // or was, while this test waited for a CPU
		return portOf(m.read(), "out0").Mode == fairq.EnforceAll || rolledBack()
	})
	if !strings.Contains(p.log.String(), "measuring first, without limiting anything") {
		t.Errorf("it does not say that it measures first:\n%s", p.log)
	}
	m.until(p, "it is rolled back", rolledBack)
	if note := m.noteOf(); !strings.Contains(note, "before enforcement (all flows are limited)") {
		t.Errorf("the kernel's note is %q", note)
	}
	t.Log(m.noteOf())
	s.Progress(t, 1_000_000)
}

// With correct parameters nothing is rolled back, for any load. Next to unlimited flows that fill the queue a limited
// flow gets somewhat less (docs/observe.md), which is no fault; the rule allows half.
func TestCanary_GoodParametersStay(t *testing.T) {
	parallel(t)
	testroot.Need(t, "makes network namespaces")
	decisions := 0
	for round := range rounds(1, 6) {
		for _, row := range []struct{ flows, percent int }{{8, 50}, {16, 10}, {32, 50}, {16, 100}} {
			t.Run(fmt.Sprintf("%d flows, %d percent, %d", row.flows, row.percent, round), func(t *testing.T) {
				m := newMachine(t)
				// The drops of the whole port are compared with those before: with the same load. Load that begins is TestCanary_LoadBegins.
				s := m.NewStreams(t, testnet.ReceiverIPv4, row.flows)
				s.Progress(t, 5_000_000/int64(row.flows))
				p := m.switchFile(fmt.Sprintf("enforce: {percent: %d}\nrollback: {if: [goodput < 0.5, retransmissions > 2, drops > 1.5], over: 2s}\n", row.percent))
				m.patient(p)
				m.until(p, "it enforces", func() bool { return portOf(m.read(), "out0").Mode != fairq.EnforceNone })
				began := time.Now()
				for range rounds(8, 10) { // 40 MB, which take more than 3 s on the line
					s.Progress(t, 5_000_000/int64(row.flows))
				}
				if note := m.noteOf(); note != "" {
					t.Error(note)
				}
				decisions += int(time.Since(began)/(400*time.Millisecond)) - 5 // the first decision needs five parts
			})
		}
	}
	t.Logf("there was time to judge the rules of a port some %d times", decisions)
	if decisions <= 0 {
		t.Error("the rules were never judged")
	}
}

// Load that begins on an idle port, under correct parameters, breaks no rule: the windows follow the queue that the
// unlimited flows build within the time that the rule needs.
func TestCanary_LoadBegins(t *testing.T) {
	parallel(t)
	m := newMachine(t)
	p := m.switchFile("enforce: {percent: 50}\nrollback: {if: [goodput < 0.5], over: 1s}\n")
	m.patient(p)
	m.until(p, "it enforces", func() bool { return portOf(m.read(), "out0").Mode == fairq.EnforcePart })
	s := m.NewStreams(t, testnet.ReceiverIPv4, 32)
	for range 6 { // 30 MB, which take 2.4 s on the line: judged several times
		s.Progress(t, 5_000_000/32)
	}
	if note := m.noteOf(); note != "" {
		t.Error(note)
	}
}
