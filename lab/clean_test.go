package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weir/internal/testroot"
)

func TestDownLeavesNothing(t *testing.T) {
	testroot.Need(t, "makes network namespaces")
	before := hostState(t)
	for _, g := range []*graphBuilder{racks(2, 2, true), leafSpine(2, 2, true)} {
		l := up(t, "down", g.config())
		if _, err := l.Cgroup(); err != nil {
			t.Fatal(err)
		}
		if during := hostState(t); strings.Count(during, "mount ") != len(l.Nodes()) {
			t.Errorf("%d mounts for %d nodes: the comparison sees nothing", strings.Count(during, "mount "), len(l.Nodes()))
		}
		if err := l.Down(); err != nil {
			t.Fatal(err)
		}
		sameHost(t, before, "after Down")
		if err := l.Enter("tor1", func() error { return nil }); !errors.Is(err, errGone) && err == nil {
			t.Error("a node could be entered after Down")
		}
	}
	// Another process may have a lab, and other programs have sockets next to the labs' directory.
	if entries, err := os.ReadDir(labsDir); err == nil && len(entries) == 0 {
		t.Errorf("%s is there after the last lab", labsDir)
	}
}

// kill -9 at any time while a lab is built, then Clean: the host is as before.
func TestCleanAfterKill(t *testing.T) {
	testroot.Need(t, "makes network namespaces")
	before := hostState(t)
	name := testName("kill")
	start := time.Now()
	l, err := Up(t.Context(), name, racks(3, 3, true).config(), Options{Owned: true})
	if err != nil {
		t.Fatal(err)
	}
	building := time.Since(start)
	if err := l.Down(); err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	latest, killed := int64(building)*3/2, 0
	for i := 0; i < 12 || killed < 3; i++ {
		if i == 20 {
			t.Fatalf("of %d labs %d were killed before they were whole", i, killed)
		}
		// Two are killed when the lab is complete and the process has joined its cgroup.
		moment := time.Duration(random.Int64N(latest))
		whole := i == 10 || i == 11
		switch early := killChild(t, name, moment, whole); {
		case early:
			killed++
		case !whole: // the lab was complete before the kill
			latest = max(1, int64(moment))
		}
		cleaned, err := clean(nil, ofThisTest)
		if err != nil {
			t.Errorf("killed after %v: clean: %v", moment, err)
		}
		if whole && !slices.Contains(cleaned, name) {
			t.Errorf("Clean removed %v and not %s", cleaned, name)
		}
		sameHost(t, before, fmt.Sprintf("killed after %v and cleaned,", moment))
	}
}

// killChild starts a process that builds a lab, and kills it. It reports whether that was before the lab was
// complete.
func killChild(t *testing.T, name string, after time.Duration, whole bool) (early bool) {
	t.Helper()
	c := child(t, "up", name, "")
	var out bytes.Buffer
	pipe, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	waitFor := func(text string) {
		buf := make([]byte, 256)
		for !strings.Contains(out.String(), text) {
			n, err := pipe.Read(buf)
			out.Write(buf[:n])
			if err != nil {
				t.Fatalf("child said %q and ended", out.String())
			}
		}
	}
	waitFor("start\n")
	if whole {
		waitFor("up\n")
	} else {
		<-time.After(after)
	}
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_, _ = out.ReadFrom(pipe)
	_ = c.Wait() // killed, as intended
	return !strings.Contains(out.String(), "up\n")
}

