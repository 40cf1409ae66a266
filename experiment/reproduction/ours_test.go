package reproduction

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"weir/cmd/weir/laws"
)

// ownWords are the words with which a comment says that the claims below it are not the paper's.
var ownWords = regexp.MustCompile(`(?i)\bours\b|not of the paper|this project`)

// ownSchemes are schemes of this project in files of papers.
var ownSchemes = []string{"sed_printed", "sdn_gcc_slow", "sicc_10ms", "sicc_fairq"}

// The table of claims by paper counts every claim of a paper's file that does not have `ours`. So a claim of this project must
// have it; a comment is not enough.
func TestClaims_OfThisProjectSayIt(t *testing.T) {
	files, err := laws.All().Tree("../../" + filesDir)
	if err != nil {
		t.Fatal(err)
	}
	looked := 0
	for i := range files {
		f := files[i].File
		if f.Paper == "" || strings.HasPrefix(f.Paper, "own:") {
			continue
		}
		for _, c := range f.Claims {
			own := slices.ContainsFunc(ownSchemes, func(s string) bool { return strings.Contains(c.Claim, s+".") || strings.Contains(c.Claim, s+"[") })
			if own && c.Ours == "" {
				t.Errorf("%s: %s: its scheme is this project's: write ours", f.ID, c.Claim)
			}
			looked++
		}
		text, err := os.ReadFile(files[i].Path)
		if err != nil {
			t.Fatal(err)
		}
		_, claims, _ := strings.Cut(string(text), "\nclaims:\n")
		comment, wasComment := "", false
		for line := range strings.Lines(claims) {
			switch line = strings.TrimSpace(line); {
			case strings.HasPrefix(line, "#") && wasComment:
				comment += " " + line
			case strings.HasPrefix(line, "#"):
				comment, wasComment = line, true
				continue
			case strings.HasPrefix(line, "- ") && !strings.Contains(line, "ours:") && ownWords.MatchString(comment):
				t.Errorf("%s: %s\nis below %q: write ours", f.ID, line, comment)
			}
			wasComment = strings.HasPrefix(line, "#")
		}
	}
	if looked < 100 {
		t.Errorf("only %d claims of papers", looked)
	}
}
