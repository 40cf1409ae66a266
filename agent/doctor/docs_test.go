package doctor

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// Every check that a finding can have is in the page's list, and none that is not.
func TestDocs_ListTheChecks(t *testing.T) {
	page, err := os.ReadFile("../../docs/doctor.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile(`"((?:kernel|rights|port|programs|bypass|mtu|tcp|memory|weir|unseen)(?:\.[a-z_]+)?)"`)
	given := regexp.MustCompile(`Check: *"|add\("`)
	checks := map[string]bool{}
	for _, f := range files {
		if strings.HasSuffix(f.Name(), "_test.go") || !strings.HasPrefix(f.Name(), "check") {
			continue
		}
		source, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(source)) {
			if m := name.FindStringSubmatch(line); m != nil && given.MatchString(line) {
				checks[m[1]] = true
			}
		}
	}
	if len(checks) < 50 {
		t.Fatalf("only %d checks found in the sources", len(checks))
	}
	for c := range checks {
		if !strings.Contains(string(page), "`"+c+"`") {
			t.Errorf("docs/doctor.md does not name %s", c)
		}
	}
	_, list, _ := strings.Cut(string(page), "| check | of |")
	list, _, _ = strings.Cut(list, "## ")
	for _, m := range regexp.MustCompile("`([a-z_.]+)`").FindAllStringSubmatch(list, -1) {
		if !checks[m[1]] {
			t.Errorf("docs/doctor.md names %s, which no finding has", m[1])
		}
	}
}
