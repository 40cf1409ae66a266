// Package metrics serves a daemon's metrics to Prometheus and to probes. Scrapers cost the daemon little, even if they are many
// or slow. Metrics are read at most once a second, and so rarely that reading takes at most a twentieth of one CPU. Connections,
// their time and their headers have limits. This package shares no lock with the daemon's work.
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

// DefaultListen is the default address.
const DefaultListen = "127.0.0.1:9187"

// limits bounds the resources of scrapers.
type limits struct {
	connections   int
	headerTimeout time.Duration // for a request to arrive
	writeTimeout  time.Duration // for an answer to be read
	headerBytes   int
	retryEvery    time.Duration // between attempts to listen on the address
}

func defaultLimits() limits {
	return limits{
		connections: 16, headerTimeout: 5 * time.Second, writeTimeout: 10 * time.Second, headerBytes: 8 << 10, retryEvery: time.Second,
	}
}

// Source is the source of the metrics.
type Source struct {
	Gather prometheus.Gatherer
	// Health returns the daemon's state in one line, and whether it is healthy. It is called after Gather, on the same
	// goroutine. nil: always healthy.
	Health func() (well bool, text string)
	Log    *slog.Logger
}

// Server answers GET /metrics and GET /healthz on one address at a time.
type Server struct {
	log    *slog.Logger
	cache  *cache
	limits limits

	mu     sync.Mutex
	listen string             // the configured address
	http   *http.Server       // nil: does not serve
	socket net.Listener       // on which it serves
	stop   context.CancelFunc // ends the attempts to listen
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

// CheckListen returns an error for an address that no machine can listen on. "" means none, and is no error.
func CheckListen(listen string) error {
	if listen == "" {
		return nil
	}
	host, port, err := net.SplitHostPort(listen)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err == nil && host != "" && host != "localhost" { // a name would need DNS at boot
		_, err = netip.ParseAddr(host)
	}
	if err != nil {
		return fmt.Errorf("metrics on %q: an address of this machine and a port, as in %s, or nothing for none", listen, DefaultListen)
	}
	return nil
}

// Local reports whether only this machine can reach the address.
func Local(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// Listen makes the server serve on this address only; "": nowhere. After an error it continues on the former address. With
// patient, an address that is not available now is no error: Listen logs it and tries again until the address is available or
// another one is set. For example, another process may be about to leave it.
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
		s.log.Warn("metrics are not served yet", "error", err)
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

// have listens on an address while the server still serves on the former one; "": on none. If the two differ only in the host, it
// closes the former one first, and opens it again if the new one is not available.
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

// open listens on an address. On 0.0.0.0 it uses IPv4 only; Go would use both families.
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
	_, port, _ := net.SplitHostPort(listen) // CheckListen has checked it
	return port
}

// explain adds the remedy to an error of listening.
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

// try listens as soon as the address is available.
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

// serve answers on l. The caller holds s.mu.
func (s *Server) serve(l net.Listener) {
	s.socket = l
	s.http = &http.Server{
		Handler:           s,
		ReadHeaderTimeout: s.limits.headerTimeout, ReadTimeout: s.limits.headerTimeout, WriteTimeout: s.limits.writeTimeout,
		MaxHeaderBytes: s.limits.headerBytes,
		ErrorLog:       log.New(io.Discard, "", 0), // clients must not fill the daemon's log
	}
	// So that a client without a request uses none of the few connections.
	s.http.SetKeepAlivesEnabled(false)
	address := l.Addr().String()
	s.log.Info("metrics", "address", address)
	if !Local(address) {
		s.log.Warn("metrics are open to the network: anyone who can reach the address sees names and loads of ports", "address", address)
	}
	server, limited := s.http, netutil.LimitListener(l, s.limits.connections)
	go func() { _ = server.Serve(limited) }()
}

// quiet ends serving and the attempts to listen. The caller holds s.mu.
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

// Address returns the address on which the server serves; nil: none.
func (s *Server) Address() net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.socket == nil {
		return nil
	}
	return s.socket.Addr()
}

// Close ends serving at once, also in the middle of an answer.
func (s *Server) Close() {
	s.mu.Lock()
	s.quiet()
	s.listen = ""
	s.mu.Unlock()
	s.trying.Wait()
}
