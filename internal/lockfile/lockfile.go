// Package lockfile has a lock on a file or a directory for one process at a time. The kernel releases it when the process ends
// in any way. A check whether the lock is taken never takes it.
//
// The lock is flock(2), exclusive. The owner also holds a shared open-file-description lock (fcntl(2), F_OFD_SETLK) on the
// same file, as a mark: F_OFD_GETLK finds the mark without taking it, which flock cannot. A process of an older Weir has the
// flock without the mark: Take fails then, and [Held] does not notice it.
package lockfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// ErrHeld is the error for a lock that another process, or another descriptor of this one, has.
var ErrHeld = errors.New("another process has the lock")

// Take takes the lock on the file or directory at path, without waiting. Close of the returned file releases it. Take makes
// no file: the error is fs.ErrNotExist if there is none, and ErrHeld if the lock is taken. If the file was replaced or removed
// between open and lock, Take tries again with the file that path names then.
func Take(path string) (*os.File, error) { return take(path, os.O_RDONLY) }

// TakeFile is Take for a file. It makes a missing file with mode 0600.
func TakeFile(path string) (*os.File, error) { return take(path, os.O_RDWR|os.O_CREATE) }

func take(path string, flags int) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, flags, 0o600)
		if err != nil {
			return nil, err
		}
		if err := lock(f); err != nil {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
		}
		same, err := Names(path, f)
		if err == nil && same {
			return f, nil
		}
		if closed := f.Close(); err != nil {
			return nil, errors.Join(err, closed)
		}
	}
}

func lock(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return ErrHeld
	}
	if err != nil {
		return err
	}
	mark := unix.Flock_t{Type: unix.F_RDLCK} // the whole file; a read lock suffices as a mark
	return unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &mark)
}

// Held reports whether a process has the lock on the file or directory at path, without taking it; false if there is no such
// file.
func Held(path string) (bool, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }()
	ask := unix.Flock_t{Type: unix.F_WRLCK} // would conflict with the owner's mark
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &ask); err != nil {
		return false, fmt.Errorf("check the lock on %s: %w", path, err)
	}
	return ask.Type != unix.F_UNLCK, nil
}

// Names reports whether path still names the file f: false if it was removed (fs.ErrNotExist is no error then) or another file
// took its name. Call it after taking the lock, and before removing the files that the lock guards.
func Names(path string, f *os.File) (bool, error) {
	held, err := f.Stat()
	if err != nil {
		return false, err
	}
	named, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return os.SameFile(held, named), nil
}
