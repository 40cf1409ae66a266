package localsock

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"weir/internal/testroot"
)

func TestDirectory(t *testing.T) {
	for _, c := range []struct {
		uid       int
		env       map[string]string
		dir, says string
	}{
		{uid: 0, env: map[string]string{"RUNTIME_DIRECTORY": "/run/other", "XDG_RUNTIME_DIR": "/run/user/0"}, dir: "/run/weir"},
		{uid: 7, env: map[string]string{"RUNTIME_DIRECTORY": "/run/a:/run/b", "XDG_RUNTIME_DIR": "/run/user/7"}, dir: "/run/a"},
		{uid: 7, env: map[string]string{"XDG_RUNTIME_DIR": "/run/user/7"}, dir: "/run/user/7/weir"},
		{uid: 7, env: map[string]string{"RUNTIME_DIRECTORY": "here", "XDG_RUNTIME_DIR": "there"}, says: "XDG_RUNTIME_DIR"},
		{uid: 7, says: "set RuntimeDirectory="},
	} {
		dir, err := directory(c.uid, func(name string) string { return c.env[name] })
		if dir != c.dir || (err != nil) != (c.says != "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("user %d with %v: %q, %v", c.uid, c.env, dir, err)
		}
	}
}

// within runs f in a network namespace of its own.
func within(t *testing.T, f func() error) error {
	t.Helper()
	testroot.Need(t, "makes a network namespace")
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends, and the namespace with it
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

// name returns a name that no other process uses. Only root has a directory without the environment.
func name(t *testing.T) string {
	dir, err := os.MkdirTemp("", "ls") // short, because a socket's path is limited
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	t.Setenv("XDG_RUNTIME_DIR", dir)
	t.Cleanup(Tidy)
	return fmt.Sprintf("test-%d-%s", os.Getpid(), strings.ToLower(t.Name()[len("Test"):]))
}

// die leaves a socket file as a killed process does.
func die(t *testing.T, kind, name string) string {
	t.Helper()
	l, err := Listen(kind, name)
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return l.Addr().String()
}

// Many processes begin at once, over the file of a dead process. One gets the name. The others get an InUseError, and it can
// still be reached.
func TestOneListens(t *testing.T) {
	me := name(t)
	for round := range 20 {
		path := die(t, Switch, me)
		var all sync.WaitGroup
		var refused atomic.Int64
		got := make(chan *net.UnixListener, 16)
		for range cap(got) {
			all.Go(func() {
				l, err := Listen(Switch, me)
				var busy *InUseError
				switch {
				case err == nil:
					got <- l
				case errors.As(err, &busy):
					refused.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		all.Wait()
		if len(got) != 1 || refused.Load() != int64(cap(got)-1) {
			t.Fatalf("round %d: %d listen, %d were refused", round, len(got), refused.Load())
		}
		l := <-got
		c, err := Dial(Switch, me)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("after the end: %v", err)
		}
	}
}

// Two network namespaces that share the directory each have a switch of the same name.
func TestNamespacesShareTheDirectory(t *testing.T) {
	me := name(t)
	here, err := Listen(Switch, me)
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	if err := within(t, func() error {
		var nobody *NobodyError
		if _, err := Dial(Switch, me); !errors.As(err, &nobody) {
			t.Errorf("another namespace's switch is reached: %v", err)
		}
		there, err := Listen(Switch, me)
		if err != nil {
			return err
		}
		return there.Close()
	}); err != nil {
		t.Fatal(err)
	}
	c, err := Dial(Switch, me)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
}

// Names lists the living processes of a kind in this namespace.
func TestNames(t *testing.T) {
	me := name(t)
	die(t, Agent, me+"-dead")
	for _, kind := range []string{Agent, Switch} {
		l, err := Listen(kind, me+"-"+kind)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
	ours := func() (out []string) {
		names, err := Names(Agent)
		if err != nil {
			t.Error(err)
		}
		for _, n := range names {
			if strings.HasPrefix(n, me) {
				out = append(out, n)
			}
		}
		return out
	}
	if got := ours(); len(got) != 1 || got[0] != me+"-agent" {
		t.Errorf("%q", got)
	}
	if err := within(t, func() error {
		if got := ours(); len(got) != 0 {
			t.Errorf("in another namespace: %q", got)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// The files of dead processes are removed when another one begins. The files of living ones stay, and so do other files.
func TestSweep(t *testing.T) {
	me := name(t)
	dead := die(t, Controller, me+"-dead")
	other := filepath.Join(filepath.Dir(dead), "switch-"+me+"-0.sock")
	if err := os.WriteFile(other, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(other)
	living, err := Listen(Controller, me+"-living")
	if err != nil {
		t.Fatal(err)
	}
	defer living.Close()
	l, err := Listen(Controller, me)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for path, there := range map[string]bool{dead: false, other: true, living.Addr().String(): true, l.Addr().String(): true} {
		if _, err := os.Lstat(path); (err == nil) != there {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// A process that has the abstract name of earlier versions keeps no other from starting. If it belongs to another user, it is
// refused. A process of an earlier version can be reached.
func TestAbstractName(t *testing.T) {
	me := name(t)
	const nobody = 65534
	for _, uid := range []int{nobody, 0} {
		end := make(chan struct{})
		if err := within(t, func() error {
			fd, err := boundAs(uid, "@weir/switch/"+me)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			defer close(end)
			var none *NobodyError
			if c, err := Dial(Switch, me); uid == 0 {
				if err != nil {
					t.Errorf("a process of an earlier version: %v", err)
				} else {
					_ = c.Close()
				}
			} else if !errors.As(err, &none) {
				t.Errorf("another user's: %v", err)
			}
			l, err := Listen(Switch, me)
			if err != nil {
				return err
			}
			return l.Close()
		}); err != nil {
			t.Errorf("user %d has the abstract name: %v", uid, err)
		}
	}
}

// boundAs listens on an abstract socket as a user, in the calling thread's namespace. The thread becomes that user during
// listen(2), when the kernel records the user of the socket.
func boundAs(uid int, address string) (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	set := func(uid int) error {
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0)); errno != 0 {
			return errno
		}
		return nil
	}
	err = set(uid)
	if err == nil {
		err = errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: address}), unix.Listen(fd, 8), set(0))
	}
	return fd, err
}

// The directory becomes private to its user. A directory of another user is refused.
func TestDirectoryIsPrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "weir")
	if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // the test needs these rights
		t.Fatal(err)
	}
	if err := locked(dir, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	testroot.Need(t, "gives a directory to another user")
	if err := os.Chown(dir, 65534, -1); err != nil {
		t.Fatal(err)
	}
	if err := locked(dir, func() error { return nil }); err == nil || !strings.Contains(err.Error(), "belongs to user 65534") {
		t.Errorf("another user's directory: %v", err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if err := locked(link, func() error { return nil }); err == nil {
		t.Error("a symbolic link is followed")
	}
}

// Tidy of another process may remove the directory at any time.
func TestTidyBesideListen(t *testing.T) {
	me := name(t)
	ended := make(chan struct{})
	var tidies sync.WaitGroup
	tidies.Go(func() {
		for {
			select {
			case <-ended:
				return
			default:
				Tidy()
			}
		}
	})
	for range 300 {
		l, err := Listen(Switch, me)
		if err != nil {
			t.Error(err)
			break
		}
		c, err := Dial(Switch, me)
		if err != nil {
			t.Error(err)
			break
		}
		_ = c.Close()
		_ = l.Close()
	}
	close(ended)
	tidies.Wait()
}

// The systemd units make the directory, because ProtectSystem=strict keeps the process from doing so. The directory must
// outlive each unit: the other units and the lab use it as well.
func TestUnits(t *testing.T) {
	dir, err := directory(0, os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	units, err := filepath.Glob("../../deploy/systemd/*.service")
	if err != nil || len(units) != 4 {
		t.Fatalf("%v, %v", units, err)
	}
	for _, unit := range units {
		text, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range []string{"RuntimeDirectory=" + filepath.Base(dir), "RuntimeDirectoryMode=0700", "RuntimeDirectoryPreserve=yes"} {
			if !strings.Contains(string(text), "\n"+line+"\n") {
				t.Errorf("%s has no line %s", unit, line)
			}
		}
	}
}
