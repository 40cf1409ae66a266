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
)

// Where the lab keeps what it must remember. /run is empty after a boot, as the kernel's state is.
const (
	labsDir    = "/run/weir/labs"
	netnsDir   = "/run/netns"
	madeNetns  = "/run/weir/made-netns" // exists when /run/netns was made by us
	recordFile = "record.json"
	lockFile   = "lock"
	draftMark  = ".draft-" // of a record that has not got its name yet
)

// record is what is known of a lab on disk. It is written before anything is created, so that
// whatever a killed process leaves behind can be found, and told from what is not ours.
type record struct {
	Name       string            `json:"name"`
	Experiment string            `json:"experiment"`
	Token      string            `json:"token"`      // in the file and on the lo of every namespace of this lab
	Namespaces map[string]string `json:"namespaces"` // node -> entry of /run/netns
	Addresses  map[string]string `json:"addresses"`  // guest -> its address for the first profile
	Pid        int               `json:"pid"`
	Owned      bool              `json:"owned"` // ends with its process; otherwise lives until it is cleaned
	Built      bool              `json:"built"`
	Created    time.Time         `json:"created"`
	Cgroup     string            `json:"cgroup,omitempty"` // directory, planned or made
	MemoryKB   int64             `json:"memory_kb,omitempty"`
}

// claim is a record together with the lock that its living owner holds.
type claim struct {
	record
	dir  string
	lock *os.File
}

// inUseError tells that a lab of this name exists.
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

func newToken() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return "weir:" + hex.EncodeToString(b[:])
}

// takeName writes the record of a new lab and takes its lock, in one step as others see it.
func takeName(r record) (*claim, error) {
	for try := 0; ; try++ {
		c, err := tryTakeName(r)
		// The last lab of another process may just have removed the directory.
		if errors.Is(err, fs.ErrNotExist) && try < 10 {
			continue
		}
		return c, err
	}
}

func tryTakeName(r record) (*claim, error) {
	if err := os.MkdirAll(labsDir, 0o700); err != nil {
		return nil, fmt.Errorf("make %s: %w", labsDir, err)
	}
	draft, err := os.MkdirTemp(labsDir, draftMark)
	if err != nil {
		return nil, err
	}
	c := &claim{record: r, dir: draft}
	if err := c.fill(); err != nil {
		return nil, errors.Join(err, c.release(), os.RemoveAll(draft))
	}
	final := filepath.Join(labsDir, r.Name)
	err = unix.Renameat2(unix.AT_FDCWD, draft, unix.AT_FDCWD, final, unix.RENAME_NOREPLACE)
	if err != nil {
		err = errors.Join(err, c.release(), os.RemoveAll(draft))
		if errors.Is(err, unix.EEXIST) {
			return nil, inUse(r.Name)
		}
		return nil, fmt.Errorf("take the name %q: %w", r.Name, err)
	}
	c.dir = final
	return c, nil
}

func (c *claim) fill() error {
	lock, err := lockNow(filepath.Join(c.dir, lockFile))
	if err != nil {
		return err
	}
	c.lock = lock
	return c.save()
}

// lockNow takes the lock at path without waiting.
func lockNow(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return f, nil
}

// save writes the record; a reader sees the old one or the new one.
func (c *claim) save() error {
	data, err := json.MarshalIndent(&c.record, "", "  ")
	if err != nil {
		return err
	}
	path := filepath.Join(c.dir, recordFile)
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return fmt.Errorf("write the lab's record: %w", err)
	}
	return os.Rename(path+".new", path)
}

func (c *claim) release() error {
	if c.lock == nil {
		return nil
	}
	err := c.lock.Close()
	c.lock = nil
	return err
}

// forget removes the record and, after the last lab, the directories that we made.
func (c *claim) forget() error {
	err := errors.Join(os.RemoveAll(c.dir), c.release())
	removeEmptyDirs()
	return err
}

// removeEmptyDirs takes away what is only there for labs, once there are none. Each step fails
// harmlessly while somebody uses the directory.
func removeEmptyDirs() {
	if os.Remove(labsDir) != nil {
		return
	}
	if _, err := os.Stat(madeNetns); err == nil {
		_ = os.Remove(netnsDir)
		_ = os.Remove(madeNetns)
	}
	localsock.Tidy() // a controller that was killed left its socket in /run/weir
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
		return nil, fmt.Errorf("record of lab %q speaks of %q", name, r.Name)
	}
	return &r, nil
}

// inUse makes the error for a name that is taken.
func inUse(name string) error {
	e := &inUseError{Name: name}
	if r, err := readRecord(name); err == nil && ownerAlive(name) {
		e.Owner = r.Pid
	}
	return e
}

// ownerAlive tells whether a process holds the lab's lock.
func ownerAlive(name string) bool {
	f, err := os.Open(filepath.Join(labsDir, name, lockFile))
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// labNames are the names that have a record, and drafts are records that never got one.
func labNames() (names, drafts []string, err error) {
	entries, err := os.ReadDir(labsDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), draftMark) {
			drafts = append(drafts, e.Name())
		} else {
			names = append(names, e.Name())
		}
	}
	return names, drafts, nil
}
