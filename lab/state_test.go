package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"weir/datapath/testnet"
	"weir/internal/lockfile"
	"weir/internal/testroot"
)

// emptyRecord is the record of a lab without any objects.
func emptyRecord(name string) record {
	entries := map[string]string{}
	for _, node := range []string{mgmtNode, controllerNode} {
		entries[node] = "weir-" + name + "-" + node
	}
	return record{Name: name, Token: newToken(), Namespaces: entries, Pid: os.Getpid(), Owned: true, Built: true}
}

// take returns a lab of which only the record exists.
func take(t *testing.T, name string) *claim {
	t.Helper()
	c, err := takeName(emptyRecord(name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if r, err := readRecord(name); err == nil && r.Token == c.Token {
			_ = c.forget()
		}
	})
	return c
}

// betweenOpenAndLock cleans a lab without an owner, and calls f while the cleaner opens the lab's lock. A write lease on the
// file stops the open in the kernel. Other programs open the lock, too, for example `weir lab list`. So the test waits until
// the cleaner's own thread sleeps there.
func betweenOpenAndLock(t *testing.T, name string, f func()) (done bool, err error) {
	t.Helper()
	file, err := os.OpenFile(filepath.Join(labsDir, name, lockFile), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	testnet.Until(t, "no other program has the lock's file open", func() bool {
		_, err := unix.FcntlInt(file.Fd(), unix.F_SETLEASE, unix.F_WRLCK)
		if err != nil && !errors.Is(err, unix.EAGAIN) {
			t.Fatal(err)
		}
		return err == nil
	})
	thread, ended := make(chan int, 1), make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		thread <- unix.Gettid()
		done, _, err = cleanOne(name)
	}()
	call := fmt.Sprintf("/proc/self/task/%d/syscall", <-thread)
	testnet.Until(t, "the cleaner sleeps in its first openat", func() bool {
		select {
		case <-ended:
			t.Fatalf("cleaned without the lock: %v, %v", done, err)
		default:
		}
		now, err := os.ReadFile(call)
		return err == nil && strings.HasPrefix(string(now), strconv.Itoa(unix.SYS_OPENAT)+" ")
	})
	f()
	if _, err := unix.FcntlInt(file.Fd(), unix.F_SETLEASE, unix.F_UNLCK); err != nil {
		t.Fatal(err)
	}
	<-ended
	return done, err
}

// Two `weir lab clean` at the same time, and `weir lab up` with the same name between them: the slower cleaner has
// opened the lock of the old lab, and must not remove the new one.
func TestClean_LabReplacedBeforeItsLockIsTaken(t *testing.T) {
	testroot.Need(t, "keeps records of labs")
	name := testName("swapped")
	if err := take(t, name).release(); err != nil { // its process ended
		t.Fatal(err)
	}
	var other *claim
	done, err := betweenOpenAndLock(t, name, func() {
		if err := os.RemoveAll(filepath.Join(labsDir, name)); err != nil { // the faster cleaner
			t.Error(err)
		}
		other = take(t, name)
	})
	var inUse *inUseError
	if done || !errors.As(err, &inUse) || inUse.Owner != os.Getpid() {
		t.Errorf("cleaned: %v, error: %v; want the new lab in use by process %d", done, err, os.Getpid())
	}
	if r, err := readRecord(name); err != nil || r.Token != other.Token {
		t.Errorf("the record of the new lab: %+v, %v", r, err)
	}
	if !ownerAlive(name) {
		t.Error("nobody has the lock of the new lab")
	}
}

func TestClean_LabRemovedBeforeItsLockIsTaken(t *testing.T) {
	testroot.Need(t, "keeps records of labs")
	name := testName("removed")
	if err := take(t, name).release(); err != nil {
		t.Fatal(err)
	}
	done, err := betweenOpenAndLock(t, name, func() {
		if err := os.RemoveAll(filepath.Join(labsDir, name)); err != nil {
			t.Error(err)
		}
	})
	if done || err != nil {
		t.Errorf("cleaned: %v, error: %v; another process was faster", done, err)
	}
}

