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

// Files and directories, also of a file system that cannot be written to by name: a directory is opened to
// read only.
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
			t.Errorf("%s: held, and nobody is said to have it", path)
		}
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		if held(t, path) {
			t.Errorf("%s: given back, and said to be held", path)
		}
		again, err := take(path)
		if err != nil {
			t.Fatalf("%s: after it was given back: %v", path, err)
		}
		_ = again.Close()
	}
	if _, err := lockfile.Take(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if held(t, filepath.Join(dir, "none")) {
		t.Error("no file, and it is said to be held")
	}
}

// Whoever asks must never be the reason why another does not get the lock. With a question that takes the lock
// for a moment (flock, shared) this fails within some hundred rounds.
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
			t.Errorf("nobody has it, somebody asks: %v", err)
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
