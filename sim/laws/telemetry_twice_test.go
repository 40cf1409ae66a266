//go:build cgo

package laws

import (
	"testing"

	"weir/experiment"
	"weir/law"
	"weir/law/droptail"
	"weir/law/telemetry"
	"weir/sim/event"
	"weir/sim/network"
)

// markSome marks packets with these payloads.
type markSome struct{ payloads []int32 }

func (m *markSome) Packet(_ *network.Port, pk *network.Packet, _ event.Time) network.Verdict {
	for _, bytes := range m.payloads {
		if pk.Payload() == bytes {
			pk.SetECN(network.CE)
		}
	}
	return network.Pass
}

// A port reports the packets that its own laws marked. One that was marked before is not counted again.
func TestTelemetry_CountsAMarkOnce(t *testing.T) {
	b := newBedOf(t, experiment.Topology{Kind: "dumbbell", Senders: 2, Receivers: 1}, droptail.Spec().Name, *droptail.Spec().Params().(*droptail.Params), "switch")
	k := b.talk(0, "sender1", "receiver1")
	host, _ := b.net.Node("sender1")
	first, second := b.net.NIC(host), b.net.PortByName("switch->receiver1")
	first.SetLaws(&markSome{[]int32{100, 300}})
	second.SetLaws(&markSome{[]int32{200, 300}})
	marks := map[*network.Port]uint64{}
	for _, p := range []*network.Port{first, second} {
		tel, err := NewTelemetry(b.net.Queue, []*network.Port{p}, TelemetryOptions{
			Every: law.Duration(event.Millisecond), Signals: []law.Signal{law.Marks},
			To: func(e law.Event) {
				if r, is := e.(*telemetry.Telemetry); is {
					marks[p] += r.Ports[0].Marks.Packets
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer tel.Close()
	}
	for _, payload := range []int32{100, 200, 300, 400} {
		pk := k.segment(0, network.ACK, payload, 60_000)
		pk.SetECN(network.ECT0)
		if got := k.send(pk); (got.ECN() == network.CE) != (payload < 400) {
			t.Errorf("%d bytes arrived with ECN %d", payload, got.ECN())
		}
	}
	b.wait(10 * event.Millisecond)
	if marks[first] != 2 || marks[second] != 1 {
		t.Errorf("the first port reports %d marks, want 2; the second %d, want 1", marks[first], marks[second])
	}
}
