package tcp

import (
	"testing"

	"weir/sim/event"
	"weir/sim/network"
)

// loseData loses the data segments with these numbers, counted from 0, when they are sent for the first time.
func (p *pair) loseData(numbers ...int) {
	n := -1
	seen := map[uint32]bool{}
	p.lose = func(direction, _ int, pk *network.Packet) bool {
		if direction != 0 || pk.Payload() == 0 || seen[pk.Seq()] {
			return false
		}
		seen[pk.Seq()] = true
		n++
		for _, k := range numbers {
			if n == k {
				return true
			}
		}
		return false
	}
}

// One loss in the middle is repaired by fast retransmit, without a timeout, and halves the window.
func TestFastRetransmit(t *testing.T) {
	eachVariant(t, func(t *testing.T, c *Config) {
		p := newPair(t)
		p.loseData(30)
		client, server := p.transfer(c, c, 300_000)
		p.run(10 * event.Second)
		p.through(client, server, 300_000)
		k := p.last[0]
		if k.Timeouts != 0 || k.FastRetransmits != 1 || k.Retransmitted != 1 {
			t.Errorf("%+v", k)
		}
	})
}

// Many losses in a window: SACK repairs all in one recovery; without it NewReno needs an RTT for each.
func TestManyLossesInAWindow(t *testing.T) {
	for _, test := range []struct {
		name     string
		timeouts bool
	}{{"sack", false}, {"reno", false}, {"cubic", false}, {"bare newreno", false}} {
		p := newPair(t)
		p.loseData(30, 32, 34, 36, 38)
		c := variants()[test.name]
		client, server := p.transfer(c, c, 500_000)
		p.run(10 * event.Second)
		p.through(client, server, 500_000)
		k := p.last[0]
		if k.Timeouts != 0 || k.FastRetransmits != 1 || k.Retransmitted != 5 {
			t.Errorf("%s: %+v", test.name, k)
		}
	}
}

// The last segment is lost. TLP repairs it in two RTTs and the slack, and halves the window; without TLP the RTO does.
// Not one byte of the window arrived after it: a full-window loss.
func TestTailLoss(t *testing.T) {
	for _, tlp := range []bool{true, false} {
		p := newPair(t)
		c := plain("reno")
		c.TLP = tlp
		p.loseData(19)
		client, server := p.transfer(c, c, 20*1460)
		p.run(10 * event.Second)
		p.through(client, server, 20*1460)
		k := p.last[0]
		if tlp && (k.Timeouts != 0 || k.Probes != 1) || !tlp && (k.Timeouts != 1 || k.FLoss != 1) {
			t.Errorf("TLP %v: %+v", tlp, k)
		}
		if (server.doneAt < 20*event.Millisecond) != tlp {
			t.Errorf("TLP %v: done at %d", tlp, server.doneAt)
		}
	}
}

// FLoss-TO: the whole window is lost. LAck-TO: one of it arrives, too few for fast retransmit.
func TestTimeoutsAreClassified(t *testing.T) {
	for _, test := range []struct {
		name        string
		lost        []int
		loseACKs    bool
		floss, lack int64
	}{
		{"whole window", []int{0, 1, 2, 3}, false, 1, 0},
		{"two of four", []int{0, 1}, false, 0, 1},
		{"tail", []int{3}, false, 1, 0},
		{"only ACKs", nil, true, 0, 1},
	} {
		p := newPair(t)
		c := plain("sack")
		c.LimitedTransmit, c.DelayedACK = false, 0
		p.loseData(test.lost...)
		if data := p.lose; test.loseACKs {
			p.lose = func(direction, n int, pk *network.Packet) bool {
				return data(direction, n, pk) || direction == 1 && n > 0 && p.q.Now() < 100*event.Millisecond
			}
		}
		client, server := p.connect(c, c)
		client.e.Write(4 * 1460)
		p.run(10 * event.Second)
		if k := client.e.Counters(); server.got != 4*1460 || k.FLoss != test.floss || k.LAck != test.lack {
			t.Errorf("%s: got %d, %+v", test.name, server.got, k)
		}
	}
}

