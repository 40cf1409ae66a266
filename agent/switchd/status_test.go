package switchd

import (
	"strings"
	"testing"
	"time"

	"weir/datapath/attach"
	"weir/datapath/reading"
)

// The state and reason of a port come from its worst finding, those of a switch from its worst port. Ports that are
// down count only if all are.
func TestDescribe(t *testing.T) {
	for _, row := range []struct {
		what  string
		spoil func(*snapshot)
		a, s  State
		says  string
	}{
		{"nothing", func(*snapshot) {}, Enforced, Enforced, ""},
		{"no heartbeat", func(r *snapshot) { r.kernel.HeartbeatAge, r.process = 3*time.Second, process{} }, Off, Off, "the last heartbeat was 3s ago"},
		{"one without a queue", func(r *snapshot) { r.kernel.Ports[0].NoQueue = &attach.NoQueue{Kind: "mq"} }, Degraded, Degraded, `a: its queue discipline is "mq"`},
		{"one without a device, one without a queue", func(r *snapshot) {
			r.kernel.Ports[0].HasDevice = false
			delete(r.devices, "a")
			r.kernel.Ports[1].NoQueue = &attach.NoQueue{Kind: "mq"}
		}, Off, Off, "a: its device is gone"},
		{"one is down", func(r *snapshot) { r.devices["a"] = portDevice{known: true, ifindex: 1} }, Off, Enforced, ""},
		{"one is down, one without a queue", func(r *snapshot) {
			r.devices["a"] = portDevice{known: true, ifindex: 1}
			r.kernel.Ports[1].NoQueue = &attach.NoQueue{Kind: "mq"}
		}, Off, Degraded, `b: its queue discipline is "mq"`},
		{"all are down", func(r *snapshot) {
			r.devices = devices{"a": {known: true, ifindex: 1}, "b": {known: true, ifindex: 2}}
		}, Off, Off, "all its ports are down"},
		{"one is observed", func(r *snapshot) { r.kernel.Ports[0].Mode = reading.EnforceNone }, Off, Enforced, ""},
		{"all are observed", func(r *snapshot) {
			r.kernel.Ports[0].Mode, r.kernel.Ports[1].Mode = reading.EnforceNone, reading.EnforceNone
		}, Off, Off, "observed only"},
		{"no ports", func(r *snapshot) { r.kernel.Ports = r.kernel.Ports[:0] }, "", Off, "attached to no port"},
		{"no ports, no heartbeat", func(r *snapshot) { r.kernel.Ports, r.kernel.HeartbeatAge, r.process = nil, time.Minute, process{} }, "", Off, "no port; no weir switch is running: the last heartbeat was 1m0s ago"},
	} {
		r := wellReading()
		row.spoil(r)
		s := describe("x", r, nil)
		if row.a != "" && s.Ports[0].State != row.a || s.State != row.s || !strings.Contains(s.Reason, row.says) || (s.Reason == "") != (row.s == Enforced) || s.PID != 7 {
			t.Errorf("%s: %+v", row.what, s)
		}
		if r := (&Report{[]Switch{*s}}); r.Enforced() != (row.s == Enforced) {
			t.Errorf("%s: enforced %t", row.what, r.Enforced())
		}
	}
	if (&Report{}).Enforced() {
		t.Error("an empty report counts as enforced")
	}
}

// All findings but the first are warnings.
func TestDescribe_Warns(t *testing.T) {
	r := wellReading()
	r.kernel.Ports[0].Before, r.kernel.Ports[0].TableFull = []string{"theirs"}, 3
	r.kernel.Ports[1].TableFull = 4
	s := describe("x", r, nil)
	a, b := s.Ports[0], s.Ports[1]
	if a.State != Degraded || a.Word != "not-first" || len(a.Findings) != 2 || len(a.Warnings) != 1 || !strings.Contains(a.Warnings[0], "3 connections passed unmanaged") {
		t.Errorf("a program in front, and a table that was full: %+v", a)
	}
	if b.State != Enforced || b.Reason != "" || len(b.Warnings) != 1 {
		t.Errorf("a table that was full: %+v", b)
	}
}

// Every counter of packets has a name in the report.
func TestPassed_IsComplete(t *testing.T) {
	k := reading.Pinned{Stats: reading.Stats{
		Smaller: 1, Ungoverned: 2, Unknown: 3, NoAck: 4, NotTCP: 5, OutOfScope: 6, Signed: 7, Tunnel: 8, Fragment: 9, Short: 10, Unwritable: 11, LeftToEdge: 12, Free: 13,
	}}
	p := describePort(&view{k: &k, sw: &reading.Switch{}})
	var sum uint64
	for _, n := range p.Passed {
		sum += n
	}
	if sum != 91 || len(p.Passed) != 13 {
		t.Errorf("passed: %v", p.Passed)
	}
	if text := p.PassedText(); !strings.HasPrefix(text, "1 windows small enough, 2 acknowledge data of no managed port") || strings.Count(text, ",") != 12 {
		t.Errorf("in words: %s", text)
	}
	if text := (&Port{}).PassedText(); text != "none" {
		t.Errorf("of nothing: %s", text)
	}
}
