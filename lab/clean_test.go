package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestMain lets the tests start this program again as another process: one that builds a lab and
// is killed, or one that enters a lab.
func TestMain(m *testing.M) {
	switch os.Getenv("WEIR_TEST_CHILD") {
	case "up":
		os.Exit(childUp())
	case "exec":
		err := Exec(os.Getenv("WEIR_TEST_LAB"), os.Getenv("WEIR_TEST_NODE"), os.Args[1:])
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// childUp builds a lab until it is killed. It says when it starts and when it is done.
func childUp() int {
	cfg := racks(2, 3, true).config()
	fmt.Println("start")
	l, err := Up(context.Background(), os.Getenv("WEIR_TEST_LAB"), cfg, Options{Owned: true})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	if err := l.JoinCgroup(); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("up")
	select {}
}

func child(t *testing.T, what, lab, node string, argv ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(self, argv...)
	c.Env = append(os.Environ(), "WEIR_TEST_CHILD="+what, "WEIR_TEST_LAB="+lab, "WEIR_TEST_NODE="+node)
	return c
}

// ofThisTest keeps a test from cleaning labs that somebody has left running on this machine.
func ofThisTest(name string) bool { return strings.HasPrefix(name, testName("")) }

// hostState is what a lab could leave behind on the host: its links, and whatever bears the mark
// of these tests. Other programs may make namespaces of their own meanwhile.
func hostState(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("ip", "-d", "link").Output()
	if err != nil {
		t.Fatal(err)
	}
	state := string(out)
	mark := fmt.Sprintf("weir-t%d-", os.Getpid())
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, mark) {
			state += "mount " + strings.Fields(line)[4] + "\n"
		}
	}
	root, err := cgroup2Root()
	if err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{netnsDir + "/" + mark + "*", root + "/" + mark + "*", labsDir + fmt.Sprintf("/t%d-*", os.Getpid()), labsDir + "/" + draftMark + "*"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			state += "file " + f + "\n"
		}
	}
	return state
}

// privateMounts runs the test again in a process with mounts of its own, and tells whether this is
// that process: `ip netns add` mounts /run/netns over itself, which would stay on the host.
func privateMounts(t *testing.T) bool {
	t.Helper()
	needRoot(t)
	if os.Getenv("WEIR_TEST_PRIVATE") != "" {
		_, err := os.Stat(netnsDir)
		t.Cleanup(func() {
			exec.Command("umount", netnsDir).Run()
			if err != nil {
				os.Remove(netnsDir) // made by ip or the lab, and empty by now
			}
		})
		return true
	}
	c := child(t, "", "", "", "-test.v", "-test.run=^"+t.Name()+"$")
	c.Env = append(c.Env, "WEIR_TEST_PRIVATE=1")
	c.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	out, err := c.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("%v\n%s", err, out)
	}
	return false
}

// ipNetns runs ip netns, or stops the test.
func ipNetns(t *testing.T, what, name string) {
	t.Helper()
	if out, err := exec.Command("ip", "netns", what, name).CombinedOutput(); err != nil {
		t.Fatalf("ip netns %s %s: %v: %s", what, name, err, out)
	}
}

func sameHost(t *testing.T, before, when string) {
	t.Helper()
	if after := hostState(t); after != before {
		t.Errorf("%s the host has changed.\nbefore:\n%s\nafter:\n%s", when, before, after)
	}
}

