package lab

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"weir/internal/testroot"
)

// TestMain lets the tests start this program again as another process: one that builds a lab and is killed, one
// that enters a lab, or one that is its controller.
func TestMain(m *testing.M) {
	switch os.Getenv("WEIR_TEST_CHILD") {
	case "up":
		fmt.Println(childUp())
		os.Exit(1)
	case "exec":
		err := Exec(os.Getenv("WEIR_TEST_LAB"), os.Getenv("WEIR_TEST_NODE"), os.Args[1:])
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	case "agent":
		fmt.Fprintln(os.Stderr, childAgent(os.Args[len(os.Args)-1]))
		os.Exit(1)
	case "cgroup":
		fmt.Println(childCgroup(os.Args[1]))
		os.Exit(0)
	case "controller":
		fmt.Fprintln(os.Stderr, childController(os.Args[len(os.Args)-1]))
		os.Exit(1)
	}
	moreAtOnce()
	os.Exit(m.Run())
}

// moreAtOnce runs more tests in parallel than there are processors, unless -parallel is set: most of the time they
// wait for timers and for the kernel.
func moreAtOnce() {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", strconv.Itoa(max(4, runtime.GOMAXPROCS(0))))
	}
}

// childUp builds a lab until it is killed, or reports why it could not. It prints when it starts and when it is
// done.
func childUp() error {
	g := racks(2, 3, true)
	g.kind = os.Getenv("WEIR_TEST_SWITCH")
	cfg := g.config()
	fmt.Println("start")
	l, err := Up(context.Background(), os.Getenv("WEIR_TEST_LAB"), cfg, Options{Owned: true})
	if err != nil {
		return err
	}
	if err := l.JoinCgroup(); err != nil {
		return err
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

// ofThisTest protects labs that somebody has left running on this machine from a test's cleaning.
func ofThisTest(name string) bool { return strings.HasPrefix(name, testName("")) }

// hostState lists what a lab could leave on the host: its links, and everything with the mark of these tests.
// Other programs may create namespaces meanwhile.
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
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range commands {
		line, err := os.ReadFile(command)
		if err == nil && strings.Contains(string(line), fmt.Sprintf("%s/t%d-", labsDir, os.Getpid())) {
			state += "process " + strings.ReplaceAll(string(line), "\x00", " ") + "\n"
		}
	}
	root, err := cgroup2Root()
	if err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{netnsDir + "/" + mark + "*", root + "/" + mark + "*", labsDir + fmt.Sprintf("/t%d-*", os.Getpid()), labsDir + fmt.Sprintf("/%st%d-*", draftMark, os.Getpid())} {
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

// privateMounts runs the test again in a process with its own mounts, and reports whether this is that process:
// `ip netns add` mounts /run/netns over itself, which would stay on the host.
func privateMounts(t *testing.T) bool {
	t.Helper()
	testroot.Need(t, "makes network namespaces")
	if os.Getenv("WEIR_TEST_PRIVATE") != "" {
		_, err := os.Stat(netnsDir)
		t.Cleanup(func() {
			_ = exec.Command("umount", netnsDir).Run()
			if err != nil {
				_ = os.Remove(netnsDir) // made by ip or the lab, and empty now
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
