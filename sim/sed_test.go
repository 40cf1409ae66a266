//go:build cgo

package sim

import (
	"strings"
	"testing"
	"time"

	"weir/experiment/result"
)

// sedFile is D1 at a tenth of the rate: flows with deadlines and one without on a link of 100 Mbit/s.
func sedFile(scheme string) string {
	return strings.NewReplacer("senders: 4", "senders: 6", "hypervisors: false", "hypervisors: true", "buffer: 60KB", "buffer: 100pkt",
		"guests: {cc: reno}", "guests: {cc: reno, ecn: false, sack: false, delayed_ack: false, initial_window: 10, rto_min: 30ms}",
		"schemes: [{name: droptail}]", "schemes: ["+scheme+"]").
		Replace(baseWith("{name: flow1, from: sender1, to: receiver1, pattern: bulk, size: 800KB, deadline: 300ms}",
			"{name: flow2, from: sender2, to: receiver1, pattern: bulk, size: 1200KB, deadline: 800ms}",
			"{name: flow3, from: sender3, to: receiver1, pattern: bulk, size: 3MB, deadline: 1s}",
			"{name: background, from: \"sender4..\", to: receiver1, pattern: bulk, stop: 2s}"))
}

const paperSED = "period: 0s, overhead: false, round_trip: empty, shortage: none, overload: earliest, spare: others, first: open"

// missed lists the flows that missed their deadlines.
func missed(raw *result.Raw) (names string) {
	for _, name := range []string{"flow1", "flow2", "flow3"} {
		for i := range raw.Flows {
			f := &raw.Flows[i]
			if f.Group == name && (!f.Done || f.End-f.Start > f.Deadline) {
				names += name + " "
			}
		}
	}
	return strings.TrimSpace(names)
}

// SE-14 and SE-8 on real TCP: with drop-tail and with windows as printed, flows miss their deadlines. Ours meets all, and the flow
// without a deadline has the rest of the link.
func TestSED_Deadlines(t *testing.T) {
	for _, row := range []struct{ scheme, missed string }{
		{"{name: droptail}", "flow1 flow3"},
		{"{name: sed, params: {" + paperSED + "}}", "flow1 flow2 flow3"},
		{"{name: sed}", ""},
		{"{name: sed, params: {pause: floor}}", ""},
		{"{name: rsed, params: {repair: reinject}}", ""},
	} {
		raw := carriedOut(t, sedFile(row.scheme))
		if got := missed(raw); got != row.missed {
			t.Errorf("%s: missed %q, want %q", row.scheme, got, row.missed)
		}
		if used := mbits(raw, "background"); row.missed == "" && used < 85 { // alone from 1 s on
			t.Errorf("%s: the flow without a deadline has %.1f Mbit/s in the second half", row.scheme, used)
		}
	}
}

// The measurement of the idle network's RTT is no flow: at t = 0 no switch has reported anything, and no flow is limited.
func TestSED_BeginsWithoutFlows(t *testing.T) {
	s, err := build(planned(t, sedFile("{name: sed}"))[0])
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	if err := s.warm(); err != nil || s.rtt < 400*us {
		t.Fatal(s.rtt, err)
	}
	s.begin()
	if n := s.laws.Tallies()[0]; n["messages"] != 0 || n["grants"] != 0 {
		t.Errorf("%d messages and %d grants before any flow", n["messages"], n["grants"])
	}
}

// lossyFile is an incast into a small buffer: most flows lose packets.
func lossyFile(guests, scheme string) string {
	return strings.NewReplacer("senders: 4", "senders: 40", "hypervisors: false", "hypervisors: true", "buffer: 60KB", "buffer: 75KB",
		"guests: {cc: reno}", "guests: {cc: "+guests+", ecn: false, delayed_ack: false, initial_window: 4, rto_min: 200ms}",
		"schemes: [{name: droptail}]", "schemes: ["+scheme+"]").
		Replace(baseWith("{name: apps, from: \"sender*\", to: receiver1, pattern: burst, size: 40KB, deadline: 400ms}"))
}

// RSED repairs losses without timeouts, which take 200 ms here, by packets that the port keeps. The paper's duplicate ACKs help senders
// that follow RFC 5681, most of them if they wait for the queue. Linux without SACK counts no more duplicates than it has segments in
// flight (RS-3), so it waits for its timer where they come at once.
func TestRSED_RepairsWithoutTimeouts(t *testing.T) {
	for _, guests := range []string{"newreno", "reno, sack: false"} {
		timeouts := map[string]int{}
		for _, scheme := range []string{"sed", "dupacks", "dupacks_drained", "reinject"} {
			text := "{name: rsed, params: {threshold: 15pkt, recover: 7pkt, first: open, repair: " + scheme + ", park: 300KB}}"
			if scheme == "sed" {
				text = "{name: sed, params: {threshold: 15pkt, recover: 7pkt, first: open}}"
			}
			raw := carriedOut(t, lossyFile(guests, text))
			n, last := 0, time.Duration(0)
			for i := range raw.Flows {
				f := &raw.Flows[i]
				if f.Timeouts > 0 {
					n++
				}
				if !f.Done {
					t.Errorf("%s, %s: flow %d did not end", guests, scheme, i)
				}
				last = max(last, f.End)
			}
			timeouts[scheme] = n
			t.Logf("%s, %s: %d of %d flows with a timeout, %d drops, the last ends at %v", guests, scheme, n, len(raw.Flows), len(raw.Drops), last)
		}
		if timeouts["sed"] < 10 || timeouts["reinject"] != 0 || timeouts["dupacks_drained"] >= timeouts["sed"] {
			t.Errorf("%s: flows with a timeout: %v", guests, timeouts)
		}
		if helps := timeouts["dupacks"] < timeouts["sed"]; helps != (guests == "newreno") {
			t.Errorf("%s: flows with a timeout: %v", guests, timeouts)
		}
	}
}
