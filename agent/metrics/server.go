// Package metrics serves what a daemon measures, to Prometheus and to probes. Whoever scrapes, how often
// and how slowly, costs the daemon little: what is answered is read at most once a second, and so
// seldom that the reading takes at most a twentieth of one CPU; connections, their time and their
// headers have limits. Nothing here shares a lock with the daemon's work.
package metrics

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/netutil"
)

// DefaultListen is where a daemon serves when nobody says where.
const DefaultListen = "127.0.0.1:9187"

// limits of what one scraper, or many, can have.
type limits struct {
	connections   int
	headerTimeout time.Duration // a request has to be there within
	writeTimeout  time.Duration // an answer has to be taken within
	headerBytes   int
	retryEvery    time.Duration // where the address could not be had
}

func defaultLimits() limits {
	return limits{
		connections: 16, headerTimeout: 5 * time.Second, writeTimeout: 10 * time.Second, headerBytes: 8 << 10, retryEvery: time.Second,
	}
}

// Source is what is served.
type Source struct {
	Gather prometheus.Gatherer
	// Health says in one line how the daemon does, and whether that is well. It is asked after Gather,
	// by the same goroutine. Nil: well.
	Health func() (well bool, text string)
	Log    *slog.Logger
}

// Server answers GET /metrics and GET /healthz on one address at a time.
type Server struct {
	log    *slog.Logger
	cache  *cache
	limits limits

	mu     sync.Mutex
	listen string             // as asked for
	http   *http.Server       // nil: does not serve
	socket net.Listener       // where it serves
	stop   context.CancelFunc // of the attempts to get the address
	trying sync.WaitGroup
}

// New makes a server that does not listen yet.
func New(s Source) *Server {
	l := s.Log
	if l == nil {
		l = slog.New(slog.DiscardHandler)
	}
	return &Server{log: l, cache: newCache(s, l, time.Now), limits: defaultLimits()}
}

// CheckListen refuses an address that cannot be listened on anywhere. "" is none, and no error.
func CheckListen(listen string) error {
	if listen == "" {
		return nil
	}
	host, port, err := net.SplitHostPort(listen)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err == nil && host != "" && host != "localhost" { // a name would have to be looked up at boot
		_, err = netip.ParseAddr(host)
	}
	if err != nil {
		return fmt.Errorf("metrics on %q: an address of this machine and a port, as in %s, or nothing for none", listen, DefaultListen)
	}
	return nil
}

// Local says whether only this machine reaches the address.
func Local(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// Listen makes the server serve on this address and nowhere else; "": nowhere. With an error it goes on
// where it was. Patient: an address that cannot be had now is no error, but is logged and tried for until it
// can, or until something else is asked for: another process may be about to leave it.
func (s *Server) Listen(listen string, patient bool) error {
	if err := CheckListen(listen); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if listen == s.listen && listen != "" {
		return nil
	}
	l, err := s.have(listen)
	if err != nil {
		err = explain(listen, err)
		if !patient {
			return err
		}
		s.log.Warn("no metrics yet", "error", err)
	}
	s.quiet()
	s.listen = listen
	switch {
	case l != nil:
		s.serve(l)
	case listen != "":
		ctx, cancel := context.WithCancel(context.Background())
		s.stop = cancel
		s.trying.Go(func() { s.try(ctx, listen) })
	}
	return nil
}

// have listens on an address while the server still serves on the one before; "": on none. Where the two
// differ only in the host, the one before has to go first, and comes again if the new one cannot be had.
func (s *Server) have(listen string) (net.Listener, error) {
	if listen == "" {
		return nil, nil
	}
	l, err := open(listen)
	if !errors.Is(err, syscall.EADDRINUSE) || s.http == nil || port(listen) != port(s.socket.Addr().String()) {
		return l, err
	}
	before := s.socket.Addr().String()
	s.quiet()
	if l, err = open(listen); err != nil {
		if old, oldErr := open(before); oldErr == nil {
			s.serve(old)
		}
	}
	return l, err
}

// open listens; on 0.0.0.0 on IPv4 alone, which Go takes for every address of both.
func open(listen string) (net.Listener, error) {
	network := "tcp"
	if host, _, err := net.SplitHostPort(listen); err == nil {
		if ip, err := netip.ParseAddr(host); err == nil && ip.Is4() {
			network = "tcp4"
		}
	}
	return net.Listen(network, listen)
}

func port(listen string) string {
	_, port, _ := net.SplitHostPort(listen) // checked before
	return port
}

// explain says what to do about an address that cannot be listened on.
func explain(listen string, err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("metrics on %s: another program, or another switch of this machine, has this port: give another one (metrics: {listen: ...} or --metrics), or \"\" for none", listen)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("metrics on %s: this network namespace has no such address: give one that it has, or \"\" for none", listen)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("metrics on %s: not permitted: give a port from 1024 on, or \"\" for none", listen)
	}
	return fmt.Errorf("metrics on %s: %w", listen, err)
}

// try listens as soon as the address can be had.
func (s *Server) try(ctx context.Context, listen string) {
	again := time.NewTicker(s.limits.retryEvery)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		}
		l, err := open(listen)
		if err != nil {
			continue
		}
		s.mu.Lock()
		if ctx.Err() == nil {
			s.serve(l)
		} else {
			_ = l.Close()
		}
		s.mu.Unlock()
		return
	}
}

// serve answers on l; s.mu is held.
func (s *Server) serve(l net.Listener) {
	s.socket = l
	s.http = &http.Server{
		Handler:           s,
		ReadHeaderTimeout: s.limits.headerTimeout, ReadTimeout: s.limits.headerTimeout, WriteTimeout: s.limits.writeTimeout,
		MaxHeaderBytes: s.limits.headerBytes,
		ErrorLog:       log.New(io.Discard, "", 0), // what clients do wrong is not to fill the daemon's log
	}
	// So that a client without a request holds none of the few connections.
	s.http.SetKeepAlivesEnabled(false)
	address := l.Addr().String()
	s.log.Info("metrics", "address", address)
	if !Local(address) {
		s.log.Warn("metrics are open to the network: whoever reaches the address sees names and loads of ports", "address", address)
	}
	server, limited := s.http, netutil.LimitListener(l, s.limits.connections)
	go func() { _ = server.Serve(limited) }()
}

// quiet ends what serves and what tries to; s.mu is held.
func (s *Server) quiet() {
	if s.stop != nil {
		s.stop()
		s.stop = nil
	}
	if s.http != nil {
		_ = s.http.Close()
		_ = s.socket.Close() // a server that does not accept yet would close it later
		s.http, s.socket = nil, nil
	}
}

// Address is where the server serves; nil: nowhere.
func (s *Server) Address() net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.socket == nil {
		return nil
	}
	return s.socket.Addr()
}

// Close ends serving at once, whoever is being answered.
func (s *Server) Close() {
	s.mu.Lock()
	s.quiet()
	s.listen = ""
	s.mu.Unlock()
	s.trying.Wait()
}
