package lab

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"weir/internal/localsock"
	"weir/internal/lockfile"
	"weir/internal/replace"
)

// Paths of the lab's records. /run is empty after a boot, like the kernel's state.
const (
	labsDir    = "/run/weir/labs"
	netnsDir   = "/run/netns"
	madeNetns  = "/run/weir/made-netns" // exists if weir created /run/netns
	recordFile = "record.json"
	lockFile   = "lock"
	draftMark  = ".draft-" // a record that has no name yet
	goneMark   = ".gone-"  // a record that is being removed and no longer has its name
)

// record is the information about a lab on disk. It is written before anything is created, so that everything that
// a killed process leaves can be found, and distinguished from what is not the lab's.
type record struct {
	Name       string            `json:"name"`
	Experiment string            `json:"experiment"`
	Token      string            `json:"token"`      // in the file and on the lo of every namespace of this lab
	Namespaces map[string]string `json:"namespaces"` // node -> entry of /run/netns
	Addresses  map[string]string `json:"addresses"`  // guest -> its address for the first profile
	Pid        int               `json:"pid"`
	Owned      bool              `json:"owned"` // ends with its process; otherwise stays until it is cleaned
	Built      bool              `json:"built"`
	Created    time.Time         `json:"created"`
	Cgroup     string            `json:"cgroup,omitempty"` // directory, planned or made
	MemoryKB   int64             `json:"memory_kb,omitempty"`
}

// claim is a record together with the lock of its running owner.
type claim struct {
	record
	dir  string
	lock *os.File
}

// inUseError reports that a lab with this name exists.
type inUseError struct {
	Name  string
	Owner int // process that runs it, 0: none
}

func (e *inUseError) Error() string {
	if e.Owner != 0 {
		return fmt.Sprintf("lab %q is in use by process %d: wait for it, or choose another name", e.Name, e.Owner)
	}
	return fmt.Sprintf("lab %q exists: run 'weir lab clean %s', or choose another name", e.Name, e.Name)
}

// tokenPrefix is the beginning of every lab's token.
const tokenPrefix = "weir:"

func newToken() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return tokenPrefix + hex.EncodeToString(b[:])
}

// takeName writes the record of a new lab and takes its lock, atomically for others.
func takeName(r record) (*claim, error) {
	for try := 0; ; try++ {
		c, err := newDraft(r)
		if err == nil {
			err = c.fill()
		}
		if err == nil {
			err = c.takeFinalName()
		}
		if err == nil {
			return c, nil
		}
		if c != nil {
			err = errors.Join(err, c.release(), os.RemoveAll(c.dir))
		}
		// Another process may have removed the directory with its last lab, or the draft, which it took for that
		// of a killed process.
		if try < 100 && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, lockfile.ErrHeld)) {
			continue
		}
		return nil, err
	}
}

// newDraft creates the directory of a record that has no name yet.
func newDraft(r record) (*claim, error) {
	for _, dir := range []string{filepath.Dir(labsDir), labsDir} { // os.MkdirAll returns another error for a directory that is removed meanwhile
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("make %s: %w", dir, err)
		}
	}
	draft, err := os.MkdirTemp(labsDir, draftMark+r.Name+"-")
	if err != nil {
		return nil, err
	}
	return &claim{record: r, dir: draft}, nil
}

func (c *claim) fill() error {
	lock, err := lockfile.TakeFile(filepath.Join(c.dir, lockFile))
	if err != nil {
		return err
	}
	c.lock = lock
	return c.save()
}

// takeFinalName gives a draft the lab's name if that is free.
func (c *claim) takeFinalName() error {
	final := filepath.Join(labsDir, c.Name)
	err := unix.Renameat2(unix.AT_FDCWD, c.dir, unix.AT_FDCWD, final, unix.RENAME_NOREPLACE)
	switch {
	case errors.Is(err, unix.EEXIST):
		return inUse(c.Name)
	case err != nil:
		return fmt.Errorf("take the name %q: %w", c.Name, err)
	}
	c.dir = final
	return nil
}

// discardRecord removes the directory of a record, atomically for others: the name is free at once, and no record
// is ever visible with only some of its files. A process that was killed in between leaves a directory that
// removeDraft removes.
func discardRecord(dir string) error {
	gone := filepath.Join(labsDir, goneMark+strings.TrimPrefix(newToken(), tokenPrefix))
	if err := os.Rename(dir, gone); err != nil {
		return err
	}
	return os.RemoveAll(gone)
}

// save writes the record; a reader sees the old one or the new one.
func (c *claim) save() error {
	data, err := json.MarshalIndent(&c.record, "", "  ")
	if err != nil {
		return err
	}
	return replace.Bytes(filepath.Join(c.dir, recordFile), 0o600, data)
}

func (c *claim) release() error {
	if c.lock == nil {
		return nil
	}
	err := c.lock.Close()
	c.lock = nil
	return err
}

// forget removes the record and, after the last lab, the directories that weir created.
func (c *claim) forget() error {
	err := errors.Join(discardRecord(c.dir), c.release())
	removeEmptyDirs()
	return err
}

// removeEmptyDirs removes directories that exist only for labs, once there are none. Each step fails without harm
// while another process uses the directory.
func removeEmptyDirs() {
	if os.Remove(labsDir) != nil {
		return
	}
	// The mark is removed first: from then on, a lab that is being built finds the directory, or creates it again
	// with a mark.
	if os.Remove(madeNetns) == nil && os.Remove(netnsDir) != nil {
		_ = os.WriteFile(madeNetns, nil, 0o600) // in use: weir must still remove it
	}
	localsock.Tidy() // a killed controller left its socket in /run/weir
}

func readRecord(name string) (*record, error) {
	data, err := os.ReadFile(filepath.Join(labsDir, name, recordFile))
	if err != nil {
		return nil, err
	}
	var r record
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("record of lab %q: %w", name, err)
	}
	if r.Name != name || !labNamePattern.MatchString(name) {
		return nil, fmt.Errorf("record of lab %q has the name %q", name, r.Name)
	}
	return &r, nil
}

// inUse returns the error for a name that is taken.
func inUse(name string) error {
	e := &inUseError{Name: name}
	if r, err := readRecord(name); err == nil && ownerAlive(name) {
		e.Owner = r.Pid
	}
	return e
}

// inUseBySomebody returns the error for a name whose lock a process has.
func inUseBySomebody(name string) error {
	e := &inUseError{Name: name}
	if r, err := readRecord(name); err == nil {
		e.Owner = r.Pid
	}
	return e
}

// ownerAlive reports whether a process has the lab's lock. It does not take the lock, so that `weir lab clean`
// never finds it taken.
func ownerAlive(name string) bool {
	held, err := lockfile.Held(filepath.Join(labsDir, name, lockFile))
	return err == nil && held
}

// labNames returns the names that have a record; drafts are records without a name (not yet, or no longer).
func labNames() (names, drafts []string, err error) {
	entries, err := os.ReadDir(labsDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), draftMark) || strings.HasPrefix(e.Name(), goneMark) {
			drafts = append(drafts, e.Name())
		} else {
			names = append(names, e.Name())
		}
	}
	return names, drafts, nil
}
