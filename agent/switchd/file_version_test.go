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

// toKernel returns the effect of a configuration: that of the programs, and that of the role.
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

// A file of version 1 has the same effect as before version 2 existed: the last Weir without it wrote kernel.golden.
// Since then 10 ms, 1 s and no paths are explicit where the programs used them by default. --newest prints a file with
// the same effect and its comments.
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
		t.Errorf("a warning for a file of the newest version: %s", now.Warning)
	}
	now.File, now.Warning, now.agent = old.File, old.Warning, old.agent
	if !reflect.DeepEqual(now, old) {
		t.Errorf("the output of --newest has another effect:\n%+v\n%+v", now, old)
	}
	if again, err := testAgent().Newest("testdata/version/2.yaml"); err != nil || string(again) != string(text) {
		t.Errorf("a file of the newest version is changed: %v\n%s", err, again)
	}
}

// A fault in a file of version 1 is a fault in version 2, too, and the error there names the new key.
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

// Every moved key is of the newest version, and its former name is not.
func TestVersion_KeysThatMoved(t *testing.T) {
	keys := config.SchemaKeys(testAgent().Schema())
	under := func(path string) bool {
		return slices.ContainsFunc(keys, func(key string) bool { return key == path || strings.HasPrefix(key, path+".") })
	}
	for _, move := range version([]Law{TestLaw}).Moved {
		if !under(move.To) || under(move.From) {
			t.Errorf("%s -> %s: the schema has the former name, or lacks the new one", move.From, move.To)
		}
	}
}
