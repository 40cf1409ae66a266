package sim

import (
	"fmt"
	"math/rand/v2"

	"weir/experiment"
	"weir/sim/event"
	"weir/sim/network"
	"weir/sim/tcp"
)

// troubles are the faults of a run until it heals, and unusual settings of its hosts.
type troubles struct {
	*rand.Rand // for decisions during the run
	s          *simulation
	heals      event.Time
	loss       func(p *network.Port, pk *network.Packet) bool // nil: none
	spray      float64                                        // share of packets that take any path
	lives      map[*tcp.Endpoint]int                          // how many connections each has had
	talkers    []*chat
	acked      int64 // times that a chat's program heard that all was acknowledged
	paused     int64 // programs that stopped reading
	texts      []string
}

func (tb *troubles) at(t event.Time, do func()) { doAt(tb.s.queue, t, do) }

func (tb *troubles) say(format string, args ...any) {
	tb.texts = append(tb.texts, fmt.Sprintf(format, args...))
}

func (tb *troubles) text() string {
	out := ""
	for _, text := range tb.texts {
		out += text + "\n"
	}
	return out
}

// disturb sets the troubles of a seed. One run in five has none. window is the time in which the traffic begins.
func disturb(seed int64, s *simulation, window event.Time) *troubles {
	d := &drawer{Rand: event.NewRandom(seed, "troubles")}
	tb := &troubles{Rand: event.NewRandom(seed, "losses"), s: s, lives: map[*tcp.Endpoint]int{}}
	now := s.queue.Now()
	tb.heals = now + window/2 + event.Time(d.Int64N(int64(2*window)))
	s.net.Loss(tb.lose)
	s.stack.OnEnd = func(e *tcp.Endpoint) { tb.lives[e]++ }
	tb.sequences(d)
	tb.settings(d)
	if d.once(2) {
		tb.chats(d, now)
	}
	if d.once(5) {
		return tb
	}
	tb.say("until %v ns after the start:", tb.heals-now)
	if d.once(2) {
		tb.losses(d)
	}
	if d.once(2) {
		tb.flaps(d, now)
	}
	if d.once(2) {
		tb.pauses(d, now)
	}
	if s.cfg.Graph.Multipath && d.once(2) {
		tb.spray = float64(d.between(1, 10)) / 10
		tb.say("a share of %v of the packets takes any of the equal paths", tb.spray)
		for i, n := range s.cfg.Graph.Nodes {
			if n.Kind == experiment.Guest {
				s.net.HostPort(network.NodeID(i)).Tap(func(pk *network.Packet, _ event.Time) { tb.respray(pk) })
			}
		}
	}
	return tb
}

// drawJitter draws the jitter of hosts: in one run of three, up to the time of five packets on the line. It has its own
// source of random numbers, so that the rest of an experiment does not change.
func drawJitter(seed int64, window event.Time) event.Time {
	d := &drawer{Rand: event.NewRandom(seed, "host jitter")}
	if !d.once(3) {
		return 0
	}
	return event.Time(d.wide(1, max(int64(window)/300, 1)))
}

// sequences sets initial sequence numbers where arithmetic fails first.
func (tb *troubles) sequences(d *drawer) {
	r := event.NewRandom(d.Int64(), "sequences")
	near := d.wide(1, 300_000)
	if d.once(3) {
		return
	}
	tb.say("initial sequence numbers are up to %d below 2^32 or 2^31", near)
	tb.s.stack.ISS = func() uint32 {
		return uint32(r.IntN(2))<<31 - uint32(r.Int64N(near)) - 1
	}
}

// lose implements Network.Loss.
func (tb *troubles) lose(p *network.Port, pk *network.Packet) bool {
	return tb.loss != nil && tb.s.queue.Now() < tb.heals && tb.loss(p, pk)
}

// losses draws how packets are lost.
func (tb *troubles) losses(d *drawer) {
	chance := float64(d.wide(1, 256)) / 1024
	random := func() bool { return tb.Float64() < chance }
	switch d.IntN(6) {
	case 0:
		tb.say("every link loses a share of %v", chance)
		tb.loss = func(*network.Port, *network.Packet) bool { return random() }
	case 1:
		tb.say("links lose packets in a row, beginning with a chance of %v and ending with 1/4", chance)
		bad := make([]bool, len(tb.s.net.Ports))
		tb.loss = func(p *network.Port, _ *network.Packet) bool {
			if bad[p.ID] {
				bad[p.ID] = tb.IntN(4) > 0
			} else {
				bad[p.ID] = random()
			}
			return bad[p.ID]
		}
	case 2:
		tb.say("data is lost by a share of %v", chance)
		tb.loss = func(_ *network.Port, pk *network.Packet) bool { return pk.Payload() > 0 && random() }
	case 3:
		tb.say("acknowledgements are lost by a share of %v", 3*chance)
		chance *= 3
		tb.loss = func(_ *network.Port, pk *network.Packet) bool { return pk.Payload() == 0 && random() }
	case 4:
		chance = 0.1 + 2*chance
		tb.say("SYN and FIN are lost by a share of %v", chance)
		tb.loss = func(_ *network.Port, pk *network.Packet) bool {
			return pk.Flags()&(network.SYN|network.FIN) != 0 && random()
		}
	case 5:
		port, every := tb.s.net.Ports[d.IntN(len(tb.s.net.Ports))], d.between(2, 40)
		tb.say("%s loses every %dth packet", port.Name, every)
		n := 0
		tb.loss = func(p *network.Port, _ *network.Packet) bool {
			if p == port {
				n++
			}
			return p == port && n%every == 0
		}
	}
}

