package reproduction

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/cmd/weir/laws"
)

// The paper's claims are counted as REPRODUCTION.md decides them. This project's claims do not count, the reason stays, and
// README.md gets the same table.
func TestPages_ClaimsByPaper(t *testing.T) {
	root := repository(t, "sim", strings.Replace(fileText, "duration: 10s", "worlds: [lab, sim]\nduration: 10s", 1))
	put := func(name, text string) {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("experiments/fairq/X1.yaml", strings.Replace(fileText, "duration: 10s", "worlds: [lab, sim]\nduration: 10s", 1))
	part := laws.All().Parts()[0]
	put(papersPath, "# Page\n\n<!-- claims by paper -->\n\n| paper | world | confirmed | refuted | undecided | not run | why |\n|---|---|---:|---:|---:|---:|---|\n"+
		"| "+part+" | sim | 9 | 9 | 9 | 9 | floors of $1 |\n\n<!-- end of claims by paper -->\n")
	put("README.md", "# Name\n\n<!-- claims by paper -->\n<!-- end of claims by paper -->\n\nafter\n")
	for range 2 { // the second time nothing changes
		pages, err := Pages(root, laws.All())
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{papersPath, "README.md"} {
			// "ecn.all.drops == 0" and "far fewer" are refuted, "few" is this project's, "best" was not run.
			if got, want := string(pages[name]), "| "+part+" | sim | 0 | 2 | 1 | 0 | floors of $1 |\n"; !strings.Contains(got, want) {
				t.Errorf("%s does not say %q:\n%s", name, want, got)
			}
			put(name, string(pages[name]))
		}
		if got := string(pages["README.md"]); !strings.HasSuffix(got, "\n\nafter\n") || strings.Contains(got, "| lab |") {
			t.Errorf("README.md is\n%s", got)
		}
	}
}

// A row for each point, scheme and world of what ran in both worlds.
func TestPages_Comparison(t *testing.T) {
	pages, err := Pages(repository(t, "lab,sim", fileText), laws.All())
	if err != nil {
		t.Fatal(err)
	}
	got := string(pages["docs/tables/lab-and-simulator.md"])
	for _, want := range []string{
		"## X1\n\n2 seeds, weir v1, time scale 1.\n\n| guests | scheme | | drops |\n|---|---|---|---:|\n",
		"|  | droptail | lab | 122 |\n|  | droptail | sim | 1122 |\n|  | ecn | lab | 21.5 |\n|  | ecn | sim | 21.5 |\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the page does not say %q:\n%s", want, got)
		}
	}
}
