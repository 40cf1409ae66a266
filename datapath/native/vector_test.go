//go:build cgo

package native_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"weir/datapath/internal/vector"
)

var update = flag.Bool("update", false, "write what the native laws do into the test vectors")

// The native laws reproduce every vector. With -update the test writes the vectors: review the difference.
func TestVectors(t *testing.T) {
	if *update {
		for law, events := range randomEvents {
			write(t, filepath.Join("../core/testdata", law+"_random.vec"), events())
		}
	}
	names, err := filepath.Glob("../core/testdata/*.vec")
	if err != nil || len(names) == 0 {
		t.Fatalf("no vectors (%v)", err)
	}
	for _, name := range names {
		t.Run(filepath.Base(name), func(t *testing.T) {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			f, err := vector.Parse(name, bytes.NewReader(text))
			if err != nil {
				t.Fatal(err)
			}
			begin := machines[f.Law]
			if begin == nil {
				t.Fatalf("no law %s", f.Law)
			}
			if *update {
				if err := f.Update(begin()); err != nil {
					t.Fatal(err)
				}
				write(t, name, f)
			}
			checked, wrong, err := f.Run(begin())
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range wrong[:min(len(wrong), 5)] {
				t.Error(w)
			}
			if len(wrong) > 0 {
				t.Log("if this change of the law is intended: go test ./datapath/native -run TestVectors -update, and review the difference")
			}
			t.Logf("%d checked, %d wrong", checked, len(wrong))
		})
	}
}

func write(t *testing.T, name string, f *vector.File) {
	t.Helper()
	var b bytes.Buffer
	if err := f.Write(&b); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}
