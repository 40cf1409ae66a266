package fairq_test

import (
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"weir/datapath/fairq"
	"weir/datapath/testnet"
)

// sendOn keeps a flow sending as fast as it may until the test ends or stop is called.
func sendOn(t *testing.T, c *testnet.Pair) (stop func()) {
	t.Helper()
	var both sync.WaitGroup
	both.Go(func() { _, _ = io.Copy(io.Discard, c.Server) })
	both.Go(func() {
		chunk := make([]byte, 64<<10)
		for {
			if _, err := c.Client.Write(chunk); err != nil {
				return
			}
		}
	})
	stop = func() {
		c.Close()
		both.Wait()
	}
	t.Cleanup(stop)
	return stop
}

// newBusyPath is a rwndPath without taps: they could not be read as fast as its flows send.
func newBusyPath(t *testing.T) *rwndPath {
	t.Helper()
	const bps, limit, burst = 400e6, 10_000_000, 3028
	p := &rwndPath{Path: testnet.NewPath(t, testnet.PathOptions{
		NoIPv6: true, GSO: true, ChecksumOffload: true, PortBps: bps, Limit: limit, Burst: burst,
	})}
	testnet.Shape(t, p.In, bps, limit, burst)
	// Large from the start: the kernel's own increase of a receiver's window depends on round trips.
	p.Receiver.Sysctl(t, "net.ipv4.tcp_rmem", fmt.Sprintf("4096 %d %d", 8<<20, largestWindow))
	return p
}

// idlePool opens connections that send a byte each way and then nothing.
func idlePool(t *testing.T, p *rwndPath, n int) []*testnet.Pair {
	t.Helper()
	l := p.Listen(t, testnet.ReceiverIPv4)
	pool := make([]*testnet.Pair, n)
	for i := range pool {
		pool[i] = p.Dial(t, l)
		testnet.Send(t, pool[i].Client, pool[i].Server, 1)
		testnet.Send(t, pool[i].Server, pool[i].Client, 1)
	}
	return pool
}

// A pool of idle connections takes nothing from busy ones. Idle ones no longer count once they are silent, and
// a byte now and then counts for `active`. The paper's register counts them for ever: the busy flows then have
// the windows of a crowd.
func TestFairQ_IdlePoolTakesNoShare(t *testing.T) {
	const busy, idle, target = 2, 60, 1_200_000
	law := fairq.Law{ // so slow that a window is the target divided by the count
		TargetBytes: target, Tick: time.Millisecond, Period: time.Second, SlowStart: fairq.SlowStartOff,
		Gain: fairq.GainPaper, Active: 100 * time.Millisecond, Idle: 4 * time.Second,
	}
	for count, want := range map[fairq.Count]uint32{
		fairq.CountActive: busy, fairq.CountHandshake: busy + idle,
	} {
		p := newBusyPath(t)
		f := p.govern(t, law, law, fairq.Config{Count: count})
		l := p.Listen(t, testnet.ReceiverIPv4)
		var flows []*testnet.Pair
		for range busy {
			c := p.Dial(t, l)
			defer sendOn(t, c)()
			flows = append(flows, c)
		}
		pool := idlePool(t, p, idle)
		counted := func() bool {
			out, _ := statsOfBoth(t, f)
			return out.Flows == want
		}
		testnet.Until(t, "the busy flows are counted, and the idle ones are or are not", counted)
		// A period raises all windows together by at most an MSS.
		testnet.Until(t, "each busy flow has its share", func() bool {
			ok := true
			for _, c := range flows {
				w := testnet.ReadTCPInfo(t, c.Client).Snd_wnd
				ok = ok && w >= target/want && w < target/want+20_000
			}
			return ok
		})
		for _, c := range pool[:10] {
			testnet.Send(t, c.Client, c.Server, 1)
		}
		testnet.Until(t, "after a byte on ten idle ones it is as before", counted)
		p.checksums(t)
	}
}
