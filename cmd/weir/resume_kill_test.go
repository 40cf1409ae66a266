package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/internal/testroot"
)

// A killed experiment continues with --resume: the finished run stays, the killed run's lab is removed, and only
// missing runs are run.
func TestResumeAfterKill(t *testing.T) {
	testroot.Need(t, "namespaces and kernel programs")
	dir := t.TempDir()
	file, out := filepath.Join(dir, "killed.yaml"), filepath.Join(dir, "out")
	if err := os.WriteFile(file, []byte(killed), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"run", file, "--world", "lab", "--seeds", "3", "--out", out, "--resume"}
	cmd := exec.Command("weir", args...)
	said := &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lab := fmt.Sprintf("/run/weir/labs/run-%d", cmd.Process.Pid)
	finished := func() int {
		runs, err := filepath.Glob(filepath.Join(out, "runs", "*.run"))
		if err != nil {
			t.Fatal(err)
		}
		return len(runs)
	}
	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(time.Millisecond) {
		if _, err := os.Stat(lab); err == nil && finished() == 1 {
			break // the second run has its lab
		}
		if time.Now().After(end) {
			_ = cmd.Process.Kill()
			_ = cmd.Wait() // its output is complete after this
			t.Fatalf("the second run did not begin within 5 minutes:\n%s", said)
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	if n := finished(); n != 1 {
		t.Fatalf("%d runs are finished: it was not killed in the second", n)
	}
	text, err := exec.Command("weir", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for _, want := range []string{"1 of 3 runs are finished already", "removed lab " + filepath.Base(lab), "run 2 of 2: lab ecn seed 3"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("it does not say %q:\n%s", want, text)
		}
	}
	if strings.Contains(string(text), "run 3 of") || finished() != 3 {
		t.Errorf("%d runs are there, want 3, two of them new:\n%s", finished(), text)
	}
	left, err := filepath.Glob("/run/netns/weir-" + filepath.Base(lab) + "-*")
	if _, e := os.Stat(lab); e == nil || err != nil || len(left) > 0 {
		t.Errorf("left behind: %s (%v), %q, %v", lab, e, left, err)
	}
}
