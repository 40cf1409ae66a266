package park_test

import (
	"encoding/binary"
	"sync"
	"testing"

	"weir/datapath/internal/parktest"
	"weir/datapath/park"
	"weir/datapath/testnet"
)

// The order of each flow's packets is kept while flows on all processors share a class, so that HTB runs on all of them.
// Without RPS at the far end 7 to 39 of 80,000 packets came out of order on two processors.
func TestPark_OrderIsKept(t *testing.T) {
	const flows, packets = 4, 10_000
	y := newYard(t, testnet.PathOptions{NoIPv6: true}, park.Options{LimitPackets: flows * packets, LimitBytes: 64 << 20}, 200e6)
	y.rule(t, parktest.ParkRule{Enabled: 1, All: 1, Cost: 100})
	rx := testnet.NewRaw(t, y.Rx)
	var senders sync.WaitGroup
	for flow := range flows {
		tx := testnet.NewRaw(t, y.Uplink)
		senders.Add(1)
		go func() {
			defer senders.Done()
			// A sender that changed its processor could itself exchange packets.
			if err := testnet.PinTo(flow); err != nil {
				t.Error(err)
				return
			}
			for n := range uint32(packets) {
				frame := frameOf(false, nil, n, 40, 0)
				frame[29] = byte(10 + flow) // of the source address: frames are not checked further
				if err := tx.TrySend(frame); err != nil {
					t.Error(err)
					return
				}
			}
		}()
	}
	var next [flows]uint32
	for range flows * packets {
		got := rx.Receive(t, isOurs)
		flow, n := got.Data[29]-10, binary.BigEndian.Uint32(got.Data[34:])
		if n != next[flow] {
			t.Fatalf("flow %d: packet %d came in the place of packet %d", flow, n, next[flow])
		}
		next[flow]++
	}
	senders.Wait()
	s := stats(t, y.park)
	if s.Parked != flows*packets || s.Returned != flows*packets || s.BacklogBytes != 0 || !s.FlowPerCPU {
		t.Errorf("%+v", s)
	}
}
