// Package testnet builds small networks of namespaces for the tests of kernel programs. The namespaces have no
// names: they end with the process, even if it is killed.
package testnet

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"weir/datapath/attach"
	"weir/internal/testroot"
)

// Namespace is a network namespace with a thread of its own in it.
type Namespace struct {
	Cookie uint64
	calls  chan func()
	over   chan struct{} // closed when the test has ended
	gone   chan struct{} // closed when the thread's goroutine has ended
}

// errGone is the error of Enter when its function, or one before it, ended the thread's goroutine.
var errGone = errors.New("a function that ran in this namespace called t.Fatal, t.FailNow or t.Skip, which end the goroutine " +
	"that calls them: return an error to the test instead")

// errOver is the error of Enter for a goroutine that still runs when its test has ended.
var errOver = errors.New("the test that made this namespace has ended: stop its goroutines before it ends")

// NewNamespace makes a namespace that lasts as long as the test. It needs root.
func NewNamespace(tb testing.TB) *Namespace {
	tb.Helper()
	testroot.Need(tb, "makes network namespaces")
	n := &Namespace{calls: make(chan func()), over: make(chan struct{}), gone: make(chan struct{})}
	ready := make(chan error)
	go func() {
		defer close(n.gone)
		// The thread is never unlocked: it ends with the goroutine and removes the namespace.
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_NEWNET)
		ready <- err
		if err != nil {
			return
		}
		for {
			select {
			case call := <-n.calls:
				call()
			case <-n.over:
				return
			}
		}
	}()
	if err := <-ready; err != nil {
		tb.Fatalf("new network namespace: %v", err)
	}
	tb.Cleanup(func() { close(n.over) })
	n.Must(tb, func() (err error) {
		n.Cookie, err = attach.NetnsCookie()
		return err
	})
	return n
}

// Enter runs f on the namespace's thread. f must not call t.Fatal, t.FailNow or t.Skip: Enter then returns an
// error, and so do all later calls.
func (n *Namespace) Enter(f func() error) error {
	done := make(chan error, 1)
	select {
	case n.calls <- func() { done <- f() }:
	case <-n.gone:
		return n.why()
	}
	select {
	case err := <-done:
		return err
	case <-n.gone:
	}
	select {
	case err := <-done: // the last call before the end
		return err
	default:
		return n.why()
	}
}

// why returns the error of calls that the namespace no longer takes.
func (n *Namespace) why() error {
	select {
	case <-n.over:
		return errOver
	default:
		return errGone
	}
}

// Must calls Enter and fails the test on an error.
func (n *Namespace) Must(tb testing.TB, f func() error) {
	tb.Helper()
	if err := n.Enter(f); err != nil {
		tb.Fatal(err)
	}
}

// Sysctl sets a variable of the namespace, for example "net.ipv4.tcp_ecn".
func (n *Namespace) Sysctl(tb testing.TB, name, value string) {
	tb.Helper()
	path := filepath.Join("/proc/sys", strings.ReplaceAll(name, ".", "/"))
	n.Must(tb, func() error { return os.WriteFile(path, []byte(value), 0o644) })
}

// SNMP reads a counter of the namespace, for example "Tcp", "InCsumErrors". Counters of IPv6 have no group: "",
// "Ip6InCEPkts".
func (n *Namespace) SNMP(tb testing.TB, group, name string) (value uint64) {
	tb.Helper()
	n.Must(tb, func() error {
		for _, file := range []string{"snmp", "netstat", "snmp6"} {
			b, err := os.ReadFile("/proc/thread-self/net/" + file)
			if err != nil {
				return err
			}
			v, ok := snmpValue(string(b), group, name)
			if file == "snmp6" {
				v, ok = snmp6Value(string(b), name)
			}
			if ok {
				value = v
				return nil
			}
		}
		return fmt.Errorf("no counter %s %s", group, name)
	})
	return value
}

// snmpValue finds a counter in pairs of lines: "Tcp: NAMES...", "Tcp: VALUES...".
func snmpValue(text, group, name string) (uint64, bool) {
	lines := strings.Split(text, "\n")
	for i := 0; i+1 < len(lines); i += 2 {
		names, values := strings.Fields(lines[i]), strings.Fields(lines[i+1])
		if len(names) == 0 || names[0] != group+":" {
			continue
		}
		for j, n := range names {
			var v uint64
			if n == name && j < len(values) {
				_, err := fmt.Sscan(values[j], &v)
				return v, err == nil
			}
		}
	}
	return 0, false
}

// snmp6Value finds a counter in lines "NAME VALUE".
func snmp6Value(text, name string) (v uint64, ok bool) {
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == name {
			_, err := fmt.Sscan(f[1], &v)
			return v, err == nil
		}
	}
	return 0, false
}
