package record

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const format = "weir-recording"

// files are the files of a recording: path.000001 and so on, at most pieces of them. Numbers continue after earlier recordings, which
// count, too.
type files struct {
	path   string
	header Header
	log    *slog.Logger

	mu     sync.Mutex // for tests, which change f
	f      *os.File
	size   int64 // of f, up to the last whole chunk
	failed atomic.Pointer[error]
	said   time.Time
}

// piece is a file of a recording.
type piece struct {
	n    int
	path string
}

// piecesOf lists the files of a path by number.
func piecesOf(path string) ([]piece, error) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	var out []piece
	for _, e := range entries {
		digits, ok := strings.CutPrefix(e.Name(), filepath.Base(path)+".")
		if n, err := strconv.Atoi(digits); ok && err == nil && len(digits) == 6 && n > 0 {
			out = append(out, piece{n, filepath.Join(filepath.Dir(path), e.Name())})
		}
	}
	slices.SortFunc(out, func(a, b piece) int { return cmp.Compare(a.n, b.n) })
	return out, nil
}

// next begins another file, and removes the oldest.
func (f *files) next() error {
	if err := os.MkdirAll(filepath.Dir(f.path), 0o700); err != nil {
		return fmt.Errorf("record: %w", err)
	}
	list, err := piecesOf(f.path)
	if err != nil {
		return fmt.Errorf("record: %w", err)
	}
	n := 1
	if len(list) > 0 {
		n = list[len(list)-1].n + 1
	}
	for len(list) >= pieces {
		if err := os.Remove(list[0].path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("record: %w", err)
		}
		list = list[1:]
	}
	// The file has addresses of tenants.
	next, err := os.OpenFile(fmt.Sprintf("%s.%06d", f.path, n), os.O_CREATE|os.O_EXCL|os.O_WRONLY|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return fmt.Errorf("record: %w", err)
	}
	if f.f != nil {
		_ = f.f.Close() // its content is written
	}
	f.f, f.size = next, 0
	f.header.Piece++
	b, err := encode(new(bytes.Buffer), &f.header)
	if err != nil {
		return err
	}
	return f.write(b)
}

// put writes a chunk, as a whole or not at all.
func (f *files) put(c *chunk) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var err error
	if c.begins {
		err = f.next()
	}
	if err == nil {
		err = f.write(c.data)
	}
	if err != nil {
		f.failed.Store(&err)
		if time.Since(f.said) >= saidEvery {
			f.said = time.Now()
			f.log.Error("the recording loses entries: it cannot be written", "error", err)
		}
		return err
	}
	f.failed.Store(nil)
	return nil
}

func (f *files) write(b []byte) error {
	if _, err := f.f.WriteAt(b, f.size); err != nil {
		// Without this, half a chunk could be read as entries.
		return errors.Join(fmt.Errorf("record: %w", err), f.f.Truncate(f.size))
	}
	f.size += int64(len(b))
	return nil
}

func (f *files) close() error {
	if err := f.f.Close(); err != nil {
		return fmt.Errorf("record: %w", err)
	}
	return nil
}
