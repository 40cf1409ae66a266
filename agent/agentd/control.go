package agentd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"weir/agent/switchd"
	"weir/internal/localsock"
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
	a.control = localsock.Serve(l, mux, reloadMost)
}

func reply(w http.ResponseWriter, v any, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // fails if the client has left
}

// Within runs f on a thread in an agent's network namespace.
type Within = localsock.Within

// Here is Within for an agent in the namespace of this process.
func Here(f func() error) error { return localsock.Here(f) }

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
	q, err := http.NewRequestWithContext(ctx, method, "http://agent"+path, nil)
	if err != nil {
		return err
	}
	got, err := localsock.Client(localsock.Agent, name, in, reloadMost).Do(q)
	if nobody := new(localsock.NobodyError); errors.As(err, &nobody) {
		return fmt.Errorf("%w: start it with weir agent -f FILE, or give its --name", nobody)
	}
	if err != nil {
		return fmt.Errorf("ask agent %s: %w", name, err)
	}
	defer got.Body.Close()
	if got.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(got.Body, 4<<10)) // what came of it
		return fmt.Errorf("agent %s: %s: %s", name, got.Status, strings.TrimSpace(string(text)))
	}
	return json.NewDecoder(io.LimitReader(got.Body, answerBytes)).Decode(answer)
}
