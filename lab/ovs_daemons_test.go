package lab

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A program that leaves a daemon behind has succeeded, although the daemon keeps its output open for longer than anybody waits.
// A program that fails has failed.
func TestOutputOf_DoesNotWaitForDaemons(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	end, err := os.OpenFile(fifo, os.O_RDWR, 0) // the daemons read until it is closed
	if err != nil {
		t.Fatal(err)
	}
	defer end.Close()
	for _, row := range []struct {
		script string
		fails  bool
	}{{`cat "$0" & echo begun`, false}, {`cat "$0" & echo begun; exit 3`, true}} {
		out, err := outputOf(exec.CommandContext(t.Context(), "sh", "-c", row.script, fifo))
		if string(out) != "begun\n" || (err != nil) != row.fails {
			t.Errorf("%s: %q, %v", row.script, out, err)
		}
	}
}
