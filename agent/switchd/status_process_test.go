package switchd

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// The kernel's list of locks gives the holder of a lock as long as it holds it, and not of other files.
func TestLockHolder(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	if p := lockHolder(dir); p.here {
		t.Errorf("it is not locked: %+v", p)
	}
	d, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(d.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	p := lockHolder(dir)
	if !p.here || p.pid != os.Getpid() || p.rssBytes < 1<<20 || p.stopped() {
		t.Errorf("this process: %+v", p)
	}
	if p := lockHolder(other); p.here {
		t.Errorf("another directory: %+v", p)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if p := lockHolder(dir); p.here {
		t.Errorf("it is unlocked: %+v", p)
	}
	if p := lockHolder(dir + "/none"); p.here {
		t.Errorf("a file that does not exist: %+v", p)
	}
}
