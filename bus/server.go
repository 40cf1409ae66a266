// Package bus carries messages between agents and controllers: NATS, with TLS and certificates on both sides.
//
//	limits.go    what one identity can use
//	subjects.go  who may send and read what
//	server.go    the embedded server
//	police.go    disconnects floods, and certificates that are revoked
//	external.go  the configuration of an external cluster
//	log.go       limits the lines of the server in the log
//	conn.go      the connection of a client
//	agent.go     what an agent sends and receives
//	control.go   what a controller sends and receives
//	store.go     leases in the key-value store
//	policy.go    the key-value store of policies
//	metrics.go   figures of the embedded server
//	ask.go       operators ask controllers and agents
//	runner.go    runs the leases of a controller
//	commands.go  which commands a controller may send
//	work.go      tasks for many machines and their results: subjects, permissions
//
// Neighbours: pki (certificates), weirv1 (messages), lease (which controller holds a bucket, and whom an agent obeys).
package bus

import (
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"weir/bus/pki"
	"weir/internal/counts"
)

// ServerConfig configures an embedded server.
type ServerConfig struct {
	Listen string    // address:port; port 0 takes a free one
	Files  pki.Files // of an identity bus/NAME
	Store  string    // directory of the key-value stores and of work
	Log    *slog.Logger
	// Routes and Cluster make the server one of a cluster: the others' addresses, and where this one listens for them.
	Cluster string
	Routes  []string

	maxMessages uint64 // for tests; 0: MaxMessages
}

// Server is an embedded server of the bus.
type Server struct {
	nats *server.Server
	keys *pki.Keys
	log  *slog.Logger

	maxMessages uint64
	stop        chan struct{}
	done        sync.WaitGroup
	counts      counts.Counts // refused connections, by reason

	mu      sync.Mutex
	clients map[uint64]*client   // by NATS' number of the connection
	banned  map[string]time.Time // identity -> until when
}

// client is a connection whose certificate was accepted.
type client struct {
	id       pki.Identity
	leaf     *x509.Certificate
	sent     traffic // when it was looked at last
	over     int     // how many times in a row its identity had sent too much
	verified uint64  // 1 + the number of changes of our files when its certificate was verified last; 0: in the handshake only
	listed   bool    // it was in a list of connections once
	missing  int     // in how many lists of connections in a row it was missing
}

// clientRoles can connect as clients.
var clientRoles = []pki.Role{pki.Agent, pki.Controller, pki.Observer, pki.Worker, pki.Operator}

// StartServer starts a server. Close ends it.
func StartServer(cfg ServerConfig) (*Server, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	keys, err := pki.Load(cfg.Files, cfg.Log)
	if err != nil {
		return nil, fmt.Errorf("start the bus: %w", err)
	}
	if keys.Identity().Role != pki.Bus {
		return nil, fmt.Errorf("start the bus: the certificate is for %v, want bus/NAME", keys.Identity())
	}
	s := &Server{
		keys: keys, log: cfg.Log, maxMessages: cfg.maxMessages, stop: make(chan struct{}),
		clients: map[uint64]*client{}, banned: map[string]time.Time{},
	}
	if s.maxMessages == 0 {
		s.maxMessages = MaxMessages
	}
	o, err := s.options(&cfg)
	if err != nil {
		return nil, fmt.Errorf("start the bus: %w", err)
	}
	if s.nats, err = server.NewServer(o); err != nil {
		return nil, fmt.Errorf("start the bus: %w", err)
	}
	log := newNATSLog(cfg.Log)
	s.nats.SetLoggerV2(log, false, false, false)
	s.nats.Start()
	if err := s.ready(log.fatal); err != nil {
		s.nats.Shutdown()
		return nil, fmt.Errorf("start the bus on %s: %w", cfg.Listen, err)
	}
	s.done.Go(s.police)
	s.done.Go(func() { s.keepStore(o) })
	return s, nil
}

// startLimit is long, because a store on a slow disk may be large. Faults, such as an address in use, end the start at once.
const startLimit = 2 * time.Minute

// ready waits until the server accepts connections. fatal has what it reported.
func (s *Server) ready(fatal <-chan string) error {
	for deadline := time.Now().Add(startLimit); time.Now().Before(deadline); {
		if s.nats.ReadyForConnections(20 * time.Millisecond) {
			return nil
		}
		select {
		case text := <-fatal:
			return errors.New(text)
		default:
		}
	}
	return fmt.Errorf("no connections are accepted after %v", startLimit)
}

