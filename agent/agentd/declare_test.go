package agentd

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weir/deadline"
	"weir/law"
)

// serveDeadlines serves the API of the VMs 1 to 3 of newDeclarers, and returns the path of each one's socket.
func serveDeadlines(t *testing.T, cfg Deadlines) (d *deadlines, path func(vm string) string) {
	t.Helper()
	d, _ = newDeclarers(cfg, 0)
	dir, err := os.MkdirTemp("", "dl") // short, because a socket's path is limited
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := newSockets(filepath.Join(dir, "d"), d, slog.New(slog.DiscardHandler))
	list := map[law.VM]addedVM{}
	for vm, v := range d.vms {
		list[vm] = addedVM{VM: v}
	}
	s.follow(list, nil)
	t.Cleanup(func() {
		s.end(true)
		if left, _ := filepath.Glob(filepath.Join(dir, "d", "*", socketFile)); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
	return d, func(vm string) string { return filepath.Join(dir, "d", vm, socketFile) }
}

// A program declares, lists and takes back by the socket of its VM. The socket says who asks.
func TestDeclare_Client(t *testing.T) {
	d, path := serveDeadlines(t, quotas())
	one, two := deadline.New(path("1")), deadline.New(path("2"))
	defer one.Close()
	defer two.Close()
	id, err := one.Declare(t.Context(), of(1, 0, time.Second, 1000))
	if err != nil {
		t.Fatal(err)
	}
	l, err := one.List(t.Context())
	if err != nil || len(l.Deadlines) != 1 || l.Deadlines[0].ID != id || l.Deadlines[0].Declaration != of(1, 0, time.Second, 1000) {
		t.Errorf("%+v, %v", l, err)
	}
	if l, err := two.List(t.Context()); err != nil || len(l.Deadlines) != 0 {
		t.Errorf("another VM sees %+v, %v", l, err)
	}
	refused := func(err error, status int, reason string) {
		t.Helper()
		if r := (*deadline.Refusal)(nil); !errors.As(err, &r) || r.Status != status || r.Reason != reason || r.Text == "" {
			t.Errorf("%v, want %d %s", err, status, reason)
		}
	}
	_, err = two.Declare(t.Context(), of(1, 0, time.Second, 1000))
	refused(err, http.StatusForbidden, refusedSource)
	refused(two.Delete(t.Context(), id), http.StatusNotFound, refusedUnknown)
	_, err = one.Declare(t.Context(), of(1, 0, -time.Second, 1000))
	refused(err, http.StatusBadRequest, refusedForm)
	if err := one.Delete(t.Context(), id); err != nil {
		t.Error(err)
	}
	for n := range 200 {
		if _, err = one.Declare(t.Context(), of(1, n%3, time.Second, 1000)); err != nil {
			break
		}
	}
	refused(err, http.StatusTooManyRequests, refusedRate) // the clock of the quota stands still
	if s := d.status(); s.Live != 3 {
		t.Errorf("%+v", s)
	}
	// Only this process's user reaches a socket: by the directory, as the sockets are for all users of a container.
	for file, want := range map[string]fs.FileMode{filepath.Dir(filepath.Dir(path("1"))): 0o700, filepath.Dir(path("1")): 0o755, path("1"): 0o666} {
		if i, err := os.Stat(file); err != nil || i.Mode().Perm() != want {
			t.Errorf("%s: %v, %v, want %v", file, i.Mode(), err, want)
		}
	}
}

// The directory of a VM stays when the agent ends, because containers have it mounted, and so does the directory above. Any user may
// enter it, whatever the umask. It is removed when the VM leaves the file, not when its port is gone.
func TestDeclare_DirectoriesStay(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077))
	top, err := os.MkdirTemp("", "dl") // of the operator; its mode is 0700
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(top)
	d, _ := newDeclarers(quotas(), 0)
	s := newSockets(top, d, slog.New(slog.DiscardHandler))
	one, two := VM{Number: 1}, VM{Number: 2}
	list := map[law.VM]addedVM{1: {VM: one}, 2: {VM: two}}
	s.follow(list, []VM{one, two})
	was, err := os.Stat(filepath.Join(top, "1"))
	if err != nil || was.Mode().Perm() != 0o755 {
		t.Fatalf("%v, %v, want mode 0755", was.Mode(), err)
	}
	there := func(name string) bool {
		_, err := os.Stat(filepath.Join(top, name))
		return err == nil
	}
	delete(list, 2)
	s.follow(list, []VM{one, two}) // the port of VM 2 is gone
	if !there("2") || there("2/"+socketFile) {
		t.Error("without its port a VM has a directory and no socket")
	}
	s.follow(list, []VM{one})
	if there("2") {
		t.Error("a VM that left the file has a directory")
	}
	s.end(true)
	if is, err := os.Stat(filepath.Join(top, "1")); err != nil || !os.SameFile(was, is) || there("1/"+socketFile) {
		t.Errorf("after the end: %v", err)
	}
	next := newSockets(top, d, slog.New(slog.DiscardHandler))
	next.follow(map[law.VM]addedVM{}, nil)
	next.end(true)
	if !there("") {
		t.Error("the operator's directory is gone")
	}
}

