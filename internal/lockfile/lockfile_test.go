package lockfile_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"weir/internal/lockfile"
)

func held(t *testing.T, path string) bool {
	t.Helper()
	is, err := lockfile.Held(path)
	if err != nil {
		t.Fatal(err)
	}
	return is
}

// Files and directories, also those that cannot be opened for writing: a directory is opened read-only.
func TestTake_OnceAndGivenBack(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{dir, filepath.Join(dir, "lock")} {
		take := lockfile.Take
		if path != dir {
			take = lockfile.TakeFile
		}
		first, err := take(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := take(path); !errors.Is(err, lockfile.ErrHeld) {
			t.Errorf("%s: a second: %v", path, err)
		}
		if !held(t, path) {
			t.Errorf("%s: the lock is taken, and Held is false", path)
		}
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		if held(t, path) {
			t.Errorf("%s: the lock is released, and Held is true", path)
		}
		again, err := take(path)
		if err != nil {
			t.Fatalf("%s: after the release: %v", path, err)
		}
		_ = again.Close()
	}
	if _, err := lockfile.Take(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if held(t, filepath.Join(dir, "none")) {
		t.Error("no file, and Held is true")
	}
}

// A call of [lockfile.Held] must never be the reason why Take fails. With a check that takes the lock for a moment (flock, shared) this test fails
// within some hundred rounds.
func TestHeld_TakesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var asking sync.WaitGroup
	for range 4 {
		asking.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := lockfile.Held(path); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 20_000 {
		f, err := lockfile.TakeFile(path)
		if err != nil {
			t.Errorf("Take during Held: %v", err)
			break
		}
		_ = f.Close()
	}
	close(stop)
	asking.Wait()
}

// An older Weir takes only the flock.
func TestTake_RefusedWhereOnlyTheFlockIsHeld(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if _, err := lockfile.Take(path); !errors.Is(err, lockfile.ErrHeld) {
		t.Errorf("taken: %v", err)
	}
}

func TestNames_NotTheOneThatTookItsName(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	f, err := lockfile.TakeFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for step, want := range []bool{true, false, false} {
		switch step {
		case 1:
			err = os.Remove(path)
		case 2:
			err = os.WriteFile(path, nil, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		if is, err := lockfile.Names(path, f); err != nil || is != want {
			t.Errorf("step %d: %v, %v", step, is, err)
		}
	}
}
