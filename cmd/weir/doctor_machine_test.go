package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"weir/agent/doctor"
	"weir/datapath/testnet"
)

// doctor runs `weir doctor --json` on the switch's ports and returns its exit code, too.
func (m *machine) doctor(args ...string) (r doctor.Report, code int) {
	m.t.Helper()
	testnet.Until(m.t, "doctor has all answers in time", func() bool { // a busy machine may take longer than doctor waits
		p := m.start("weir", append([]string{"doctor", "--json"}, args...)...)
		code, r = p.wait(), doctor.Report{}
		if err := json.Unmarshal([]byte(p.log.String()), &r); err != nil {
			m.t.Fatalf("%v: %s", err, p.log)
		}
		return !slices.ContainsFunc(r.Findings, func(n doctor.Finding) bool { return strings.Contains(n.Text, "no answer within") })
	})
	return r, code
}

// says returns the level of a finding with this check, subject and text, or "".
func says(r *doctor.Report, check, subject, text string) doctor.Level {
	for _, n := range r.Findings {
		if n.Check == check && n.Subject == subject && strings.Contains(n.Text, text) {
			return n.Level
		}
	}
	return ""
}

// doctor agrees with weir switch: before it runs, while it runs with a shaper of its own, and after it was killed. The
// check changes nothing on the machine.
func TestDoctor_AgreesWithSwitch(t *testing.T) {
	parallel(t)
	m := newMachine(t)
	m.unshaped()
	before := m.chains()
	r, code := m.doctor(ports...)
	if code != exitError || says(&r, "port.queue", "out0", "no queue at all") != doctor.Problem || says(&r, "port.queue", "in0", "tbf keeps the queue: 1Gbit/s, buffer 1MB") != doctor.OK {
		t.Errorf("without a queue: %d, %+v", code, r.Findings)
	}
	if can := r.Summary[0]; can.What != doctor.Switching || can.Can != doctor.Changes {
		t.Errorf("%+v", can)
	}
	if after := m.chains(); !slices.Equal(before, after) {
		t.Errorf("looking changed something:\n%s", difference(before, after))
	}

	// With a configuration that shapes it the port is fine, and also while that runs.
	file := filepath.Join(t.TempDir(), "switch.yaml")
	if err := os.WriteFile(file, []byte(shaped), 0o600); err != nil {
		t.Fatal(err)
	}
	if r, code = m.doctor("-f", file); code != 0 || says(&r, "port.queue", "out0", "will have a shaper of Weir's own: 100Mbit/s, buffer 125KB") != doctor.OK {
		t.Errorf("by its configuration: %d, %+v", code, r.Findings)
	}
	c := m.switchFrom(shaped)
	m.until(c.p, "doctor reports that it runs", func() bool { // except for a moment with a late heartbeat
		r, code = m.doctor(ports...)
		return code == 0
	})
	for _, want := range []struct {
		check, subject, text string
	}{
		{"port.queue", "out0", "Weir's own shaper (shape) keeps the queue: 100Mbit/s, buffer 125KB"},
		{"weir.switch", "default", "running on in0, out0"}, {"programs.egress", "out0", "Weir's own program"},
	} {
		if got := says(&r, want.check, want.subject, want.text); got != doctor.OK {
			t.Errorf("at work, %s of %s: %q in %+v", want.check, want.subject, got, r.Findings)
		}
	}
	if can := r.Summary[0]; can.Can != doctor.Yes {
		t.Errorf("at work: %+v", can)
	}

	c.p.kill()
	testnet.Until(t, "windows are released", func() bool { return !m.read().Alive() })
	r, code = m.doctor(ports...)
	if code != exitError || says(&r, "weir.switch", "default", "stale") != doctor.Problem || says(&r, "port.shape_left", "out0", "") != doctor.Problem {
		t.Errorf("killed: %d, %+v", code, r.Findings)
	}
	if code := m.start("weir", "switch", "--purge").wait(); code != 0 {
		t.Errorf("purge: %d", code)
	}
	if r, _ = m.doctor(ports...); says(&r, "weir.switch", "", "no switch is pinned") != doctor.OK {
		t.Errorf("purged: %+v", r.Findings)
	}
}
