package controller

import (
	"testing"
	"time"

	"weir/datapath/testnet"
	"weir/law"
	"weir/law/fabric"
	"weir/openflow"
)

// The connection of a switch that refuses a flow for forwarding is ended. When the switch comes back it gets the orders again, and
// then settles. A switch that refuses only a copy to the controller stays connected.
func TestRefusedOrderIsReportedAgain(t *testing.T) {
	r := newSiege(t)
	for id, kind := range map[uint64]fabric.Kind{1: fabric.Pass, 2: fabric.SYN} {
		sessions, refusals := 0, 0
		go func() {
			for {
				var p *remote
				if err := r.fabric.Enter(func() (err error) { p, err = dialFrom("127.0.0.1"); return err }); err != nil {
					return // the test is over
				}
				sessions++
				err := p.be(model{id: id, ports: 1, seen: func(h openflow.Header, m openflow.Message) {
					f, is := m.(*openflow.FlowMod)
					if is && f.Cookie == kind.Cookie() && refusals == 0 {
						refusals++
						data, err := openflow.Append(nil, h.XID, f)
						if err == nil {
							_ = p.send(h.XID, &openflow.ErrorMessage{ErrorType: openflow.ErrorFlowModFailed, Code: 1, Data: data[:64]}) // table full
						}
					}
				}})
				if err == nil {
					return
				}
			}
		}()
	}
	testnet.Until(t, "both are settled, one of them in its second connection", func() bool {
		s := r.status(t)
		if s == nil || !s.Forward.Settled || len(s.Forward.Switches) != 2 || s.Core.OrdersRefused != 2 || s.Peers.Accepted != 3 {
			return false
		}
		return s.Forward.Switches[0].Joined && s.Forward.Switches[1].Joined
	})
}

// The waits grow, within bounds, and are forgotten after a time without a refusal.
func TestPatience(t *testing.T) {
	var p patience
	now := time.Unix(1000, 0)
	for i, want := range []time.Duration{1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300} {
		if got := p.refused(1, now); got != want*time.Second || p.left(1, now.Add(got/4)) != got-got/4 || p.left(1, now.Add(got)) != 0 {
			t.Errorf("refusal %d: wait %v, should be %v s", i, got, want)
		}
		now = now.Add(time.Minute)
	}
	if got := p.refused(1, now.Add(againOver)); got != againMin {
		t.Errorf("long after: %v", got)
	}
	for id := range law.Switch(5000) {
		p.refused(id, now)
	}
	if len(p.of) > refusedMax || p.left(99999, now) != 0 {
		t.Errorf("%d are remembered", len(p.of))
	}
	for _, b := range [][]byte{nil, {4, 14}, make([]byte, 64), {4, 14, 0, 64, 0, 0, 0, 0, 1, 2, 3, 4, 0, 0, 0, 10}} {
		if forwards(b) {
			t.Errorf("%x is taken for an order of forwarding", b)
		}
	}
}
