package park_test

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"

	"weir/datapath/attach"
	"weir/datapath/internal/parktest"
	"weir/datapath/park"
	"weir/datapath/testnet"
)

// Rates of classes: a packet of waiting counts for 16 s, 1 s, or 128 ms.
const (
	stopped = 8_000
	slower  = 128_000
	slow    = 1_000_000
)

// waiting builds a yard, and sends packets 0 .. 3, of which 1 .. 3 wait in the class.
func waiting(t *testing.T, o park.Options, bps uint64) (y *yard, tx, rx *testnet.Raw) {
	t.Helper()
	y = newYard(t, testnet.PathOptions{NoIPv6: true}, o, bps)
	y.rule(t, parktest.ParkRule{Enabled: 1, All: 1, Cost: 16000})
	tx, rx = testnet.NewRaw(t, y.Uplink), testnet.NewRaw(t, y.Rx)
	for i := range uint32(4) {
		tx.Send(t, frameOf(false, nil, i, 40, 0))
	}
	expect(t, rx, 0)
	if bps != stopped { // some may have left by now
		return y, tx, rx
	}
	if s := stats(t, y.park); s.BacklogPackets != 3 {
		t.Fatalf("want 3 packets that wait: %+v", s)
	}
	return y, tx, rx
}

// expect receives packets with these numbers, in this order.
func expect(t *testing.T, rx *testnet.Raw, numbers ...uint32) {
	t.Helper()
	for _, n := range numbers {
		if got := binary.BigEndian.Uint32(rx.Receive(t, isOurs).Data[34:]); got != n {
			t.Errorf("got packet %d, want %d", got, n)
		}
	}
}

