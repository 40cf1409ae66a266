package agentd_test

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"weir/agent/agentd"
	"weir/bus/weirv1"
	"weir/datapath/testnet"
	"weir/deadline"
)

// A program of VM 1 declares a deadline: the controller learns of it at once, and again with the same number after its restart. After
// a reload without a VM, the VM cannot declare.
func TestDeadline_ToTheController(t *testing.T) {
	m := newMachine(t, 2, testnet.PathOptions{})
	dir, err := os.MkdirTemp("", "dl") // short, because a socket's path is limited
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	file := func(guests ...int) string {
		return m.hostFile("", guests...) + fmt.Sprintf("  deadlines: {sockets: %q, vm: {live: 2}}\n", filepath.Join(dir, "d"))
	}
	a := m.start(file(0, 1))
	client := deadline.New(filepath.Join(dir, "d", "1", "deadline.sock"))
	defer client.Close()
	end := func(ip net.IP, port uint16) netip.AddrPort { return netip.AddrPortFrom(addr(ip), port) }
	what := deadline.Declaration{Source: end(testnet.GuestIPv4(0), 4000), Destination: end(testnet.PeerIPv4(0), 80), Within: time.Minute, Bytes: 8e6, Value: 3}
	id := uint64(0)
	testnet.Until(t, "a program can declare", func() bool {
		id, err = client.Declare(t.Context(), what)
		return err == nil
	})
	first := func() *weirv1.Deadline {
		e := m.newest(func(e *weirv1.Events) bool { return len(e.GetDeadlines()) > 0 })
		if e == nil {
			return nil
		}
		return e.GetDeadlines()[0]
	}
	check := func() {
		t.Helper()
		d := first()
		left := time.Duration(d.GetWithinNs())
		if d.GetFlow().Law().Src != what.Source || d.GetFlow().Law().Dst != what.Destination || d.GetSizeBytes() != what.Bytes || d.GetValue() != 3 ||
			d.GetNumber() != id || left > time.Minute || left < 10*time.Second {
			t.Errorf("%v", d)
		}
	}
	testnet.Until(t, "the controller knows the deadline", func() bool { return first() != nil })
	check()
	m.stopController()
	m.mu.Lock()
	m.events = nil
	m.mu.Unlock()
	m.startController()
	testnet.Until(t, "the next controller knows it", func() bool { return first() != nil })
	check()
	for n := range uint16(2) {
		what.Source = end(testnet.GuestIPv4(0), 5000+n)
		_, err = client.Declare(t.Context(), what)
	}
	if err == nil {
		t.Error("a third deadline is within the quota of two")
	}
	s := m.until("the status has the refusal", func(s *agentd.Status) bool { return s.Host.Deadlines.Refused["live"] == 1 })
	if s.Host.Deadlines.Live != 2 || s.Host.Deadlines.Taken != 2 {
		t.Errorf("%+v", s.Host.Deadlines)
	}
	m.write(file(1))
	if _, err := agentd.Reload(t.Context(), agentName, m.Host.Enter); err != nil {
		t.Fatal(err)
	}
	client.Close()
	if _, err := client.Declare(t.Context(), what); err == nil {
		t.Error("a VM that is gone declares")
	}
	a.end()
	if _, err := os.Stat(filepath.Join(dir, "d", "2", "deadline.sock")); err == nil {
		t.Error("a socket is left")
	}
}
