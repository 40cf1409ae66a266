package switchd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"weir/config"
)

// toKernel gives what a configuration makes of a switch: what the programs are told, and what the role does by itself.
func toKernel(t *testing.T, c *Config) string {
	t.Helper()
	var out strings.Builder
	all, err := kernelText(c)
	fmt.Fprintf(&out, "all ports: %s %v\n", all, err)
	for _, p := range c.Ports {
		l, err := lawAt(&p.PortSettings, "port", shaper{Kind: "tbf", Rate: 10e9, Buffer: 1e6})
		text := strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf("%+v", l), "{Law:"), "}")
		fmt.Fprintf(&out, "%v: %s %v; rate %v, buffer %v, shape %v, mark %+v\n", p.Match, text, err, p.Rate, p.Buffer, p.Shape, *p.Mark)
	}
	fmt.Fprintf(&out, "name %s, enforce %+v, rollback %+v, metrics %+v\n", c.Name, c.Enforce, c.Rollback, c.Metrics)
	return out.String()
}

// A file of version 1 makes the switch that it made before version 2 was there (kernel.golden was written by the last
// Weir without it; since then 10 ms, 1 s and no paths are said where the programs took them so by themselves), and --newest prints a file that makes the same one, comments and all.
func TestVersion1_IsReadAsBefore(t *testing.T) {
	const path = "testdata/version/1.yaml"
	old, err := testAgent().Load(path)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/version/kernel.golden", []byte(toKernel(t, old)))
	golden(t, "testdata/version/warning.golden", []byte(old.Warning+"\n"))

	text, err := testAgent().Newest(path)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/version/2.yaml", text)
	now, err := testAgent().Load("testdata/version/2.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if now.Warning != "" {
		t.Errorf("a file of the newest version is warned of: %s", now.Warning)
	}
	now.File, now.Warning, now.agent = old.File, old.Warning, old.agent
	if !reflect.DeepEqual(now, old) {
		t.Errorf("what --newest prints makes another switch:\n%+v\n%+v", now, old)
	}
	if again, err := testAgent().Newest("testdata/version/2.yaml"); err != nil || string(again) != string(text) {
		t.Errorf("a file of the newest version does not stay as it is: %v\n%s", err, again)
	}
}

// A fault of a file of version 1 is also one in version 2, and the error names the new key there.
func TestVersion2_BrokenFilesGetPreciseErrors(t *testing.T) {
	var out strings.Builder
	for _, path := range brokenFiles(t) {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		text, err := testKind().Newest(filepath.Base(path), data)
		if err != nil || text == nil {
			continue // it is not YAML, or not of this kind
		}
		_, before := testKind().Parse(filepath.Base(path), data)
		_, now := testKind().Parse(filepath.Base(path), text)
		var errsBefore, errsNow config.Errors
		if !errors.As(before, &errsBefore) || !errors.As(now, &errsNow) || len(errsNow) != len(errsBefore) {
			t.Errorf("%s: in version 1 %v; in version 2 %v", path, before, now)
			continue
		}
		for _, e := range errsNow {
			fmt.Fprintln(&out, e)
		}
	}
	golden(t, "testdata/broken2.golden", []byte(out.String()))
}

// Every key that has moved is of the newest version, and no key of it is one that has moved away.
func TestVersion_KeysThatMoved(t *testing.T) {
	keys := config.SchemaKeys(testAgent().Schema())
	under := func(path string) bool {
		return slices.ContainsFunc(keys, func(key string) bool { return key == path || strings.HasPrefix(key, path+".") })
	}
	for _, move := range version(TestLaw).Moved {
		if !under(move.To) || under(move.From) {
			t.Errorf("%s -> %s: the schema has the former or has not the latter", move.From, move.To)
		}
	}
}