func TestCleanSparesLivingRunsAndForeignNamespaces(t *testing.T) {
	if !privateMounts(t) {
		return
	}
	l := up(t, "mine", dumbbell(1, false).config())
	kept, err := Up(t.Context(), testName("kept"), dumbbell(1, false).config(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := kept.Leave(); err != nil {
		t.Fatal(err)
	}
	foreign := "weir-" + testName("kept") + "-foreign"
	ipNetns(t, "add", foreign) // with labs up: their mounts now exist twice
	t.Cleanup(func() { ipNetns(t, "del", foreign) })

	if err := talkFromOutside(kept); err != nil {
		t.Errorf("a lab that was left running: %v", err)
	}
	if _, err := Clean(l.Name()); !errors.As(err, new(*inUseError)) {
		t.Errorf("Clean of a lab that this process owns: %v, want in use", err)
	}
	cleaned, err := clean(nil, ofThisTest)
	if err != nil {
		t.Error(err)
	}
	if slices.Contains(cleaned, l.Name()) || !slices.Contains(cleaned, kept.Name()) {
		t.Errorf("Clean removed %v, want %s and not %s", cleaned, kept.Name(), l.Name())
	}
	if !isNamespace(filepath.Join(netnsDir, foreign)) {
		t.Errorf("Clean removed the foreign namespace %s", foreign)
	}
	if err := talk(l, "sender1", "receiver1", 0); err != nil {
		t.Errorf("after Clean: %v", err)
	}
	if _, err := Clean("nosuchlab"); err == nil || !strings.Contains(err.Error(), `no lab "nosuchlab"`) {
		t.Errorf("Clean of an unknown lab: %v", err)
	}
}

// talkFromOutside connects to a guest of a lab without an owner, by the names in /run/netns.
func talkFromOutside(l *Lab) error {
	return inNamespace(filepath.Join(netnsDir, l.Namespaces()["sender1"]), func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		err = unix.Connect(fd, &unix.SockaddrInet4{Port: 1, Addr: l.Addr("receiver1", 0).As4()})
		if !errors.Is(err, unix.ECONNREFUSED) {
			return fmt.Errorf("connect: %w, want refused", err)
		}
		return nil
	})
}

// A namespace that replaced one of the lab's is not removed.
func TestCleanSparesWhatTookOurPlace(t *testing.T) {
	if !privateMounts(t) {
		return
	}
	kept, err := Up(t.Context(), testName("swap"), dumbbell(1, false).config(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := kept.Leave(); err != nil {
		t.Fatal(err)
	}
	entry := kept.Namespaces()["sender1"]
	ipNetns(t, "del", entry)
	ipNetns(t, "add", entry)
	t.Cleanup(func() { ipNetns(t, "del", entry) })
	if _, err := Clean(kept.Name()); err != nil {
		t.Error(err)
	}
	if !isNamespace(filepath.Join(netnsDir, entry)) {
		t.Errorf("Clean removed %s, which somebody else had made", entry)
	}
	if isNamespace(filepath.Join(netnsDir, kept.Namespaces()["receiver1"])) {
		t.Error("Clean left receiver1")
	}
}

func TestUpRefusesNamesInUse(t *testing.T) {
	if !privateMounts(t) {
		return
	}
	l := up(t, "twice", dumbbell(1, false).config())
	_, err := Up(t.Context(), l.Name(), dumbbell(1, false).config(), Options{Owned: true})
	var inUse *inUseError
	if !errors.As(err, &inUse) || inUse.Owner != os.Getpid() {
		t.Errorf("a second lab %s: %v, want in use by %d", l.Name(), err, os.Getpid())
	}
	if err := talk(l, "sender1", "receiver1", 0); err != nil {
		t.Errorf("after the refusal: %v", err)
	}

	foreign := "weir-" + testName("ns") + "-receiver1"
	ipNetns(t, "add", foreign)
	t.Cleanup(func() { ipNetns(t, "del", foreign) })
	before := hostState(t)
	_, err = Up(t.Context(), testName("ns"), dumbbell(1, false).config(), Options{Owned: true})
	if err == nil || !strings.Contains(err.Error(), foreign+" exists and does not belong to this lab") {
		t.Errorf("a foreign namespace %s: error %v", foreign, err)
	}
	if !isNamespace(filepath.Join(netnsDir, foreign)) {
		t.Errorf("the failed Up removed the foreign namespace %s", foreign)
	}
	sameHost(t, before, "after a refused Up")
}

func TestCancelledUpLeavesNothing(t *testing.T) {
	testroot.Need(t, "makes network namespaces")
	before := hostState(t)
	stopped := 0
	for i := 0; i < 8 || stopped < 2; i++ {
		if i == 20 {
			t.Fatalf("of %d labs %d were cancelled before they were whole", i, stopped)
		}
		after := time.Duration(i%8) * 5 * time.Millisecond
		ctx, cancel := context.WithCancel(t.Context())
		timer := time.AfterFunc(after, cancel)
		l, err := Up(ctx, testName("cancel"), racks(2, 3, true).config(), Options{Owned: true})
		timer.Stop()
		cancel()
		switch {
		case err == nil:
			if err := l.Down(); err != nil {
				t.Fatal(err)
			}
		case errors.Is(err, context.Canceled):
			stopped++
		default:
			t.Fatal(err)
		}
		sameHost(t, before, fmt.Sprintf("cancelled after %v,", after))
	}
}
