package controller

import (
	"bytes"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/law"
	"weir/law/fabric"
	"weir/openflow"
	"weir/openflow/channel"
)

// saying is a law that answers each event with the same actions.
type saying []law.Action

func (l saying) Step(_ time.Duration, _ law.Event, out []law.Action) []law.Action {
	return append(out, l...)
}
func (saying) Wake() time.Duration { return 0 }

// hint is an action that no controller knows.
type hint struct{}

func (hint) LawAction() {}

// Every action of every law is counted, also one that cannot be carried out; the log has one line for each kind of a law.
func TestActionsAreRouted(t *testing.T) {
	var text bytes.Buffer
	log := slog.New(slog.NewTextHandler(&text, nil))
	c := newCore(newFence(nil, 1, log), log,
		namedLaw{name: "one", Law: saying{law.Grant{Kind: law.WindowGrant, Value: 1461}, hint{}, fabric.SetFlow{Switch: 7}, fabric.Barrier{Switch: 7}}},
		namedLaw{name: "two", Law: saying{law.Grant{Kind: law.RateGrant, Value: 1e9}, law.Grant{Kind: law.PauseGrant}, hint{}, &hint{}, &law.Grant{}, nil, &fabric.Report{Switch: 7}}})
	const steps = 5
	for range steps {
		c.step(law.Tick{})
	}
	s := c.status()
	if s.Orders != 2*steps || s.ActionsLate != 3*steps || s.Changes != 0 {
		t.Errorf("%d orders, %d actions late, %d changes: should be %d, %d and none", s.Orders, s.ActionsLate, s.Changes, 2*steps, 3*steps)
	}
	wantCounts(t, "grants", s.Grants, map[string]uint64{"one": steps, "two": 2 * steps})
	wantCounts(t, "unknown", s.Unknown, map[string]uint64{
		"one: controller.hint": steps, "two: controller.hint": steps, "two: *controller.hint": steps, "two: *law.Grant": steps, "two: <nil>": steps,
	})
	if lines := strings.Count(text.String(), "\n"); lines != 2+5 {
		t.Errorf("%d lines are logged, should be 7:\n%s", lines, text.String())
	}
}

// A law that asks again after each failure gets an event for each of them, also while a switch has too many open questions.
func TestStatsFailed_EachTime(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "switch"))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if nc, err := l.Accept(); err == nil {
			_ = newRemote(nc).be(model{id: 7, ports: 1, flows: func(*remote, uint32) error { return nil }}) // it does not answer this question
		}
	}()
	defer func() { l.Close(); <-ended }()
	conn, err := channel.Dial(t.Context(), "unix", l.Addr().String(), channel.Config{Limits: channel.Limits{Outstanding: 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Ask(&openflow.MultipartRequest{Type: openflow.MultipartFlow, Body: openflow.FlowStatsRequest{}}); err != nil {
		t.Fatal(err)
	}
	c := newCore(newFence(nil, 1, silent), silent, namedLaw{name: "polls", Law: saying{fabric.AskStats{Switch: 7}}})
	s := &session{id: 7, conn: conn}
	c.sessions[7] = s
	c.take(event{s, &fabric.StatsFailed{Switch: 7}})
	for n := range 5 {
		if len(c.later) != 1 {
			t.Fatalf("after %d failures %d wait, want 1", n, len(c.later))
		}
		c.takeLater()
	}
}

func wantCounts(t *testing.T, what string, got, want map[string]uint64) {
	t.Helper()
	for k, n := range want {
		if got[k] != n {
			t.Errorf("%s of %s: %d, should be %d", what, k, got[k], n)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%s: %v, should be %v", what, got, want)
	}
}

// Every action of package fabric that is for a switch has a route.
func TestOrdersHaveMessages(t *testing.T) {
	for _, a := range []law.Action{fabric.SetFlow{}, fabric.DropFlow{}, fabric.SetGroup{}, fabric.SetGroup{New: true}, fabric.DropGroup{}, fabric.SetMeter{}} {
		if message(a) == nil {
			t.Errorf("%T has no message", a)
		}
	}
}

// The counters of a report belong to the law, and the status has a copy. They are dropped with the connection.
func TestReportsAreCopied(t *testing.T) {
	c := newCore(newFence(nil, 1, nil), nil)
	c.sessions[1] = &session{id: 1}
	r := &fabric.Report{Switch: 1, Ports: make([]fabric.Counters, 2)}
	for n := range uint64(3) {
		r.Ports[0], r.Ports[1] = fabric.Counters{Port: 1, TxBytes: 5 + n}, fabric.Counters{Port: 2, TxBytes: 6 + n}
		c.carry(&namedLaw{name: "poll"}, r)
		for i := range r.Ports {
			r.Ports[i] = fabric.Counters{Port: 0xdead, TxBytes: 0xdeadbeef}
		}
		if kept := c.sessions[1].ports; len(kept) != 2 || kept[0].TxBytes != 5+n || kept[1].TxBytes != 6+n || kept[1].Port != 2 {
			t.Errorf("answer %d: %+v", n, kept)
		}
	}
}
