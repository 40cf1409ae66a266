package agentd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"golang.org/x/net/netutil"

	"weir/agent/switchd"
	"weir/internal/localsock"
	"weir/internal/peer"
)

// request is work for the agent's goroutine.
type request func(*agent)

// reloadMost is how long a reload may take: a thousand VMs or ports take minutes on a busy machine.
const reloadMost = 5 * time.Minute

// ask has the agent's goroutine run f, and waits for it.
func (a *agent) ask(ctx context.Context, f func(*agent)) error {
	done := make(chan struct{})
	select {
	case a.asked <- func(a *agent) { defer close(done); f(a) }:
	case <-ctx.Done():
		return ctx.Err()
	case <-a.stop:
		return errors.New("the agent ends")
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// listen opens the control socket if it is not open. The process that is taken over may still have it; then it is tried again.
func (a *agent) listen() {
	if a.control != nil {
		return
	}
	l, err := localsock.Listen(localsock.Agent, a.cfg.Name)
	if err != nil {
		a.log.Warn("control socket not available yet: reload works by SIGHUP only", "error", err)
		return
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, q *http.Request) {
		var s *Status
		err := a.ask(q.Context(), func(a *agent) { s = a.status(true) })
		reply(w, s, err)
	})
	mux.HandleFunc("POST /reload", func(w http.ResponseWriter, q *http.Request) {
		var answer switchd.Answer
		err := a.ask(q.Context(), func(a *agent) { answer = a.reload() })
		reply(w, &answer, err)
	})
	a.control = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 5 * time.Second, WriteTimeout: reloadMost, MaxHeaderBytes: 8 << 10}
	go func() { _ = a.control.Serve(netutil.LimitListener(ownUser{l}, 16)) }()
}

func reply(w http.ResponseWriter, v any, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // fails if the client has left
}

// ownUser accepts connections of root and of the agent's own user only.
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

// Within runs f on a thread in an agent's network namespace.
type Within func(f func() error) error

// Here is Within for an agent in the namespace of this process.
func Here(f func() error) error { return f() }

// ReadStatus asks the agent of this name.
func ReadStatus(ctx context.Context, name string, in Within) (*Status, error) {
	var s Status
	return &s, call(ctx, http.MethodGet, name, in, "/status", &s)
}

// Reload asks the agent of this name to read its file again, and waits for its answer.
func Reload(ctx context.Context, name string, in Within) (*switchd.Answer, error) {
	var a switchd.Answer
	return &a, call(ctx, http.MethodPost, name, in, "/reload", &a)
}

// Names lists the agents that run in this network namespace.
func Names() ([]string, error) { return localsock.Names(localsock.Agent) }

const answerBytes = 64 << 20 // of an agent with 4096 VMs

func call(ctx context.Context, method, name string, in Within, path string, answer any) error {
	dial := func(context.Context, string, string) (net.Conn, error) {
		var c *net.UnixConn
		if err := in(func() (err error) { c, err = localsock.Dial(localsock.Agent, name); return err }); err != nil {
			return nil, err
		}
		return c, nil
	}
	client := &http.Client{Timeout: reloadMost, Transport: &http.Transport{DisableKeepAlives: true, DialContext: dial}}
	q, err := http.NewRequestWithContext(ctx, method, "http://agent"+path, nil)
	if err != nil {
		return err
	}
	got, err := client.Do(q)
	if nobody := new(localsock.NobodyError); errors.As(err, &nobody) {
		return fmt.Errorf("%w: start it with weir agent -f FILE, or give its --name", nobody)
	}
	if err != nil {
		return fmt.Errorf("ask agent %s: %w", name, err)
	}
	defer got.Body.Close()
	if got.StatusCode != http.StatusOK {
		return fmt.Errorf("agent %s: %s", name, got.Status)
	}
	return json.NewDecoder(io.LimitReader(got.Body, answerBytes)).Decode(answer)
}
