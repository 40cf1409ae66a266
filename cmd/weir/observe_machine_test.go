package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"weir/agent/switchd"
	"weir/datapath/testnet"
)

// observe runs `weir observe --json` on the machine's switch.
func (m *machine) observe(args ...string) *switchd.Observation {
	m.t.Helper()
	p := m.start("weir", append([]string{"observe", "--json"}, args...)...)
	if code := p.wait(); code != 0 {
		m.t.Fatalf("weir observe %v ends with %d:\n%s", args, code, p.log)
	}
	o := &switchd.Observation{}
	if err := json.Unmarshal([]byte(p.log.String()), o); err != nil {
		m.t.Fatalf("%v: %s", err, p.log)
	}
	return o
}

func observedNamed(o *switchd.Observation, name string) *switchd.ObservedPort {
	for i := range o.Ports {
		if o.Ports[i].Port == name {
			return &o.Ports[i]
		}
	}
	return &switchd.ObservedPort{}
}

// Observing a port changes nothing: drop-tail continues as before, and nothing is left behind.
func TestObserve_LeavesNothing(t *testing.T) {
	parallel(t)
	m := newMachine(t)
	streams := m.NewStreams(t, testnet.ReceiverIPv4, 4)
	streams.Progress(t, 1_000_000)
	chains := m.chains()
	// A stream that waits for its retransmission timer all the time is not seen, and a busy machine without running
	// senders fills no buffer.
	var o *switchd.Observation
	var out *switchd.ObservedPort
	testnet.Until(t, "four streams of cubic fill the buffer, each with more than its share", func() bool {
		o = m.observe("out0", "in0", "--for", "2s")
		out = observedNamed(o, "out0")
		return out.Now.P99Bytes >= machineBuffer/2 && out.Limited == 4 && out.FlowsSeen == 4 && observedNamed(o, "in0").OtherPercent <= 5
	})
	if o.Along != "" || out.FormerEnforce != "none" || o.Seconds < 2 {
		t.Errorf("observed %+v", o)
	}
	if out.RateBps != machineBps || out.BufferBytes != machineBuffer || out.TargetBytes != machineBuffer/5 {
		t.Errorf("the port is taken for %+v", out)
	}
	if len(out.LimitedFlows) != 4 || out.LimitedNow != 0 || observedNamed(o, "in0").Limited != 0 {
		t.Errorf("nothing is limited, and no acknowledgements would be: %+v", o)
	}
	if now := m.chains(); !slices.Equal(now, chains) || len(m.pins()) != 0 {
		t.Errorf("observing left something:\n%s\n%v", difference(chains, now), m.pins())
	}

	var p *process
	testnet.Until(t, "the same as text", func() bool {
		p = m.start("weir", "observe", "out0", "in0", "--for", "1s", "--list", "2")
		if code := p.wait(); code != 0 {
			t.Fatalf("ends with %d", code)
		}
		return strings.Contains(p.log.String(), "4 of 4")
	})
	// On a busy machine it takes longer than was asked for.
	for _, want := range []string{"observed 2 ports for ", " s: nothing was rewritten", "flows that would be limited, 2 of 4", "10.0.0.1:", "target 25KB of 125KB"} {
		if !strings.Contains(p.log.String(), want) {
			t.Errorf("no %q in\n%s", want, p.log)
		}
	}
	// Also if it is killed in the middle.
	p = m.start("weir", "observe", "out0", "in0")
	m.until(p, "its programs are attached", func() bool { return len(m.chains()) == len(chains)+2 })
	p.kill()
	testnet.Until(t, "its programs are gone", func() bool { return slices.Equal(m.chains(), chains) })
	if len(m.pins()) != 0 {
		t.Errorf("pins: %v", m.pins())
	}
}

// The tables of a running weir switch are read without disturbing it.
func TestObserve_ReadsAlong(t *testing.T) {
	parallel(t)
	m := newMachine(t)
	p := m.switchUp("weir")
	streams := m.NewStreams(t, testnet.ReceiverIPv4, 4)
	m.until(p, "windows are limited", m.limited)
	streams.Progress(t, 1_000_000)
	chains, before := m.chains(), portOf(m.read(), "out0")
	m.until(p, "four streams are limited", func() bool {
		o := m.observe("out0", "in0", "--for", "2s")
		out := observedNamed(o, "out0")
		if o.Along != "default" || out.FormerEnforce != "all" || !strings.Contains(strings.Join(out.Notes, " "), "FairQ limits all flows") {
			t.Errorf("%+v", o)
		}
		return out.LimitedNow == 4
	})
	after := portOf(m.read(), "out0")
	if now := m.chains(); !slices.Equal(now, chains) || after.LinkID != before.LinkID {
		t.Errorf("the switch was disturbed:\n%s", difference(chains, now))
	}
	m.until(p, "windows are still limited", m.limited)
	streams.Progress(t, 100_000)
	p.kill()
	testnet.Until(t, "windows are released", m.released)

	p = m.start("weir", "switch", "out0")
	m.until(p, "the switch has one port", func() bool {
		s := m.read()
		return s != nil && s.Alive() && s.Holder.PID == p.cmd.Process.Pid && len(s.Ports) == 1
	})
	apart := m.start("weir", "observe", "out0", "in0", "--for", "1s")
	if code := apart.wait(); code != exitError || !strings.Contains(apart.log.String(), "weir switch default manages out0 and not in0") {
		t.Errorf("ends with %d:\n%s", code, apart.log)
	}
}

