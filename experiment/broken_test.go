package experiment

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"weir/config"
)

var update = flag.Bool("update", false, "write the golden files again; review them as a diff")

// golden compares got with a file under testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil { //nolint:gosec // a golden file
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; go test ./experiment -update writes it", err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs; go test ./experiment -update, then review the diff.\ngot:\n%s", path, got)
	}
}

var oneError = regexp.MustCompile(`^[a-z_0-9]+\.yaml:[0-9]+: .+; .+$`)

// Every file of testdata/broken has one error, some have several; broken.golden lists the messages.
func TestBrokenFilesGetPreciseErrors(t *testing.T) {
	paths, err := filepath.Glob("testdata/broken/*.yaml")
	if err != nil || len(paths) < 20 {
		t.Fatalf("%d broken files, %v; want at least 20", len(paths), err)
	}
	var out bytes.Buffer
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		_, err = testLaws.Parse(filepath.Base(path), data)
		var errs Errors
		if !errors.As(err, &errs) {
			t.Errorf("%s: got %v, want Errors", path, err)
			continue
		}
		if len(errs) != 1 && !strings.Contains(path, "several") {
			t.Errorf("%s: %d errors, want 1", path, len(errs))
		}
		for _, e := range errs {
			if !oneError.MatchString(e.Error()) {
				t.Errorf("%s: not FILE:LINE: key: wrong; allowed: %s", path, e)
			}
			fmt.Fprintln(&out, e)
		}
	}
	golden(t, "broken.golden", out.Bytes())
}

func TestFileTooLarge(t *testing.T) {
	data := append([]byte("id: x\n"), bytes.Repeat([]byte("#"), config.DefaultLimits.Bytes)...)
	if _, err := testLaws.Parse("big.yaml", data); err == nil || !strings.Contains(err.Error(), "at most 1048576") {
		t.Errorf("got %v", err)
	}
}

func TestMissingFile(t *testing.T) {
	_, err := testLaws.Load("testdata/none.yaml")
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

// The schema is committed for editors; it must be the one that follows from the types.
func TestSchemaIsCommitted(t *testing.T) {
	golden(t, "../../experiments/schema.json", testLaws.Schema())
}

func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"testdata/broken/*.yaml", "../experiments/*.yaml", "../experiments/*/*.yaml"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			f.Fatal(err)
		}
		for _, p := range paths {
			data, err := os.ReadFile(p)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := testLaws.Parse("fuzz.yaml", data)
		if err == nil {
			if file.ID == "" || len(file.Schemes) == 0 {
				t.Fatalf("accepted without id or schemes: %+v", file)
			}
			return
		}
		var errs Errors
		if !errors.As(err, &errs) || len(errs) == 0 || len(errs) > config.MaxErrors {
			t.Fatalf("%T with %d errors", err, len(errs))
		}
		for _, e := range errs {
			if strings.ContainsAny(e.Error(), "\n\r") || e.Line < 1 {
				t.Fatalf("not one line with a line number: %q", e.Error())
			}
		}
	})
}
