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

// A connection that came while the list of connections was made is missing in it. It counts nevertheless: an identity could otherwise have one
// more at each look. One that was listed and has ended does not count, so that an agent can come back at once.
func TestClient_IsOpen(t *testing.T) {
	for _, row := range []struct {
		name   string
		looks  []bool
		open   bool
		isGone bool
	}{
		{"new", nil, true, false},
		{"came while the list was made", []bool{false}, true, false},
		{"late in the list", []bool{false, false, true}, true, false},
		{"ended", []bool{false, true, false}, false, false},
		{"never listed", []bool{false, false, false, false, false}, true, true},
		{"ended long ago", []bool{true, false, false, false, false, false}, false, true},
	} {
		c, gone := client{}, false
		for _, listed := range row.looks {
			gone = c.looked(listed)
		}
		if c.isOpen() != row.open || gone != row.isGone {
			t.Errorf("%s: open %t, gone %t; want %t, %t", row.name, c.isOpen(), gone, row.open, row.isGone)
		}
	}
}

// The limits hold for all connections of an identity together: four that each send less than one may are ended.
func TestAttack_FloodOnSeveralConnections(t *testing.T) {
	k := newKit(t)
	const most = 100 // a second
	s := k.server(func(c *ServerConfig) { c.maxMessages = most })
	var all []*Conn
	for range 4 {
		all = append(all, k.dial(k.enrol("agent/evil"), s.URL()))
	}
	begun, sent := time.Now(), 0 // by each connection
	until(t, "end of a connection", func() bool {
		for due := int(time.Since(begun).Seconds() * most / 2); sent < due; sent++ { // half of what one connection may send
			for _, c := range all {
				_ = c.nc.Publish("weir.v1.tel.evil", nil) // until it is ended
			}
		}
		return s.Counts()["flood"] > 0
	})
}
