// Package replace replaces files in one step.
package replace

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// File replaces a file, or leaves it as it is. A reader sees the former content or the new one, also after a loss of power. The new
// one is on disk when File returns.
func File(path string, mode fs.FileMode, content func(io.Writer) error) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+"-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	w := bufio.NewWriterSize(f, 1<<16)
	if err = content(w); err == nil {
		err = errors.Join(w.Flush(), f.Chmod(mode), f.Sync())
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, errors.Join(err, os.Remove(f.Name())))
	}
	d, err := os.Open(dir) // the name, too, must be on disk
	if err == nil {
		err = errors.Join(d.Sync(), d.Close())
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// Bytes is File with its content.
func Bytes(path string, mode fs.FileMode, b []byte) error {
	return File(path, mode, func(w io.Writer) error {
		_, err := w.Write(b)
		return err
	})
}
