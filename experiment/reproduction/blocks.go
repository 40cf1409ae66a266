package reproduction

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"weir/experiment"
	"weir/experiment/report"
)

// tablePages are the pages of tablesDir that have tables between the marks of report.Into, from the same summaries as
// PagePath, by how their names end.
var tablePages = []struct{ ending, world string }{{"-simulated.md", experiment.WorldSim}, {labEnding, experiment.WorldLab}}

// Pages makes every generated page, by its path below the root: PagePath, the pages of tablesDir, and the pages with the
// table of claims by paper. A claim's verdict stands on PagePath alone, so that no two pages can disagree about it.
func Pages(root string, laws *experiment.Laws) (map[string][]byte, error) {
	page, err := Page(root, laws)
	if err != nil {
		return nil, err
	}
	out, err := paperPages(root, laws)
	if err != nil {
		return nil, err
	}
	out[PagePath] = page
	if out[creditsPath], err = creditsPage(root, laws); err != nil {
		return nil, err
	}
	for _, p := range comparisons() {
		if out[p.path], err = p.page(root); err != nil {
			return nil, err
		}
	}
	for _, p := range tablePages {
		names, err := pagesNamed(root, p.ending)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			text, err := os.ReadFile(filepath.Join(root, name))
			if err != nil {
				return nil, fmt.Errorf("read a page with tables: %w", err)
			}
			if out[name], err = withBlocks(root, laws, text, p.world); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return out, nil
}

// pagesNamed lists the pages of tablesDir with this ending, by their paths below the root.
func pagesNamed(root, ending string) ([]string, error) {
	paths, err := filepath.Glob(filepath.Join(root, tablesDir, "*"+ending))
	if err != nil {
		return nil, fmt.Errorf("look for pages with tables: %w", err)
	}
	for i := range paths {
		paths[i] = path.Join(tablesDir, filepath.Base(paths[i]))
	}
	return paths, nil
}

// block matches the part of a page that holds an experiment's results.
var block = regexp.MustCompile(`(?s)<!-- results of ([^ ]+) -->\n(.*?)<!-- end of results -->`)

// withBlocks updates the tables of a page from the committed results of a world.
func withBlocks(root string, laws *experiment.Laws, page []byte, world string) ([]byte, error) {
	files, err := laws.Tree(filepath.Join(root, filesDir))
	if err != nil {
		return nil, err
	}
	for _, found := range block.FindAllSubmatch(page, -1) {
		id := string(found[1])
		for i := range files {
			if files[i].File.ID != id {
				continue
			}
			s, err := newSection(root, laws, &files[i])
			if err != nil {
				return nil, err
			}
			text, err := s.block(string(found[2]), world)
			if err != nil {
				return nil, err
			}
			if text == "" {
				continue
			}
			if page, err = report.Into(page, id, []byte(text)); err != nil {
				return nil, err
			}
		}
	}
	return page, nil
}

// block makes the tables of one experiment in one world from its summary. It returns "" where PagePath decides nothing of
// that world; the page then keeps its tables. The lab's tables are of more seeds than its summaries: block keeps them and
// removes their verdicts.
func (s *section) block(stands, world string) (string, error) {
	for i := range s.columns {
		c := &s.columns[i]
		if c.world != world || c.ovs || c.beside && world == experiment.WorldSim {
			continue
		}
		var b bytes.Buffer
		if world == experiment.WorldSim {
			if err := report.Measured(&b, c.doc); err != nil {
				return "", err
			}
		} else {
			b.WriteString(withoutVerdicts(stands))
		}
		text := strings.TrimRight(b.String(), "\n") + fmt.Sprintf("\n\n%s[REPRODUCTION.md](../REPRODUCTION.md#%s).\n", claimsAt, strings.ToLower(s.file.ID))
		return text, nil
	}
	return "", nil
}

// claimsAt begins the line that leads to the claims.
const claimsAt = "Claims: "

// verdicts matches the tables of claims and their causes, as report.Markdown writes them.
var verdicts = regexp.MustCompile(`(?ms)^(\*\*(The paper's claims|What this project asks|Other claims|Claims)\*\*: .*?|Causes:\n.*?)(^\* |\z)`)

func withoutVerdicts(text string) string {
	text, _, _ = strings.Cut(text, claimsAt)
	return strings.TrimSpace(verdicts.ReplaceAllString(text, "$3")) + "\n"
}
