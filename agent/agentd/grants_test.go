package agentd

import (
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"weir/internal/localsock"
	"weir/internal/testlog"
	"weir/law"
)

// failing is a kernel whose heartbeats fail with an error.
type failing struct{ err error }

func (*failing) SetGrantsAt(uint64, []law.Grant) error { return nil }
func (f *failing) Heartbeat(law.Owner) error           { return f.err }
func (f *failing) Sweep() error                        { return f.err }
func (*failing) Leave(law.Owner) error                 { return nil }

// Heartbeats that fail do not fill the log: each error once, until a heartbeat succeeds.
func TestGrants_LogsAFailureOnce(t *testing.T) {
	log := &testlog.Log{}
	g := NewGrants(slog.New(slog.NewTextHandler(log, nil)), clock)
	full := errors.New("the table is full")
	for i, err := range []error{full, full, full, nil, full, full} {
		g.Heartbeat(&failing{err})
		want := map[bool]int{true: 2, false: 1}[i > 3]
		if n := strings.Count(log.String(), full.Error()); n != want {
			t.Fatalf("after %d heartbeats: %d lines, want %d:\n%s", i+1, n, want, log.String())
		}
	}
}

// The command shows why an agent does not answer.
func TestControl_ShowsTheReason(t *testing.T) {
	const name = "shows-the-reason"
	l, err := localsock.Listen(localsock.Agent, name)
	if err != nil {
		t.Fatal(err)
	}
	s := localsock.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { reply(w, nil, errors.New("the agent ends")) }), reloadMost)
	defer s.Close()
	if _, err := ReadStatus(t.Context(), name, Here); err == nil || !strings.Contains(err.Error(), "the agent ends") {
		t.Errorf("%v", err)
	}
}
