package sim

import (
	"weir/experiment"
	"weir/sim/event"
	"weir/sim/network"
	"weir/sim/tcp"
)

// chat is a connection in addition to those of the experiment. Its two programs do what no pattern of traffic does:
// both write, stop reading and close at any time, send FIN right after data, or abort.
type chat struct {
	tb      *troubles
	index   int32
	ends    [2]chatEnd // 0 dialled
	aborted bool
}

// chatEnd is one of the programs, tcp.App.
type chatEnd struct {
	c        *chat
	side     int
	e        *tcp.Endpoint // nil: not accepted yet
	life     int
	wrote    int64
	got      int64
	closed   bool
	finished bool
	failed   error
}

const (
	chatPort  = 9
	mostChats = 6
)

// chats begins some, between any hosts.
func (tb *troubles) chats(d *drawer, now event.Time) {
	var hosts []network.NodeID
	for i, n := range tb.s.cfg.Graph.Nodes {
		if n.Kind == experiment.Guest {
			hosts = append(hosts, network.NodeID(i))
		}
	}
	c := tcp.Default(pick(d, []string{"reno", "newreno", "sack", "cubic", "dctcp"}))
	c.RTOMin = event.Time(d.wide(1e6, 500e6))
	tb.lasting(c)
	if d.once(2) {
		oddSettings(d, c)
	}
	if err := c.Check(); err != nil {
		panic(err)
	}
	n := d.between(1, mostChats)
	tb.say("%d chats: %+v", n, *c)
	for _, h := range hosts {
		tb.s.stack.Listen(h, chatPort, c, tb.answer)
	}
	span := int64(tb.heals - now)
	for i := range n {
		from := d.IntN(len(hosts))
		to := (from + 1 + d.IntN(len(hosts)-1)) % len(hosts)
		k := &chat{tb: tb, index: -1}
		k.ends[0], k.ends[1] = chatEnd{c: k, side: 0}, chatEnd{c: k, side: 1}
		tb.talkers = append(tb.talkers, k)
		start := d.Int64N(span)
		tb.at(now+event.Time(start), func() {
			e := tb.s.stack.Dial(hosts[from], hosts[to], uint16(1024+i), chatPort, c, &k.ends[0])
			k.index = e.Index()
			k.ends[0].is(e)
		})
		for side := range k.ends {
			k.plan(d, &k.ends[side], now+event.Time(start), span-start, c.Buffer)
		}
	}
}

// plan draws what one program does, and when. When the network has healed both read and close. buffer is the peer's:
// data that fills its window to the last byte is a case of its own.
func (k *chat) plan(d *drawer, p *chatEnd, now event.Time, span, buffer int64) {
	for range d.IntN(10) {
		at := now + event.Time(d.Int64N(span))
		switch n := d.wide(1, 40_000); d.IntN(9) {
		case 0:
			k.tb.at(at, func() { p.pause(true) })
		case 1:
			k.tb.at(at, func() { p.pause(false) })
		case 2:
			k.tb.at(at, p.close)
		case 3:
			if d.once(8) {
				k.tb.at(at, p.abort)
			}
		case 4:
			k.tb.at(at, func() {
				p.write(min(buffer, 100_000))
				p.close()
			})
		default:
			k.tb.at(at, func() { p.write(n) })
		}
	}
	k.tb.at(max(k.tb.heals, now+event.Time(span)), func() {
		p.pause(false)
		p.close()
	})
}

// answer accepts the connection of a chat.
func (tb *troubles) answer(e *tcp.Endpoint) tcp.App {
	for _, k := range tb.talkers {
		if k.index == e.Index() {
			k.ends[1].is(e)
			return &k.ends[1]
		}
	}
	broken("a connection was accepted that nobody began: %s", describe(e))
	return nil
}

func (p *chatEnd) is(e *tcp.Endpoint) {
	p.e, p.life = e, p.c.tb.lives[e]
	e.WantAcknowledged = true
	if p.side == 1 && p.c.tb.s.queue.Now() >= p.c.tb.heals { // it came late
		p.c.tb.at(p.c.tb.s.queue.Now(), p.close)
	}
}

// lives reports whether the endpoint still belongs to this connection.
func (p *chatEnd) lives() bool {
	return p.e != nil && p.failed == nil && p.c.tb.lives[p.e] == p.life
}

func (p *chatEnd) write(n int64) {
	if p.lives() && !p.closed {
		p.wrote += n
		p.e.Write(n)
	}
}

func (p *chatEnd) close() {
	if p.lives() && !p.closed {
		p.closed = true
		p.e.Close()
		if p.e.State() == tcp.Closed { // nothing was written during the handshake: the connection is over
			p.c.aborted = true
		}
	}
}

func (p *chatEnd) pause(paused bool) {
	if p.lives() {
		p.e.Pause(paused)
	}
}

func (p *chatEnd) abort() {
	if p.lives() && p.e.State() != tcp.Closed && p.e.State() != tcp.TimeWait {
		p.c.aborted = true
		p.e.Abort()
	}
}

func (p *chatEnd) peer() *chatEnd { return &p.c.ends[1-p.side] }

// Connected implements tcp.App.
func (p *chatEnd) Connected(*tcp.Endpoint) {}

// Received implements tcp.App.
func (p *chatEnd) Received(e *tcp.Endpoint, n int64) {
	if p.got += n; n <= 0 || p.got > p.peer().wrote || p.finished {
		broken("a program got %d bytes, then %d in all, of %d; %s", n, p.got, p.peer().wrote, describe(e))
	}
}

// Finished implements tcp.App.
func (p *chatEnd) Finished(e *tcp.Endpoint) {
	if p.finished || !p.peer().closed || p.got != p.peer().wrote {
		broken("a program learns of the end after %d of %d bytes: %s", p.got, p.peer().wrote, describe(e))
	}
	p.finished = true
}

// Acknowledged implements tcp.App.
func (p *chatEnd) Acknowledged(e *tcp.Endpoint) {
	if e.Unsent() != 0 {
		broken("all is acknowledged, and %d bytes are unsent: %s", e.Unsent(), describe(e))
	}
	p.c.tb.acked++
}

// Failed implements tcp.App.
func (p *chatEnd) Failed(e *tcp.Endpoint, why error) {
	p.failed = why
	if !p.c.aborted {
		broken("a connection that nobody aborted failed: %v; %s", why, describe(e))
	}
}

// over checks how the connection ended.
func (k *chat) over() {
	if k.aborted {
		return
	}
	for i := range k.ends {
		if p := &k.ends[i]; !p.closed || !p.finished || p.got != p.peer().wrote {
			broken("chat %d, side %d: closed %v, finished %v, got %d of %d bytes", k.index, i, p.closed, p.finished, p.got, p.peer().wrote)
		}
	}
}
