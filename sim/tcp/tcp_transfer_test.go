package tcp

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"

	"weir/sim/event"
	"weir/sim/network"
)

func TestTransferWithoutLoss(t *testing.T) {
	eachVariant(t, func(t *testing.T, c *Config) {
		p := newPair(t)
		client, server := p.transfer(c, c, 1_000_000)
		p.run(10 * event.Second)
		p.through(client, server, 1_000_000)
		if k := p.last[0]; k.Retransmitted != 0 || k.Timeouts != 0 || k.Bytes != 1_000_000 {
			t.Errorf("%+v", k)
		}
		// 8 Mbit at 1 Gbit/s with headers, and one slow start: nothing may wait for a timer.
		if server.doneAt > 20*event.Millisecond {
			t.Errorf("done at %d ns", server.doneAt)
		}
	})
}

// Each packet of a 20-segment transfer is lost once, in each direction: every byte arrives exactly once.
func TestAnySinglePacketIsLost(t *testing.T) {
	eachVariant(t, func(t *testing.T, c *Config) {
		const bytes = 20 * 1448
		p := newPair(t)
		p.transfer(c, c, bytes)
		p.run(10 * event.Second)
		count := p.sent
		for direction := range 2 {
			for n := range count[direction] {
				p := newPair(t)
				p.lose = func(d, i int, _ *network.Packet) bool { return d == direction && i == n }
				client, server := p.transfer(c, c, bytes)
				p.run(60 * event.Second)
				p.through(client, server, bytes)
			}
		}
	})
}

// Any two packets of one direction are lost.
func TestAnyTwoPacketsAreLost(t *testing.T) {
	eachVariant(t, func(t *testing.T, c *Config) {
		const bytes = 12 * 1448
		for direction := range 2 {
			for a := range 18 {
				for b := range a {
					p := newPair(t)
					p.lose = func(d, i int, _ *network.Packet) bool { return d == direction && (i == a || i == b) }
					client, server := p.transfer(c, c, bytes)
					p.run(100 * event.Second)
					p.through(client, server, bytes)
				}
			}
		}
	})
}

var (
	seeds   = flag.Int("patterns", 1000, "random patterns of loss and reordering to try")
	oneSeed = flag.Int64("pattern", -1, "the only one to try")
)

// Random losses, delays and duplicates, until the network heals: both directions deliver everything.
func TestRandomPatternsDeliverAll(t *testing.T) {
	names := []string{"reno", "newreno", "sack", "cubic", "dctcp", "d2tcp", "reno without sack", "rack without prr", "bare newreno", "sack, prr, frto, undo"}
	all := variants()
	n := int64(*seeds)
	if testing.Short() {
		n = min(n, 200)
	}
	for seed := range n {
		if *oneSeed >= 0 && seed != *oneSeed {
			continue
		}
		name := names[seed%int64(len(names))]
		t.Run(fmt.Sprintf("%d", seed), func(t *testing.T) {
			t.Logf("%s; again: go test ./sim/tcp -run TestRandomPatternsDeliverAll -pattern %d", name, seed)
			randomPattern(t, seed, *all[name])
		})
	}
}

func randomPattern(t *testing.T, seed int64, c Config) {
	r := event.NewRandom(seed, "pattern")
	p := newPair(t)
	heals := event.Time(r.Int64N(int64(5 * event.Second)))
	loss, reorder := r.Float64()*0.4, r.Float64()*0.5
	burst, inBurst := r.Float64()*0.05, 0
	p.lose = func(_, _ int, pk *network.Packet) bool {
		if p.q.Now() > heals {
			return false
		}
		if inBurst == 0 && r.Float64() < burst {
			inBurst = r.IntN(30)
		}
		if c.ECN && r.IntN(5) == 0 && pk.ECN() != network.NotECT {
			pk.SetECN(network.CE)
		}
		if inBurst > 0 {
			inBurst--
			return true
		}
		return r.Float64() < loss
	}
	p.late = func(_, _ int, pk *network.Packet) event.Time {
		if p.q.Now() > heals || r.Float64() > reorder {
			return 0
		}
		if r.IntN(20) == 0 {
			p.duplicate(pk, event.Time(r.Int64N(int64(300*event.Microsecond))))
		}
		return event.Time(r.Int64N(int64(400 * event.Microsecond)))
	}
	a, b := c, c
	a.Buffer, b.Buffer = randomBuffer(r), randomBuffer(r)
	a.DelayedACK = event.Time(r.IntN(3)) * 20 * event.Millisecond
	b.Nagle = r.IntN(2) == 0
	up, down := 1+r.Int64N(200_000), r.Int64N(100_000)
	client, server := p.connect(&a, &b)
	server.whenConnected = func(e *Endpoint) {
		if down > 0 {
			e.Write(down)
		}
	}
	for n := up; n > 0; {
		piece := min(n, 1+r.Int64N(20_000))
		client.e.Write(piece)
		n -= piece
	}
	client.e.Close()
	p.run(2000 * event.Second)
	p.through(client, server, up)
	if client.got != down {
		t.Fatalf("of %d bytes down %d came", down, client.got)
	}
}

func randomBuffer(r *rand.Rand) int64 {
	return []int64{3000, 20_000, 65_535, 200_000, 3 << 20}[r.IntN(5)]
}

// duplicate delivers a copy of a packet later.
func (p *pair) duplicate(pk *network.Packet, later event.Time) {
	again := p.net.NewPacket()
	*again = *pk
	p.fly(again, p.q.Now()+p.delay+later)
}

// Sequence numbers wrap in the middle of a transfer with losses.
func TestSequenceNumbersWrap(t *testing.T) {
	eachVariant(t, func(t *testing.T, c *Config) {
		for _, before := range []uint32{0, 1, 1000, 1448, 20_000, 100_000} {
			p := newPair(t)
			p.stack.ISS = func() uint32 { return -before }
			p.lose = func(d, i int, _ *network.Packet) bool { return d == 0 && i%37 == 20 }
			client, server := p.transfer(c, c, 200_000)
			p.run(100 * event.Second)
			p.through(client, server, 200_000)
			if before > 0 && p.last[0].Retransmitted == 0 {
				t.Error("nothing was lost")
			}
		}
	})
}

// More than 2^32 bytes go through one connection.
func TestMoreThan4GB(t *testing.T) {
	p := newPair(t)
	p.perKB, p.delay = 1, event.Microsecond
	c := Default("reno")
	c.MSS = 65_000
	const bytes = 5 << 30
	client, server := p.transfer(c, c, bytes)
	p.run(100 * event.Second)
	p.through(client, server, bytes)
}

// Successive connections use the same memory, and an index rests before it is reused.
func TestConnectionsAreFreed(t *testing.T) {
	p := newPair(t)
	c := Default("reno")
	now := event.Time(0)
	indices := map[int32]event.Time{}
	for range 200 {
		client, server := p.transfer(c, c, 10_000)
		index := client.e.Index()
		if last, used := indices[index]; used && now-last < restTime {
			t.Fatalf("index %d is used again after %d ns", index, now-last)
		}
		now += event.Second
		p.run(now)
		indices[index] = now
		p.through(client, server, 10_000)
	}
	if n := len(p.stack.profiles[0].free); n != 2 {
		t.Errorf("%d endpoints were made for one connection at a time", n)
	}
	if n := len(p.stack.conns); n > 70 {
		t.Errorf("%d indices", n)
	}
}