func TestDownLeavesNothing(t *testing.T) {
	needRoot(t)
	before := hostState(t)
	for _, g := range []*graphBuilder{racks(2, 2, true), leafSpine(2, 2, 2, true)} {
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
	entries, _ := os.ReadDir(labsDir)
	_, err := os.Stat(runDir)
	if len(entries) == 0 && err == nil {
		t.Errorf("%s is there after the last lab", runDir)
	}
}

// kill -9 at any moment of building, then Clean: as before.
func TestCleanAfterKill(t *testing.T) {
	needRoot(t)
	before := hostState(t)
	name := testName("kill")
	start := time.Now()
	l, err := Up(t.Context(), name, racks(2, 3, true).config(), Options{Owned: true})
	if err != nil {
		t.Fatal(err)
	}
	building := time.Since(start)
	if err := l.Down(); err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	killed := 0
	for i := range 12 {
		// The last ones are killed when the lab is whole and the process has joined its cgroup.
		moment := time.Duration(random.Int64N(int64(building) * 3 / 2))
		whole := i >= 10
		if killChild(t, name, moment, whole) {
			killed++
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
	if killed < 3 {
		t.Errorf("only %d of 10 children were killed while they built: the test sees nothing", killed)
	}
}

// killChild starts a process that builds a lab and kills it; it tells whether that was before the
// lab was whole.
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
	out.ReadFrom(pipe)
	c.Wait()
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
	foreign := "weir-" + testName("kept") + "-foreign"
	ipNetns(t, "add", foreign) // with labs up: their mounts are now there twice
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

// talkFromOutside reaches a guest of a lab that has no owner, by the names in /run/netns.
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

// A namespace that has taken the place of one of ours is not ours.
func TestCleanSparesWhatTookOurPlace(t *testing.T) {
	if !privateMounts(t) {
		return
	}
	kept, err := Up(t.Context(), testName("swap"), dumbbell(1, false).config(), Options{})
	if err != nil {
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

	before := hostState(t)
	foreign := "weir-" + testName("ns") + "-receiver1"
	ipNetns(t, "add", foreign)
	_, err = Up(t.Context(), testName("ns"), dumbbell(1, false).config(), Options{Owned: true})
	if err == nil || !strings.Contains(err.Error(), foreign+" exists and is not of this lab") {
		t.Errorf("a foreign namespace %s: error %v", foreign, err)
	}
	if !isNamespace(filepath.Join(netnsDir, foreign)) {
		t.Errorf("the failed Up removed the foreign namespace %s", foreign)
	}
	ipNetns(t, "del", foreign)
	sameHost(t, before, "after a refused Up")
}

func TestCancelledUpLeavesNothing(t *testing.T) {
	needRoot(t)
	before := hostState(t)
	stopped := 0
	for i := range 8 {
		ctx, cancel := context.WithCancel(t.Context())
		timer := time.AfterFunc(time.Duration(i)*5*time.Millisecond, cancel)
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
			t.Error(err)
		}
		sameHost(t, before, fmt.Sprintf("cancelled after %d ms,", i*5))
	}
	if stopped < 2 {
		t.Errorf("only %d of 8 were cancelled while they built: the test sees nothing", stopped)
	}
}

func TestExecInALab(t *testing.T) {
	needRoot(t)
	kept, err := Up(t.Context(), testName("exec"), dumbbell(1, false).config(), Options{Experiment: "incast"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { Clean(kept.Name()) })
	out, err := child(t, "exec", kept.Name(), "sender1", "ip", "-4", "-o", "addr").Output()
	if err != nil || !strings.Contains(string(out), kept.Addr("sender1", 0).String()) {
		t.Errorf("addresses inside: %q, %v", out, err)
	}
	var exit *exec.ExitError
	if err := child(t, "exec", kept.Name(), "sender1", "sh", "-c", "exit 7").Run(); !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Errorf("exit code: %v, want 7", err)
	}
	out, err = child(t, "exec", kept.Name(), "nobody", "true").CombinedOutput()
	if err == nil || !strings.Contains(string(out), `has no node "nobody": it has controller mgmt receiver1 sender1 switch`) {
		t.Errorf("unknown node: %q, %v", out, err)
	}
	// What exec started, and what that started, ends with the lab; what came in otherwise is named.
	started := child(t, "exec", kept.Name(), "sender1", "sh", "-c", "sleep 1000 & echo ready; wait")
	pipe, err := started.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := started.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := pipe.Read(make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	byHand := exec.Command("nsenter", "--net="+filepath.Join(netnsDir, kept.Namespaces()["receiver1"]), "sh", "-c", "echo ready; read x")
	stdin, err := byHand.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	handPipe, err := byHand.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := byHand.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := handPipe.Read(make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- started.Wait() }()
	cleaned, err := Clean(kept.Name())
	if !slices.Contains(cleaned, kept.Name()) {
		t.Errorf("cleaned %v: %v", cleaned, err)
	}
	want := fmt.Sprintf("%d (sh) in receiver1", byHand.Process.Pid)
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Clean says %v, want %q", err, want)
	}
	if err := <-ended; err == nil {
		t.Error("what exec started ended well, want a signal")
	}
	stdin.Close()
	if err := byHand.Wait(); err == nil {
		t.Error("read at end of file succeeded")
	} else if !errors.As(err, &exit) || !exit.Exited() {
		t.Errorf("a process that was not ours was ended: %v", err)
	}
}

func TestListTellsWhatIsThere(t *testing.T) {
	l := up(t, "list", dumbbell(1, false).config())
	list, err := List()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(list, func(x Info) bool { return x.Name == l.Name() })
	if i < 0 {
		t.Fatalf("%s is not listed", l.Name())
	}
	x := list[i]
	if x.Experiment != "test" || !x.Alive || !x.Owned || !x.Built || x.Pid != os.Getpid() || len(x.Nodes) != 5 || time.Since(x.Created) > time.Minute {
		t.Errorf("listed as %+v", x)
	}
}
