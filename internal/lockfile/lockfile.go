// Package lockfile is a lock on a file or a directory that belongs to one process at a time. The kernel gives
// it back when the process ends, however it ends. Asking who has a lock never takes it.
//
// The lock is flock(2), exclusive. Beside it the owner holds a shared open-file-description lock (fcntl(2),
// F_OFD_SETLK) on the same file, as a mark: F_OFD_GETLK finds the mark and takes nothing, while flock can only be
// asked by taking it. A process of an older Weir has the flock without the mark: Take is refused then, and Held
// does not see it.
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

// Take takes the lock on the file or directory at path, without waiting, and gives what closes to release it. It
// makes no file: fs.ErrNotExist where there is none; ErrHeld where somebody has the lock. A file that was
// replaced or removed between the open and the lock is not locked: the one that path names then is tried.
func Take(path string) (*os.File, error) { return take(path, os.O_RDONLY) }

// TakeFile is Take for a file, which is made with mode 0600 where there is none.
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
	mark := unix.Flock_t{Type: unix.F_RDLCK} // the whole file; nobody asks for more than to read
	return unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &mark)
}

// Held reports whether a process has the lock on the file or directory at path, and takes nothing. Where there is
// no such file nobody has it.
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
		return false, fmt.Errorf("ask for the lock on %s: %w", path, err)
	}
	return ask.Type != unix.F_UNLCK, nil
}

// Names reports whether path still names the file that f is: false where it was removed (fs.ErrNotExist is no
// error then) or another one took its name. To be asked after the lock was taken, and before what it guards is
// removed.
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
