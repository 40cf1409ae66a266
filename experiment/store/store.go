// Package store keeps what finished runs measured, a file each, so that an experiment of hours can be
// stopped at any instant and go on later, and its report be made again without running anything.
//
// A run is filed under a hash of all that it was asked: a run of a changed file is another run.
package store

import (
	"bufio"
	"compress/gzip"
	"crypto/sha256"
	"encoding/gob"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"weir/experiment"
	"weir/experiment/result"
)

// Names of what is kept, below the directory of an experiment's results.
const (
	runsDir   = "runs"
	lockFile  = "lock"       // holds the process that runs the experiment
	askedFile = "asked.json" // what was asked for
	extension = ".run"
)

// format is a part of every key: files of another form are runs that were not done.
const format = 1

// form is what entries hold now: since 1, laws' metrics by name.
const form = 1

// Entry is a finished run.
type Entry struct {
	Form   int    // of what it holds: form; less: of an earlier build
	Weir   string // version that ran it
	Code   string // digest of the sources that decide what is measured; "": of a build that did not note it
	Kernel string
	Ended  time.Time
	Took   time.Duration // building the network and taking it down included
	Raw    *result.Raw
}

// Asked is an experiment as it was asked for.
type Asked struct {
	Name    string             `json:"name"` // of the file
	File    string             `json:"file"` // its text
	Options experiment.Options `json:"options"`
}

// Plan plans the experiment anew.
func (a *Asked) Plan(laws *experiment.Laws) (*experiment.Plan, error) {
	f, err := laws.Parse(a.Name, []byte(a.File))
	if err != nil {
		return nil, err
	}
	return f.Plan(a.Options)
}

// Dir holds the runs of one experiment.
type Dir struct {
	path string
	lock *os.File
}

// InUseError says that another process runs the experiment of this directory.
type InUseError struct {
	Dir string
	Pid int
}

func (e *InUseError) Error() string {
	return fmt.Sprintf("process %d is running an experiment into %s: wait for it, or choose another directory", e.Pid, e.Dir)
}

// Open takes the directory for a run, and makes it when it is not there. killed is the process that
// had it last when that did not close it, else 0.
func Open(dir string) (d *Dir, killed int, err error) {
	d = &Dir{path: filepath.Join(dir, runsDir)}
	if err := os.MkdirAll(d.path, 0o755); err != nil {
		return nil, 0, fmt.Errorf("make a directory for finished runs: %w", err)
	}
	// The kernel gives the lock back however its process ends.
	d.lock, err = os.OpenFile(filepath.Join(d.path, lockFile), os.O_RDWR|os.O_CREATE|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return nil, 0, fmt.Errorf("lock the results: %w", err)
	}
	text, _ := io.ReadAll(io.LimitReader(d.lock, 32)) // what is no number names nobody
	pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	if err := unix.Flock(int(d.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = d.lock.Close() // nothing was written
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, 0, &InUseError{dir, pid}
		}
		return nil, 0, fmt.Errorf("lock the results: %w", err)
	}
	if err := d.sign(strconv.Itoa(os.Getpid())); err != nil {
		return nil, 0, errors.Join(err, d.lock.Close())
	}
	return d, pid, nil
}

// sign writes who has the directory.
func (d *Dir) sign(who string) error {
	err := d.lock.Truncate(0)
	if err == nil {
		_, err = d.lock.WriteAt([]byte(who), 0)
	}
	if err != nil {
		return fmt.Errorf("lock the results: %w", err)
	}
	return nil
}

// Read gives a directory for reading only: other processes may be writing into it.
func Read(dir string) *Dir { return &Dir{path: filepath.Join(dir, runsDir)} }

// Close gives the directory back.
func (d *Dir) Close() error {
	if d.lock == nil {
		return nil
	}
	return errors.Join(d.sign(""), d.lock.Close())
}

// Key names a run by all that it was asked: two runs have the same key when no world could tell them
// apart. Windows are not in it, for they only say how to sum up what was measured.
func Key(r *experiment.Run) (string, error) {
	asked := *r
	asked.Config.Windows = nil
	text, err := json.Marshal([]any{format, asked})
	if err != nil {
		return "", fmt.Errorf("name the run of %s with seed %d: %w", r.Scheme, r.Seed, err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16]), nil
}

func (d *Dir) file(key string) string { return filepath.Join(d.path, key+extension) }

// Has tells whether the run is there.
func (d *Dir) Has(key string) bool {
	_, err := os.Stat(d.file(key))
	return err == nil
}

// Load reads a finished run. What cannot be read whole is an error; fs.ErrNotExist: it was not run.
func (d *Dir) Load(key string) (*Entry, error) {
	f, err := os.Open(d.file(key))
	if err != nil {
		return nil, fmt.Errorf("read a finished run: %w", err)
	}
	defer f.Close()
	e, err := decode(f)
	if err != nil {
		if _, seekErr := f.Seek(0, io.SeekStart); seekErr == nil {
			e, _ = decodeText(f) // err says what is wrong with it
		}
	}
	if e != nil && e.Form < form {
		if _, err = f.Seek(0, io.SeekStart); err == nil {
			err = decodeLaws(f, e.Raw)
		}
	}
	if e == nil || err != nil {
		return nil, fmt.Errorf("read a finished run: %s is damaged, remove it to run it again: %w", d.file(key), err)
	}
	return e, nil
}

func decode(r io.Reader) (*Entry, error) {
	var e Entry
	if err := decodeInto(r, &e); err != nil {
		return nil, err
	}
	if e.Raw == nil {
		return nil, errNoRaw
	}
	return &e, nil
}

var errNoRaw = errors.New("it holds no measurement")

func decodeInto(r io.Reader, e any) error {
	z, err := gzip.NewReader(bufio.NewReaderSize(r, 1<<16))
	if err != nil {
		return err
	}
	if err := gob.NewDecoder(z).Decode(e); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, z) // to its checksum
	return err
}

// Save files a finished run: whole, or not at all. It sets the entry's Form.
func (d *Dir) Save(key string, e *Entry) error {
	if e.Raw == nil || e.Raw.Partial {
		return errors.New("file a run: only a finished one may be used again")
	}
	e.Form = form
	return d.write(d.file(key), func(w io.Writer) error {
		z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
		if err != nil {
			return err
		}
		return errors.Join(gob.NewEncoder(z).Encode(e), z.Close())
	})
}

// Ask files what was asked for.
func (d *Dir) Ask(a *Asked) error {
	return d.write(filepath.Join(d.path, askedFile), func(w io.Writer) error { return json.NewEncoder(w).Encode(a) })
}

// Asked tells what was asked for last.
func (d *Dir) Asked() (*Asked, error) {
	text, err := os.ReadFile(filepath.Join(d.path, askedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s holds no finished runs: 'weir run FILE --out %s' puts them there", filepath.Dir(d.path), filepath.Dir(d.path))
	}
	if err != nil {
		return nil, fmt.Errorf("read what was asked for: %w", err)
	}
	var a Asked
	if err := json.Unmarshal(text, &a); err != nil {
		return nil, fmt.Errorf("read what was asked for: %s: %w", filepath.Join(d.path, askedFile), err)
	}
	return &a, nil
}

// write replaces a file at once, and has it on the disk before it has its name.
func (d *Dir) write(path string, content func(io.Writer) error) error {
	f, err := os.CreateTemp(d.path, ".weir-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() { _ = os.Remove(f.Name()) }() // nothing is there after the rename
	w := bufio.NewWriterSize(f, 1<<16)
	err = content(w)
	if err == nil {
		err = errors.Join(w.Flush(), f.Chmod(0o644), f.Sync())
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
