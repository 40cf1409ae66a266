// Package localsock makes the sockets by which commands of Weir reach a running switch, controller or agent. They are files in a
// directory that only their user can enter. An abstract Unix socket has no owner: any user of the network namespace could
// take its name first, and keep the process from starting.
package localsock

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"weir/internal/peer"
)

// The kinds of processes that have a socket.
const (
	Switch     = "switch"
	Controller = "controller"
	Agent      = "agent"
)

const (
	suffix  = ".sock"
	pathMax = 107 // bytes of a socket's path (unix(7))
	tries   = 100 // Tidy of other processes removes the directory when it is empty
)

// NobodyError reports that no process listens for this name.
type NobodyError struct {
	Kind, Name string
	Looked     string // the place that was searched
}

func (e *NobodyError) Error() string {
	return fmt.Sprintf("no %s named %s of user %d runs in this network namespace (%s)", e.Kind, e.Name, os.Geteuid(), e.Looked)
}

// InUseError reports that a living process listens for this name.
type InUseError struct{ Kind, Name, Path string }

func (e *InUseError) Error() string {
	return fmt.Sprintf("a %s named %s runs in this network namespace (it listens on %s): stop it, or choose another name", e.Kind, e.Name, e.Path)
}

// Listen makes the socket of a switch or controller of this name. It belongs to the network namespace of the calling
// thread. The socket file of a dead process is replaced. If a living process has the name, the error is an [InUseError]. Close
// removes the file.
func Listen(kind, name string) (*net.UnixListener, error) {
	dir, file, err := place(kind, name)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, file)
	if len(path) > pathMax {
		return nil, fmt.Errorf("control socket %s: its path has %d bytes, and the kernel allows %d: choose a shorter directory or name", path, len(path), pathMax)
	}
	var l *net.UnixListener
	err = locked(dir, func() error {
		bound, err := boundTo(path)
		switch {
		case err != nil:
			return err
		case bound:
			return &InUseError{kind, name, path}
		}
		sweep(dir) // this path, and those of other dead processes
		l, err = net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: path})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	return l, nil
}

// Dial connects to the switch or controller of this name that runs in the network namespace of the calling thread. It refuses a
// process that does not belong to root or to the caller. If no process has the name, the error is a [NobodyError].
func Dial(kind, name string) (*net.UnixConn, error) {
	dir, file, err := place(kind, name)
	if err == nil {
		path := filepath.Join(dir, file)
		var c *net.UnixConn
		c, err = dial(path)
		if err == nil {
			return c, nil
		}
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED) {
			err = &NobodyError{kind, name, path}
		}
	}
	// A running process of an earlier version has an abstract socket.
	if c, err := dial("@weir/" + kind + "/" + name); err == nil {
		return c, nil
	}
	return nil, err
}

func dial(path string) (*net.UnixConn, error) {
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Net: "unix", Name: path})
	if err != nil {
		return nil, err
	}
	if err := peer.Check(c); err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("%s: the process that listens there is refused: %w", path, err)
	}
	return c, nil
}

// Names lists the processes of a kind, of this user, that run in the network namespace of the calling thread.
func Names(kind string) (names []string, err error) {
	dir, file, err := place(kind, "*")
	if err != nil {
		return nil, err
	}
	prefix, after, _ := strings.Cut(file, "*")
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("look for processes of Weir: %w", err)
	}
	for _, e := range entries {
		name, ours := strings.CutPrefix(e.Name(), prefix)
		name, here := strings.CutSuffix(name, after)
		if !ours || !here {
			continue
		}
		if bound, err := boundTo(filepath.Join(dir, e.Name())); err == nil && bound {
			names = append(names, name)
		}
	}
	return names, nil
}

// Tidy removes the socket files of this user's processes that are dead, and the directory if nothing is left in it.
func Tidy() {
	dir, err := directory(os.Geteuid(), os.Getenv)
	if err != nil {
		return
	}
	lock, err := lockDir(dir)
	if err != nil {
		return // missing, or another user's
	}
	defer lock.Close()
	sweep(dir)
	_ = os.Remove(dir) // fails while something is in it
}