// When the parking device or its queue is gone or down, packets pass.
func TestPark_DeviceGone(t *testing.T) {
	for name, harm := range map[string]func(in, out netlink.Link) error{
		"deleted":        func(in, _ netlink.Link) error { return netlink.LinkDel(in) },
		"down":           func(in, _ netlink.Link) error { return netlink.LinkSetDown(in) },
		"other end down": func(_, out netlink.Link) error { return netlink.LinkSetDown(out) },
		"queue replaced": func(in, _ netlink.Link) error {
			return netlink.QdiscReplace(&netlink.Tbf{
				QdiscAttrs: netlink.QdiscAttrs{LinkIndex: in.Attrs().Index, Parent: netlink.HANDLE_ROOT, Handle: netlink.MakeHandle(7, 0)},
				Rate:       1e6, Limit: 1e6, Buffer: 1e6,
			})
		},
		"queue deleted": func(in, _ netlink.Link) error {
			return netlink.QdiscDel(netlink.NewHtb(netlink.QdiscAttrs{LinkIndex: in.Attrs().Index, Parent: netlink.HANDLE_ROOT}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			y, tx, rx := waiting(t, park.Options{}, stopped)
			in, out := y.device(t, "weir-park0"), y.device(t, "weir-park1")
			y.Switch.Must(t, func() error { return harm(in, out) })
			for n := uint32(100); n < 110; n++ {
				tx.Send(t, frameOf(false, nil, n, 40, 0))
				expect(t, rx, n)
			}
			s := stats(t, y.park)
			if s.PassedGone != 10 || s.Parked != 4 || s.Queue != (name == "down" || name == "other end down") {
				t.Errorf("%+v", s)
			}
			restored(t, y, tx, rx)
			if err := y.park.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// restored restores the parking, and checks that it parks again at the ports' rates.
func restored(t *testing.T, y *yard, tx, rx *testnet.Raw) {
	t.Helper()
	for range 2 { // the second finds a parking that works
		if err := y.park.Restore(); err != nil {
			t.Fatal(err)
		}
	}
	rule := parktest.ParkRule{Enabled: 1, All: 1, Cost: 9000, Out: outID, Class: outID}
	if err := y.objects.Rules.Put(uint32(0), &rule); err != nil {
		t.Fatal(err)
	}
	before := stats(t, y.park)
	for n := uint32(200); n < 210; n++ {
		tx.Send(t, frameOf(false, nil, n, 40, 0))
		expect(t, rx, n)
	}
	if s := stats(t, y.park); s.Parked-before.Parked != 10 || s.Returned-before.Returned != 10 || !s.Queue {
		t.Errorf("restored: %+v", s)
	}
}

// A full parking lets packets pass; nothing is dropped.
func TestPark_Full(t *testing.T) {
	for name, o := range map[string]park.Options{"packets": {LimitPackets: 3}, "bytes": {LimitBytes: 2*16000 + 1}} {
		t.Run(name, func(t *testing.T) {
			y, tx, rx := waiting(t, o, stopped)
			for n := uint32(100); n < 105; n++ {
				tx.Send(t, frameOf(false, nil, n, 40, 0))
			}
			expect(t, rx, 100, 101, 102, 103, 104)
			if s := stats(t, y.park); s.PassedFull != 5 || s.BacklogPackets != 3 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// The parking takes only packets whose mark is free and whose priority fits; the others pass as they are.
func TestPark_MarkAndPriority(t *testing.T) {
	y := newYard(t, testnet.PathOptions{NoIPv6: true}, park.Options{}, 1e9)
	tx, rx := testnet.NewRaw(t, y.Uplink), testnet.NewRaw(t, y.Rx)
	for _, c := range []struct {
		mark, priority uint32
		parked         bool
	}{{0, 0, true}, {0, 1, true}, {0, 15, true}, {0, 16, false}, {0, 0xffffffff, false}, {1, 0, false}, {0xac000000, 3, false}} {
		before, seen := stats(t, y.park), y.seen(t)
		y.rule(t, parktest.ParkRule{Enabled: 1, All: 1, Cost: 1500, Mark: c.mark, Priority: c.priority})
		tx.Send(t, frameOf(false, nil, 9, 40, 0))
		expect(t, rx, 9)
		s, now := stats(t, y.park), y.seen(t)
		if (s.Parked-before.Parked == 1) != c.parked || now.Changed != 0 || now.Marked != 0 {
			t.Errorf("%+v: %+v, %+v", c, s, now)
		}
		if c.parked && now.Priority != c.priority || now.Back-seen.Back != s.Parked-before.Parked {
			t.Errorf("%+v: came back with %+v", c, now)
		}
		if !c.parked && s.PassedMarked+s.PassedPriority != before.PassedMarked+before.PassedPriority+1 {
			t.Errorf("%+v: %+v", c, s)
		}
	}
}

// A port's id can be given to another device: packets that wait for the earlier one do not leave by it.
func TestPark_PortMadeAgain(t *testing.T) {
	y, tx, rx := waiting(t, park.Options{}, slower)
	y.setPort(t, outID, y.In.Ifindex, 1e9)
	y.setPort(t, outID, y.Port.Ifindex, 1e9) // the same device again: as if it were another
	y.setPort(t, classID, y.In.Ifindex, 1e9)
	tx.Send(t, frameOf(false, nil, 50, 40, 0))
	expect(t, rx, 50)
	if s := stats(t, y.park); s.Stale == 0 || s.Stale+s.Returned != 5 {
		t.Errorf("%+v", s)
	}
}

// After RemovePort packets pass, and those that waited leave at once.
func TestPark_RemovePort(t *testing.T) {
	for name, id := range map[string]uint32{"class": classID, "port": outID} {
		t.Run(name, func(t *testing.T) {
			y, tx, rx := waiting(t, park.Options{}, slow)
			for range 2 {
				if err := y.park.RemovePort(id); err != nil {
					t.Fatal(err)
				}
			}
			expect(t, rx, 1, 2, 3)
			tx.Send(t, frameOf(false, nil, 60, 40, 0))
			expect(t, rx, 60)
			if s := stats(t, y.park); s.PassedNoPort != 1 || s.Stale != 0 {
				t.Errorf("%+v", s)
			}
			if err := y.park.RemovePort(500); err != nil {
				t.Error(err)
			}
		})
	}
}

// When user space is gone, what waits still leaves. A later process takes the parking over with what waits in it.
func TestPark_UserSpaceDies(t *testing.T) {
	y, tx, rx := waiting(t, park.Options{}, slow)
	if err := y.park.Leave(); err != nil {
		t.Fatal(err)
	}
	if _, err := y.park.Stats(); !errors.Is(err, park.ErrClosed) {
		t.Errorf("Stats after Leave: %v", err)
	}
	tx.Send(t, frameOf(false, nil, 4, 40, 0)) // the law still parks
	again := openPark(t, y.Path, park.Options{})
	if s := stats(t, again); s.Parked != 5 {
		t.Errorf("taken over: %+v", s)
	}
	tx.Send(t, frameOf(false, nil, 5, 40, 0)) // the earlier program, with the same maps
	if err := again.SetPort(classID, y.In.Ifindex, 1e9, park.Bursts{}); err != nil {
		t.Fatal(err)
	}
	expect(t, rx, 1, 2, 3, 4, 5)
	if s := stats(t, again); s.Stale != 0 || s.PassedClosed != 0 {
		t.Errorf("%+v", s)
	}
}

// When no process has anything of the parking open any longer, as after kill -9, what waits still leaves. The next process
// finds the counters.
func TestPark_NobodyHoldsIt(t *testing.T) {
	y, tx, rx := waiting(t, park.Options{}, slow)
	if err := errors.Join(y.park.Leave(), y.law.Close(), y.objects.Close()); err != nil {
		t.Fatal(err)
	}
	expect(t, rx, 1, 2, 3)
	again := openPark(t, y.Path, park.Options{})
	if s := stats(t, again); s.Parked != 4 || s.Returned != 4 || !s.Queue {
		t.Errorf("%+v", s)
	}
	tx.Send(t, frameOf(false, nil, 4, 40, 0)) // there is no law
	expect(t, rx, 4)
}

// A pair that a process left incomplete is replaced.
func TestPark_IncompletePair(t *testing.T) {
	for name, harm := range map[string]func(in, out netlink.Link) error{
		"no queue": func(in, _ netlink.Link) error {
			return netlink.QdiscDel(netlink.NewHtb(netlink.QdiscAttrs{LinkIndex: in.Attrs().Index, Parent: netlink.HANDLE_ROOT}))
		},
		"no program": func(_, out netlink.Link) error {
			return netlink.QdiscDel(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: out.Attrs().Index, Parent: netlink.HANDLE_CLSACT}})
		},
		"no alias": func(in, out netlink.Link) error {
			return errors.Join(netlink.LinkSetAlias(in, ""), netlink.LinkSetAlias(out, ""))
		},
		"down": func(in, out netlink.Link) error {
			return errors.Join(netlink.LinkSetDown(in), netlink.LinkSetDown(out), netlink.LinkSetMTU(in, 1500), netlink.LinkSetMTU(out, 1500))
		},
	} {
		t.Run(name, func(t *testing.T) {
			y := &yard{Path: testnet.NewPath(t, testnet.PathOptions{NoIPv6: true})}
			if err := openPark(t, y.Path, park.Options{}).Leave(); err != nil {
				t.Fatal(err)
			}
			in, out := y.device(t, "weir-park0"), y.device(t, "weir-park1")
			y.Switch.Must(t, func() error { return harm(in, out) })
			y.park = openPark(t, y.Path, park.Options{})
			y.setPort(t, outID, y.Port.Ifindex, 1e9)
			y.setPort(t, classID, y.In.Ifindex, 1e9)
			y.load(t, y.park.Maps())
			y.rule(t, parktest.ParkRule{Enabled: 1, All: 1, Cost: 9000})
			tx, rx := testnet.NewRaw(t, y.Uplink), testnet.NewRaw(t, y.Rx)
			tx.Send(t, frameOf(false, nil, 1, 40, 0))
			expect(t, rx, 1)
			if s := stats(t, y.park); s.Returned != 1 || s.Padded != 1 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// Close sends what waits, removes our devices and no others.
func TestPark_CloseDrains(t *testing.T) {
	y, tx, rx := waiting(t, park.Options{}, slow)
	before := y.links(t)
	if err := y.park.Close(); err != nil {
		t.Fatal(err)
	}
	expect(t, rx, 1, 2, 3)
	after := y.links(t)
	if len(after) != len(before)-2 || slices.ContainsFunc(after, func(s string) bool { return !slices.Contains(before, s) }) {
		t.Errorf("devices before %v, after %v", before, after)
	}
	tx.Send(t, frameOf(false, nil, 4, 40, 0)) // the law's program passes packets
	expect(t, rx, 4)
	if err := errors.Join(y.park.Close(), y.park.Leave()); err != nil {
		t.Error(err)
	}
	if err := y.park.SetPort(1, 1, 1e6, park.Bursts{}); !errors.Is(err, park.ErrClosed) {
		t.Errorf("SetPort after Close: %v", err)
	}
}

// Devices of other people are never touched.
func TestPark_ForeignDevices(t *testing.T) {
	p := testnet.NewPath(t, testnet.PathOptions{NoIPv6: true})
	y := &yard{Path: p}
	for name, make := range map[string]netlink.Link{
		"bridge":      &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "weir-park0"}},
		"veth":        netlink.NewVeth(netlink.LinkAttrs{Name: "weir-park1"}),
		"other names": netlink.NewVeth(netlink.LinkAttrs{Name: "weir-park0"}),
	} {
		t.Run(name, func(t *testing.T) {
			if v, ok := make.(*netlink.Veth); ok {
				v.PeerName = "other"
			}
			p.Switch.Must(t, func() error { return netlink.LinkAdd(make) })
			before := y.links(t)
			var foreign *park.Foreign
			if _, err := park.Open(p.Switch.Enter, park.Options{}); !errors.As(err, &foreign) {
				t.Errorf("Open: %v", err)
			}
			if err := park.Remove(p.Switch.Enter, park.Options{}); !errors.As(err, &foreign) {
				t.Errorf("Remove: %v", err)
			}
			if after := y.links(t); !slices.Equal(before, after) {
				t.Errorf("devices before %v, after %v", before, after)
			}
			p.Switch.Must(t, func() error { return netlink.LinkDel(make) })
		})
	}
	opened := openPark(t, p, park.Options{Owner: "first"})
	var foreign *park.Foreign
	if _, err := park.Open(p.Switch.Enter, park.Options{Owner: "second"}); !errors.As(err, &foreign) {
		t.Errorf("Open with another owner: %v", err)
	}
	if err := opened.Leave(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second finds nothing
		if err := park.Remove(p.Switch.Enter, park.Options{Owner: "first"}); err != nil {
			t.Error(err)
		}
	}
	if left := y.links(t); slices.ContainsFunc(left, func(s string) bool { return len(s) > 6 && s[len(s)-6:len(s)-1] == "-park" }) {
		t.Errorf("devices after Remove: %v", left)
	}
}

// Frames that another program sends through the parking device are dropped and counted.
func TestPark_ForeignTraffic(t *testing.T) {
	y := newYard(t, testnet.PathOptions{NoIPv6: true}, park.Options{}, 1e9)
	in := attach.PortRef{Name: "parking", Ifindex: y.device(t, "weir-park0").Attrs().Index, Enter: y.Switch.Enter}
	raw := testnet.NewRaw(t, in)
	for n := range uint32(5) {
		raw.Send(t, frameOf(false, nil, n, 40, 0))
	}
	testnet.Until(t, "the frames are dropped", func() bool { return stats(t, y.park).Foreign == 5 })
	if s := stats(t, y.park); s.Returned != 0 {
		t.Errorf("%+v", s)
	}
}

// Options and ports out of range are refused, each with an error.
func TestPark_Ranges(t *testing.T) {
	p := testnet.NewPath(t, testnet.PathOptions{NoIPv6: true})
	for _, o := range []park.Options{
		{Name: "fifteen-letters"}, {Name: "a/b"}, {Name: ".."}, {LimitBytes: 64<<20 + 1}, {LimitPackets: 1<<16 + 1}, {Burst: -1}, {Burst: 1e9},
		{Owner: "a\x00b"},
	} {
		if opened, err := park.Open(p.Switch.Enter, o); err == nil {
			t.Errorf("%+v: no error", o)
			_ = opened.Close()
		}
	}
	opened := openPark(t, p, park.Options{Name: "fourteen-chars"})
	for _, c := range []struct {
		id      uint32
		ifindex int
		bps     uint64
	}{{1024, 1, 1e6}, {0, 0, 1e6}, {0, -1, 1e6}, {0, 1, 7999}, {0, 1, 1e12 + 1}} {
		if err := opened.SetPort(c.id, c.ifindex, c.bps, park.Bursts{}); err == nil {
			t.Errorf("%+v: no error", c)
		}
	}
	if err := opened.RemovePort(1024); err == nil {
		t.Error("RemovePort(1024): no error")
	}
}
