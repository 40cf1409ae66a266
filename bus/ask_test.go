package bus

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"weir/bus/pki"
	"weir/bus/weirv1"
)

// answers is what the controller of the tests answers: by the question.
func answers(q *Question) (any, error) {
	switch q.What {
	case AskStatus:
		return map[string]int{"vm": int(q.VM)}, nil
	case "long":
		return strings.Repeat("again and again ", 100_000), nil
	case "longest":
		b := make([]byte, 3*maxMessage)
		for i, x := 0, uint32(1); i < len(b); i++ {
			x = x*1664525 + 1013904223
			b[i] = 'a' + byte(x>>24)%26
		}
		return string(b), nil
	}
	return nil, fmt.Errorf("no answer about %s", q.What)
}

// An operator asks controllers and agents by name. Others cannot ask, and an answer goes to the operator only.
func TestAsk(t *testing.T) {
	for _, kind := range []string{"embedded", "external"} {
		t.Run(kind, func(t *testing.T) {
			k := newKit(t)
			var url string
			if kind == "embedded" {
				url = k.server(nil).URL()
			} else {
				url = k.external("controller/c1", "agent/sw1", "operator/alice", "observer/op")
			}
			c1, sw1, alice := k.dial(k.enrol("controller/c1"), url), k.dial(k.enrol("agent/sw1"), url), k.dial(k.enrol("operator/alice"), url)
			for _, c := range []*Conn{c1, sw1} {
				if err := c.Answer(answers); err != nil {
					t.Fatal(err)
				}
				flush(t, c)
			}
			var got map[string]int
			for _, to := range []pki.Identity{c1.id, sw1.id} {
				for vm := range 3 { // more than one answer for each connection
					if err := alice.Ask(t.Context(), to, &Question{What: AskStatus, VM: uint32(vm)}, &got); err != nil || got["vm"] != vm {
						t.Errorf("%v: %v, %v", to, got, err)
					}
				}
			}
			var text string
			if err := alice.Ask(t.Context(), c1.id, &Question{What: "long"}, &text); err != nil || len(text) != 1_600_000 {
				t.Errorf("a long answer: %v, %d bytes", err, len(text))
			}
			for what, says := range map[string]string{"longest": "too many for a message: ask for less", "else": "controller/c1: no answer about else"} {
				if err := alice.Ask(t.Context(), c1.id, &Question{What: what}, &text); err == nil || !strings.Contains(err.Error(), says) {
					t.Errorf("%s: %v", what, err)
				}
			}
			if err := alice.Ask(t.Context(), pki.Identity{Role: pki.Agent, Name: "sw9"}, &Question{What: AskStatus}, &got); err == nil || !strings.Contains(err.Error(), "agent/sw9 is not connected to the bus") {
				t.Errorf("%v", err)
			}
			all := AskAll[map[string]int](t.Context(), alice, []pki.Identity{sw1.id, {Role: pki.Agent, Name: "sw9"}, c1.id}, &Question{What: AskStatus, VM: 9})
			if len(all) != 3 || all[0].Answer["vm"] != 9 || all[1].Err == nil || all[2].Answer["vm"] != 9 || all[2].From != c1.id {
				t.Errorf("%+v", all)
			}
		})
	}
}

// A question cannot make a controller send something to an agent, nor an agent report as another: an answer goes to inboxes of
// operators only. Malformed and endless questions have no effect on others.
func TestAsk_Attacks(t *testing.T) {
	k := newKit(t)
	url := k.server(nil).URL()
	c1, alice := k.dial(k.enrol("controller/c1"), url), k.dial(k.enrol("operator/alice"), url)
	eve := k.dial(k.enrol("observer/eve"), url)
	if err := c1.Answer(answers); err != nil {
		t.Fatal(err)
	}
	flush(t, c1)
	heard, err := eve.nc.SubscribeSync("weir.v1.cmd.>")
	if err != nil {
		t.Fatal(err)
	}
	flush(t, eve)
	bad := []*nats.Msg{
		{Reply: "weir.v1.cmd.sw1", Data: []byte(`{"what":"status"}`)},
		{Reply: "$KV.weir-leases.0", Data: []byte(`{"what":"status"}`)},
		{Reply: "_INBOX.weir.controller.c2.x", Data: []byte(`{"what":"status"}`)},
		{Reply: "", Data: []byte(`{"what":"status"}`)},
		{Reply: InboxPrefix(alice.id) + ".x", Data: make([]byte, maxAsk+1)},
	}
	for _, m := range bad {
		m.Subject = askSubject(c1.id)
		if err := alice.nc.PublishMsg(m); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "the refusals", func() bool { return c1.Unanswered() == uint64(len(bad)) })
	flush(t, c1)
	flush(t, eve)
	if n, _, err := heard.Pending(); n > 0 || err != nil || c1.Refused() > 0 {
		t.Errorf("%d messages to agents, %v, %d refused", n, err, c1.Refused())
	}
	for _, text := range []string{"", "{", `{"what":"status"} x`, `{"who":"me"}`, `[1]`} {
		m, err := alice.nc.Request(askSubject(c1.id), []byte(text), askedFor)
		if err != nil || text != `{"what":"status"} x` && !strings.HasPrefix(string(m.Data), `{"error":`) {
			t.Errorf("%q: %v", text, err)
		}
	}
	before := c1.Unanswered()
	for range 5 * asksASec {
		if err := alice.nc.PublishRequest(askSubject(c1.id), InboxPrefix(alice.id)+".y", []byte(`{"what":"status"}`)); err != nil {
			t.Fatal(err)
		}
	}
	flush(t, alice)
	until(t, "too many questions are left unanswered", func() bool { return c1.Unanswered()+c1.Dropped() > before })
}

// An operator finds controllers by their heartbeats. An agent cannot send one.
func TestControllers(t *testing.T) {
	k := newKit(t)
	url := k.server(nil).URL()
	alice := k.dial(k.enrol("operator/alice"), url)
	if got, err := alice.Controllers(t.Context()); err != nil || len(got) != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	c1 := k.dial(k.enrol("controller/c1"), url)
	control := &Control{conn: c1}
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			_ = control.Heartbeat(&weirv1.Heartbeat{
				Controller: &weirv1.Controller{Name: "c1", Run: 5}, Sequence: 1, Held: []*weirv1.HeldBucket{{Bucket: 2, Term: 9}},
			})
			_ = control.Heartbeat(&weirv1.Heartbeat{Controller: &weirv1.Controller{Name: "other", Run: 5}, Sequence: 1})
			_ = c1.nc.Flush()
		}
	}()
	got, err := alice.Controllers(t.Context())
	if err != nil || len(got) != 1 || got[0].Name != "c1" || got[0].Run != 5 || got[0].Held[2] != 9 {
		t.Errorf("%+v, %v", got, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := alice.Controllers(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
