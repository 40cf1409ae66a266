//go:build cgo

package laws

import (
	"testing"

	"weir/law"
	"weir/law/droptail"
	"weir/law/telemetry"
	"weir/sim/event"
	"weir/sim/network"
)

// SI-6: a SYN and a SYN-ACK count at the port that the data of their sender crosses, of any server. The published code counts SYNs to port
// 5001 and SYN-ACKs from port 80, and neither here.
func TestSI6_ArrivalsOfAnyServer(t *testing.T) {
	const server = 8080
	b := newBedOf(t, twoSenders, droptail.Name, *droptail.Spec().Params().(*droptail.Params), "switch")
	receiver, sender := b.net.PortByName("switch->receiver1"), b.net.PortByName("switch->sender1")
	got := map[uint32]telemetry.Counts{}
	tel, err := NewTelemetry(b.net.Queue, []*network.Port{receiver, sender}, TelemetryOptions{
		Every: law.Duration(event.Millisecond), Signals: []law.Signal{law.Arrivals},
		To: func(e law.Event) {
			if a, is := e.(*telemetry.Arrivals); is {
				for _, p := range a.Ports {
					c := got[p.N]
					c.SYN, c.SYNACK = c.SYN+p.Counts.SYN, c.SYNACK+p.Counts.SYNACK
					got[p.N] = c
				}
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer tel.Close()
	published := 0
	k := b.talk(0, "sender1", "receiver1")
	k.port = 40_000
	for side, flags := range []uint16{network.SYN, network.SYN | network.ACK} {
		pk := k.segment(side, flags, 0, 60_000)
		if side == 0 {
			pk.SetDstPort(server)
		} else {
			pk.SetSrcPort(server)
		}
		if flags == network.SYN && pk.DstPort() == 5001 || flags != network.SYN && pk.SrcPort() == 80 {
			published++
		}
		k.send(pk)
	}
	b.wait(10 * event.Millisecond)
	if a := got[uint32(receiver.ID)]; a != (telemetry.Counts{SYN: 1}) {
		t.Errorf("towards the server %+v, want a SYN", a)
	}
	if a := got[uint32(sender.ID)]; a != (telemetry.Counts{SYNACK: 1}) {
		t.Errorf("towards the client %+v, want a SYN-ACK", a)
	}
	if published != 0 {
		t.Errorf("the published code counts %d", published)
	}
}
