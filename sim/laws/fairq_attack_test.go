//go:build cgo

package laws

import (
	"math/rand/v2"
	"testing"

	"weir/experiment"
	"weir/law"
	"weir/law/fairq"
	"weir/sim/event"
	"weir/sim/network"
	"weir/sim/tcp"
)

// Live connections in an attack: receiver1 asks 8 hosts again and again over 128 connections, through a port with credits that must
// pace. sender9 is the attacker.
type attackBed struct {
	t      *testing.T
	net    *network.Network
	stack  *tcp.Stack
	port   *fairQPort // to receiver1
	room   int64      // BDP and target of the port, bytes
	answer map[*tcp.Endpoint]int64
	got    int64 // bytes of answers

	client, attacker network.NodeID
	every            event.Time // between two packets of the attack; 0: there is none
	begins           event.Event
	before           func() // each packet of the attack
	packet           func() []*network.Packet
	synACKs          int
	promised         [20]int64        // bytes above a segment that SYN-ACKs granted, by spans of 100 ms
	requests         []network.Packet // the latest segment of each connection from receiver1
	place            map[int32]int
}

const (
	attackStarts = 100 * event.Millisecond
	attackEnds   = 1100 * event.Millisecond
	answerBytes  = 11_500
	questionSize = 100
	// Numbers of connections that the simulator's TCP does not have.
	firstStranger = 1 << 20
)

