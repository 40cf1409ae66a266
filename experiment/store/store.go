// Package store keeps the measurements of finished runs, one file each. An experiment of hours can so be stopped
// at any time and resumed later, and its report can be made again without running anything.
//
// A run is stored under a hash of everything that determines it: a run of a changed file is another run.
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
	"weir/internal/replace"
)

// Names of the stored files, below the directory of an experiment's results.
const (
	runsDir   = "runs"
	lockFile  = "lock"       // names the process that runs the experiment
	askedFile = "asked.json" // the options and the file
	extension = ".run"
)

// format is a part of every key: stored runs of another format count as not done.
const format = 1

// form is the version of an entry's content; since 1, laws' metrics by name.
const form = 1

// Entry is a finished run.
type Entry struct {
	Form   int    // version of the content; less than form: written by an earlier build
	Weir   string // version that ran it
	Code   string // digest of the sources that determine what is measured; "": the build did not record it
	Kernel string
	Ended  time.Time
	Took   time.Duration // includes building and removing the network
	Raw    *result.Raw
}

// Asked is an experiment as the user asked for it.
type Asked struct {
	Name    string             `json:"name"` // of the file
	File    string             `json:"file"` // its text
	Options experiment.Options `json:"options"`
}

// Plan plans the experiment again.
func (a *Asked) Plan(laws *experiment.Laws) (*experiment.Plan, error) {
	f, err := laws.Parse(a.Name, []byte(a.File))
	if err != nil {
		return nil, err
	}
	return f.Plan(a.Options)
}

// Dir is the directory with the runs of one experiment.
type Dir struct {
	path string
	lock *os.File
}

// InUseError reports that another process runs the experiment of this directory.
type InUseError struct {
	Dir string
	Pid int
}

func (e *InUseError) Error() string {
	return fmt.Sprintf("%s: process %d is running an experiment in this directory: wait for it, or choose another directory", e.Dir, e.Pid)
}

// Open locks the directory for a run, and creates it if it does not exist. killed is the last process that had it
// locked and ended without closing it, or 0.
func Open(dir string) (d *Dir, killed int, err error) {
	d = &Dir{path: filepath.Join(dir, runsDir)}
	if err := os.MkdirAll(d.path, 0o755); err != nil {
		return nil, 0, fmt.Errorf("make a directory for finished runs: %w", err)
	}
	// The kernel releases the lock when its process ends, for any reason.
	d.lock, err = os.OpenFile(filepath.Join(d.path, lockFile), os.O_RDWR|os.O_CREATE|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return nil, 0, fmt.Errorf("lock the results: %w", err)
	}
	text, _ := io.ReadAll(io.LimitReader(d.lock, 32)) // a text that is not a number names no process
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

// sign writes which process has the directory.
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

// Read opens a directory for reading only: other processes may be writing to it.
func Read(dir string) *Dir { return &Dir{path: filepath.Join(dir, runsDir)} }

// Close unlocks the directory.
func (d *Dir) Close() error {
	if d.lock == nil {
		return nil
	}
	return errors.Join(d.sign(""), d.lock.Close())
}

// Key returns the name of a run, a hash of everything that determines it: two runs have the same key when they are
// the same in every world. Windows are not part of it: they only select what is summed up.
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

// Load reads a finished run. A file that cannot be read completely is an error. fs.ErrNotExist: there is no such
// run.
func (d *Dir) Load(key string) (*Entry, error) {
	f, err := os.Open(d.file(key))
	if err != nil {
		return nil, fmt.Errorf("read a finished run: %w", err)
	}
	defer f.Close()
	e, err := decode(f)
	if err != nil {
		if _, seekErr := f.Seek(0, io.SeekStart); seekErr == nil {
			e, _ = decodeText(f) // err has the reason if this fails
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

var errNoRaw = errors.New("it has no measurement")

func decodeInto(r io.Reader, e any) error {
	z, err := gzip.NewReader(bufio.NewReaderSize(r, 1<<16))
	if err != nil {
		return err
	}
	if err := gob.NewDecoder(z).Decode(e); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, z) // up to its checksum
	return err
}

// Save stores a finished run: completely, or not at all. It sets the entry's Form.
func (d *Dir) Save(key string, e *Entry) error {
	if e.Raw == nil || e.Raw.Partial {
		return errors.New("store a run: it is not finished, and only finished runs can be used again")
	}
	return replace.File(d.file(key), 0o644, func(w io.Writer) error { return Encode(w, e) })
}

// Encode writes an entry as Save stores it. It sets the entry's Form.
func Encode(w io.Writer, e *Entry) error {
	e.Form = form
	z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return err
	}
	return errors.Join(gob.NewEncoder(z).Encode(e), z.Close())
}

// Ask stores what the user asked for.
func (d *Dir) Ask(a *Asked) error {
	return replace.File(filepath.Join(d.path, askedFile), 0o644, func(w io.Writer) error { return json.NewEncoder(w).Encode(a) })
}

// Asked returns what the user asked for last.
func (d *Dir) Asked() (*Asked, error) {
	text, err := os.ReadFile(filepath.Join(d.path, askedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s has no finished runs: make them with 'weir run FILE --out %s'", filepath.Dir(d.path), filepath.Dir(d.path))
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