func (s *Server) options(cfg *ServerConfig) (*server.Options, error) {
	host, port, err := hostPort(cfg.Listen)
	if err != nil {
		return nil, err
	}
	o := &server.Options{
		ServerName: s.keys.Identity().Name, Host: host, Port: port, NoSigs: true,
		TLS: true, TLSVerify: true, TLSConfig: s.keys.ServerTLS(s.rejected, clientRoles...), TLSHandshakeFirst: true,
		TLSTimeout: handshakeTimeout.Seconds(), AuthTimeout: handshakeTimeout.Seconds() + 1, CustomClientAuthentication: s,
		MaxConn: MaxConnections, MaxSubs: MaxSubscriptions, MaxPayload: maxMessage, MaxPending: MaxPending, MaxControlLine: MaxControlLine,
		PingInterval: pingEvery, MaxPingsOut: maxPings, WriteDeadline: handshakeTimeout, MaxClosedClients: 100,
		JetStream: true, StoreDir: cfg.Store, JetStreamMaxMemory: maxStore, JetStreamMaxStore: maxStore + maxWork, SyncAlways: true,
		DisableShortFirstPing: true,
	}
	if port == 0 {
		o.Port = server.RANDOM_PORT
	}
	if cfg.Cluster == "" {
		return o, nil
	}
	o.Cluster.Name = "weir"
	if o.Cluster.Host, o.Cluster.Port, err = hostPort(cfg.Cluster); err != nil {
		return nil, err
	}
	// A route has all rights, so both ends must show a certificate of role bus.
	o.Cluster.TLSConfig = s.keys.PeerTLS(s.rejected)
	o.Cluster.TLSTimeout = handshakeTimeout.Seconds()
	for _, r := range cfg.Routes {
		o.Routes = append(o.Routes, &url.URL{Scheme: "nats-route", Host: r})
	}
	return o, nil
}

func hostPort(address string) (string, int, error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, err
	}
	port, err := strconv.ParseUint(text, 10, 16)
	return host, int(port), err
}

// URL returns the address for clients.
func (s *Server) URL() string { return "tls://" + s.nats.Addr().String() }

// Close disconnects the clients and ends the server.
func (s *Server) Close() {
	close(s.stop)
	s.done.Wait()
	s.nats.Shutdown()
	s.nats.WaitForShutdown()
}

// Counts returns how many connections were refused or ended, by reason.
func (s *Server) Counts() map[string]uint64 { return s.counts.All() }

// rejected counts a certificate that was refused during the handshake.
func (s *Server) rejected(c *x509.Certificate, err error) {
	reason := "certificate"
	if errors.Is(err, pki.ErrRevoked) {
		reason = "revoked"
	} else if invalid := (x509.CertificateInvalidError{}); errors.As(err, &invalid) && invalid.Reason == x509.Expired {
		reason = "expired"
	} else if errors.Is(err, pki.ErrRole) {
		reason = "role"
	} else if unknown := (x509.UnknownAuthorityError{}); errors.As(err, &unknown) {
		reason = "unknown_ca"
	}
	s.counts.Refuse(s.log, "a certificate is refused", reason, "subject", fmt.Sprintf("%.80s", c.Subject.CommonName), "error", err)
}

// Check makes Server an Authentication: the identity in the certificate decides which subjects a connection can use.
func (s *Server) Check(c server.ClientAuthentication) bool {
	state := c.GetTLSConnectionState()
	if state == nil || len(state.PeerCertificates) == 0 {
		s.counts.Add("certificate")
		return false
	}
	leaf := state.PeerCertificates[0]
	id, err := pki.IdentityOf(leaf)
	if err != nil { // the handshake refused it already
		s.rejected(leaf, err)
		return false
	}
	s.mu.Lock()
	until, banned := s.banned[id.String()]
	banned = banned && time.Now().Before(until)
	full := s.connections(id) >= MaxPerIdentity
	if !banned && !full {
		s.clients[c.GetID()] = &client{id: id, leaf: leaf}
	}
	s.mu.Unlock()
	if banned {
		s.counts.Refuse(s.log, "a connection is refused: the identity sent too much", "banned", "identity", id, "until", until)
		return false
	}
	if full { // otherwise one identity could take the connections of all others
		s.counts.Refuse(s.log, "a connection is refused: the identity has too many", "connections", "identity", id, "most", MaxPerIdentity)
		return false
	}
	allowed := Allowed(id)
	c.RegisterUser(&server.User{
		Username: id.String(), ConnectionDeadline: leaf.NotAfter,
		Permissions: &server.Permissions{
			Publish:   permission(allowed.Publish),
			Subscribe: permission(allowed.Subscribe),
			Response:  response(allowed.Answers),
		},
	})
	return true
}

// connections returns how many connections of an identity are open. The caller holds mu.
func (s *Server) connections(id pki.Identity) (n int) {
	for _, c := range s.clients {
		if c.id == id && c.isOpen() {
			n++
		}
	}
	return n
}

// response allows one answer to each question; nil: none.
func response(allowed bool) *server.ResponsePermission {
	if !allowed {
		return nil
	}
	return &server.ResponsePermission{MaxMsgs: 1, Expires: answerOnce}
}

// permission allows the subjects and nothing else. NATS takes an empty list for everything.
func permission(subjects []string) *server.SubjectPermission {
	if len(subjects) == 0 {
		return &server.SubjectPermission{Deny: []string{">"}}
	}
	return &server.SubjectPermission{Allow: subjects}
}