// A container can write to the directory of its VM. So the socket comes there with its mode: nothing is made or changed by its name
// there, where the container could put a symbolic link to another file.
func TestDeclare_SocketComesWithItsMode(t *testing.T) {
	top, err := os.MkdirTemp("", "dl")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(top)
	other := filepath.Join(top, "other")
	if err := os.WriteFile(other, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(top, "1")
	if err := errors.Join(os.Mkdir(dir, 0o755), os.Symlink(other, filepath.Join(dir, socketFile))); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_CREATE|unix.IN_ATTRIB|unix.IN_MOVED_TO); err != nil {
		t.Fatal(err)
	}
	d, _ := newDeclarers(quotas(), 0)
	s := newSockets(top, d, slog.New(slog.DiscardHandler))
	one, err := s.listen(1)
	if err != nil {
		t.Fatal(err)
	}
	defer one.close()
	var seen []uint32 // of the names in the directory
	events := make([]byte, 4096)
	n, err := unix.Read(fd, events)
	if err != nil {
		t.Fatal(err)
	}
	for events = events[:n]; len(events) > 0; {
		mask, name := binary.NativeEndian.Uint32(events[4:]), binary.NativeEndian.Uint32(events[12:])
		if events = events[unix.SizeofInotifyEvent+name:]; name > 0 {
			seen = append(seen, mask)
		}
	}
	if !slices.Equal(seen, []uint32{unix.IN_MOVED_TO}) {
		t.Errorf("the directory saw %#x, want one file moved to it", seen)
	}
	if i, err := os.Lstat(filepath.Join(dir, socketFile)); err != nil || i.Mode() != fs.ModeSocket|0o666 {
		t.Errorf("%v, %v", i.Mode(), err)
	}
	if i, err := os.Stat(other); err != nil || i.Mode().Perm() != 0o600 {
		t.Errorf("the file behind the link: %v, %v", i.Mode(), err)
	}
	if left, _ := filepath.Glob(filepath.Join(top, "*.new")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// The directory of sockets must be private: a public one is refused, and stays as it is.
func TestDeclare_PublicDirectory(t *testing.T) {
	d, _ := newDeclarers(quotas(), 0)
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	s := newSockets(dir, d, slog.New(slog.DiscardHandler))
	if _, err := s.listen(1); err == nil || !strings.Contains(err.Error(), "other users can enter") {
		t.Error(err)
	}
	if i, err := os.Stat(dir); err != nil || i.Mode().Perm() != 0o755 {
		t.Errorf("%v, %v", i.Mode(), err)
	}
}

// Each malformed request gets an answer with the reason, and the server continues.
func TestDeclare_Malformed(t *testing.T) {
	d, path := serveDeadlines(t, Deadlines{NoQuotas: true})
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path("1"))
	}}}
	defer client.CloseIdleConnections()
	for _, c := range []struct {
		method, at string
		body       []byte
		status     int
	}{
		{"POST", "", nil, 400},
		{"POST", "", []byte(`{"source":1}`), 400},
		{"POST", "", bytes.Repeat([]byte("x"), 1<<20), 400},
		{"POST", "", bytes.Repeat([]byte("["), 1024), 400},
		{"DELETE", "/x", nil, 400},
		{"DELETE", "/-1", nil, 400},
		{"DELETE", "/1", nil, 404},
		{"PUT", "", nil, 405},
		{"GET", "/../../etc", nil, 404},
	} {
		q, err := http.NewRequestWithContext(t.Context(), c.method, "http://weir/v1/deadlines"+c.at, bytes.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		got, err := client.Do(q)
		if err != nil {
			t.Errorf("%s %s: %v", c.method, c.at, err)
			continue
		}
		_ = got.Body.Close()
		if got.StatusCode != c.status {
			t.Errorf("%s %s %.20q: %s, want %d", c.method, c.at, c.body, got.Status, c.status)
		}
	}
	if s := d.status(); s.Live != 0 || s.Refused[refusedForm] != 6 {
		t.Errorf("%+v", s)
	}
}

// The client in Python uses the same API.
func TestDeclare_Python(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3: the client in Python was not tried (on Debian: apt install python3)")
	}
	d, path := serveDeadlines(t, quotas())
	cmd := exec.CommandContext(t.Context(), python, "../../deadline/python/test_client.py")
	cmd.Env = append(os.Environ(), deadline.SocketVariable+"="+path("1"), "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want := deadline.Declaration{Source: of(1, 0, 0, 0).Source, Destination: of(1, 0, 0, 0).Destination, Within: 300 * time.Millisecond, Bytes: 8e6, Value: 2}
	l := d.list(1)
	if !slices.ContainsFunc(l.Deadlines, func(x deadline.Declared) bool { return x.Declaration == want }) || len(l.Deadlines) != 1 {
		t.Errorf("%+v", l)
	}
	if !strings.Contains(string(out), "ok") {
		t.Errorf("%s", out)
	}
}
