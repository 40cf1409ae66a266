package park_test

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"weir/datapath/attach"
	"weir/datapath/internal/parktest"
	"weir/datapath/park"
	"weir/datapath/testnet"
)

// Ids of the ports of a test, on purpose not in the order of their devices.
const (
	outID   = 1023 // the switch's port towards the receiver
	classID = 0    // the port whose rate paces
)

const owner = "tests"

// yard is a path whose port towards the receiver parks packets.
type yard struct {
	*testnet.Path
	park    *park.Park
	objects parktest.ParkObjects
	law     link.Link
}

// openPark opens a parking in the path's switch.
func openPark(tb testing.TB, p *testnet.Path, o park.Options) *park.Park {
	tb.Helper()
	if o.Owner == "" {
		o.Owner = owner
	}
	opened, err := park.Open(p.Switch.Enter, o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = opened.Close() })
	return opened
}

// newYard builds a path, a parking with a class of rate bps, and the program that parks all TCP packets at the port.
func newYard(tb testing.TB, o testnet.PathOptions, po park.Options, bps uint64) *yard {
	tb.Helper()
	y := &yard{Path: testnet.NewPath(tb, o)}
	y.park = openPark(tb, y.Path, po)
	y.setPort(tb, outID, y.Port.Ifindex, 1e9)
	y.setPort(tb, classID, y.In.Ifindex, bps)
	y.load(tb, y.park.Maps())
	y.rule(tb, parktest.ParkRule{Enabled: 1})
	return y
}

// load attaches the test's program to the port, with the maps of the parking.
func (y *yard) load(tb testing.TB, maps map[string]*ebpf.Map) {
	tb.Helper()
	if err := parktest.LoadParkObjects(&y.objects, &ebpf.CollectionOptions{MapReplacements: maps}); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = y.objects.Close() })
	l, err := attach.Program(y.Port, y.objects.ParkAll, ebpf.AttachTCXEgress, link.Head())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = l.Close() })
	y.law = l
}

func (y *yard) setPort(tb testing.TB, id uint32, ifindex int, bps uint64) {
	tb.Helper()
	if err := y.park.SetPort(id, ifindex, bps, park.Bursts{}); err != nil {
		tb.Fatal(err)
	}
}

// rule sets what the program does; out and class are the test's ids.
func (y *yard) rule(tb testing.TB, r parktest.ParkRule) {
	tb.Helper()
	r.Out, r.Class = outID, classID
	if err := y.objects.Rules.Put(uint32(0), &r); err != nil {
		tb.Fatal(err)
	}
}

func (y *yard) seen(tb testing.TB) (s parktest.ParkSeen) {
	tb.Helper()
	if err := y.objects.Sights.Lookup(uint32(0), &s); err != nil {
		tb.Fatal(err)
	}
	return s
}

func stats(tb testing.TB, p *park.Park) park.Stats {
	tb.Helper()
	s, err := p.Stats()
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// frameOf builds an Ethernet frame with an IP packet that is not TCP (protocol 253, RFC 3692), numbered n, with this many
// bytes behind the header, and a trailer behind the packet.
func frameOf(ipv6 bool, tags []uint16, n uint32, bytes, trailer int) []byte {
	b := []byte{0x02, 0, 0, 0, 0, 2, 0x02, 0, 0, 0, 0, 1}
	for i, tpid := range tags {
		b = binary.BigEndian.AppendUint16(b, tpid)
		b = binary.BigEndian.AppendUint16(b, uint16(100+i))
	}
	if ipv6 {
		b = binary.BigEndian.AppendUint16(b, 0x86dd)
		b = binary.BigEndian.AppendUint32(b, 6<<28|0xabcde)
		b = binary.BigEndian.AppendUint16(b, uint16(bytes))
		b = append(b, 253, 64)
		b = append(b, testnet.SenderIPv6...)
		b = append(b, testnet.ReceiverIPv6...)
	} else {
		b = binary.BigEndian.AppendUint16(b, 0x0800)
		h := make([]byte, 20)
		h[0] = 0x45
		binary.BigEndian.PutUint16(h[2:], uint16(20+bytes))
		h[8], h[9] = 64, 253
		copy(h[12:], []byte{10, 0, 0, 1, 10, 0, 0, 2})
		var sum uint32
		for i := 0; i < 20; i += 2 {
			sum += uint32(h[i])<<8 | uint32(h[i+1])
		}
		sum = sum&0xffff + sum>>16
		binary.BigEndian.PutUint16(h[10:], ^uint16(sum))
		b = append(b, h...)
	}
	payload := make([]byte, bytes+trailer)
	for i := range payload {
		payload[i] = byte(i*7 + 1)
	}
	binary.BigEndian.PutUint32(payload, n)
	return append(b, payload...)
}

// isOurs reports whether a frame is one of frameOf's.
func isOurs(frame []byte) bool {
	return len(frame) > 12 && string(frame[:12]) == string([]byte{0x02, 0, 0, 0, 0, 2, 0x02, 0, 0, 0, 0, 1})
}

// links lists the devices of the switch, and its queue disciplines.
func (y *yard) links(tb testing.TB) (list []string) {
	tb.Helper()
	y.Switch.Must(tb, func() error {
		all, err := netlink.LinkList()
		for _, l := range all {
			list = append(list, fmt.Sprintf("%d %s", l.Attrs().Index, l.Attrs().Name))
		}
		return err
	})
	return list
}

// device returns a device of the switch.
func (y *yard) device(tb testing.TB, name string) (l netlink.Link) {
	tb.Helper()
	y.Switch.Must(tb, func() (err error) {
		l, err = netlink.LinkByName(name)
		return err
	})
	return l
}
