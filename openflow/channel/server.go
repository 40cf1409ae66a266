package channel

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"weir/openflow"
)

// Config configures all connections of a controller.
type Config struct {
	Handler     Handler         // nil: unrequested messages of switches are dropped
	TLS         *tls.Config     // see ServerTLS and ClientTLS; nil: plain TCP, where any peer can claim to be any switch
	Generations GenerationStore // nil: generation ids do not survive a restart
	Limits      Limits
	Log         *slog.Logger // nil: nothing is logged
	// Admit, if set, is called after hello and features, and an error refuses the switch. It can compare the datapath id with
	// the certificate. It must return at once.
	Admit func(c *Conn) error
}

// Server has the connections of one controller.
type Server struct {
	handler     Handler
	tls         *tls.Config
	generations GenerationStore
	limits      Limits
	log         *slog.Logger
	lines       lines
	connLines   lines // limits the lines of all connections together
	admit       func(c *Conn) error

	mu         sync.Mutex
	total      int
	half       int
	halfOpen   map[string][]*halfOpen // by address, the oldest first
	perAddress map[string]int
	byID       map[openflow.DatapathID]*Conn
	accepted   uint64
	ended      [causes]uint64
}

// NewServer makes a server. The error is a limit out of range.
func NewServer(c Config) (*Server, error) {
	limits, err := c.Limits.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Server{
		handler: c.Handler, tls: c.TLS, generations: c.Generations, limits: limits, log: c.Log, admit: c.Admit,
		halfOpen: make(map[string][]*halfOpen), perAddress: make(map[string]int), byID: make(map[openflow.DatapathID]*Conn),
	}
	if s.handler == nil {
		s.handler = Ignore{}
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	// Peers decide how often connections begin and end, so the log of that is limited.
	s.lines = lines{log: s.log, limit: rate.NewLimiter(20, 200)}
	// More at once, because all switches of a fabric connect within seconds after a controller has begun.
	s.connLines.limit = rate.NewLimiter(20, 2000)
	return s, nil
}

// Ignore is a [Handler] that does nothing, for others to be built on.
type Ignore struct{}

// Up does nothing.
func (Ignore) Up(*Conn) {}

// PacketIn does nothing.
func (Ignore) PacketIn(*Conn, *openflow.PacketIn) {}

// Message does nothing.
func (Ignore) Message(*Conn, openflow.Header, openflow.Message) {}

// Down does nothing.
func (Ignore) Down(*Conn, error) {}

// Serve accepts switches until the context ends or the listener fails. Then it closes the listener, ends the connections that it
// accepted, and waits for them. It returns nil if the context ended.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	if err := checkListen(s.tls); err != nil {
		_ = l.Close()
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var conns sync.WaitGroup
	defer conns.Wait()
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() }) // Accept returns the error
	defer stop()
	defer l.Close()
	pause := time.Duration(0)
	for {
		nc, err := l.Accept()
		if ctx.Err() != nil {
			if err == nil {
				_ = nc.Close()
			}
			return nil
		}
		if err != nil {
			var out interface{ Temporary() bool } // no descriptors left, for instance
			if !errors.As(err, &out) || !out.Temporary() {
				return fmt.Errorf("accept OpenFlow connections: %w", err)
			}
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			s.lines.say(levelWarn, "cannot accept a connection", "error", err, "again_in", pause)
			sleep(ctx, pause)
			continue
		}
		pause = 0
		conns.Go(func() {
			if c, err := s.open(ctx, nc, false); err == nil {
				defer context.AfterFunc(ctx, func() { c.shut(closed(CauseShutdown, "this controller ends")) })()
				c.run()
			}
		})
	}
}

// open prepares a connection for the handler, or closes it.
func (s *Server) open(ctx context.Context, nc net.Conn, dialled bool) (*Conn, error) {
	address := addressOf(nc)
	ctx, cancel := context.WithTimeout(ctx, s.limits.HandshakeTimeout)
	defer cancel()
	h := &halfOpen{cancel: cancel}
	if why := s.enter(address, h); why != nil {
		s.refuse(nc, why)
		return nil, why
	}
	if t, ok := nc.(*net.TCPConn); ok { // these fail only on a broken socket
		_ = t.SetReadBuffer(s.limits.SocketBytes)
		_ = t.SetWriteBuffer(s.limits.SocketBytes)
	}
	c, why := s.negotiate(ctx, nc, dialled)
	if pushed := s.through(address, h); pushed && why != nil {
		why = closed(CauseTooMany, "%d connections are in their handshake, most of them from %s", s.limits.HalfOpen, address)
	}
	if why != nil {
		s.refuse(nc, why)
		s.exit(address)
		return nil, why
	}
	return c, nil
}

func (s *Server) negotiate(ctx context.Context, nc net.Conn, dialled bool) (*Conn, *CloseError) {
	raw := nc
	stop := context.AfterFunc(ctx, func() {
		_ = raw.SetDeadline(time.Unix(1, 0)) // ends a read or write that is running, which returns the reason
	})
	defer stop()
	nc, state, why := s.secure(nc, dialled)
	if why != nil {
		return nil, why
	}
	c := s.newConn(nc, state)
	c.deadline(ctx)
	go c.write()
	why = c.greet()
	if why == nil && s.admit != nil {
		if err := s.admit(c); err != nil {
			why = closed(CauseNotAdmitted, "switch %s: %w", hexID(c.DatapathID()), err)
		}
	}
	if why == nil && !stop() {
		why = closed(CauseHandshake, "the handshake was not finished in time")
	}
	if why == nil {
		why = s.claim(ctx, c)
	}
	if why != nil {
		c.abandon(why)
		return nil, why
	}
	return c, nil
}

// secure starts TLS on the connection, if it is configured.
func (s *Server) secure(nc net.Conn, dialled bool) (net.Conn, *tls.ConnectionState, *CloseError) {
	if s.tls == nil {
		return nc, nil, nil
	}
	var t *tls.Conn
	if dialled {
		t = tls.Client(nc, s.tls)
	} else {
		t = tls.Server(nc, s.tls)
	}
	// Not HandshakeContext: it returns the context's error in place of TLS's own. The caller ends this handshake.
	if err := t.Handshake(); err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, nil, closed(CauseHandshake, "TLS was not finished in time")
		}
		return nil, nil, closed(CauseTLS, "%w", err)
	}
	state := t.ConnectionState()
	return t, &state, nil
}

// refuse closes a connection that was not admitted, and logs the cause.
func (s *Server) refuse(nc net.Conn, why *CloseError) {
	_ = nc.Close() // closed, also after an error
	s.lines.say(levelWarn, "connection refused", "peer", nc.RemoteAddr().String(), "cause", why.Cause, "error", why.Err)
	s.tally(why.Cause) // after the log, so that the line exists when the count has changed
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
