package switchd

import (
	"strings"
	"testing"
	"time"

	"weir/datapath"
)

// One row for each thing that can be wrong with a port, and what is said of it and of its switch.
func TestDescribe(t *testing.T) {
	good := func() *datapath.FairQSwitch {
		return &datapath.FairQSwitch{
			Lease: time.Second, BeatAge: 100 * time.Millisecond, Holder: datapath.FairQHolder{PID: 7, Version: "v1"},
			Ports: []datapath.FairQPinned{
				{FairQStats: datapath.FairQStats{Port: "a"}, HasDevice: true, Local: true},
				{FairQStats: datapath.FairQStats{Port: "b"}, HasDevice: true, Local: true},
			},
		}
	}
	for _, row := range []struct {
		what  string
		spoil func(*datapath.FairQSwitch)
		a, s  State
		says  string
	}{
		{"nothing", func(*datapath.FairQSwitch) {}, Enforced, Enforced, ""},
		{"no beat", func(s *datapath.FairQSwitch) { s.BeatAge = 3 * time.Second }, Released, Released, "the last beat was 3s ago"},
		{"ending", func(s *datapath.FairQSwitch) { s.Releasing = true }, Released, Released, "is ending"},
		{"leaving one", func(s *datapath.FairQSwitch) { s.Ports[0].Releasing = true }, Released, Released, "leaving this port"},
		{"no device", func(s *datapath.FairQSwitch) { s.Ports[0].HasDevice = false }, Off, Off, "its device is gone"},
		{"no device, no beat", func(s *datapath.FairQSwitch) { s.Ports[0].HasDevice = false; s.BeatAge = time.Hour }, Off, Off, "its device is gone"},
		{"no queue", func(s *datapath.FairQSwitch) { s.Ports[0].NoQueue = &datapath.NoQueue{Port: "a", Kind: "mq"} }, Off, Off, `"mq"`},
	} {
		kernel := good()
		row.spoil(kernel)
		s := describe("x", kernel)
		if s.Ports[0].State != row.a || s.State != row.s || !strings.Contains(s.Reason, row.says) || s.PID != 7 {
			t.Errorf("%s: %+v", row.what, s)
		}
		if r := (&Report{[]Switch{*s}}); r.Enforced() != (row.s == Enforced) {
			t.Errorf("%s: enforced %t", row.what, r.Enforced())
		}
	}
	empty := good()
	empty.Ports = nil
	if s := describe("x", empty); s.State != Stopped || s.Reason != "attached to no port" {
		t.Errorf("without ports: %+v", s)
	}
	warned := good()
	warned.Ports[1].Before, warned.Ports[1].TableFull = []string{"theirs"}, 3
	if s := describe("x", warned); s.State != Enforced || len(s.Ports[1].Warnings) != 2 {
		t.Errorf("with something to warn of: %+v", s)
	}
	if (&Report{}).Enforced() {
		t.Error("no switch at all enforces")
	}
}

// Every counter that a packet can end in has a name in the report.
func TestPassed_IsWhole(t *testing.T) {
	k := datapath.FairQPinned{FairQStats: datapath.FairQStats{
		Smaller: 1, Ungoverned: 2, Unknown: 3, NoAck: 4, NotTCP: 5, OutOfScope: 6, Signed: 7, Tunnel: 8, Fragment: 9, Short: 10, Unwritable: 11,
	}}
	p := describePort(&k, "")
	var sum uint64
	for _, n := range p.Passed {
		sum += n
	}
	if sum != 66 || len(p.Passed) != 11 {
		t.Errorf("passed: %v", p.Passed)
	}
	if text := p.PassedText(); !strings.HasPrefix(text, "1 windows small enough, 2 acknowledge data of no governed port") || strings.Count(text, ",") != 10 {
		t.Errorf("in words: %s", text)
	}
	if text := (&Port{}).PassedText(); text != "none" {
		t.Errorf("of nothing: %s", text)
	}
}