// A path suddenly takes longer than the RTO. F-RTO finds the timeout spurious, and the window is restored (RFC 5682).
func TestSpuriousTimeoutIsUndone(t *testing.T) {
	for _, name := range []string{"reno", "sack, prr, frto, undo"} {
		p := newPair(t)
		c := *variants()[name]
		c.TLP = false
		client, server := p.connect(&c, &c)
		p.run(event.Millisecond)
		e := client.e
		e.Write(30_000_000)
		p.run(20 * event.Millisecond)
		cwnd := e.Window().Cwnd
		stalls := p.q.Now()
		p.late = func(direction, _ int, _ *network.Packet) event.Time {
			if now := p.q.Now(); direction == 1 && now < stalls+400*event.Millisecond {
				return stalls + 400*event.Millisecond - now
			}
			return 0
		}
		p.run(stalls + 500*event.Millisecond)
		k := e.Counters()
		if k.Timeouts == 0 || k.Spurious == 0 || k.LAck != k.Timeouts || e.Window().Cwnd < cwnd/2 {
			t.Errorf("%s: cwnd %d, was %d, %+v", name, e.Window().Cwnd, cwnd, k)
		}
		p.run(20 * event.Second)
		if server.got != 30_000_000 {
			t.Errorf("%s: got %d", name, server.got)
		}
	}
}

// For RACK, reordering by less than a quarter of the RTT is not a loss once it was seen (RFC 8985 6.2 step 4). By RFC
// 6675's count it is.
func TestRACKToleratesReordering(t *testing.T) {
	retransmitted := map[string]int64{}
	for _, name := range []string{"reno", "sack"} {
		p := newPair(t)
		c := plain(name)
		p.late = func(direction, n int, pk *network.Packet) event.Time {
			if direction == 0 && pk.Payload() > 0 && n%20 == 0 {
				return 60 * event.Microsecond // five segments later
			}
			return 0
		}
		p.delay = 500 * event.Microsecond
		client, server := p.transfer(c, c, 3_000_000)
		p.run(60 * event.Second)
		p.through(client, server, 3_000_000)
		retransmitted[name] = p.last[0].Retransmitted
	}
	if retransmitted["reno"] > 10 || retransmitted["sack"] < 5*max(retransmitted["reno"], 1) {
		t.Errorf("retransmitted: %v", retransmitted)
	}
}

// RACK finds a lost retransmission within a few RTTs; without it the RTO does.
func TestLostRetransmission(t *testing.T) {
	for _, name := range []string{"reno", "sack"} {
		p := newPair(t)
		c := plain(name)
		times := map[uint32]int{}
		p.lose = func(direction, _ int, pk *network.Packet) bool {
			if direction != 0 || pk.Payload() == 0 {
				return false
			}
			times[pk.Seq()]++
			return len(times) >= 31 && pk.Seq() == client0(p)+1+30*1460 && times[pk.Seq()] <= 2
		}
		client, server := p.transfer(c, c, 1_000_000)
		p.run(60 * event.Second)
		p.through(client, server, 1_000_000)
		if k := p.last[0]; (k.Timeouts == 0) != (name == "reno") || k.Retransmitted < 2 {
			t.Errorf("%s: %+v", name, k)
		}
	}
}

// A timeout resets cubic also within a recovery (RFC 9438 4.8): the retransmission is lost too, and only the RTO finds it.
// ssthresh is that of the recovery, because a window is reduced once.
func TestCubicTimeoutInRecovery(t *testing.T) {
	p := newPair(t)
	c := *plain("cubic")
	c.RACK, c.TLP = false, false
	p.lose = func(direction, _ int, pk *network.Packet) bool {
		return direction == 0 && pk.Payload() > 0 && pk.Seq() == client0(p)+1+30*1460 && p.q.Now() < 100*event.Millisecond
	}
	client, server := p.connect(&c, &c)
	client.e.Write(1_000_000)
	p.run(100 * event.Millisecond)
	cubic := client.e.cc.(*cubic)
	ssthresh := client.e.Window().Ssthresh
	if client.e.recovery != Recovering || cubic.wMax == 0 {
		t.Fatalf("before the timeout: %v, W_max %d", client.e.recovery, cubic.wMax)
	}
	p.run(event.Second)
	if k := client.e.Counters(); server.got != 1_000_000 || k.Timeouts != 1 || k.FastRetransmits != 1 {
		t.Fatalf("got %d, %+v", server.got, k)
	}
	if now := client.e.Window().Ssthresh; cubic.wMax != 0 || now != ssthresh {
		t.Errorf("after the timeout: W_max %d, want 0; ssthresh %d, was %d", cubic.wMax, now, ssthresh)
	}
}

