package park_test

import (
	"encoding/binary"
	"testing"

	"github.com/vishvananda/netlink"

	"weir/datapath/internal/parktest"
	"weir/datapath/park"
	"weir/datapath/testnet"
)

// No packet leaves before the bytes ahead of it have been paced at the class's rate. The bound holds however slow the
// machine is.
func TestPark_PacesByCost(t *testing.T) {
	const (
		packets = 150
		cost    = 1500
		bps     = 10e6
		burst   = 1600 // bytes that may leave at once; a packet needs only the first byte of its tokens
	)
	y := newYard(t, testnet.PathOptions{NoIPv6: true}, park.Options{}, bps)
	y.rule(t, parktest.ParkRule{Enabled: 1, All: 1, Cost: cost})
	tx, rx := testnet.NewRaw(t, y.Uplink), testnet.NewRaw(t, y.Rx)
	for n := range uint32(packets) {
		tx.Send(t, frameOf(false, nil, n, 40, 0))
	}
	for range packets {
		rx.Receive(t, isOurs)
	}
	s := y.seen(t)
	for k := range uint32(packets) {
		var at uint64
		if err := y.objects.Times.Lookup(k, &at); err != nil {
			t.Fatal(err)
		}
		earliest := max(0, (float64(k)*cost-burst)*8e9/bps)
		if after := float64(at - s.FirstNs); after < 0.999*earliest {
			t.Errorf("packet %d left after %.0f us, want %.0f at least", k, after/1e3, earliest/1e3)
		}
	}
	if bytes, n := y.class(t, classID); bytes != packets*cost || n != packets {
		t.Errorf("the class sent %d bytes in %d packets, want %d in %d", bytes, n, packets*cost, packets)
	}
}

// class returns what HTB's class of an id has sent.
func (y *yard) class(tb testing.TB, id uint32) (bytes uint64, packets uint32) {
	tb.Helper()
	y.Switch.Must(tb, func() error {
		l, err := netlink.LinkByName("weir-park0")
		if err != nil {
			return err
		}
		list, err := netlink.ClassList(l, 0)
		for _, c := range list {
			if a := c.Attrs(); a.Handle == 0x50580000+id+1 && a.Statistics != nil {
				bytes, packets = a.Statistics.Basic.Bytes, a.Statistics.Basic.Packets
			}
		}
		return err
	})
	return bytes, packets
}

// Packets of two classes do not wait for each other.
func TestPark_ClassesAreApart(t *testing.T) {
	y := newYard(t, testnet.PathOptions{NoIPv6: true}, park.Options{}, 8000)
	tx, rx := testnet.NewRaw(t, y.Uplink), testnet.NewRaw(t, y.Rx)
	y.rule(t, parktest.ParkRule{Enabled: 1, All: 1, Cost: 16000})
	for n := range uint32(5) { // 16 s each
		tx.Send(t, frameOf(false, nil, n, 40, 0))
	}
	rx.Receive(t, isOurs) // the burst
	rule := parktest.ParkRule{Enabled: 1, All: 1, Cost: 16000, Out: outID, Class: outID}
	if err := y.objects.Rules.Put(uint32(0), &rule); err != nil {
		t.Fatal(err)
	}
	tx.Send(t, frameOf(false, nil, 77, 40, 0))
	if got := binary.BigEndian.Uint32(rx.Receive(t, isOurs).Data[34:]); got != 77 {
		t.Errorf("packet %d came out of the slow class first", got)
	}
	if s := stats(t, y.park); s.BacklogPackets != 4 || s.BacklogBytes != 4*16000 {
		t.Errorf("%+v", s)
	}
}
