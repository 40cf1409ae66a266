// Package docs_test checks the pages: every link resolves, every file of a switch that a page shows is valid, and the
// tables of docs/tables are what the sources give.
package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"weir/agent/switchd"
	"weir/agent/switchd/fairq"
	"weir/agent/switchd/lossrepair"
	"weir/law"
	lawfairq "weir/law/fairq"
	"weir/policy"
)

// pages are all Markdown pages of the project, with their text: names are relative to docs/.
func pages(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && path != ".." && (strings.HasPrefix(name, ".") || name == "testdata" || name == "out"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".md"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel("../docs", path)
		out[rel] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 30 {
		t.Fatalf("only %d pages", len(out))
	}
	return out
}

var (
	fence   = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$")
	link    = regexp.MustCompile(`\]\(([^)#\s]*)(?:#([^)\s]*))?\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
)

// anchor is what a heading is linked by.
func anchor(heading string) string {
	kept := strings.Map(func(c rune) rune {
		switch {
		case c == ' ':
			return '-'
		case c == '-' || c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c > 127:
			return c
		}
		return -1
	}, strings.ToLower(heading))
	return kept
}

// Every link to a file of the project leads to one, and to a heading that is there.
func TestLinksLead(t *testing.T) {
	all := pages(t)
	links := 0
	for page, text := range all {
		for _, l := range link.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
			if strings.Contains(l[1], "://") || strings.HasPrefix(l[1], "mailto:") {
				continue
			}
			links++
			target := page
			if l[1] != "" {
				target = filepath.Join(filepath.Dir(page), l[1])
			}
			body, err := os.ReadFile(target)
			if err != nil {
				if info, dirErr := os.Stat(target); dirErr != nil || !info.IsDir() {
					t.Errorf("%s: no %s", page, l[1])
				}
				continue
			}
			found := l[2] == ""
			for _, h := range heading.FindAllStringSubmatch(fence.ReplaceAllString(string(body), ""), -1) {
				found = found || anchor(h[1]) == l[2]
			}
			if !found {
				t.Errorf("%s: %s has no heading %q", page, target, l[2])
			}
		}
	}
	if links < 50 {
		t.Errorf("only %d links", links)
	}
}

// Every configuration of a switch that a page shows is read without complaint.
func TestSwitchFilesAreSound(t *testing.T) {
	files := 0
	for page, text := range pages(t) {
		for _, block := range fence.FindAllStringSubmatch(text, -1) {
			if !strings.Contains(block[2], "kind: Switch\n") {
				continue
			}
			files++
			name := filepath.Join(t.TempDir(), "switch.yaml")
			if err := os.WriteFile(name, []byte(block[2]), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := switchd.New(fairq.Law{}, lossrepair.Law{}).Load(name); err != nil {
				t.Errorf("%s: %v\n%s", page, err, block[2])
			}
		}
	}
	if files == 0 {
		t.Error("no page shows one")
	}
}

// Every policy that a page shows is read without complaint.
func TestPoliciesAreSound(t *testing.T) {
	policies := 0
	for page, text := range pages(t) {
		for _, block := range fence.FindAllStringSubmatch(text, -1) {
			if !strings.Contains(block[2], "kind: Policy\n") {
				continue
			}
			policies++
			if _, err := policy.NewReader(law.Specs{lawfairq.Spec()}).Parse(page, []byte(block[2])); err != nil {
				t.Errorf("%v\n%s", err, block[2])
			}
		}
	}
	if policies == 0 {
		t.Error("no page shows one")
	}
}

var (
	span        = regexp.MustCompile("`([^`\n]+)`")
	projectPath = regexp.MustCompile(`^(agent|cmd|config|controller|datapath|deploy|docs|experiments?|internal|lab|law|openflow|policy|results|scripts|sim|tools|validate)/[\w./-]+$`)
	placeholder = regexp.MustCompile(`NAME|WORLD|\bID\b|everynth|fixedtable`) // the last two are laws of a patch
)

// Every path of the project that a page names is there.
func TestPathsExist(t *testing.T) {
	paths := 0
	for page, text := range pages(t) {
		for _, s := range span.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
			if !projectPath.MatchString(s[1]) || placeholder.MatchString(s[1]) {
				continue
			}
			paths++
			if _, err := os.Stat(filepath.Join("..", s[1])); err != nil {
				t.Errorf("%s names %s, which is not there", page, s[1])
			}
		}
	}
	if paths < 50 {
		t.Errorf("only %d paths", paths)
	}
}

// Every function of the law and of its kernel program that fairq.md names, line by line of Algorithm 1 and step by step of a
// packet, is in the sources.
func TestFunctionsExist(t *testing.T) {
	var sources strings.Builder
	for _, pattern := range []string{"core/*.h", "core/fairq/*.h", "bpf/lib/*.h", "bpf/fairq/*"} {
		files, err := filepath.Glob(filepath.Join("../datapath", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			sources.Write(text)
		}
	}
	function := regexp.MustCompile(`^(connection|fairq|on|segment|window)_\w+$`)
	functions := 0
	for _, s := range span.FindAllStringSubmatch(pages(t)["fairq.md"], -1) {
		if !function.MatchString(s[1]) {
			continue
		}
		functions++
		if !strings.Contains(sources.String(), s[1]+"(") {
			t.Errorf("fairq.md names the function %s, which is in no source", s[1])
		}
	}
	if functions < 10 {
		t.Errorf("only %d functions", functions)
	}
}