// client0 is the initial sequence number of the first connection's dialler.
func client0(p *pair) uint32 { return p.stack.conns[0].ends[0].iss }

// Limited transmit (RFC 3042) sends a new segment for each of the first two duplicate ACKs. So a window of 3 is
// repaired without a timeout.
func TestLimitedTransmit(t *testing.T) {
	for _, on := range []bool{true, false} {
		p := newPair(t)
		c := plain("sack")
		c.LimitedTransmit, c.InitialWindow, c.DelayedACK, c.Rescue = on, 3, 0, false
		p.loseData(0)
		client, server := p.transfer(c, c, 10*1460)
		p.run(10 * event.Second)
		p.through(client, server, 10*1460)
		if k := p.last[0]; (k.Timeouts == 0) != on {
			t.Errorf("limited transmit %v: %+v", on, k)
		}
	}
}

// cwnd does not grow while the program, and not the window, is the limit (RFC 2861). It falls after idle time (RFC 5681
// 4.1).
func TestUnusedWindow(t *testing.T) {
	p := newPair(t)
	c := Default("reno")
	client, _ := p.connect(c, c)
	p.run(event.Millisecond)
	e := client.e
	for range 500 {
		e.Write(2 * 1448)
		p.run(p.q.Now() + event.Millisecond)
	}
	if got := e.Window().Cwnd; got > 10 {
		t.Errorf("cwnd %d, of which 2 were used", got)
	}
	e.Write(3_000_000)
	p.run(p.q.Now() + 200*event.Millisecond)
	grown := e.Window().Cwnd
	p.run(p.q.Now() + 5*event.Second)
	e.Write(1000)
	if got := e.Window().Cwnd; grown < 40 || got != 10 {
		t.Errorf("cwnd %d, after idleness %d", grown, got)
	}
	c2 := *c
	c2.SlowStartAfterIdle = false
	p = newPair(t)
	client, _ = p.connect(&c2, &c2)
	client.e.Write(3_000_000)
	p.run(200 * event.Millisecond)
	grown = client.e.Window().Cwnd
	p.run(5 * event.Second)
	client.e.Write(1000)
	if got := client.e.Window().Cwnd; got != grown {
		t.Errorf("cwnd %d, was %d, and slow start after idle is off", got, grown)
	}
}

// cwnd stays while a program uses a part of it and ACKs come: Linux's tcp_cong_avoid refreshes the time from which it measures that part.
func TestUnusedWindow_StaysWhileACKsCome(t *testing.T) {
	for _, control := range []string{"reno", "cubic", "dctcp"} {
		p := newPair(t)
		c := Default(control)
		client, _ := p.connect(c, c)
		p.run(event.Millisecond)
		e := client.e
		e.Write(3_000_000)
		p.run(p.q.Now() + 100*event.Millisecond)
		grown := e.Window().Cwnd
		for range 200 {
			e.Write(15 * 1448)
			p.run(p.q.Now() + 10*event.Millisecond)
		}
		if got := e.Window().Cwnd; grown < 40 || got != grown {
			t.Errorf("%s: cwnd %d, was %d, and 15 segments every 10 ms used it", control, got, grown)
		}
	}
}

// A DSACK shows that a retransmission was needless (the network reorders), and the window is restored.
func TestDSACKUndoesARecovery(t *testing.T) {
	p := newPair(t)
	c := plain("reno")
	c.RACK, c.TLP = false, false // then three SACKs are a loss
	p.delay = 500 * event.Microsecond
	client, _ := p.connect(c, c)
	p.run(5 * event.Millisecond)
	e := client.e
	late := p.sent[0] + 60
	p.late = func(direction, n int, _ *network.Packet) event.Time {
		if direction == 0 && n == late {
			return 200 * event.Microsecond
		}
		return 0
	}
	e.Write(3_000_000)
	p.run(30 * event.Millisecond)
	if k := e.Counters(); k.FastRetransmits != 1 || k.Undone != 1 || e.Window().Ssthresh < 30 && e.Window().Ssthresh != NoSsthresh {
		t.Errorf("%+v, window %+v", k, e.Window())
	}
}
