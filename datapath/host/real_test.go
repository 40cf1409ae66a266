package host_test

import (
	"fmt"
	"testing"
	"time"

	"weir/datapath/host"
	"weir/datapath/testnet"
)

// inFlight returns the most bytes that were in flight on a stream's connection in some readings, and its MSS.
func inFlight(t testing.TB, p *testnet.Pair, readings int) (most, mss int) {
	t.Helper()
	for range readings {
		i := testnet.ReadTCPInfo(t, p.Client)
		mss = int(i.Snd_mss)
		most = max(most, int(i.Unacked)*mss)
	}
	return most, mss
}

// One pair is limited to a segment and a byte, and the VM's other pair and another VM are not. When heartbeats stop, the pair
// is released within 1.5 s. No connection stalls for 300 ms. Real TCP, IPv4 and IPv6, with offloads and without.
func TestPair_LimitedAndReleased(t *testing.T) {
	for _, offload := range []bool{false, true} {
		for _, ipv6 := range []bool{false, true} {
			t.Run(fmt.Sprintf("offloads=%t,ipv6=%t", offload, ipv6), func(t *testing.T) {
				pairLimited(t, offload, ipv6)
			})
		}
	}
}

func pairLimited(t *testing.T, offload, ipv6 bool) {
	// The uplink is so slow that a busy machine keeps up with it, also without offloads. If it did not, streams would stall.
	n := testnet.NewHypervisor(t, 2, 2, testnet.PathOptions{UplinkBps: 100e6, UplinkLimit: 200_000, GSO: offload, ChecksumOffload: offload})
	h := open(t, n, host.Config{})
	peer := testnet.PeerIPv4
	if ipv6 {
		peer = testnet.PeerIPv6
	}
	limited := n.Path(0).NewStreams(t, peer(0), 1)
	others := []*testnet.Streams{n.Path(0).NewStreams(t, peer(1), 1), n.Path(1).NewStreams(t, peer(0), 1)}
	stop := heartbeats(t, h, 1)
	const quick = 30 * 1460
	// Without a limit more is in flight than with one, or the test could not see it. The window grows at first.
	testnet.Until(t, "the pair has much in flight before the grant", func() bool {
		most, _ := inFlight(t, limited.Pair(0), 100)
		return most >= quick
	})
	set(t, h, window(addr(peer(0)), 1))
	testnet.Until(t, "the pair is limited", func() bool {
		most, mss := inFlight(t, limited.Pair(0), 1)
		return most <= 2*mss
	})
	all := append([]*testnet.Streams{limited}, others...)
	for _, s := range all {
		s.Mark()
	}
	limited.Progress(t, 200*1460)
	most, mss := inFlight(t, limited.Pair(0), 5000)
	if most > 2*mss {
		t.Errorf("%d bytes in flight, with a window of a segment (%d) and a byte", most, mss)
	}
	for i, s := range others {
		s.Progress(t, 1e6)
		testnet.Until(t, fmt.Sprintf("stream %d, which has no grant, has more in flight than a grant allows", i), func() bool { // the streams share a queue: its window varies
			most, mss := inFlight(t, s.Pair(0), 100)
			return most > 4*mss
		})
	}
	stop()
	stopped := time.Now()
	// The window that ACKs grant, and not what is in flight: TCP takes many round trips to fill it, on a busy machine half a second.
	testnet.Until(t, "the pair is released", func() bool { return testnet.ReadTCPInfo(t, limited.Pair(0).Client).Snd_wnd >= quick })
	took := time.Since(stopped)
	if took-limited.Paused() > 1500*time.Millisecond || took < 600*time.Millisecond {
		t.Errorf("released after %v, want 1.5 s at most, and not before the lease of 1 s, of which up to 250 ms are over", took)
	}
	limited.Progress(t, 1e6)
	gap := time.Duration(0)
	for _, s := range all {
		gap = max(gap, s.Stall())
	}
	if gap > 300*time.Millisecond {
		t.Errorf("a stream stalled for %v", gap)
	}
	s := statsOf(t, h, 1)
	t.Logf("%d in flight at most, released after %v, longest stall %v, %+v", most, took, gap, s)
	// On a busy machine a SYN-ACK may be sent again, and counts again.
	if s.Limited == 0 || s.Unknown+s.Unwritable+s.Signed != 0 || s.Learnt < 2 || s.SpoofedIP+s.SpoofedMAC+s.Control+s.Malformed != 0 {
		t.Errorf("counted %+v", s)
	}
}
