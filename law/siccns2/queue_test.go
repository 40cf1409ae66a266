package siccns2

import (
	"fmt"
	"strings"
	"testing"
)

const limit = 125_000

// run drives a queue discipline by a script. Each word is an event and the queue that it finds: "syn=0", "fin=0", "ack=0",
// "data=0", "resume=0" arrive, "leave=0" leaves, "tick=0" ends an interval. It returns, for each word, the window of an ACK
// afterwards, "-" for none, and a "!" for a packet that must be dropped.
func run(t *testing.T, q *Queue, script string) string {
	t.Helper()
	kinds := map[string]Kind{"syn": SYN, "fin": FIN, "ack": ACK, "data": 0, "resume": Resume}
	var out []string
	for _, word := range strings.Fields(script) {
		name, at, _ := strings.Cut(word, "=")
		var queue int64
		if _, err := fmt.Sscan(at, &queue); err != nil {
			t.Fatalf("%s: %v", word, err)
		}
		passes := true
		switch kind, is := kinds[name]; {
		case is:
			passes = q.Arrive(queue, kind)
		case name == "tick":
			q.Tick(queue)
		case name == "leave":
			q.Leave(queue)
		default:
			t.Fatalf("no event %s", name)
		}
		says := "-"
		if w := q.Window(); w > 0 {
			says = fmt.Sprint(w)
		}
		if !passes {
			says = "!"
		}
		out = append(out, says)
	}
	return strings.Join(out, " ")
}

// The vectors are by hand. The buffer has 125,000 bytes, so an incast ends below 25,000, and begins at 125,000: a new flow
// counts 10 packets of 1500 bytes.
func TestQueue(t *testing.T) {
	for _, row := range []struct {
		what, script, want string
		change             func(*Params)
	}{
		{"8 flows are 120,000 bytes; 5000 more are the buffer", "syn=0 syn=0 syn=0 syn=0 syn=0 syn=0 syn=0 syn=0 tick=4999", "- - - - - - - - -", nil},
		{"and one byte more begins", "syn=0 syn=0 syn=0 syn=0 syn=0 syn=0 syn=0 syn=0 tick=5000", "- - - - - - - - 1500", nil},
		{"a full queue without a new flow is no incast", "data=124000 tick=125000", "- -", nil},
		{"a FIN takes a SYN's place", "syn=0 fin=0 tick=125000", "- - -", nil},
		{"FINs do not count below 0", "fin=0 fin=0 syn=0 tick=110000", "- - - 1500", nil},
		{"a flow of an earlier interval does not count", "syn=0 tick=0 tick=125000", "- - -", nil},
		{"it ends below 25,000 bytes, when a packet leaves", "syn=0 tick=110000 leave=25000 tick=0 leave=24999", "- 1500 1500 1500 -", nil},
		{"an incast is predicted, not seen", "syn=0 data=124999 tick=109999", "- - -", nil},
		{"it lasts whatever arrives", "syn=0 tick=110000 fin=0 syn=0 data=0", "- 1500 - 1500 1500", nil},

		{"divwin: the buffer over the flows", "syn=0 syn=0 syn=0 syn=0 tick=65000 fin=0", "- - - - 31250 41666", func(p *Params) { p.DivWin = true }},
		{"ack_threshold: data above half of the buffer is dropped", "data=62500 data=62501 ack=62501 syn=62501 fin=124000", "- ! - - -", func(p *Params) { p.AckThreshold = 0.5 }},
		{"but not in an incast", "syn=62501 tick=110000 data=124000", "- 1500 1500", func(p *Params) { p.AckThreshold = 0.5 }},
		{"incast_only: false begins at a packet, above the threshold", "syn=0 data=100000 data=100001 tick=0 leave=100", "- - 1500 1500 -",
			func(p *Params) { p.IncastOnly, p.OnFraction = false, 0.8 }},
		{"and predicts nothing", "syn=0 syn=0 tick=90000", "- - -", func(p *Params) { p.IncastOnly, p.OnFraction = false, 0.8 }},
		{"persist: a flow that sends again counts", "resume=0 tick=110000", "- 1500", func(p *Params) { p.Persist = true }},
		{"without it, it does not", "resume=0 tick=110000", "- -", nil},
	} {
		p := Default()
		if row.change != nil {
			row.change(p)
		}
		if err := p.Check(); err != nil {
			t.Fatalf("%s: %v", row.what, err)
		}
		if got := run(t, NewQueue(*p, limit), row.script); got != row.want {
			t.Errorf("%s: %s\n got %s\nwant %s", row.what, row.script, got, row.want)
		}
	}
}

// SI-4: an incast begins once, however often it is predicted.
func TestSI4_OncePerIncast(t *testing.T) {
	q := NewQueue(*Default(), limit)
	run(t, q, "syn=0 tick=110000 syn=0 tick=110000 syn=0 tick=110000 leave=0 syn=0 tick=110000")
	if n := q.Counts().Incasts; n != 2 {
		t.Errorf("%d incasts, want 2", n)
	}
}

// SI-9: as in the code, FINs of old flows cancel SYNs of new ones in the same interval, so 8 new flows are not seen.
func TestSI9_FINsCancelSYNs(t *testing.T) {
	eight := strings.Repeat("syn=0 ", 8)
	if got := run(t, NewQueue(*Default(), limit), eight+strings.Repeat("fin=0 ", 8)+"tick=5000"); strings.Contains(got, "1500") {
		t.Errorf("%s: an incast", got)
	}
	if got := run(t, NewQueue(*Default(), limit), eight+"tick=5000"); !strings.HasSuffix(got, "1500") {
		t.Errorf("without FINs: %s: no incast", got)
	}
}

// Printed, incast_only = 0 compares the queue with highthreshold_ = the whole buffer. No queue is longer, so that form never
// begins an incast. Ours refuses the pair.
func TestNS3_AlwaysNeedsAThresholdBelowTheBuffer(t *testing.T) {
	p := Default()
	p.IncastOnly = false
	q := NewQueue(*p, limit)
	for queue := int64(0); queue <= limit; queue += 1000 {
		q.Arrive(queue, SYN)
		q.Arrive(queue, 0)
	}
	if q.Counts().Incasts != 0 {
		t.Error("the printed form begins an incast")
	}
	if err := p.Check(); err == nil || !strings.Contains(err.Error(), "choose on_fraction below 1") {
		t.Errorf("%v", err)
	}
	p.OnFraction = 0.9
	if err := p.Check(); err != nil {
		t.Error(err)
	}
}
