package bus

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"weir/bus/lease"
)

// A controller knows a limited number of agents. Those that have been silent for long make room for others, and no others do.
func TestInbox_SilentAgentsMakeRoom(t *testing.T) {
	b := newInbox(slog.New(slog.DiscardHandler), nil)
	hear := func(name string) bool { return b.accept(&nats.Msg{Subject: eventsPrefix + name}, eventsPrefix) != nil }
	for n := range maxAgents {
		if !hear(fmt.Sprint("h", n)) {
			t.Fatalf("agent %d is refused", n)
		}
	}
	if hear("late") {
		t.Fatal("there is room for one more, although all were heard")
	}
	later := func(by time.Duration, names ...string) {
		b.forgot = b.forgot.Add(-by)
		for _, n := range names {
			b.agents[n].heard = b.agents[n].heard.Add(-by)
		}
	}
	later(forgetEvery, "h0")
	if hear("late") {
		t.Fatal("an agent was forgotten after a minute")
	}
	b.agents["h1"].queued = true // its report waits
	later(forgetAfter, "h0", "h1")
	if !hear("late") || b.agents["h0"] != nil || b.agents["h1"] == nil || b.agents["h2"] == nil || hear("later") {
		t.Errorf("%d agents, and h0 %v, h1 %v", len(b.agents), b.agents["h0"], b.agents["h1"])
	}
}

// The same of those that get announcements.
func TestRunner_SilentAgentsMakeRoom(t *testing.T) {
	const buckets = 4
	r := &Runner{cfg: RunnerConfig{Buckets: buckets}, agents: make([]map[string]time.Time, buckets), commands: NewCommands(lease.Holder{}, buckets)}
	known := func(name string) bool { _, ok := r.agents[lease.Bucket(name, buckets)][name]; return ok }
	for n := range maxAgents {
		r.Saw(fmt.Sprint("h", n))
	}
	if r.Saw("late"); known("late") || r.known != maxAgents {
		t.Fatalf("%d agents", r.known)
	}
	at := lease.Bucket("h0", buckets)
	r.agents[at]["h0"] = r.agents[at]["h0"].Add(-forgetAfter)
	if r.Saw("late"); known("late") {
		t.Fatal("it looked twice at once")
	}
	r.forgot = r.forgot.Add(-forgetEvery)
	if r.Saw("late"); !known("late") || known("h0") || !known("h1") || r.known != maxAgents {
		t.Errorf("%d agents, late %t, h0 %t, h1 %t", r.known, known("late"), known("h0"), known("h1"))
	}
	if r.Saw("h1"); r.known != maxAgents {
		t.Errorf("%d agents", r.known)
	}
}
