package tcp

import (
	"errors"

	"weir/sim/event"
	"weir/sim/network"
)

// Reasons why an endpoint failed.
var (
	ErrReset   = errors.New("connection reset by peer")
	ErrRefused = errors.New("connection refused")
	ErrTimeout = errors.New("connection timed out") // R2 (RFC 1122 4.2.3.5)
)

// State is a state of RFC 9293 3.3.2.
type State uint8

// The states. LISTEN is not among them: a listener makes an Endpoint for each SYN.
const (
	Closed State = iota
	SynSent
	SynReceived
	Established
	FinWait1
	FinWait2
	CloseWait
	Closing
	LastAck
	TimeWait
)

func (s State) String() string {
	return [...]string{"CLOSED", "SYN-SENT", "SYN-RECEIVED", "ESTABLISHED", "FIN-WAIT-1", "FIN-WAIT-2", "CLOSE-WAIT", "CLOSING", "LAST-ACK", "TIME-WAIT"}[s]
}

// Counters counts what an endpoint did since its connection began. Segments are those with payload or FIN.
type Counters struct {
	Segments, Bytes       int64 // sent for the first time
	Retransmitted         int64 // segments that were retransmitted, for any cause
	Received, Duplicates  int64 // payload bytes that arrived in order; segments that brought nothing new
	OutOfOrder            int64 // segments that arrived before their predecessors
	Timeouts, FLoss, LAck int64 // RTOs = FLoss + LAck (Endpoint.classify), without those of the handshake
	Spurious              int64 // RTOs that F-RTO, DSACK or timestamps showed to be spurious
	SYNTimeouts           int64 // of SYN and SYN-ACK
	FastRetransmits       int64 // recoveries begun without a timeout
	Probes, Persists      int64 // tail loss probes; window probes
	Undone                int64 // reductions undone
	Reductions            int64 // of cwnd for ECE
	Marks, MarkedSegments int64 // CE seen as receiver; segments that the peer reported as marked
	ACKs, DuplicateACKs   int64 // pure ACKs sent; duplicate ACKs received
}

// Endpoint is one end of a connection, full duplex. The fields that every packet needs come first.
type Endpoint struct {
	stack   *Stack
	profile *profile
	app     App
	cc      Control

	index           int32 // of the connection
	side            uint8 // 0 dialled, 1 accepted
	state           State
	recovery        Recovery
	sackOK, useRACK bool // negotiated; and RACK detects losses
	timestamps      bool
	ecnOK, exactECN bool
	host, peer      network.NodeID
	port, peerPort  uint16
	hash            uint32

	// Sender, RFC 9293 3.3.1.
	una, nxt  uint32 // SND.UNA, SND.NXT
	sndWnd    uint32 // SND.WND, bytes
	wl1       uint32 // SND.WL1
	maxWnd    uint32 // largest SND.WND so far
	mss       uint32 // payload of a full segment
	order     uint32 // transmissions so far
	sndShift  uint8
	finQueued bool // Close was called
	finSent   bool
	finAcked  bool
	nagle     uint32 // end of the last small segment sent (snd_sml, Minshall)
	hasNagle  bool
	unsent    int64 // bytes written and not yet sent
	written   int64
	board     scoreboard
	copies    copies

	// Linux's counts, in segments. In flight are packets_out - sacked_out - lost_out + retrans_out.
	sackedOut, lostOut, retransOut uint32
	lostPending                    uint32 // lost ones that were not retransmitted
	duplicates                     uint32 // duplicate ACKs without SACK since SND.UNA moved, or since a timeout
	recover                        uint32 // RFC 6582 3.2: behind what had been sent at the last loss; if that is acknowledged, before SND.UNA
	delivered                      uint32 // segments acknowledged or SACKed, in total

	win      Window
	ack      acking
	rtt      estimator
	timer    timer
	rec      recoveryState
	rack     rackState
	small    smallQueue
	usage    usage
	lastSent event.Time // of data, new or again, for idleness (lsndtime)

	// Receiver.
	irs, rcvNxt uint32
	rcvAcked    uint32 // RCV.NXT as last acknowledged (rcv_wup)
	rcvEdge     uint32 // right edge of the window offered: never moves left
	rcvMSS      uint32 // largest segment that arrived
	rcvShift    uint8
	paused      bool
	finSeen     bool             // a FIN arrived, maybe not in order
	finAt       uint32           // its sequence number
	finTaken    bool             // RCV.NXT is after it
	finReported bool             // the program knows of it
	unread      int64            // bytes in order that a paused program has not read
	early       []network.Block  // received out of order, ascending, separate
	sacks       [4]network.Block // to report, latest first
	nSacks      uint8
	dsack       network.Block
	hasDSACK    bool
	recent      uint32 // TS.Recent (RFC 7323 4.3): the peer's transmission number to echo
	lastOrder   uint32 // latest of the peer's transmissions that arrived (classify)

	WantAcknowledged bool // the program wants calls of Acknowledged
	wasAcknowledged  bool
	deadline         event.Time
	iss              uint32
	listener         *listener
	syn              handshake
	counters         Counters
}

// newEndpoint returns an endpoint that is never freed: it returns to the pool of its profile.
func newEndpoint(s *Stack, p *profile) *Endpoint {
	cc, err := newControl(p.Control, p.Options)
	if err != nil {
		panic(err) // Check reports this earlier
	}
	e := &Endpoint{stack: s, profile: p, cc: cc}
	e.timer.event.Init((*retransmitTimer)(e))
	e.ack.event.Init((*delayedTimer)(e))
	e.small.event.Init((*smallQueueTimer)(e))
	return e
}

