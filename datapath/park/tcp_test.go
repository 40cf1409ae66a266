package park_test

import (
	"fmt"
	"testing"

	"weir/datapath/internal/parktest"
	"weir/datapath/park"
	"weir/datapath/testnet"
)

// Real TCP works through the parking, in both directions, with and without offloads: its checksums are right, GSO packets
// come back whole, and nothing is lost.
func TestPark_TCP(t *testing.T) {
	for _, gso := range []bool{false, true} {
		for _, checksums := range []bool{false, true} {
			if gso && !checksums {
				continue
			}
			t.Run(fmt.Sprintf("gso %v, checksum offload %v", gso, checksums), func(t *testing.T) {
				y := newYard(t, testnet.PathOptions{GSO: gso, ChecksumOffload: checksums, PortBps: 200e6, Limit: 1 << 20},
					park.Options{}, 100e6)
				y.rule(t, parktest.ParkRule{Enabled: 1, Cost: 1514})
				const bytes = 2 << 20
				for _, ip := range []string{"IPv4", "IPv6"} {
					address := testnet.ReceiverIPv4
					if ip == "IPv6" {
						address = testnet.ReceiverIPv6
					}
					pair := y.Dial(t, y.Listen(t, address))
					testnet.Send(t, pair.Client, pair.Server, bytes) // its data is parked
					before := stats(t, y.park)
					testnet.Send(t, pair.Server, pair.Client, bytes/4) // its ACKs are parked
					if s := stats(t, y.park); s.Parked == before.Parked || s.Padded-before.Padded != s.Parked-before.Parked {
						t.Errorf("%s: %d ACKs padded of %d parked", ip, s.Padded-before.Padded, s.Parked-before.Parked)
					}
					pair.Close()
				}
				for _, n := range []*testnet.Namespace{y.Sender, y.Receiver} {
					if bad := n.SNMP(t, "Tcp", "InCsumErrors"); bad != 0 {
						t.Errorf("%d segments with wrong checksums", bad)
					}
				}
				testnet.Until(t, "every parked packet came back", func() bool {
					s := stats(t, y.park)
					return s.Parked == s.Returned && s.BacklogPackets == 0
				})
				s, seen := stats(t, y.park), y.seen(t)
				t.Logf("%+v; %+v", s, seen)
				if s.Untrimmed+s.Stale+s.Foreign+s.PassedGone+s.PassedNoPort+s.PassedMarked+s.PassedPriority+s.PassedClosed != 0 {
					t.Errorf("%+v", s)
				}
				if seen.Sent != seen.Back || seen.Marked != 0 || seen.Changed != 0 {
					t.Errorf("%+v", seen)
				}
				if gso != (seen.GsoBack > 0) {
					t.Errorf("%d GSO packets came back", seen.GsoBack)
				}
			})
		}
	}
}
