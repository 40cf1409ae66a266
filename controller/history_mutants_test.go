//go:build cgo

package controller

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var mutate = flag.Bool("mutate", false, "TestHistories_FindEachMutant: build and play every mutant, and not every ninth (make mutate-bus)")

// mutant is a check that is taken out: one text of one file replaced by another.
type mutant struct{ name, file, old, new string }

var mutants = []mutant{
	{"agents accept another bucket", "../bus/lease/fence.go", "when(o.Bucket != f.bucket, OtherBucket)", "when(false, OtherBucket)"},
	{"agents accept a lower term", "../bus/lease/fence.go", "when(o.Term < f.seen.Term, StaleTerm)", "when(false, StaleTerm)"},
	{"agents accept a second holder of a term", "../bus/lease/fence.go",
		"when(o.Term == f.seen.Term && o.Holder != f.seen.Holder, OtherHolder)", "when(false, OtherHolder)"},
	{"agents accept any sequence number", "../bus/lease/fence.go",
		"when(o.Term == f.seen.Term && o.Sequence <= f.sequence, OldSequence)", "when(false, OldSequence)"},
	{"agents accept an answer to an earlier run", "../bus/lease/fence.go",
		"when(!o.Announces && o.Incarnation != f.incarnation, OtherRun)", "when(false, OtherRun)"},
	{"agents accept an old answer", "../bus/lease/fence.go", "when(!o.Announces && o.Echo < now-MaxAge, Late)", "when(false, Late)"},
	{"agents accept stamps of the future", "../bus/lease/fence.go", "when(!o.Announces && o.Echo > now, FromFuture)", "when(false, FromFuture)"},
	{"agents do not store terms", "../bus/lease/fence.go", "if err := f.store(next); err != nil {", "if err := error(nil); err != nil {"},
	{"agents do not shorten leases", "../agent/agentd/grants.go", "most := max(leaseMax-age, 0)", "most := leaseMax"},
	{"a stopped agent sets what has become late", "../agent/agentd/grants.go", "case age >= leaseMax:", "case age >= 9*leaseMax:"},
	{"leases begin when a stopped agent continues", "history_agent_test.go",
		"k.a.mail = append(k.a.mail, func() { k.set(now, list, cause) })", "k.a.mail = append(k.a.mail, func() { k.set(uint64(k.a.clock()), list, cause) })"},
	{"commands have one number", "../bus/commands.go", "c.sequence++", "c.sequence = 1"},
	{"a silent agent keeps what it had", "agents.go", "if now-ag.heard > agentSilence &&", "if now-ag.heard > 99*agentSilence &&"},
	{"a restarted agent keeps its inventories", "agents.go",
		"if ag.origin.GetIncarnation() != o.GetIncarnation() {", "if false {"},
	{"an older inventory replaces a newer one", "agents.go", "if part.GetSerial() <= of.serial {", "if part.GetSerial() == of.serial {"},
	{"a late report counts again", "../bus/weirv1/differences.go", "case o.GetSequence() <= last.sequence:", "case false:"},
	{"a VM is the newest claimer's", "claims.go", "		return all[0]\n	}\n	return nil\n}\n\nfunc (c claims[N]) add", "		return all[len(all)-1]\n	}\n	return nil\n}\n\nfunc (c claims[N]) add"},
}

// overlay returns the arguments with which go test uses a mutant instead of a file. The tree does not change.
func (m *mutant) overlay(t *testing.T, dir string) []string {
	t.Helper()
	path, err := filepath.Abs(m.file)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(text, []byte(m.old)); n != 1 {
		t.Fatalf("%s has the text %d times, want 1:\n%s", m.file, n, m.old)
	}
	changed := filepath.Join(dir, filepath.Base(m.file))
	if err := os.WriteFile(changed, bytes.Replace(text, []byte(m.old), []byte(m.new), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	list, err := json.Marshal(map[string]any{"Replace": map[string]string{path: changed}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, list, 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"-overlay", file}
}

// Every check is needed: without it histories fail.
func TestHistories_FindEachMutant(t *testing.T) {
	for i, m := range mutants {
		t.Run(strings.ReplaceAll(m.name, " ", "_"), func(t *testing.T) {
			dir := t.TempDir()
			overlay := m.overlay(t, dir)
			if (i != 1 || testing.Short()) && !*mutate {
				return // each takes seconds to build
			}
			binary := filepath.Join(dir, "controller.test")
			args := append(append([]string{"test", "-vet=off", "-ldflags=-s -w", "-c", "-o", binary}, overlay...), ".")
			if out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput(); err != nil {
				t.Fatalf("it does not build: %v\n%s", err, out)
			}
			out, err := exec.CommandContext(t.Context(), binary, "-test.run", "^TestHistories$", "-test.v", "-histories", "12000").CombinedOutput()
			var exit *exec.ExitError
			switch {
			case err == nil:
				t.Error("not found")
			case !errors.As(err, &exit):
				t.Fatal(err)
			case !bytes.Contains(out, []byte("history ")):
				t.Errorf("it failed for another reason:\n%.3000s", out)
			default:
				t.Logf("found:\n%.1500s", out)
			}
		})
	}
}
