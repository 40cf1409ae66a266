package lab

import (
	"encoding/binary"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weir/datapath/testnet"
	"weir/internal/nic"
)

// Every veth of every node steers its flows, and a bridge does not.
func TestFlowsAreSteered(t *testing.T) {
	g := dumbbell(1, true)
	l := up(t, "steered", g.config())
	for _, name := range l.Nodes() {
		err := l.Enter(name, func() error {
			links, err := netlink.LinkList()
			for _, link := range links {
				mask, e := nic.Steered(link.Attrs().Name)
				err = errors.Join(err, e)
				if is, want := strings.Trim(mask, "0,") != "", link.Type() == "veth"; is != want {
					t.Errorf("%s of %s, a %s: processors %q", link.Attrs().Name, name, link.Type(), mask)
				}
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// The frames of each flow arrive in the order in which they were sent, while flows on all processors share the queues on their way, so that
// every queue sends on all of them.
func TestOrderIsKept(t *testing.T) {
	const flows, frames = 4, 4000
	l := up(t, "order", dumbbell(1, false).config())
	rx := testnet.NewRaw(t, portOf(t, l, "receiver1->switch"))
	var senders sync.WaitGroup
	for flow := range flows {
		tx := testnet.NewRaw(t, portOf(t, l, "sender1->switch"))
		frame := numbered(l, flow)
		senders.Add(1)
		go func() {
			defer senders.Done()
			// A sender that changed its processor could itself exchange frames.
			if err := testnet.PinTo(flow); err != nil {
				t.Error(err)
				return
			}
			for n := range uint32(frames) {
				binary.BigEndian.PutUint32(frame[numberAt:], n)
				if err := tx.TrySend(frame); err != nil {
					t.Error(err)
					return
				}
			}
		}()
	}
	var next [flows]uint32
	exchanged := 0
	for range flows * frames {
		got := rx.Receive(t, func(b []byte) bool { return len(b) > numberAt && b[protocolAt] == forTests }).Data
		flow, n := got[flowAt], binary.BigEndian.Uint32(got[numberAt:])
		if n < next[flow] {
			exchanged++
		}
		next[flow] = max(next[flow], n+1)
	}
	senders.Wait()
	if exchanged > 0 {
		t.Errorf("%d of %d frames came after a later one of their flow", exchanged, flows*frames)
	}
}

// Places in a frame of numbered, and its IP protocol.
const (
	protocolAt = 14 + 9
	flowAt     = 14 + 15 // of the source address: nothing checks it
	numberAt   = 14 + 20
	forTests   = 253 // RFC 3692
)

// numbered returns a frame from sender1 to receiver1, without its number. The flow is a part of the source address.
func numbered(l *Lab, flow int) []byte {
	from, to := l.plan.byName["sender1"], l.plan.byName["receiver1"]
	b := append(append([]byte{}, to.ports[0].mac...), from.ports[0].mac...)
	b = binary.BigEndian.AppendUint16(b, unix.ETH_P_IP)
	ip := make([]byte, 46)
	ip[0], ip[8], ip[9] = 0x45, 64, forTests
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	copy(ip[12:], []byte{10, 99, 99, byte(flow)})
	copy(ip[16:], l.Addr(to.name, 0).AsSlice())
	return append(b, ip...)
}
