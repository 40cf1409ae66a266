package controller

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/testlog"
	"weir/law"
	"weir/law/fabric"
	"weir/openflow"
)

// flapping is a switch whose second port comes and goes while it is read, more often than is kept, and is gone at last.
type flapping struct {
	id      uint64
	often   int // readings during which it does
	mu      sync.Mutex
	gone    bool
	reading int
}

const flaps = earlyMax + 1001

func (f *flapping) model() model {
	return model{id: f.id, now: func() int {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.gone {
			return 1
		}
		return 2
	}, flows: func(p *remote, xid uint32) error {
		f.mu.Lock()
		f.reading++
		flap := f.reading <= f.often
		f.mu.Unlock()
		for n := range flaps {
			if !flap {
				break
			}
			reason := openflow.PortAdd
			if n == flaps-1 {
				f.mu.Lock()
				f.gone, reason = true, openflow.PortDelete
				f.mu.Unlock()
			}
			if err := p.send(0, &openflow.PortStatus{Reason: reason, Desc: modelPort(2)}); err != nil {
				return err
			}
		}
		return p.send(xid, &openflow.MultipartReply{Type: openflow.MultipartFlow, Body: openflow.FlowStatsReply{}})
	}}
}

// Changes beyond what is kept before a switch has joined are counted, and cannot leave the laws with a port that is gone:
// the switch is read again. One that goes on is not managed, and its status says why.
func TestEarlyEvents(t *testing.T) {
	inBubble(t, func(b *bubble) {
		r := b.controller("a", nil)
		log := new(testlog.Log)
		r.log = slog.New(slog.NewTextHandler(log, nil))
		once, always := &flapping{id: 1, often: 1}, &flapping{id: 2, often: 1 << 30}
		b.connect(once.model(), "a", time.Second)
		b.until("the switch has joined", func() bool { return b.serves(1) })
		s := r.status(b.ctx)
		ports := 0
		for _, n := range s.Forward.Switches[0].Ports {
			ports += n
		}
		if ports != 1 || s.Core.EventsDropped != flaps-earlyMax {
			b.t.Errorf("ports %v, the switch has 1; %d events were dropped, %d came and %d are kept", s.Forward.Switches[0].Ports, s.Core.EventsDropped, flaps, earlyMax)
		}
		if n := strings.Count(log.String(), "too many changes before the switch joined"); n != 1 {
			b.t.Errorf("%d lines speak of it", n)
		}
		b.connect(always.model(), "a", time.Second)
		b.until("the other one is refused", func() bool { s = r.status(b.ctx); return len(s.Refused) > 0 })
		if why := s.Refused[law.Switch(2).String()]; !strings.Contains(why, "changed while it was read") && !strings.Contains(why, "deadline") {
			b.t.Errorf("refused: %v", s.Refused)
		}
		if !b.serves(1) {
			b.t.Error("the first switch has left")
		}
	})
}

// A switch that does not answer while it is read is not managed, and the status says why.
func TestJoinTimeout_Refused(t *testing.T) {
	inBubble(t, func(b *bubble) {
		r := b.controller("a", nil)
		b.until("it is at work", func() bool { return b.serves(0) })
		const switches = 20
		for id := range uint64(switches) {
			mute := func(*remote, uint32) error { return nil }
			b.connect(model{id: id + 1, ports: 1, flows: mute}, "a", time.Hour)
		}
		time.Sleep(2 * joinTimeout)
		s := r.status(b.ctx)
		if n := r.term.Load().core.counts.notManaged.Load(); n != switches || len(s.Refused) != switches {
			b.t.Errorf("%d switches are not managed, and the status names %d of them; want %d", n, len(s.Refused), switches)
		}
	})
}

// Events may come while a switch waits for its turn after a refusal. The tables that are read then contain them all.
func TestEarlyEvents_BeforeReading(t *testing.T) {
	inBubble(t, func(b *bubble) {
		r := b.controller("a", nil)
		b.until("it is at work", func() bool { return b.serves(0) })
		m := model{id: 1, ports: 1, begun: func(p *remote) {
			for range earlyMax + 1 {
				if p.send(0, &openflow.PortStatus{Reason: openflow.PortAdd, Desc: modelPort(2)}) != nil {
					return
				}
			}
		}}
		const wait = 10 * time.Second // after a refusal, for all of them to come
		r.term.Load().core.patience.of = map[law.Switch]again{1: {time.Now(), wait}}
		b.connect(m, "a", time.Second)
		begun := time.Now()
		b.until("the switch has joined", func() bool { return b.serves(1) })
		if s := r.status(b.ctx); time.Since(begun) < wait || s.Core.EventsDropped == 0 {
			b.t.Errorf("after %v, %d events were dropped: the test shows nothing", time.Since(begun), s.Core.EventsDropped)
		}
		for _, n := range r.status(b.ctx).Forward.Switches[0].Ports {
			if n != 1 {
				b.t.Errorf("%d ports", n)
			}
		}
	})
}

// asked records what a switch is asked for, in order: "master", "flows" and "delete".
type asked struct {
	mu   sync.Mutex
	what []string
}

func (a *asked) seen(_ openflow.Header, m openflow.Message) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch m := m.(type) {
	case *openflow.RoleRequest:
		if m.Role == openflow.RoleMaster {
			a.what = append(a.what, "master")
		}
	case *openflow.MultipartRequest:
		if m.Type == openflow.MultipartFlow {
			a.what = append(a.what, "flows")
		}
	case *openflow.FlowMod:
		if m.Command == openflow.FlowDeleteStrict {
			a.what = append(a.what, "delete")
		}
	}
}

func (a *asked) list() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return strings.Join(a.what, " ")
}

func withFlow(f openflow.FlowStats) func(*remote, uint32) error {
	return func(p *remote, xid uint32) error {
		return p.send(xid, &openflow.MultipartReply{Type: openflow.MultipartFlow, Body: openflow.FlowStatsReply{f}})
	}
}

// A switch that is refused for a foreign flow keeps its master: nobody asks for that role. Flows of other versions are removed by
// the master only.
func TestForeignFlow_MasterStays(t *testing.T) {
	inBubble(t, func(b *bubble) {
		r := b.controller("a", nil)
		b.until("it is at work", func() bool { return b.serves(0) })
		var foreign, old asked
		b.connect(model{id: 1, ports: 1, seen: foreign.seen, flows: withFlow(openflow.FlowStats{Cookie: 0x77})}, "a", time.Hour)
		b.until("the switch is refused", func() bool { return len(r.status(b.ctx).Refused) == 1 })
		if got := foreign.list(); got != "flows" {
			t.Errorf("it is asked for %q", got)
		}
		of := openflow.FlowStats{Cookie: fabric.Pass.Cookie(), Match: openflow.Match{openflow.ICMPv4Type(8)}}
		b.connect(model{id: 2, ports: 1, seen: old.seen, flows: withFlow(of)}, "a", time.Hour)
		b.until("the other one has joined", func() bool { return b.serves(1) })
		if got := old.list(); !strings.HasPrefix(got, "flows master flows delete") {
			t.Errorf("the other one is asked for %q", got)
		}
	})
}