// `weir lab clean` removes the draft of a record at any time while it is made: the lab makes another one.
func TestTakeName_WhileDraftsAreCleaned(t *testing.T) {
	testroot.Need(t, "keeps records of labs")
	name := testName("draft")
	draft := func() *claim {
		c, err := newDraft(emptyRecord(name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = errors.Join(c.release(), os.RemoveAll(c.dir)) })
		return c
	}
	again := func(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, lockfile.ErrHeld) }

	c := draft() // before it has a lock
	if err := removeDraft(c.dir); err != nil {
		t.Error(err)
	}
	if err := c.fill(); !again(err) {
		t.Errorf("fill a draft that is gone: %v", err)
	}

	c = draft() // the cleaner has its lock
	lock, err := lockfile.TakeFile(filepath.Join(c.dir, lockFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.fill(); !again(err) {
		t.Errorf("fill a draft that is being removed: %v", err)
	}
	_ = lock.Close()

	c = draft() // the cleaner saw no lock, and is late
	if err := c.fill(); err != nil {
		t.Fatal(err)
	}
	if err := removeDraft(c.dir); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(c.dir); err != nil {
		t.Errorf("the draft of a living process: %v", err)
	}
	if err := discardRecord(c.dir); err != nil {
		t.Error(err)
	}
	if err := c.takeFinalName(); !again(err) {
		t.Errorf("name a draft that is gone: %v", err)
	}
	if _, err := readRecord(name); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a record with a part of its files: %v", err)
	}
}

// Labs with the same few names are built, listed and cleaned at the same time. The owner of a name has the
// complete record and the lock until it releases them, no query takes a lock, and nothing is left.
func TestUpAndCleanAtOnce(t *testing.T) {
	testroot.Need(t, "keeps records of labs")
	names := []string{testName("once-a"), testName("once-b")}
	stop := make(chan struct{})
	var cleaners, builders sync.WaitGroup
	for range 3 {
		cleaners.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				_, err := clean(nil, ofThisTest)
				for _, name := range names {
					ownerAlive(name)
				}
				if err != nil {
					t.Errorf("clean: %v", err)
					return
				}
			}
		})
	}
	for i := range 4 {
		builders.Go(func() {
			for range 50 {
				c, err := takeName(emptyRecord(names[i%2]))
				if errors.As(err, new(*inUseError)) {
					continue
				}
				if err != nil {
					t.Errorf("take a name: %v", err)
					return
				}
				if r, err := readRecord(c.Name); err != nil || r.Token != c.Token || !ownerAlive(c.Name) {
					t.Errorf("a lab whose process lives: record %+v, %v, owner alive %v", r, err, ownerAlive(c.Name))
				}
				if err := c.forget(); err != nil {
					t.Errorf("forget: %v", err)
				}
			}
		})
	}
	builders.Wait()
	close(stop)
	cleaners.Wait()
	all, drafts, err := labNames()
	for _, name := range append(all, drafts...) {
		if ofThisTest(strings.TrimPrefix(name, draftMark)) {
			t.Errorf("%s is left", name)
		}
	}
	if err != nil {
		t.Error(err)
	}
}

// A query for the owner of a lab never prevents another process from cleaning it.
func TestOwnerAlive_TakesNothing(t *testing.T) {
	testroot.Need(t, "keeps records of labs")
	name := testName("asked")
	stop := make(chan struct{})
	var asking sync.WaitGroup
	for range 2 {
		asking.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					ownerAlive(name)
				}
			}
		})
	}
	for range 60 {
		if err := take(t, name).release(); err != nil {
			t.Error(err)
			break
		}
		if done, _, err := cleanOne(name); !done || err != nil {
			t.Errorf("a lab that nobody owns: cleaned %v, %v", done, err)
			break
		}
	}
	close(stop)
	asking.Wait()
}