// observeOut is the file to which TestObserve_Predicts writes its measurements for docs/img/observe.png: one JSON
// object per load.
var observeOut = flag.String("observe-out", "", "write the observations that TestObserve_Predicts makes to this file")

// observedPair is a port before and during enforcement.
type observedPair struct {
	Before, After *switchd.ObservedPort
}

// wrong lists the predictions that differ from the measurements.
func (o observedPair) wrong() (out []string) {
	before, after := o.Before, o.After
	if float64(after.LimitedNow) < 0.8*float64(before.Limited) {
		out = append(out, fmt.Sprintf("%d flows were to be limited, %d are", before.Limited, after.LimitedNow))
	}
	if low, high := 0.5*before.Then.LeastBytes, 1.5*before.Then.MostBytes; after.Now.MeanBytes < low || after.Now.MeanBytes > high {
		out = append(out, fmt.Sprintf("a queue of %.0f was predicted, and is %.0f", before.Then.MeanBytes, after.Now.MeanBytes))
	}
	if after.Now.DropsPerSecond > before.Then.DropsMost+0.1*before.Now.DropsPerSecond {
		out = append(out, fmt.Sprintf("%.1f drops a second were predicted of %.1f, and are %.1f", before.Then.DropsMost, before.Now.DropsPerSecond, after.Now.DropsPerSecond))
	}
	return out
}

// The prediction for a load is what enforcing then gives. The tolerances are wide because the machine may be busy;
// docs/observe.md has the figures of a quiet machine.
func TestObserve_Predicts(t *testing.T) {
	parallel(t)
	loads, out := []int{4, 16, 48}, io.Discard
	if *soak {
		loads = []int{2, 4, 8, 16, 24, 32, 48}
	}
	if *observeOut != "" {
		f, err := os.Create(*observeOut)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		out = f
	}
	for _, flows := range loads {
		t.Run(fmt.Sprintf("%d flows", flows), func(t *testing.T) {
			m := newMachine(t)
			p := m.switchFile("enforce: {percent: 0}\n") // so that handshakes and their window scales are seen
			m.patient(p)
			streams := m.NewStreams(t, testnet.ReceiverIPv4, flows)
			streams.Progress(t, 1) // a stream that drop-tail starves may make no progress for long
			long := fmt.Sprintf("%ds", rounds(3, 10))
			var before *switchd.ObservedPort
			// A stream that waits for a timer has no window that would be limited, and on a busy machine most may wait for a while.
			m.until(p, "at least half of the flows would be limited", func() bool {
				before = observedNamed(m.observe("out0", "in0", "--for", long), "out0")
				return before.FlowsSeen > 0 && before.Limited >= before.FlowsSeen/2
			})
			p.rewrite("enforce: {percent: 100}\n")
			p.signal(syscall.SIGHUP)
			m.until(p, "windows are limited", m.limited)
			streams.Progress(t, 100_000)
			var after *switchd.ObservedPort
			m.until(p, "enforcing gives what was predicted", func() bool { // a busy machine disturbs the measurement
				after = observedNamed(m.observe("out0", "in0", "--for", long), "out0")
				wrong := observedPair{before, after}.wrong()
				for _, text := range wrong {
					t.Log(text)
				}
				return len(wrong) == 0 || *soak
			})
			if err := json.NewEncoder(out).Encode(observedPair{before, after}); err != nil {
				t.Fatal(err)
			}
			t.Logf("flows %.0f, limited %d: now %d; window %d to %d: now %.0f", before.Flows, before.Limited, after.LimitedNow,
				before.Then.WindowBytes, before.Then.WindowMostBytes, after.Now.GrantBytes)
			t.Logf("queue %.0f, predicted %.0f (%.0f to %.0f): now mean %.0f, p99 %.0f, most %d", before.Now.MeanBytes,
				before.Then.MeanBytes, before.Then.LeastBytes, before.Then.MostBytes, after.Now.MeanBytes, after.Now.P99Bytes, after.Now.MostBytes)
			t.Logf("drops/s %.1f, predicted %.1f (to %.1f): now %.1f", before.Now.DropsPerSecond, before.Then.DropsPerSecond, before.Then.DropsMost, after.Now.DropsPerSecond)
			for _, text := range (observedPair{before, after}).wrong() {
				t.Error(text)
			}
		})
	}
}
