package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A namespace of the lab has the lab's token in two places: in the file that its name is mounted on (hidden by the
// mount), and as the alias of its lo. A namespace without the token is not the lab's, whatever its name.

// createNamespace creates a namespace with the entry name in /run/netns and returns the thread in it.
func createNamespace(entry, token string) (*worker, error) {
	path := filepath.Join(netnsDir, entry)
	if err := createEntry(path, token); err != nil {
		return nil, err
	}
	return startWorker(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("make namespace %s: %w", entry, err)
		}
		if err := prepareLoopback(token); err != nil {
			return err
		}
		if err := unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("name namespace %s: %w", entry, err)
		}
		return nil
	})
}

// createEntry creates the file that the namespace will be mounted on. The file appears with its content in one
// step, and never replaces another.
func createEntry(path, token string) error {
	for try := 0; ; try++ {
		err := tryCreateEntry(path, token)
		// Another process may have removed the directory with its last lab.
		if errors.Is(err, fs.ErrNotExist) && try < 10 {
			continue
		}
		if errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("namespace %s exists and does not belong to this lab: remove it (ip netns del %s) or choose another lab name",
				path, filepath.Base(path))
		}
		return err
	}
}

func tryCreateEntry(path, token string) error {
	if err := makeNetnsDir(); err != nil {
		return err
	}
	fd, err := unix.Open(netnsDir, unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o444)
	if err != nil {
		return fmt.Errorf("make a file in %s: %w", netnsDir, err)
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	if _, err := f.WriteString(token); err != nil {
		return err
	}
	from := fmt.Sprintf("/proc/self/fd/%d", fd)
	if err := unix.Linkat(unix.AT_FDCWD, from, unix.AT_FDCWD, path, unix.AT_SYMLINK_FOLLOW); err != nil {
		return fmt.Errorf("make %s: %w", path, err)
	}
	return nil
}

// makeNetnsDir creates /run/netns if it is missing and records that, so that the last lab removes it. It does not
// make it a mount, as `ip netns` does: that would remain.
func makeNetnsDir() error {
	if _, err := os.Stat(netnsDir); err == nil {
		return nil
	}
	if err := os.WriteFile(madeNetns, nil, 0o600); err != nil {
		return fmt.Errorf("record that weir made %s: %w", netnsDir, err)
	}
	if err := os.Mkdir(netnsDir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make %s: %w", netnsDir, err)
	}
	return nil
}

func prepareLoopback(token string) error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	defer h.Close()
	lo := &netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: "lo", Index: 1}}
	if err := h.LinkSetAlias(lo, token); err != nil {
		return fmt.Errorf("mark the namespace: %w", err)
	}
	return nil
}

// removeNamespace removes the namespace of an entry, if it belongs to the lab with this token. A missing one is
// not an error.
func removeNamespace(entry, token string) error {
	below, err := netnsBelow()
	if err != nil {
		return err
	}
	if below != nil {
		defer below.Close()
		if err := unmountOurs(filepath.Join(fdPath(below), entry), token); err != nil {
			return err
		}
	}
	path := filepath.Join(netnsDir, entry)
	if err := unmountOurs(path, token); err != nil {
		return err
	}
	if isNamespace(path) {
		return nil // not the lab's
	}
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if string(content) != token {
		return nil
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("%w ('grep %s /proc/*/mountinfo' lists the processes that still have it mounted)", err, entry)
	}
	return nil
}

func unmountOurs(path, token string) error {
	if !isNamespace(path) {
		return nil
	}
	ours, err := carriesToken(path, token)
	if err != nil || !ours {
		return err
	}
	if err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
		return fmt.Errorf("unmount %s: %w", path, err)
	}
	return nil
}

// netnsBelow opens the directory /run/netns below the mount on it; nil if there is no mount. The first `ip netns
// add` of a machine mounts a copy of the directory over itself, with copies of the mounts in it. Mounts of a lab
// that is up then exist twice, and the lower ones no longer have a path. A file handle leads to them.
func netnsBelow() (*os.File, error) {
	parent, err := os.Open(filepath.Dir(netnsDir))
	if err != nil {
		return nil, err
	}
	defer parent.Close()
	_, parentMount, err := unix.NameToHandleAt(int(parent.Fd()), "", unix.AT_EMPTY_PATH)
	if err != nil {
		return nil, nil // no handles on this file system, so no path below
	}
	handle, mount, err := unix.NameToHandleAt(unix.AT_FDCWD, netnsDir, unix.AT_SYMLINK_FOLLOW)
	if err != nil || mount == parentMount {
		return nil, nil
	}
	fd, err := unix.OpenByHandleAt(int(parent.Fd()), handle, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC)
	if err != nil {
		return nil, nil // the mount there is not a copy
	}
	return os.NewFile(uintptr(fd), netnsDir), nil
}

func fdPath(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }

// isNamespace reports whether a namespace is mounted at path.
func isNamespace(path string) bool {
	var s unix.Statfs_t
	return unix.Statfs(path, &s) == nil && s.Type == unix.NSFS_MAGIC
}

// carriesToken reports whether the namespace at path has the lab's token.
func carriesToken(path, token string) (bool, error) {
	ours := false
	err := inNamespace(path, func() error {
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer h.Close()
		lo, err := h.LinkByIndex(1)
		if err != nil {
			return err
		}
		ours = lo.Attrs().Alias == token
		return nil
	})
	return ours, err
}

// workerIn returns a thread in the namespace at path.
func workerIn(path string) (*worker, error) {
	return startWorker(func() error {
		ns, err := os.Open(path)
		if err != nil {
			return err
		}
		defer ns.Close()
		return enterNamespace(ns)
	})
}

// inNamespace runs f on its own thread in the namespace at path.
func inNamespace(path string, f func() error) error {
	w, err := workerIn(path)
	if err != nil {
		return err
	}
	defer w.stop()
	return w.do(f)
}
