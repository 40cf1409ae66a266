package bus

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"weir/bus/pki"
)

// Waiting times between attempts to connect: the first, doubled each time, at most the last. Each is drawn from the upper half,
// so that a thousand agents do not come back at once.
const (
	firstWait    = 100 * time.Millisecond
	soonWait     = 1500 * time.Millisecond
	lastWait     = 5 * time.Second
	soonAttempts = 30 // with soonWait at most
)

// ClientConfig configures a connection to the bus.
type ClientConfig struct {
	URLs  []string // tls://address:port of one or more servers
	Files pki.Files
	Log   *slog.Logger
	// Connected is called each time that a server is connected. It must return soon. nil: not.
	Connected func()
	// Server is that of URLs, if it runs in this process: then messages do not pass the network. Certificates are checked as on any
	// other connection. nil: it does not.
	Server *Server
}

// Conn is a connection of one identity. It comes back by itself after a failure. While it is down, messages are refused and not
// kept: an old report or command is worth nothing.
type Conn struct {
	id   pki.Identity
	keys *pki.Keys
	nc   *nats.Conn
	log  *slog.Logger
	up   func() // Connected of its configuration
	stop chan struct{}
	done sync.WaitGroup

	mu       sync.Mutex // guards closed, and additions to handlers
	closed   bool
	handlers sync.WaitGroup // functions that run for messages of listen

	refused atomic.Uint64 // by the server, for a subject that is not ours
	dropped atomic.Uint64 // how often messages came faster than they were read
	// Questions of operators that got no answer: too many, too long, or with a reply subject that is no operator's inbox.
	unanswered atomic.Uint64
	failed     atomic.Pointer[error] // the last attempt to connect
}

// Dial connects. If no server can be reached it continues to try, until Close; it returns an error for unusable files or URLs.
func Dial(cfg ClientConfig) (*Conn, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	keys, err := pki.Load(cfg.Files, cfg.Log)
	if err != nil {
		return nil, fmt.Errorf("connect to the bus: %w", err)
	}
	for _, u := range cfg.URLs {
		if !strings.HasPrefix(u, "tls://") {
			return nil, fmt.Errorf("connect to the bus: the URL %q, want tls://ADDRESS:PORT", u)
		}
	}
	c := &Conn{id: keys.Identity(), keys: keys, log: cfg.Log.With("identity", keys.Identity().String()), up: cfg.Connected, stop: make(chan struct{})}
	options := c.options()
	if cfg.Server != nil {
		options = append(options, nats.InProcessServer(cfg.Server.nats))
	}
	c.nc, err = nats.Connect(strings.Join(cfg.URLs, ","), options...)
	if err != nil {
		return nil, fmt.Errorf("connect to the bus: %w", err)
	}
	c.done.Go(c.renew)
	return c, nil
}

func (c *Conn) options() []nats.Option {
	return []nats.Option{
		nats.Name(c.id.String()), nats.Secure(c.keys.ClientTLS()), nats.ClientTLSConfig(c.keys.Own, c.keys.Roots), nats.TLSHandshakeFirst(), nats.CustomInboxPrefix(InboxPrefix(c.id)),
		nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.IgnoreAuthErrorAbort(), nats.ReconnectBufSize(-1),
		nats.CustomReconnectDelay(wait), nats.PingInterval(pingEvery), nats.MaxPingsOutstanding(maxPings), nats.Timeout(handshakeTimeout),
		nats.IgnoreDiscoveredServers(), nats.FlusherTimeout(handshakeTimeout),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				c.log.Warn("the connection to the bus is lost", "error", err)
			}
		}),
		nats.ConnectHandler(c.connected), nats.ReconnectHandler(c.connected),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) {
			c.failed.Store(&err)
			c.log.Warn("cannot connect to the bus", "error", err)
		}),
		nats.ErrorHandler(func(_ *nats.Conn, s *nats.Subscription, err error) {
			switch {
			case errors.Is(err, nats.ErrPermissionViolation):
				c.refused.Add(1)
				c.log.Error("the bus refuses a subject", "error", err)
			case errors.Is(err, nats.ErrSlowConsumer):
				c.dropped.Add(1)
				c.log.Warn("messages of the bus come too fast, and some are dropped", "subject", s.Subject)
			default:
				c.log.Warn("bus", "error", err)
			}
		}),
	}
}

