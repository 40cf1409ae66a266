package lab

import (
	"os/exec"
	"strings"
	"testing"
	"time"
)

// The wait for the FairSwitch's program ends after a time, and if it writes something else.
func TestFairSwitch_StartHasALimit(t *testing.T) {
	for script, want := range map[string]string{
		"echo ready; exec sleep 1000":      "",
		"exec sleep 1000":                  "no line within",
		"echo no licence; exec sleep 1000": `it wrote "no licence\n"`,
		"exit 1":                           "EOF",
	} {
		cmd := exec.Command("sh", "-c", script)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		limit := hardwarePatience
		if want == "no line within" {
			limit = time.Millisecond
		}
		if err := awaitReady(out, limit); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", script, err, want)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed, as intended
	}
}
