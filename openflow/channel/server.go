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

// Config is what a controller's connections have in common.
type Config struct {
	Handler     Handler         // nil: what switches send unasked is thrown away
	TLS         *tls.Config     // see ServerTLS and ClientTLS; nil: plain TCP, where anybody can be any switch
	Generations GenerationStore // nil: generation ids are not kept over a restart
	Limits      Limits
	Log         *slog.Logger // nil: nothing is logged
	// Admit, if set, is asked before a switch is let in, with hello and features through. It can hold the datapath id
	// against the certificate. It is to answer at once.
	Admit func(c *Conn) error
}

// Server holds the connections of one controller.
type Server struct {
	handler     Handler
	tls         *tls.Config
	generations GenerationStore
	limits      Limits
	log         *slog.Logger
	lines       lines
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

// NewServer fails when a limit cannot be meant.
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
	// Connections come and go as peers please: so do the lines about them.
	s.lines = lines{log: s.log, limit: rate.NewLimiter(20, 200)}
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

// Serve accepts switches until the context ends, or the listener fails. It closes the listener, ends the connections
// it accepted and waits for them. It gives nil when the context ended.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	if err := checkListen(s.tls); err != nil {
		_ = l.Close()
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var conns sync.WaitGroup
	defer conns.Wait()
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() }) // Accept gives the error
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

// open brings a connection to where a handler may have it, or closes it.
func (s *Server) open(ctx context.Context, nc net.Conn, dialled bool) (*Conn, error) {
	address := addressOf(nc)
	ctx, cancel := context.WithTimeout(ctx, s.limits.HandshakeTimeout)
	defer cancel()
	h := &halfOpen{cancel: cancel}
	if why := s.enter(address, h); why != nil {
		s.refuse(nc, why)
		return nil, why
	}
	if t, ok := nc.(*net.TCPConn); ok { // these only fail on a socket that fails anyway
		_ = t.SetReadBuffer(s.limits.SocketBytes)
		_ = t.SetWriteBuffer(s.limits.SocketBytes)
	}
	c, why := s.negotiate(ctx, nc, dialled)
	if pushed := s.through(address, h); pushed && why != nil {
		why = closed(CauseTooMany, "%d connections are in their handshake, most of them of %s", s.limits.HalfOpen, address)
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
		_ = raw.SetDeadline(time.Unix(1, 0)) // ends what is under way: the reason is found there
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
		why = closed(CauseHandshake, "not finished in time")
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

// secure puts TLS over the connection, if there is to be any.
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
	// Not HandshakeContext: that gives the context's error in the place of what TLS had found. The caller ends this one.
	if err := t.Handshake(); err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, nil, closed(CauseHandshake, "TLS was not finished in time")
		}
		return nil, nil, closed(CauseTLS, "%w", err)
	}
	state := t.ConnectionState()
	return t, &state, nil
}

// refuse closes a connection that was not made, and says why.
func (s *Server) refuse(nc net.Conn, why *CloseError) {
	_ = nc.Close() // whatever it says, it is closed
	s.lines.say(levelWarn, "connection refused", "peer", nc.RemoteAddr().String(), "cause", why.Cause, "error", why.Err)
	s.tally(why.Cause) // after the line: a reader that sees the count finds the line
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
