package park_test

import (
	"sync"
	"testing"

	"github.com/vishvananda/netlink"

	"weir/datapath/internal/parktest"
	"weir/datapath/park"
	"weir/datapath/testnet"
)

// The parking device is deleted and restored again and again while packets are parked on all processors and a TCP
// connection runs. The connection survives, and the parking works afterwards: its counters account for every packet.
func TestPark_DeletedUnderLoad(t *testing.T) {
	const rounds = 15
	y := newYard(t, testnet.PathOptions{GSO: true, ChecksumOffload: true, PortBps: 500e6, Limit: 1 << 20}, park.Options{}, 200e6)
	y.rule(t, parktest.ParkRule{Enabled: 1, All: 1, Cost: 1514})
	pair := y.Dial(t, y.Listen(t, testnet.ReceiverIPv4))
	stop := make(chan struct{})
	var senders sync.WaitGroup
	for range 2 {
		tx := testnet.NewRaw(t, y.Uplink)
		senders.Add(1)
		go func() {
			defer senders.Done()
			for n := uint32(0); ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				if err := tx.TrySend(frameOf(false, nil, n, 40, 0)); err != nil {
					t.Error(err)
					return
				}
			}
		}()
	}
	for range rounds {
		before := stats(t, y.park)
		testnet.Until(t, "packets are parked", func() bool { return stats(t, y.park).Parked > before.Parked+100 })
		y.Switch.Must(t, func() error {
			l, err := netlink.LinkByName("weir-park0")
			if err != nil {
				return err
			}
			return netlink.LinkDel(l)
		})
		testnet.Until(t, "packets pass", func() bool { return stats(t, y.park).PassedGone > before.PassedGone+100 })
		if err := y.park.Restore(); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	senders.Wait()
	testnet.Send(t, pair.Client, pair.Server, 1<<20)
	testnet.Until(t, "nothing waits", func() bool { return stats(t, y.park).BacklogPackets == 0 })
	before := stats(t, y.park)
	testnet.Send(t, pair.Client, pair.Server, 1<<20)
	testnet.Until(t, "every parked packet came back", func() bool {
		s := stats(t, y.park)
		return s.Parked > before.Parked && s.Parked-before.Parked == s.Returned-before.Returned
	})
	s, seen := stats(t, y.park), y.seen(t)
	t.Logf("%+v; %+v", s, seen)
	// The kernel's own MLD and IGMP reports have a mark: a field that they use shares its place. They pass.
	if s.Foreign+s.Stale+s.Untrimmed+s.PassedNoPort != 0 || seen.Changed+seen.Marked != 0 {
		t.Errorf("%+v; %+v", s, seen)
	}
}