// reset prepares the endpoint for a new connection. Slices keep their capacity; timers are not running.
func (e *Endpoint) reset(index int32, side uint8) {
	keep := *e
	*e = Endpoint{stack: keep.stack, profile: keep.profile, cc: keep.cc, index: index, side: side}
	e.board.ring, e.copies.ring, e.early = keep.board.ring, keep.copies.ring, keep.early[:0]
	e.timer.event, e.ack.event, e.small.event = keep.timer.event, keep.ack.event, keep.small.event // none is pending
	p := e.profile
	e.iss = e.stack.next()
	e.recover = e.iss
	e.una, e.nxt = e.iss, e.iss
	e.rcvMSS = 536
	e.rtt.rto = p.InitialRTO
	e.rack.steps = 1
	e.exactECN = e.cc.ExactECN()
	e.win.Start(p.InitialWindow, p.ClampWindow)
}

func (e *Endpoint) name(host, peer network.NodeID, port, peerPort uint16) {
	e.host, e.peer, e.port, e.peerPort = host, peer, port, peerPort
	e.hash = network.FlowHash(host, peer, port, peerPort, network.TCP)
	if e.profile.SmallQueues && len(e.stack.Net.Ports) > 0 {
		e.small.nic = e.stack.Net.NIC(host)
	}
}

// other returns the peer's endpoint, or nil if there is none (yet). It is used only for values without a field in the
// packet, and for counting.
func (e *Endpoint) other() *Endpoint { return e.stack.conns[e.index].ends[1-e.side] }

// done reports whether this end is finished: no segment could change it, and the program has read everything.
func (e *Endpoint) done() bool { return e.state == Closed || e.state == TimeWait && e.unread == 0 }

// Write adds n bytes to send.
func (e *Endpoint) Write(n int64) {
	if n <= 0 || e.finQueued || e.done() {
		return
	}
	now := e.stack.Queue.Now()
	if e.written == 0 && e.deadline == 0 && e.profile.Deadline > 0 {
		e.deadline = now + e.profile.Deadline
	}
	e.restartAfterIdle(now)
	e.written += n
	e.unsent += n
	e.wasAcknowledged = false
	e.push(now, false)
}

// Unsent returns how many written bytes have never been sent.
func (e *Endpoint) Unsent() int64 { return e.unsent }

// Truncate discards written bytes that were not sent, except the first keep of them. It ends an endless flow.
func (e *Endpoint) Truncate(keep int64) {
	if keep = max(keep, 0); e.unsent > keep {
		e.written -= e.unsent - keep
		e.unsent = keep
		e.push(e.stack.Queue.Now(), false) // the FIN may be next now
	}
}

// Close sends a FIN after the written bytes. The peer may continue to send.
func (e *Endpoint) Close() {
	if e.finQueued || e.done() {
		return
	}
	e.finQueued = true
	switch e.state {
	case SynSent, SynReceived:
		// The FIN follows the handshake. RFC 9293 3.10.4 deletes the connection in SYN-SENT, and returns an error for
		// unsent data. So the connection is deleted only if there is none.
		if e.state == SynSent && e.written == 0 {
			e.finish(nil)
		}
	case Established:
		e.state = FinWait1
		e.push(e.stack.Queue.Now(), false)
	case CloseWait:
		e.state = LastAck
		e.push(e.stack.Queue.Now(), false)
	}
}

// Abort sends RST and ends the connection (RFC 9293 3.10.5).
func (e *Endpoint) Abort() {
	if e.done() {
		return
	}
	if e.state != SynSent {
		e.sendReset()
	}
	e.finish(nil)
}

// Pause makes the program stop reading, which closes the window, or continue, which opens it.
func (e *Endpoint) Pause(paused bool) {
	if e.paused == paused || e.state == Closed {
		return
	}
	e.paused = paused
	if paused {
		return
	}
	n := e.unread
	e.unread = 0
	e.windowUpdate()
	e.report(n)
}

// SetDeadline sets the time by which the data should arrive (d2tcp); 0: no deadline.
func (e *Endpoint) SetDeadline(at event.Time) { e.deadline = at }

// Counters returns what the endpoint did so far.
func (e *Endpoint) Counters() Counters { return e.counters }

// Window returns the congestion window, in segments.
func (e *Endpoint) Window() Window { return e.win }

// State returns the connection's state at this end.
func (e *Endpoint) State() State { return e.state }

// Alpha returns DCTCP's estimate in 1/1024; 0 for other controls.
func (e *Endpoint) Alpha() uint32 { return e.cc.Alpha() }

// RTT returns the smoothed RTT and the retransmission timeout.
func (e *Endpoint) RTT() (srtt, rto event.Time) { return e.rtt.smoothed(), e.rtt.rto }

// Host returns this end's host and port.
func (e *Endpoint) Host() (network.NodeID, uint16) { return e.host, e.port }

// Peer returns the other end's host and port.
func (e *Endpoint) Peer() (network.NodeID, uint16) { return e.peer, e.peerPort }

// Dialled reports whether this end began the connection.
func (e *Endpoint) Dialled() bool { return e.side == 0 }

// Index returns the connection's index: Packet.Conn.
func (e *Endpoint) Index() int32 { return e.index }

// finish ends this end at once. It reports cause, if not nil, to the program.
func (e *Endpoint) finish(cause error) {
	e.state = Closed
	e.stopTimers()
	app := e.app
	if cause != nil && app != nil {
		app.Failed(e, cause)
	}
	e.stack.retire(e.index)
}
