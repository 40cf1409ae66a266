package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/experiment/result"
)

// A page is replaced in one step: a reader has the former page or the new one. Its mode and a link to it stay.
func TestPutInto_ReplacesThePage(t *testing.T) {
	dir := t.TempDir()
	page, link := filepath.Join(dir, "page.md"), filepath.Join(dir, "link.md")
	before := "# Mine\n\n<!-- results of F1 -->\n<!-- end of results -->\n"
	if err := os.WriteFile(page, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("page.md", link); err != nil {
		t.Fatal(err)
	}
	reader, err := os.Open(page)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if err := putInto(link, &result.Document{Experiment: "F1"}); err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(reader); err != nil || string(text) != before {
		t.Errorf("a reader of the former page has %q (%v)", text, err)
	}
	info, err := os.Lstat(link)
	if err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is gone (%v)", err)
	}
	if info, err = os.Stat(page); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v (%v)", info.Mode(), err)
	}
	text, err := os.ReadFile(page)
	if err != nil || !strings.HasPrefix(string(text), "# Mine\n\n<!-- results of F1 -->\n\n") || string(text) == before {
		t.Errorf("%q (%v)", text, err)
	}
}