func (c *Conn) connected(nc *nats.Conn) {
	c.log.Info("connected to the bus", "server", nc.ConnectedServerName())
	if c.up != nil {
		c.up()
	}
}

// wait returns how long to wait before the next attempt. A controller that restarts with the bus in it must be obeyed again two
// seconds later, so the waits grow further only after half a minute.
func wait(attempts int) time.Duration {
	d := lastWait
	if attempts < soonAttempts {
		d = min(soonWait, firstWait<<min(attempts, 10))
	}
	return d/2 + rand.N(d/2)
}

// renew connects again when the files have changed, so that a certificate is in use before the old one expires.
func (c *Conn) renew() {
	every := time.NewTicker(time.Second)
	defer every.Stop()
	seen := c.keys.Look()
	for {
		select {
		case <-c.stop:
			return
		case <-every.C:
		}
		if now := c.keys.Look(); now != seen {
			seen = now
			if err := c.nc.ForceReconnect(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
				c.log.Warn("cannot connect with the new certificate", "error", err)
			}
		}
	}
}

// Identity returns the identity in the certificate.
func (c *Conn) Identity() pki.Identity { return c.id }

// Connected reports whether a server is connected.
func (c *Conn) Connected() bool { return c.nc.IsConnected() }

// Refused returns how often the server refused a subject.
func (c *Conn) Refused() uint64 { return c.refused.Load() }

// Dropped returns how often messages came faster than they were read.
func (c *Conn) Dropped() uint64 { return c.dropped.Load() }

// Unanswered returns how many questions got no answer, because they were too many, too long, or named a subject that is no inbox of
// an operator.
func (c *Conn) Unanswered() uint64 { return c.unanswered.Load() }

// Close ends the connection.
func (c *Conn) Close() {
	close(c.stop)
	c.nc.Close()
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.handlers.Wait() // the client does not wait for a function that runs
	c.done.Wait()
}

// handles reports whether a function may run for a message: not after Close. It must call c.handlers.Done then.
func (c *Conn) handles() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.handlers.Add(1)
	return true
}

// role reports a connection of another role as an error of the caller.
func (c *Conn) role(want pki.Role) error {
	if c.id.Role != want {
		return fmt.Errorf("the certificate is for %v, want %s/NAME", c.id, want)
	}
	return nil
}

// listen subscribes f to a subject. It runs f for one message after the other.
func (c *Conn) listen(subject string, messages int, f func(*nats.Msg)) error {
	s, err := c.nc.Subscribe(subject, func(m *nats.Msg) {
		if c.handles() {
			defer c.handlers.Done()
			f(m)
		}
	})
	if err != nil {
		return fmt.Errorf("subscribe to %s: %w", subject, err)
	}
	return s.SetPendingLimits(messages, MaxPending)
}

// listenInOrder subscribes f to several subjects. It runs f for one message after the other, in the order in which they came. NATS has no such order
// for subscriptions with a function each.
func (c *Conn) listenInOrder(messages int, f func(*nats.Msg), subjects ...string) error {
	came := make(chan *nats.Msg, messages)
	for _, subject := range subjects {
		if _, err := c.nc.ChanSubscribe(subject, came); err != nil {
			return fmt.Errorf("subscribe to %s: %w", subject, err)
		}
	}
	c.done.Go(func() {
		for {
			select {
			case <-c.stop:
				return
			case m := <-came:
				f(m)
			}
		}
	})
	return nil
}

// settle waits until the server has what was subscribed, so that no message is lost that others send from now on. Without a
// server it does not wait: subscriptions go out when one is connected.
func (c *Conn) settle() {
	if !c.Connected() {
		return
	}
	if err := c.nc.FlushTimeout(handshakeTimeout); err != nil {
		c.log.Warn("the bus has not answered: it may not have the subscriptions yet", "error", err)
	}
}
