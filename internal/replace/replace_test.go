package replace_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"weir/internal/replace"
)

// A file has its new content and mode, or is as before. Nothing else stays in its directory.
func TestFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	want := func(text string, mode os.FileMode) {
		t.Helper()
		b, err := os.ReadFile(path)
		st, err2 := os.Stat(path)
		if err := errors.Join(err, err2); err != nil || string(b) != text || st.Mode().Perm() != mode {
			t.Errorf("%q, %v, %v", b, st.Mode(), err)
		}
		if all, err := os.ReadDir(dir); err != nil || len(all) != 1 {
			t.Errorf("%v, %v", all, err)
		}
	}
	if err := replace.Bytes(path, 0o600, []byte("one")); err != nil {
		t.Fatal(err)
	}
	want("one", 0o600)
	broken := errors.New("broken")
	err := replace.File(path, 0o644, func(w io.Writer) error {
		_, _ = w.Write([]byte("two"))
		return broken
	})
	if !errors.Is(err, broken) {
		t.Error(err)
	}
	want("one", 0o600)
	if err := replace.Bytes(path, 0o644, []byte("two")); err != nil {
		t.Fatal(err)
	}
	want("two", 0o644)
	if err := replace.Bytes(filepath.Join(dir, "none", "a"), 0o600, nil); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
