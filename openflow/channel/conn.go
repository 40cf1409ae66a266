package channel

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"weir/openflow"
)

// Handler is told what a switch does. All its methods are called on the goroutine that reads from that switch, one
// after the other: Up first, Down last. None may wait for an answer of the same connection.
type Handler interface {
	// Up is called when hello and features are through. This controller is EQUAL then, and may change nothing.
	Up(c *Conn)
	// PacketIn owns neither the message nor its bytes once it returns.
	PacketIn(c *Conn, in *openflow.PacketIn)
	// Message is given what else came unasked: flow-removed, port status, experimenter, and errors of messages sent
	// by Send. The message is the handler's.
	Message(c *Conn, h openflow.Header, m openflow.Message)
	// Down is called once nothing more will come or be sent. err is a [CloseError].
	Down(c *Conn, err error)
}

// Conn is the connection to one switch.
type Conn struct {
	// State is the handler's, to be set in Up: what it knows of this switch. The connection does not look at it.
	State any

	srv      *Server
	nc       net.Conn
	direct   *direct // nil where writing may wait
	log      lines
	since    time.Time
	remote   string
	features openflow.FeaturesReply
	state    *tls.ConnectionState // nil without TLS

	done    chan struct{} // closed when err is set
	gone    chan struct{} // closed after Handler.Down
	ended   atomic.Bool   // err is set
	corked  atomic.Bool   // the reading goroutine will wake the writer
	listens atomic.Bool   // the reading goroutine waits for bytes: it is not busy with those that came

	in    readSide // of the reading goroutine alone
	count counters

	roleTurn chan struct{} // held by the one SetRole that is under way

	mu         sync.Mutex
	err        *CloseError
	out        outQueue
	xid        uint32 // the last one given
	calls      map[uint32]*Call
	asked      int // of calls, those that Outstanding counts
	gathered   int // bytes in parts of unfinished answers
	batches    []*batch
	master     bool // MASTER is confirmed
	role       openflow.Role
	generation uint64 // the one that MASTER or SLAVE was asked with
	fenced     bool   // generation holds one
	rtt        RTT
}

// readSide is the state of the reading goroutine.
type readSide struct {
	frames
	packetIn   openflow.PacketIn
	packetIns  bucket
	packetInB  bucket // their bytes
	messages   bucket
	bytes      bucket
	turn       int       // bytes since others could have the processor
	now        time.Time // when the last bytes came, or the last deadline passed
	heard      time.Time // when the last bytes came
	armed      time.Time // the read deadline
	begun      time.Time // when the unfinished message was first seen
	begunCut   uint64    // frames.cut at that moment
	beat       time.Time // when the last echo request was sent
	unanswered bool      // that one
}

func (s *Server) newConn(nc net.Conn, state *tls.ConnectionState) *Conn {
	l := &s.limits
	now := time.Now()
	c := &Conn{
		srv: s, nc: nc, direct: newDirect(nc), state: state, since: now, remote: nc.RemoteAddr().String(),
		done: make(chan struct{}), gone: make(chan struct{}), roleTurn: make(chan struct{}, 1),
		calls: make(map[uint32]*Call), role: openflow.RoleEqual,
		in: readSide{
			frames:    newFrames(l.MessageBytes),
			packetIns: newBucket(now, l.PacketIns, l.PacketIns/4),
			packetInB: newBucket(now, l.PacketInBytes, l.PacketInBytes/4),
			messages:  newBucket(now, l.Messages, l.Messages),
			bytes:     newBucket(now, l.ReadBytes, l.ReadBytes/4),
			now:       now, heard: now, beat: now,
		},
	}
	c.log = lines{log: s.log.With("peer", c.remote), limit: rate.NewLimiter(rate.Limit(l.LogLines), 10*l.LogLines)}
	c.out.init()
	return c
}

// DatapathID is the switch's identity, by its own word; with TLS its certificate can be held against it.
func (c *Conn) DatapathID() openflow.DatapathID { return c.features.DatapathID }

// Features is the switch's answer in the handshake.
func (c *Conn) Features() openflow.FeaturesReply { return c.features }

// RemoteAddr is where the switch is.
func (c *Conn) RemoteAddr() net.Addr { return c.nc.RemoteAddr() }

// Certificate is the switch's, verified; nil without TLS.
func (c *Conn) Certificate() *x509.Certificate {
	if c.state == nil || len(c.state.PeerCertificates) == 0 {
		return nil
	}
	return c.state.PeerCertificates[0]
}

// Done is closed when the connection has ended; Err says why.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err is nil while the connection lives, then a [CloseError].
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		return nil // not a nil *CloseError
	}
	return c.err
}

// Close ends the connection at once; what waits in the queue is lost. A barrier before it makes sure of it.
func (c *Conn) Close() {
	c.shut(closed(CauseClosed, "closed by this controller"))
}

// shut ends the connection for that reason, unless it has ended. From here on nothing more is queued or written.
func (c *Conn) shut(why *CloseError) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = why
	c.master = false
	c.out.drop()
	c.ended.Store(true)
	close(c.done)
	c.mu.Unlock()
	c.srv.tally(why.Cause)
	if why.Cause == CauseStale || why.Cause == CauseRoleLost || why.Cause == CauseSlowReader {
		c.discard()
	}
	_ = c.nc.Close() // whatever it says, it is closed
}

// discard makes the kernel throw away what it has not sent: orders of a controller that is no longer obeyed.
func (c *Conn) discard() {
	nc := c.nc
	if t, ok := nc.(*tls.Conn); ok {
		nc = t.NetConn() // TLS would say goodbye first
	}
	if t, ok := nc.(*net.TCPConn); ok {
		_ = t.SetLinger(0) // fails on a socket that is closed already
	}
	_ = nc.Close()
}

// run reads until the connection ends. Whoever opened it calls it on a goroutine of its own.
func (c *Conn) run() {
	h := c.srv.handler
	c.log.say(levelInfo, "switch connected", "datapath_id", hexID(c.DatapathID()))
	h.Up(c)
	c.shut(c.read())
	<-c.out.stopped
	c.endCalls()
	c.srv.leave(c)
	err := c.Err()
	c.log.say(levelInfo, "switch gone", "datapath_id", hexID(c.DatapathID()), "error", err)
	h.Down(c, err)
	close(c.gone)
}

// abandon ends a connection that no handler has seen.
func (c *Conn) abandon(why *CloseError) {
	c.mu.Lock()
	if c.err == nil {
		c.err = why
		c.ended.Store(true)
		close(c.done)
	}
	c.mu.Unlock()
	_ = c.nc.Close() // whatever it says, it is closed
	<-c.out.stopped
}
