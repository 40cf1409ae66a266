package bus

import (
	"testing"
	"time"
)

// One identity cannot use up the connections of a server, so that others find none.
func TestAttack_ConnectionsOfOneIdentity(t *testing.T) {
	k := newKit(t)
	s := k.server(nil)
	evil := k.enrol("agent/evil")
	for range MaxPerIdentity {
		k.dial(evil, s.URL())
	}
	more, err := Dial(k.client(evil, s.URL()))
	if err != nil {
		t.Fatal(err)
	}
	defer more.Close()
	until(t, "refusal of one connection more", func() bool { return s.Counts()["connections"] > 0 })
	if more.Connected() {
		t.Errorf("connection %d of one identity is accepted", MaxPerIdentity+1)
	}
	k.dial(k.enrol("agent/good"), s.URL())
}

// The limits hold for all connections of an identity together: four that each send less than one may are ended.
func TestAttack_FloodOnSeveralConnections(t *testing.T) {
	k := newKit(t)
	const most = 1000
	s := k.server(func(c *ServerConfig) { c.maxMessages = most })
	var all []*Conn
	for range 4 {
		all = append(all, k.dial(k.enrol("agent/evil"), s.URL()))
	}
	every := time.NewTicker(time.Second / 50)
	defer every.Stop()
	until(t, "end of a connection", func() bool {
		<-every.C
		for _, c := range all {
			for range most / 50 / 2 { // half of what one connection may send
				_ = c.nc.Publish("weir.v1.tel.evil", nil) // until it is ended
			}
		}
		return s.Counts()["flood"] > 0
	})
}
