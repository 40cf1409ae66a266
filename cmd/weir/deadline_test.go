package main

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/deadline"
)

// The command asks an agent, prints its answers, and exits with 1 for a refusal.
func TestDeadline(t *testing.T) {
	dir, err := os.MkdirTemp("", "dl") // short, because a socket's path is limited
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var has []deadline.Declared
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/deadlines", func(w http.ResponseWriter, q *http.Request) {
		b := make([]byte, deadline.MaxBody)
		n, _ := q.Body.Read(b)
		d, err := deadline.Decode(b[:n])
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			_ = json.NewEncoder(w).Encode(map[string]string{"reason": "malformed", "error": err.Error()})
			return
		}
		has = append(has, deadline.Declared{ID: 17, Declaration: d})
		_ = json.NewEncoder(w).Encode(map[string]int{"id": 17})
	})
	mux.HandleFunc("GET /v1/deadlines", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(&deadline.List{Deadlines: has, Refused: map[string]uint64{"rate": 2}})
	})
	mux.HandleFunc("DELETE /v1/deadlines/17", func(w http.ResponseWriter, _ *http.Request) { has = nil; w.WriteHeader(http.StatusNoContent) })
	s := &http.Server{Handler: mux}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	t.Setenv(deadline.SocketVariable, socket)

	run := func(args ...string) (out string, err error) {
		var text strings.Builder
		cmd := deadlineCommand()
		cmd.SetArgs(args)
		cmd.SetOut(&text)
		cmd.SetErr(&text)
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		err = cmd.ExecuteContext(t.Context())
		return text.String(), err
	}
	out, err := run("declare", "10.0.0.1:40000", "10.0.0.9:80", "--within", "300ms", "--bytes", "8MB", "--value", "3")
	if err != nil || out != "17\n" {
		t.Errorf("%q, %v", out, err)
	}
	if out, err = run("list"); err != nil || !strings.Contains(out, "17  10.0.0.1:40000  10.0.0.9:80  300ms  8MB") || !strings.Contains(out, "refused, rate: 2") {
		t.Errorf("%q, %v", out, err)
	}
	var list deadline.List
	if out, err = run("list", "--json"); err != nil || json.Unmarshal([]byte(out), &list) != nil || len(list.Deadlines) != 1 || list.Deadlines[0].Bytes != 8e6 {
		t.Errorf("%q, %v", out, err)
	}
	if out, err = run("delete", "17"); err != nil || len(has) != 0 {
		t.Errorf("%q, %v", out, err)
	}
	for _, c := range []struct {
		says string
		args []string
	}{
		{"want more than 0", []string{"declare", "10.0.0.1:1", "10.0.0.9:80"}},
		{"at most 3600000", []string{"declare", "10.0.0.1:1", "10.0.0.9:80", "--within", "2h"}},
		{"ADDRESS:PORT", []string{"declare", "10.0.0.1", "10.0.0.9:80", "--within", "1s"}},
		{"--bytes", []string{"declare", "10.0.0.1:1", "10.0.0.9:80", "--within", "1s", "--bytes", "many"}},
		{"whole number", []string{"delete", "x"}},
		{"ask the agent", []string{"list", "--socket", filepath.Join(dir, "nobody")}},
	} {
		if out, err := run(c.args...); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v: %q, %v", c.args, out, err)
		}
	}
}
