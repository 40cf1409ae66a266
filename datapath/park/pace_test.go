package park_test

import (
	"encoding/binary"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

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
	y.schedule(t, func(c []uint64) { c[byteNs] = 0 }) // none: a class that is late would catch up
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

// monotonic returns the time of bpf_ktime_get_ns.
func monotonic(tb testing.TB) uint64 {
	tb.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		tb.Fatal(err)
	}
	return uint64(now.Nano())
}

// Words of struct park_port.
const (
	byteNs    = 1 // byte_ns_q20
	freeNs    = 2
	lateBytes = 5
)

// schedule changes the schedule of the class. The words are those of struct park_port.
func (y *yard) schedule(tb testing.TB, change func(words []uint64)) []uint64 {
	tb.Helper()
	m := y.park.Maps()["park_ports"]
	words := make([]uint64, m.ValueSize()/8)
	if err := m.Lookup(uint32(classID), words); err != nil {
		tb.Fatal(err)
	}
	change(words)
	if err := m.Put(uint32(classID), words); err != nil {
		tb.Fatal(err)
	}
	return words
}

// A class that is late catches up: padding is cut, by an eighth of a packet at most, and no more than it is late. One that is early gets
// more. A packet that is not padded keeps its length.
func TestPark_CatchesUp(t *testing.T) {
	const cost, headers = 1440, 34
	y := newYard(t, testnet.PathOptions{NoIPv6: true}, park.Options{}, 10e6)
	tx, rx := testnet.NewRaw(t, y.Uplink), testnet.NewRaw(t, y.Rx)
	sent, n := uint64(0), uint32(0)
	for _, c := range []struct {
		name            string
		late            int64
		packets, length int
		change          int64
	}{
		{"on time", 0, 5, 60, 0},
		{"late by 1000 bytes", 1000, 7, 60, -1000},
		{"late by more than the packets can lose", 10_000, 7, 60, -7 * cost / 8},
		{"early", -1000, 7, 60, 1000},
		{"late, with packets that lack 100 bytes", 1000, 3, cost - 100, -300},
		{"late, with packets that are as long as their cost", 1000, 3, cost, 0},
	} {
		// Free in a minute: packets should wait, and what a probe measures is too far off to count.
		y.schedule(t, func(w []uint64) { w[freeNs], w[lateBytes] = monotonic(t)+60e9, uint64(c.late) })
		y.rule(t, parktest.ParkRule{Enabled: 1, All: 1, Cost: cost})
		for range c.packets {
			tx.Send(t, frameOf(false, nil, n, c.length-headers, 0))
			n++
		}
		for range c.packets {
			rx.Receive(t, isOurs)
		}
		bytes, _ := y.class(t, classID)
		if got := int64(bytes-sent) - int64(c.packets)*cost; got != c.change {
			t.Errorf("%s: the class sent %+d bytes, want %+d", c.name, got, c.change)
		}
		sent = bytes
		want := c.late + c.change
		if left := int64(y.schedule(t, func([]uint64) {})[lateBytes]); left != want {
			t.Errorf("%s: %d bytes are left, want %d", c.name, left, want)
		}
	}
}

// A process that takes a parking over sets its ports again, while packets wait. Their schedule goes on: with a new one they would be late.
func TestPark_SetAgainKeepsTheSchedule(t *testing.T) {
	y := newYard(t, testnet.PathOptions{NoIPv6: true}, park.Options{}, 10e6)
	free := monotonic(t) + 60e9
	y.schedule(t, func(w []uint64) { w[freeNs] = free })
	y.setPort(t, classID, y.In.Ifindex, 20e6)
	if w := y.schedule(t, func([]uint64) {}); w[freeNs] != free || w[byteNs] != 400<<20 {
		t.Errorf("free at %d, want %d; a byte takes %d", w[freeNs], free, w[byteNs])
	}
}
