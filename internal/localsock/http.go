package localsock

import (
	"context"
	"net"
	"net/http"
	"time"

	"golang.org/x/net/netutil"

	"weir/internal/peer"
)

const connections = 16 // at a time, of one server

// Within runs f on a thread in a process's network namespace.
type Within func(f func() error) error

// Here is Within for a process in the namespace of this one.
func Here(f func() error) error { return f() }

// Serve answers HTTP on a socket of Listen, until Close. Only root and the user of this process are answered. answer is how long
// an answer may take.
func Serve(l *net.UnixListener, h http.Handler, answer time.Duration) *http.Server {
	s := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 5 * time.Second, WriteTimeout: answer, MaxHeaderBytes: 8 << 10}
	go func() { _ = s.Serve(netutil.LimitListener(ownUser{l}, connections)) }() // it ends with Close
	return s
}

// ownUser accepts connections of root and of this process's user only.
type ownUser struct{ *net.UnixListener }

func (l ownUser) Accept() (net.Conn, error) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if err := peer.Check(c); err == nil {
			return c, nil
		}
		_ = c.Close()
	}
}

// Client asks the process of this kind and name, in any URL with http. answer is how long an answer may take. If nobody listens,
// the error of a request is a [NobodyError].
func Client(kind, name string, in Within, answer time.Duration) *http.Client {
	dial := func(context.Context, string, string) (net.Conn, error) {
		var c *net.UnixConn
		if err := in(func() (err error) { c, err = Dial(kind, name); return err }); err != nil {
			return nil, err
		}
		return c, nil
	}
	return &http.Client{Timeout: answer, Transport: &http.Transport{DisableKeepAlives: true, DialContext: dial}}
}
