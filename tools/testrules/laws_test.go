package testrules

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var stepMethod = regexp.MustCompile(`(?m)^func \(.*\) Step\(\w+ time\.Duration, `)

// TestLaws_AreCheckedByLawtest: the tests of each law with a Step wrap it with lawtest, so that no law keeps
// borrowed memory.
func TestLaws_AreCheckedByLawtest(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "law", "*", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	steps, tested := map[string]bool{}, map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Base(filepath.Dir(file))
		if strings.HasSuffix(file, "_test.go") {
			tested[dir] = tested[dir] || strings.Contains(string(text), "lawtest.Keeps(")
		} else if dir != "lawtest" && stepMethod.Match(text) {
			steps[dir] = true
		}
	}
	for dir := range steps {
		if !tested[dir] {
			t.Errorf("law/%s has a law and no test with lawtest.Keeps: add one", dir)
		}
	}
	if len(steps) < 2 {
		t.Errorf("found %d laws that step: there are more", len(steps))
	}
}
