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

// Handler receives the events of a switch. All its methods are called on the goroutine that reads from that switch, one
// after the other: Up first, Down last. No method may wait for an answer of the same connection.
type Handler interface {
	// Up is called after hello and features. This controller is EQUAL then, and may change nothing.
	Up(c *Conn)
	// PacketIn borrows the message and its bytes until it returns.
	PacketIn(c *Conn, in *openflow.PacketIn)
	// Message receives all other unrequested messages: flow-removed, port status, experimenter, and errors of messages sent
	// by Send. The handler owns the message.
	Message(c *Conn, h openflow.Header, m openflow.Message)
	// Down is called when nothing more will be received or sent. err is a [CloseError].
	Down(c *Conn, err error)
}

// Conn is the connection to one switch.
type Conn struct {
	// State belongs to the handler, which sets it in Up. The connection does not use it.
	State any

	srv      *Server
	nc       net.Conn
	direct   *direct // nil: writing may wait
	log      lines
	since    time.Time
	remote   string
	features openflow.FeaturesReply
	state    *tls.ConnectionState // nil without TLS

	done    chan struct{} // closed when err is set
	gone    chan struct{} // closed after Handler.Down
	ended   atomic.Bool   // err is set
	corked  atomic.Bool   // the reading goroutine will wake the writer
	listens atomic.Bool   // the reading goroutine waits for bytes, and is not busy with received ones

	in    readSide // used by the reading goroutine only
	count counters

	roleTurn chan struct{} // full while a SetRole is running

	mu         sync.Mutex
	err        *CloseError
	out        outQueue
	xid        uint32 // the last transaction id
	calls      map[uint32]*Call
	asked      int // calls that Outstanding counts
	gathered   int // bytes in parts of unfinished answers
	batches    []*batch
	master     bool // MASTER is confirmed
	role       openflow.Role
	generation uint64 // of the last request for MASTER or SLAVE
	fenced     bool   // generation is set
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
	turn       int       // bytes since other goroutines could run
	now        time.Time // when the last bytes came, or the last deadline passed
	heard      time.Time // when the last bytes came
	armed      time.Time // the read deadline
	begun      time.Time // when the first byte of the unfinished message was seen
	begunCut   uint64    // frames.cut at that moment
	echoed     time.Time // when the last echo request was sent
	unanswered bool      // the last echo request has no answer
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
			now:       now, heard: now, echoed: now,
		},
	}
	c.log = lines{log: s.log.With("peer", c.remote), limit: rate.NewLimiter(rate.Limit(l.LogLines), 10*l.LogLines), all: &s.connLines}
	c.out.init()
	return c
}

// DatapathID returns the switch's identity as it reports it. With TLS, the certificate can be used to check it.
func (c *Conn) DatapathID() openflow.DatapathID { return c.features.DatapathID }

// Features returns the switch's features reply of the handshake.
func (c *Conn) Features() openflow.FeaturesReply { return c.features }

// RemoteAddr returns the switch's address.
func (c *Conn) RemoteAddr() net.Addr { return c.nc.RemoteAddr() }

// Certificate returns the switch's verified certificate; nil without TLS.
func (c *Conn) Certificate() *x509.Certificate {
	if c.state == nil || len(c.state.PeerCertificates) == 0 {
		return nil
	}
	return c.state.PeerCertificates[0]
}

// Done returns a channel that is closed when the connection has ended. Err has the cause.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err returns nil while the connection is open, then a [CloseError].
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		return nil // not a nil *CloseError
	}
	return c.err
}

// Close ends the connection at once, and queued messages are lost. Call Barrier first to wait for them.
func (c *Conn) Close() {
	c.shut(closed(CauseClosed, "closed by this controller"))
}

// shut ends the connection for that reason, unless it has ended. After that nothing is queued or written.
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
	_ = c.nc.Close() // closed, also after an error
}

// discard makes the kernel drop bytes that it has not sent: orders of a controller that is no longer MASTER.
func (c *Conn) discard() {
	nc := c.nc
	if t, ok := nc.(*tls.Conn); ok {
		nc = t.NetConn() // TLS would send close_notify first
	}
	if t, ok := nc.(*net.TCPConn); ok {
		_ = t.SetLinger(0) // fails on a socket that is closed already
	}
	_ = nc.Close()
}

// run reads until the connection ends. It is called on a goroutine of its own.
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
	_ = c.nc.Close() // closed, also after an error
	<-c.out.stopped
}
