package sicc

import (
	"testing"
	"time"
)

// The law says in a few words why it acted, without allocation.
func TestExplain(t *testing.T) {
	l := &Law{}
	if got := string(l.Explain(nil)); got != "" {
		t.Errorf("before any action: %q", got)
	}
	at := &port{buffer: 85300}
	at.at.N = 3
	for want, w := range map[string]why{
		"port 3: incast: 24 flows began, so 350400 B are predicted in a buffer of 85300 B": {port: at, what: began, opened: 24, queue: 350400},
		"port 3: a pair begins during an incast":                                           {port: at, what: joined},
		"port 3: the incast goes on: queue 4000 B, lasted 12 ms":                           {port: at, what: renewed, queue: 4000, lasted: 12 * time.Millisecond},
		"port 3: the incast ends: queue 0 B, lasted 15 ms":                                 {port: at, what: ended, lasted: 15 * time.Millisecond},
	} {
		l.why = w
		room := make([]byte, 0, 160)
		if got := string(l.Explain(room)); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		if n := testing.AllocsPerRun(10, func() { l.Explain(room) }); n > 0 {
			t.Errorf("%v allocations", n)
		}
	}
}

// The reason is that of the last step.
func TestExplain_Incast(t *testing.T) {
	s := newScript(t, func(p *Params) { p.OffRule = OffOr })
	s.opens(1, 1, 2, 3, 1, 2, 3, 1, 2, 3)
	s.interval(0)
	if got := string(s.l.Explain(nil)); got != "port 1: incast: 9 flows began, so 131400 B are predicted in a buffer of 125000 B" {
		t.Error(got)
	}
	for range 4 {
		s.interval(0)
	}
	if got := string(s.l.Explain(nil)); got != "port 1: the incast ends: queue 0 B, lasted 4 ms" {
		t.Error(got)
	}
}
