package report

import (
	"os"
	"path/filepath"
	"testing"

	"weir/experiment/result"
)

func TestFiguresLook(t *testing.T) {
	dir := os.Getenv("LOOK")
	if dir == "" {
		dir = t.TempDir()
	}
	for name, doc := range map[string]*result.Document{"": syntheticDocument(), "sweep": sweepDocument()} {
		if _, err := Write(filepath.Join(dir, name), doc); err != nil {
			t.Fatal(err)
		}
		f, err := os.Create(filepath.Join(dir, name, "table.txt"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := Table(f, doc); err != nil {
			t.Fatal(err)
		}
	}
}
