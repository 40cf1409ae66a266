package main

import (
	"math"
	"testing"

	"github.com/vishvananda/netlink"

	"weir/datapath/attach"
	"weir/datapath/testnet"
)

// bucket returns the size in bytes of the bucket of the tbf at the data's port.
func (m *machine) bucket() (bytes int) {
	m.t.Helper()
	m.Switch.Must(m.t, func() error {
		dev, err := netlink.LinkByIndex(m.Port.Ifindex)
		if err != nil {
			return err
		}
		list, err := netlink.QdiscList(dev)
		for _, q := range list {
			if t, ok := q.(*netlink.Tbf); ok {
				bytes = int(math.Round(float64(t.Rate) * float64(t.Buffer) / netlink.TickInUsec() / 1e6))
			}
		}
		return err
	})
	return bytes
}

// The bucket of a shaper of Weir grows with the MTU of its port, so large frames pass.
func TestSwitch_ShapeFollowsTheMTU(t *testing.T) {
	parallel(t)
	m := newMachine(t)
	m.unshaped()
	c := m.switchFrom(shaped)
	twoFrames := func(is, frame int) bool { return is > 2*frame-50 && is <= 2*frame } // the library counts in microseconds
	if is := m.bucket(); !twoFrames(is, 1514) {
		t.Fatalf("a bucket of %d bytes", is)
	}
	for _, p := range []attach.PortRef{m.Uplink, m.In, m.Port, m.Rx} {
		err := p.In(func() error {
			l, err := netlink.LinkByIndex(p.Ifindex)
			if err != nil {
				return err
			}
			return netlink.LinkSetMTU(l, 9000)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	m.until(c.p, "a large frame fits in the bucket", func() bool { return m.bucket() >= 9014 })
	frame := make([]byte, 9014)
	copy(frame, []byte{0x02, 0, 0, 0, 0, 2, 0x02, 0, 0, 0, 0, 1, 0x88, 0xb5}) // an EtherType for experiments
	tx, rx := testnet.NewRaw(t, m.Uplink), testnet.NewRaw(t, m.Rx)
	tx.Send(t, frame)
	rx.Receive(t, func(got []byte) bool { return string(got) == string(frame) })
	// It is as it should be, so it is left alone.
	c.applied(shaped + "scope: [10.0.0.0/8]\n")
	if is := m.bucket(); !twoFrames(is, 9014) {
		t.Errorf("a bucket of %d bytes", is)
	}
}
