package doctor

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table of checks anew, to be reviewed as a diff")

// checksInSources are the names of all checks that a finding can have.
func checksInSources(t *testing.T) []string {
	t.Helper()
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
	return slices.Sorted(maps.Keys(checks))
}

// TestDocTables_Checks compares docs/tables/doctor-checks.md with the checks of the sources, and with -update writes it.
func TestDocTables_Checks(t *testing.T) {
	areas := []struct{ prefix, of string }{
		{"kernel", "the kernel"}, {"rights", "rights of this process"}, {"port", "one port"}, {"programs", "programs of others"},
		{"bypass", "traffic that bypasses the kernel"}, {"mtu", "MTU"}, {"tcp", "TCP, and what hides it"}, {"memory", "memory"},
		{"weir", "Weir on this machine"}, {"unseen", "parts that could not be read"},
	}
	all := checksInSources(t)
	var b strings.Builder
	b.WriteString("<!-- made by make doc-tables; do not edit -->\n\n# Checks of weir doctor\n\n" +
		"Values of `check` in `weir doctor --json`. They stay the same from version to version. The command: [doctor.md](../doctor.md).\n\n" +
		"| checks | about |\n|---|---|\n")
	listed := 0
	for _, area := range areas {
		var names []string
		for _, c := range all {
			if c == area.prefix || strings.HasPrefix(c, area.prefix+".") {
				names = append(names, "`"+c+"`")
			}
		}
		listed += len(names)
		fmt.Fprintf(&b, "| %s | %s |\n", strings.Join(names, ", "), area.of)
	}
	if listed != len(all) {
		t.Errorf("%d of %d checks belong to an area", listed, len(all))
	}
	const path = "../../docs/tables/doctor-checks.md"
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != b.String() {
		t.Errorf("%s differs from the sources (%v): run make doc-tables", path, err)
	}
}