func newAttackBed(t *testing.T) *attackBed {
	t.Helper()
	g, err := experiment.BuildGraph(experiment.Topology{Kind: "dumbbell", Senders: 9, Receivers: 1},
		experiment.Network{Rate: 1e9, Delay: law.Duration(50 * event.Microsecond), Buffer: law.Limit{N: 125_000}})
	if err != nil {
		t.Fatal(err)
	}
	params := *fairq.Default()
	params.Credits = true
	r := &experiment.Run{Laws: []string{fairq.Name}, At: []string{"switch"}, Params: map[string]any{fairq.Name: params}}
	r.Config.Graph, r.Config.RTT = g, law.Duration(200*event.Microsecond)
	b := &attackBed{t: t, answer: map[*tcp.Endpoint]int64{}, place: map[int32]int{}, before: func() {}}
	if b.net, err = network.Build(event.NewQueue(), &r.Config, network.Options{NICFrames: 1 << 24}); err != nil {
		t.Fatal(err)
	}
	set, err := testWorks.Put(b.net, r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(set.Close)
	b.port = fairQOf(b.net.PortByName("switch->receiver1"))
	at := params.At(r.Config.RTT, b.port.port.Rate, b.port.port.Buffer.Bytes())
	b.room = int64(at.Pipe + at.Target)
	b.client, _ = b.net.Node("receiver1")
	b.attacker, _ = b.net.Node("sender9")
	b.stack = tcp.NewStack(b.net.Queue, b.net, 1)
	b.net.Sink = b.stack
	b.net.SetGuards(b)
	b.begins.Init(b)
	return b
}

// goodput runs the connections through the attack, and returns the bytes of answers that arrived meanwhile.
func (b *attackBed) goodput() int64 {
	cfg := tcp.Default("cubic")
	for i, name := range []string{"sender1", "sender2", "sender3", "sender4", "sender5", "sender6", "sender7", "sender8"} {
		host, _ := b.net.Node(name)
		b.stack.Listen(host, 80, cfg, func(*tcp.Endpoint) tcp.App { return (*answers)(b) })
		for k := range 16 {
			b.stack.Dial(b.client, host, uint16(10_000+16*i+k), 80, cfg, (*asks)(b))
		}
	}
	if b.every > 0 {
		b.net.Queue.Set(&b.begins, attackStarts)
	}
	b.run(attackStarts)
	before := b.got
	b.run(attackEnds)
	return b.got - before
}

func (b *attackBed) run(until event.Time) {
	for b.net.Queue.Now() < until {
		b.net.Queue.Run(until)
	}
}

// Happen sends a packet of the attack.
func (b *attackBed) Happen(_ *event.Event, now event.Time) {
	b.before()
	for _, pk := range b.packet() {
		b.net.InjectOut(b, b.attacker, pk)
	}
	if now+b.every < attackEnds {
		b.net.Queue.Set(&b.begins, now+b.every)
	}
}

// Out notes what the client sends (network.Guard).
func (b *attackBed) Out(host network.NodeID, pk *network.Packet, _ event.Time) network.Verdict {
	if host == b.client && pk.Conn() < firstStranger {
		i, known := b.place[pk.Conn()]
		if !known {
			i, b.place[pk.Conn()] = len(b.requests), len(b.requests)
			b.requests = append(b.requests, network.Packet{})
		}
		b.requests[i] = *pk
	}
	return network.Pass
}

// forged marks packets that the attack sends in the client's name. No law reads it.
const forged = 7

// In stands for ends that the simulator's TCP does not have: hosts answer every SYN, as with SYN cookies, nobody goes on, and
// hosts ignore forged segments (network.Guard).
func (b *attackBed) In(host network.NodeID, pk *network.Packet, now event.Time) network.Verdict {
	switch {
	case pk.Reserved() == forged:
		return network.Drop
	case pk.Conn() < firstStranger:
		return network.Pass
	case pk.Flags()&network.ACK == 0:
		reply := b.opening(pk.Conn(), network.SYN|network.ACK)
		reply.ReverseFlow(pk)
		reply.SetAck(pk.Seq() + 1)
		b.net.InjectOut(b, host, reply)
	default:
		b.synACKs++
		b.promised[now/(100*event.Millisecond)] += int64(pk.Window()) - 1461
	}
	return network.Drop
}

func (b *attackBed) opening(conn int32, flags uint16) *network.Packet {
	pk := b.net.NewPacket()
	pk.SetConn(conn)
	pk.SetProto(network.TCP)
	pk.SetSeq(uint32(conn) * 7919)
	pk.SetFlags(flags)
	pk.SetWindow(65_535)
	pk.SetMSS(1460)
	pk.SetScale(7)
	pk.SetBytes(network.HeaderBytes + 20)
	return pk
}

// SYNs of ever new connections to the client.
func (b *attackBed) floodsSYNs() {
	next := int32(firstStranger)
	b.packet = func() []*network.Packet {
		pk := b.opening(next, network.SYN)
		pk.SetEnds(b.attacker, b.client, uint16(next), uint16(next>>16))
		pk.SetHash(network.FlowHash(b.attacker, b.client, uint16(next), uint16(next>>16), network.TCP))
		pk.SetToAcceptor(true)
		next++
		return []*network.Packet{pk}
	}
}

// Requests in the client's name on its open connections. number returns a sequence number for one that the client or the host
// would send next.
func (b *attackBed) forges(number func(real uint32) uint32) {
	n := 0
	b.packet = func() []*network.Packet {
		like := &b.requests[n%len(b.requests)]
		n++
		pk := b.net.NewPacket()
		pk.SameFlow(like)
		pk.SetFlags(network.ACK | network.PSH)
		pk.SetSeq(number(like.Seq() + uint32(like.Payload())))
		pk.SetAck(number(like.Ack()))
		pk.SetWindow(like.Window())
		pk.SetPayload(1)
		pk.SetBytes(network.HeaderBytes + 12 + 1)
		pk.SetReserved(forged)
		return []*network.Packet{pk}
	}
}

// far returns numbers that a forger draws who sees no packet.
func far() func(uint32) uint32 {
	r := rand.New(rand.NewPCG(18, 0))
	const least = 1 << 24
	return func(real uint32) uint32 { return real + least + r.Uint32N(1<<32-1-2*least) }
}

// asks is the program of the client, and answers that of the hosts.
type (
	asks    attackBed
	answers attackBed
)

func (b *asks) Connected(e *tcp.Endpoint) { b.again(e) }
func (b *asks) again(e *tcp.Endpoint) {
	b.answer[e] = answerBytes
	e.Write(questionSize)
}

func (b *asks) Received(e *tcp.Endpoint, n int64) {
	b.got += n
	if b.answer[e] -= n; b.answer[e] == 0 {
		b.again(e)
	}
}
func (b *asks) Finished(*tcp.Endpoint)              {}
func (b *asks) Acknowledged(*tcp.Endpoint)          {}
func (b *asks) Failed(_ *tcp.Endpoint, cause error) { b.t.Error(cause) }

func (b *answers) Connected(*tcp.Endpoint)             {}
func (b *answers) Received(e *tcp.Endpoint, n int64)   { e.Write(answerBytes * n / questionSize) }
func (b *answers) Finished(*tcp.Endpoint)              {}
func (b *answers) Acknowledged(*tcp.Endpoint)          {}
func (b *answers) Failed(_ *tcp.Endpoint, cause error) { b.t.Error(cause) }

// 50,000 SYNs a second, and as many forged requests, take no credits from live connections: their goodput is within 5 % of that
// without an attack. Their frames have 4 % of the line. Without the share of used handshakes, and with the connections' own
// numbers, which a forger who sees no packet does not know, both do harm.
func TestFairQCredits_UnderAttack(t *testing.T) {
	const every = event.Second / 50_000
	none := newAttackBed(t).goodput()
	for _, row := range []struct {
		name   string
		attack func(b *attackBed)
		least  float64 // of the goodput without an attack
		most   float64
	}{
		{"SYNs", (*attackBed).floodsSYNs, 0.95, 1.05},
		{"SYNs that cost what they promise", func(b *attackBed) {
			b.floodsSYNs()
			b.before = func() { b.port.credits.state.Handshakes = 0 }
		}, 0, 0.8},
		{"forged requests", func(b *attackBed) { b.forges(far()) }, 0.95, 1.05},
		{"forged requests with the real numbers", func(b *attackBed) { b.forges(func(real uint32) uint32 { return real }) }, 0, 0.8},
	} {
		b := newAttackBed(t)
		b.every = every
		row.attack(b)
		got := float64(b.goodput()) / float64(none)
		state := b.port.credits.state
		t.Logf("%s: %.3f of %d Mbit/s; %d SYN-ACKs, above a segment %v; promises %d, parked %d, passed %d, owed %d", row.name, got,
			none*8/1e6, b.synACKs, b.promised[:12], state.Promises, state.Parked, state.Full, state.OwedBytes)
		for span, bytes := range b.promised {
			if bytes > b.room {
				t.Errorf("%s: SYN-ACKs granted %d bytes above a segment each in the tenth second %d: more than the port has room for", row.name, bytes, span)
			}
		}
		if got < row.least || got > row.most {
			t.Errorf("%s: goodput is %.3f of that without, want %.2f to %.2f", row.name, got, row.least, row.most)
		}
	}
}
