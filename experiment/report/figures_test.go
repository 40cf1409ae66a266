package report

import (
	"os"
	"testing"
)

func TestFiguresLook(t *testing.T) {
	dir := os.Getenv("LOOK")
	if dir == "" {
		dir = t.TempDir()
	}
	if _, err := Write(dir, syntheticDocument()); err != nil {
		t.Fatal(err)
	}
}
