package main

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"weir/cmd/weir/laws"
	"weir/internal/testroot"
	"weir/law"
)

// Two versions of weir, each a command of the tests.
const older, newer = "v0.4.0", "v0.4.1"

// TestMain lets the test binary run as the command, for scripts and for tests that kill it.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"weir": main, "weir-confined": confined,
		"weir-other":  otherBuild,
		"weir-absent": func() { announceAbsent(); main() },
		older:         func() { version = older; main() }, newer: func() { version = newer; main() },
	})
}

// announceAbsent has files name the law absent, which no world has.
func announceAbsent() {
	laws.Announce(law.Spec{Name: "absent", Params: func() any { return &struct{}{} }, Worlds: law.BothWorlds(), Sites: []law.Site{law.SwitchPort}})
}

// TestScripts runs testdata/*.txtar: command lines with their expected output and exit code.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Condition: func(name string) (bool, error) {
			if name != "no-root" { // [no-root] skip: for a script that needs root
				return false, fmt.Errorf("no condition %q", name)
			}
			return os.Getenv(testroot.Variable) != "", nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"startbus": startBus, "inventory": putInventory, "enforced": putLive},
		Setup: func(env *testscript.Env) error {
			wd, err := os.Getwd()
			env.Setenv("EXPERIMENTS", wd+"/../../experiments")
			env.Setenv("LAB", fmt.Sprint("ts", os.Getpid())) // names of labs begin with it: other tests may run on this machine
			return err
		},
	})
}

// exitOf runs one command line in this process and returns its exit code.
func exitOf(t *testing.T, args ...string) int {
	t.Helper()
	var out, errs discard
	return run(context.Background(), args, &out, &errs)
}

type discard struct{}

func (*discard) Write(b []byte) (int, error) { return len(b), nil }

func TestExitCodesOfUsage(t *testing.T) {
	for _, args := range [][]string{
		{"run"}, {"run", "a.yaml", "b.yaml"}, {"run", "--nonsense"}, {"run", "no-such-file.yaml"},
		{"run", "--check"}, {"lab", "exec", "sender1"}, {"version", "extra"}, {"lab", "up"},
		{"run", "a.yaml", "--seed", "1", "--seeds", "2"}, {"run", "a.yaml", "--seeds", "0"}, {"switch"}, {"switch", "eth1", "--scope", "x"}, {"status", "x"},
		{"runn"}, {"lab", "upp"}, {"switch", "--purge", "--name", "a/b"}, {"switch", "--check", "--purge"}, {"status", "--name", ".."}, {"doctor", "["},
	} {
		if got := exitOf(t, args...); got != exitUsage {
			t.Errorf("weir %v exits with %d, want %d", args, got, exitUsage)
		}
	}
}