// flaps sets links down and up again.
func (tb *troubles) flaps(d *drawer, now event.Time) {
	span := int64(tb.heals - now)
	for range d.between(1, 8) {
		p := tb.s.net.Ports[d.IntN(len(tb.s.net.Ports))]
		ports := []*network.Port{p}
		if d.once(2) {
			ports = append(ports, p.Reverse())
		}
		down := event.Time(d.Int64N(span))
		up := down + event.Time(d.Int64N(span-int64(down)))
		tb.say("%s is down from %d to %d ns, with its other direction: %v", p.Name, down, up, len(ports) > 1)
		for _, p := range ports {
			tb.at(now+down, func() { p.SetDown(true) })
			tb.at(now+up, func() { p.SetDown(false) })
			tb.at(tb.heals, func() { p.SetDown(false) })
		}
	}
}

// pauses makes programs stop reading for some time.
func (tb *troubles) pauses(d *drawer, now event.Time) {
	span := int64(tb.heals - now)
	n := d.between(1, 30)
	tb.say("%d times a program does not read for some time", n)
	for range n {
		which, server := d.IntN(1<<20), d.once(2)
		from := event.Time(d.Int64N(span))
		to := from + event.Time(d.Int64N(span-int64(from)))
		tb.at(now+from, func() {
			e := tb.reader(which, server)
			if e == nil {
				return
			}
			life := tb.lives[e]
			tb.paused++
			e.Pause(true)
			tb.at(now+to, func() {
				if tb.lives[e] == life {
					e.Pause(false)
				}
			})
		})
	}
}

// reader returns one end of an open connection, or nil if there is none.
func (tb *troubles) reader(which int, server bool) *tcp.Endpoint {
	var conns []*conn
	for _, c := range tb.s.traffic.conns {
		if c != nil && (server && c.serverUp || !server && c.clientUp) {
			conns = append(conns, c)
		}
	}
	switch {
	case len(conns) == 0:
		return nil
	case server:
		return conns[which%len(conns)].server
	}
	return conns[which%len(conns)].client
}

// respray gives a packet any path.
func (tb *troubles) respray(pk *network.Packet) bool {
	if tb.spray == 0 || tb.Float64() >= tb.spray {
		return false
	}
	pk.SetHash(tb.Uint32())
	return true
}

// settings gives every server's port, and the clients that dial it, settings of TCP for which an experiment has no
// keys. No connection gives up: a flow that does not end is a defect.
func (tb *troubles) settings(d *drawer) {
	t := tb.s.traffic
	odd := d.once(2)
	made := map[uint16]*tcp.Config{}
	for i := range t.items {
		it := &t.items[i]
		if it.udp {
			continue
		}
		c := made[it.port]
		if c == nil {
			copied := *it.tcp
			c = &copied
			made[it.port] = c
			tb.lasting(c)
			if odd {
				oddSettings(d, c)
				tb.say("port %d: %+v", it.port, *c)
			}
			if err := c.Check(); err != nil {
				panic(err)
			}
		}
		it.tcp = c
		for _, ends := range it.ends {
			tb.s.stack.Listen(ends[1], it.port, c, t.accept)
		}
	}
}

// lasting disables giving up.
func (tb *troubles) lasting(c *tcp.Config) {
	c.SYNRetries, c.Retries = 127, 127
	c.RTOMax = max(10*event.Second, c.RTOMin, c.InitialRTO, c.FallbackRTO)
}

// oddSettings changes some of Linux's switches, and draws sizes.
func oddSettings(d *drawer, c *tcp.Config) {
	for _, b := range []*bool{
		&c.LinuxRTT, &c.ACKPushed, &c.Nagle, &c.Timestamps, &c.DSACK, &c.ECTOnSYN, &c.ECTAlways, &c.ECNFallback,
		&c.LimitedTransmit, &c.RACK, &c.TLP, &c.PRR, &c.FRTO, &c.Undo, &c.Rescue, &c.Impatient,
		&c.SlowStartAfterIdle, &c.WindowValidation,
	} {
		if d.once(8) {
			*b = !*b
		}
	}
	if !c.SACK {
		c.RACK, c.TLP, c.DSACK = false, false, false
	}
	if d.once(2) {
		c.Buffer = d.wide(200, 100_000)
	}
	if d.once(4) {
		c.Scale = int8(d.between(-1, 14))
		for c.Scale > 0 && c.Buffer>>c.Scale < 4 { // such a window could be too small to use
			c.Scale--
		}
	}
	if d.once(4) {
		c.MSS = int32(d.between(88, 1460))
	}
	if d.once(6) {
		c.ClampWindow = uint32(d.wide(1, 100))
	}
	if d.once(6) {
		c.QuickACKs = d.between(0, 20)
	}
	if d.once(6) {
		c.DupThresh = uint32(d.between(1, 10))
	}
	if d.once(8) {
		c.Granularity = event.Time(d.wide(1, 100_000_000))
	}
	if d.once(4) {
		c.Tick = pick(d, []event.Time{0, 1, event.Microsecond, event.Millisecond, 4 * event.Millisecond, 10 * event.Millisecond})
	}
	if d.once(4) {
		c.ProbeSlack = event.Time(d.wide(1, 5_000_000))
	}
	for _, b := range []*bool{&c.Options.NoHyStart, &c.Options.NoFastConvergence, &c.Options.NoFriendly} {
		*b = d.once(8)
	}
	if d.once(8) {
		c.Options.Tick = event.Time(d.wide(1, 10_000_000))
	}
}
