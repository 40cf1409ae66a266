package tcp

import (
	"math/rand/v2"

	"weir/sim/event"
	"weir/sim/network"
)

// App is a program at one end of a connection. Its methods are called when an event's processing of the endpoint is
// done, and may use the endpoint freely. After Failed, and once both ends are finished (OnEnd), the endpoint no longer
// belongs to the program: another connection will reuse it.
type App interface {
	Connected(e *Endpoint)
	Received(e *Endpoint, n int64)   // n more bytes reached the program, in order
	Finished(e *Endpoint)            // the peer's FIN, after all its data
	Acknowledged(e *Endpoint)        // all data written so far was acknowledged; only if e.WantAcknowledged
	Failed(e *Endpoint, cause error) // reset, or gave up
}

// Stack is the TCP of all hosts. It is the network's Sink, or gets its packets from a Sink for several protocols. It
// belongs to the goroutine of its Queue.
type Stack struct {
	Queue *event.Queue
	Net   *network.Network
	// Wire, if set, gets the packets that hosts send, instead of Net. It is for tests and scripts.
	Wire func(from network.NodeID, pk *network.Packet)
	// OnEnd, if set, is called for each endpoint once its connection is over at both ends, just before another
	// connection may reuse it. Its Counters are final.
	OnEnd func(e *Endpoint)
	// ISS, if set, returns initial sequence numbers instead of the seeded source.
	ISS func() uint32

	conns     []conn
	resting   []rest // indices that may not be reused yet, oldest first from restHead
	restHead  int
	listeners map[door]*listener
	profiles  []*profile
	trace     func(e *Endpoint, what TraceEvent)
	random    *rand.Rand
	sample    Sample // the argument of Control's methods; here because an interface's argument would be allocated
	open      int
}

// conn is a connection: the end that dialled, and the end that accepted (or nil).
type conn struct {
	ends [2]*Endpoint
	open bool
}

type rest struct {
	index int32
	until event.Time
}

type door struct {
	host network.NodeID
	port uint16
}

type listener struct {
	profile *profile
	accept  func(e *Endpoint) App
}

// restTime is how long the index of a connection is not reused, so that a late packet meets no other connection.
// Packets stay in the network for less (RFC 9293's MSL is 2 minutes, and no path here is that long).
const restTime = 60 * event.Second

// NewStack returns the transport of net. The seed is for initial sequence numbers. The caller sets it as the network's
// Sink.
func NewStack(q *event.Queue, net *network.Network, seed int64) *Stack {
	s := &Stack{Queue: q, Net: net, listeners: make(map[door]*listener), random: event.NewRandom(seed, "tcp initial sequence numbers")}
	net.Left = s.left
	return s
}

// Listen makes a host accept connections to a port. accept is called when the handshake is done, and returns the
// program of the connection; Connected follows.
func (s *Stack) Listen(host network.NodeID, port uint16, cfg *Config, accept func(e *Endpoint) App) {
	s.listeners[door{host, port}] = &listener{s.profile(cfg), accept}
}

// Dial begins a connection. It sends the SYN at once.
func (s *Stack) Dial(from, to network.NodeID, fromPort, toPort uint16, cfg *Config, app App) *Endpoint {
	index := s.newConn()
	e := s.endpoint(s.profile(cfg), index, 0)
	e.name(from, to, fromPort, toPort)
	e.app = app
	e.dial()
	return e
}

// Open returns the number of connections.
func (s *Stack) Open() int { return s.open }

// profile resolves a Config once. It panics if Check refuses the Config.
func (s *Stack) profile(cfg *Config) *profile {
	for _, p := range s.profiles {
		if p.of == cfg {
			return p
		}
	}
	if err := cfg.Check(); err != nil {
		panic(err)
	}
	p := &profile{Config: *cfg, of: cfg, scale: cfg.shift()}
	s.profiles = append(s.profiles, p)
	return p
}

// newConn returns the index of a new connection.
func (s *Stack) newConn() int32 {
	s.open++
	if s.restHead < len(s.resting) && s.resting[s.restHead].until <= s.Queue.Now() {
		index := s.resting[s.restHead].index
		s.restHead++
		if s.restHead > len(s.resting)/2 {
			s.resting = s.resting[:copy(s.resting, s.resting[s.restHead:])]
			s.restHead = 0
		}
		s.conns[index].open = true
		return index
	}
	s.conns = append(s.conns, conn{open: true})
	return int32(len(s.conns) - 1)
}

