package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/testroot"
)

func TestExecInALab(t *testing.T) {
	testroot.Need(t, "makes network namespaces")
	kept, err := Up(t.Context(), testName("exec"), dumbbell(1, false).config(), Options{Experiment: "incast"})
	if err != nil {
		t.Fatal(err)
	}
	if err := kept.Leave(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = Clean(kept.Name()) }) // already removed if the test passes
	out, err := child(t, "exec", kept.Name(), "sender1", "ip", "-4", "-o", "addr").Output()
	if err != nil || !strings.Contains(string(out), kept.Addr("sender1", 0).String()) {
		t.Errorf("addresses inside: %q, %v", out, err)
	}
	out, err = child(t, "exec", kept.Name(), "sender1", "echo", "receiver1", "receiver1x").Output()
	if want := kept.Addr("receiver1", 0).String() + " receiver1x\n"; err != nil || string(out) != want {
		t.Errorf("names as arguments: %q, %v, want %q", out, err, want)
	}
	var exit *exec.ExitError
	if err := child(t, "exec", kept.Name(), "sender1", "sh", "-c", "exit 7").Run(); !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Errorf("exit code: %v, want 7", err)
	}
	out, err = child(t, "exec", kept.Name(), "nobody", "true").CombinedOutput()
	if err == nil || !strings.Contains(string(out), `has no node "nobody"; allowed: controller, mgmt, receiver1, sender1, switch`) {
		t.Errorf("unknown node: %q, %v", out, err)
	}
	// Processes that exec started, and their children, end with the lab; others in its namespaces are named.
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

func TestListReportsWhatIsThere(t *testing.T) {
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