// place returns the directory and the name of a socket file.
func place(kind, name string) (dir, file string, err error) {
	if dir, err = directory(os.Geteuid(), os.Getenv); err != nil {
		return "", "", err
	}
	namespace, err := thisNamespace()
	return dir, fmt.Sprintf("%s-%s-%s%s", kind, name, namespace, suffix), err
}

// directory returns the directory of a user's sockets.
func directory(uid int, env func(string) string) (string, error) {
	if uid == 0 {
		return "/run/weir", nil
	}
	// systemd sets a list if the unit has several.
	if dir, _, _ := strings.Cut(env("RUNTIME_DIRECTORY"), ":"); filepath.IsAbs(dir) {
		return dir, nil
	}
	if dir := env("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "weir"), nil
	}
	return "", fmt.Errorf("control socket: user %d has no runtime directory: set RuntimeDirectory=weir-%d in the systemd unit, or XDG_RUNTIME_DIR to a directory that only this user can write", uid, uid)
}

// thisNamespace identifies the network namespace, because several may share the directory. It returns the namespace's cookie,
// which is unique until the machine restarts. Linux before 5.14 has no cookie; then it returns the inode number, which the
// kernel uses again after the namespace has ended.
func thisNamespace() (string, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("identify the network namespace: %w", err)
	}
	defer unix.Close(fd)
	if cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE); err == nil {
		return fmt.Sprint(cookie), nil
	}
	var s unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &s); err != nil {
		return "", fmt.Errorf("identify the network namespace: %w", err)
	}
	return fmt.Sprintf("i%d", s.Ino), nil
}

// locked makes the directory and runs f while no other process changes it.
func locked(dir string, f func() error) error {
	for range tries {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("%w: in a systemd unit set RuntimeDirectory=, in a read-only container mount a tmpfs on /run", err)
		}
		lock, err := lockDir(dir)
		if err == nil {
			err = f()
			_ = lock.Close()
		}
		if !errors.Is(err, fs.ErrNotExist) { // not: removed since it was made
			return err
		}
	}
	return fmt.Errorf("make %s: another process removed it %d times in a row", dir, tries)
}

// lockDir locks the directory and checks that no other user can enter it.
func lockDir(dir string) (*os.File, error) {
	d, err := os.OpenFile(dir, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(unix.Flock(int(d.Fd()), unix.LOCK_EX), private(d, dir)); err != nil {
		_ = d.Close()
		return nil, err
	}
	return d, nil
}

func private(d *os.File, dir string) error {
	var held, named unix.Stat_t
	if err := errors.Join(unix.Fstat(int(d.Fd()), &held), unix.Lstat(dir, &named)); err != nil {
		return fmt.Errorf("look at %s: %w", dir, err)
	}
	if held.Ino != named.Ino || held.Dev != named.Dev {
		return fmt.Errorf("lock %s: %w", dir, fs.ErrNotExist)
	}
	if int(held.Uid) != os.Geteuid() {
		return fmt.Errorf("%s belongs to user %d, not to %d: give each user a directory of its own (RuntimeDirectory= in its systemd unit)", dir, held.Uid, os.Geteuid())
	}
	if held.Mode&0o077 == 0 {
		return nil
	}
	if err := d.Chmod(0o700); err != nil {
		return fmt.Errorf("keep other users out of %s: %w", dir, err)
	}
	return nil
}

// boundTo reports whether a process has a socket bound to the path. It connects a datagram socket: a stream socket refuses that
// (EPROTOTYPE) without effect on its process, and the file of a dead process has no socket (ECONNREFUSED).
func boundTo(path string) (bool, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	switch err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); {
	case err == nil, errors.Is(err, unix.EPROTOTYPE):
		return true, nil
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ENOENT):
		return false, nil
	default:
		return false, fmt.Errorf("check whether a process listens on %s: %w", path, err)
	}
}

// sweep removes the socket files of dead processes. The caller has locked the directory.
func sweep(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return // it only tidies up
	}
	for _, e := range entries {
		kind, _, _ := strings.Cut(e.Name(), "-")
		if kind != Switch && kind != Controller && kind != Agent || !strings.HasSuffix(e.Name(), suffix) || e.Type() != fs.ModeSocket {
			continue
		}
		path := filepath.Join(dir, e.Name())
		if bound, err := boundTo(path); err == nil && !bound {
			_ = os.Remove(path)
		}
	}
}