// endpoint takes an endpoint from the pool for a connection.
func (s *Stack) endpoint(p *profile, index int32, side uint8) *Endpoint {
	var e *Endpoint
	if n := len(p.free); n > 0 {
		e = p.free[n-1]
		p.free = p.free[:n-1]
	} else {
		e = newEndpoint(s, p)
	}
	e.reset(index, side)
	s.conns[index].ends[side] = e
	return e
}

// retire frees a connection once neither of its ends is in use.
func (s *Stack) retire(index int32) {
	c := &s.conns[index]
	if !c.open {
		return
	}
	for _, e := range c.ends {
		if e != nil && !e.done() {
			return
		}
	}
	ends := c.ends
	*c = conn{}
	s.open--
	s.resting = append(s.resting, rest{index, s.Queue.Now() + restTime})
	for _, e := range ends {
		if e == nil {
			continue
		}
		if s.OnEnd != nil {
			s.OnEnd(e)
		}
		e.app = nil
		e.profile.free = append(e.profile.free, e)
	}
}

// Deliver processes a packet that has arrived at a host (network.Sink).
func (s *Stack) Deliver(host network.NodeID, pk *network.Packet, now event.Time) {
	if index := uint32(pk.Conn()); index < uint32(len(s.conns)) {
		side := 0
		if pk.ToAcceptor() {
			side = 1
		}
		c := &s.conns[index]
		if e := c.ends[side]; e == nil {
			if c.open && side == 1 {
				s.welcome(host, pk, now)
			}
		} else if e.port == pk.DstPort() && e.peerPort == pk.SrcPort() && e.peer == pk.Src() && e.host == host {
			e.arrive(pk, now)
		}
	}
	s.Net.Free(pk)
}

// welcome processes a segment for an end that does not exist yet: a listener answers SYNs (RFC 9293 3.10.7.2), a closed
// port resets (3.10.7.1).
func (s *Stack) welcome(host network.NodeID, pk *network.Packet, now event.Time) {
	if pk.Flags()&network.RST != 0 {
		return
	}
	l := s.listeners[door{host, pk.DstPort()}]
	if l == nil || pk.Flags()&(network.SYN|network.ACK) != network.SYN {
		s.refuse(host, pk)
		return
	}
	e := s.endpoint(l.profile, pk.Conn(), 1)
	e.name(host, pk.Src(), pk.DstPort(), pk.SrcPort())
	e.listener = l
	e.synArrives(pk, now)
}

// refuse answers a segment to a closed port with RST (RFC 9293 3.10.7.1).
func (s *Stack) refuse(host network.NodeID, to *network.Packet) {
	pk := s.Net.NewPacket()
	pk.SetEnds(host, to.Src(), to.DstPort(), to.SrcPort())
	pk.SetProto(network.TCP)
	pk.SetHash(network.FlowHash(pk.Src(), pk.Dst(), pk.SrcPort(), pk.DstPort(), network.TCP))
	pk.SetConn(to.Conn())
	pk.SetToAcceptor(!to.ToAcceptor())
	pk.SetBytes(network.HeaderBytes)
	pk.SetFlags(network.RST)
	if to.Flags()&network.ACK != 0 {
		pk.SetSeq(to.Ack())
	} else {
		pk.SetFlags(pk.Flags() | network.ACK)
		pk.SetAck(to.Seq() + uint32(to.Payload()) + syntheticBytes(to.Flags()))
	}
	s.send(host, pk)
}

// syntheticBytes returns the sequence space of SYN and FIN.
func syntheticBytes(flags uint16) uint32 {
	return uint32(flags>>1&1) + uint32(flags&1)
}

func (s *Stack) send(from network.NodeID, pk *network.Packet) {
	if s.Wire != nil {
		s.Wire(from, pk)
		return
	}
	s.Net.Send(from, pk)
}

// next returns the next initial sequence number (RFC 9293 3.4.1, RFC 6528: nobody can predict it).
func (s *Stack) next() uint32 {
	if s.ISS != nil {
		return s.ISS()
	}
	return s.random.Uint32()
}
