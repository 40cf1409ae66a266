package reproduction

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"weir/experiment"
	"weir/experiment/claim"
)

// papersPath has the table of claims by paper. Its last column, the reason, is written there by hand.
const papersPath = "docs/what-reproduces.md"

// paperTable matches the part of a page that holds the table.
var paperTable = regexp.MustCompile(`(?s)(<!-- claims by paper -->\n).*?(<!-- end of claims by paper -->)`)

// paperRow matches a row of the table: paper, world, and after the figures the reason.
var paperRow = regexp.MustCompile(`(?m)^\| ([^|]+) \| ([^|]+) \|(?: \d+ \|){4} ([^|]*) \|$`)

// tally counts what became of the claims of a paper in one world. A claim counts once at each point of the axes it leaves
// open, as on PagePath. A claim of a file without results in that world counts once, as not run.
type tally struct{ confirmed, refuted, undecided, notRun int }

// paperPages puts the table of claims by paper into papersPath and, where it has a place for it, into README.md. A root
// without papersPath has no such pages.
func paperPages(root string, laws *experiment.Laws) (map[string][]byte, error) {
	out := map[string][]byte{}
	source, err := os.ReadFile(filepath.Join(root, papersPath))
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the page of claims by paper: %w", err)
	}
	table, err := claimsByPaper(root, laws, source)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{papersPath, "README.md"} {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return nil, fmt.Errorf("read a page with claims by paper: %w", err)
		}
		if paperTable.Match(text) {
			out[name] = paperTable.ReplaceAll(text, []byte("${1}\n"+strings.ReplaceAll(table, "$", "$$")+"\n${2}"))
		}
	}
	return out, nil
}

// claimsByPaper makes the table from the committed results, with the reasons of the page as it stands. A paper without any
// results in a world has no row for that world.
func claimsByPaper(root string, laws *experiment.Laws, page []byte) (string, error) {
	reasons := map[[2]string]string{}
	for _, m := range paperRow.FindAllStringSubmatch(string(paperTable.Find(page)), -1) {
		reasons[[2]string{m[1], m[2]}] = m[3]
	}
	files, err := laws.Tree(filepath.Join(root, filesDir))
	if err != nil {
		return "", err
	}
	counts := map[[2]string]*tally{}
	for i := range files {
		s, err := newSection(root, laws, &files[i])
		if err != nil {
			return "", err
		}
		for _, world := range s.file.Worlds {
			k := [2]string{s.part, world}
			if counts[k] == nil {
				counts[k] = &tally{}
			}
			counts[k].add(s, world)
		}
	}
	text := "| paper | world | confirmed | refuted | undecided | not run | why |\n|---|---|---:|---:|---:|---:|---|\n"
	for _, part := range laws.Parts() {
		for _, world := range []string{experiment.WorldSim, experiment.WorldLab} {
			k := [2]string{part, world}
			if n := counts[k]; n != nil && n.confirmed+n.refuted+n.undecided > 0 {
				text += fmt.Sprintf("| %s | %s | %d | %d | %d | %d | %s |\n", part, world, n.confirmed, n.refuted, n.undecided, n.notRun, reasons[k])
			}
		}
	}
	return text, nil
}

// add counts the paper's claims of one experiment, on the first column of the world. Claims of this project do not count.
func (n *tally) add(s *section, world string) {
	claims := slices.DeleteFunc(slices.Clone(s.file.Claims), func(c claim.Statement) bool {
		return c.Ours != "" || s.file.Paper == "" || strings.HasPrefix(s.file.Paper, "own:")
	})
	i := slices.IndexFunc(s.columns, func(c column) bool { return c.world == world })
	if i < 0 {
		n.notRun += len(claims)
		return
	}
	for _, d := range claim.Decide(claims, s.columns[i].doc, nil) {
		switch verdict(&d) {
		case "confirmed":
			n.confirmed++
		case "refuted":
			n.refuted++
		default:
			n.undecided++
		}
	}
}
