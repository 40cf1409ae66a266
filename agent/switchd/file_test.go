package switchd

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/config"
	"weir/law"
)

// golden compares got with a file.
func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil { //nolint:gosec // a golden file
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; go test ./agent/switchd -update writes it", err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs; go test ./agent/switchd -update, then review the diff.\ngot:\n%s", path, got)
	}
}

func parse(t *testing.T, text string) (*Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "switch.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return testAgent().Load(path)
}

// A file of another kind is refused as a whole.
var oneError = regexp.MustCompile(`^[a-z_]+\.yaml(:[0-9]+: .+(; .+|\?)|: this is a .+: use weir .+)$`)

func brokenFiles(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob("testdata/broken/*.yaml")
	if err != nil || len(paths) < 30 {
		t.Fatalf("%d broken files, %v; want at least 30", len(paths), err)
	}
	return paths
}

// Every file of testdata/broken has one fault, and one file has several. broken.golden has their errors.
func TestLoad_BrokenFilesGetPreciseErrors(t *testing.T) {
	var out bytes.Buffer
	for _, path := range brokenFiles(t) {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		_, err = testKind().Parse(filepath.Base(path), data)
		var errs config.Errors
		if !errors.As(err, &errs) {
			t.Errorf("%s: got %v, want config.Errors", path, err)
			continue
		}
		if len(errs) != 1 && !strings.Contains(path, "several") {
			t.Errorf("%s: %d errors, want 1: %v", path, len(errs), err)
		}
		for _, e := range errs {
			if !oneError.MatchString(e.Error()) {
				t.Errorf("%s: not FILE:LINE: key: wrong; allowed: %s", path, e)
			}
			fmt.Fprintln(&out, e)
		}
	}
	golden(t, "testdata/broken.golden", out.Bytes())
}

// The committed schema, which editors use, must match the types.
func TestSchemaIsCommitted(t *testing.T) {
	golden(t, "../../deploy/switch.schema.json", New(TestLaw, TestOther).Schema())
}

// The example in the packages shows every key with its default value.
func TestExample_ShowsTheDefaults(t *testing.T) {
	data, err := os.ReadFile("../../deploy/switch.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c, err := testKind().Parse("switch.yaml", data)
	if err != nil {
		t.Fatal(err)
	}
	// Every key of the schema is in it, at least in a comment, and the comments are valid keys.
	said := regexp.MustCompile(`(?m)^( *(?:- )?)# ?([a-z_]+:)`).ReplaceAllString(string(data), "$1$2")
	for _, key := range slices.Concat(keysOf(reflect.TypeFor[File]()), keysOf(reflect.TypeOf(TestLaw.Facts().All)), keysOf(reflect.TypeOf(TestLaw.Facts().Port))) {
		if !regexp.MustCompile(`(?m)[ {]` + key + `:|^` + key + `:`).MatchString(said) {
			t.Errorf("the example does not show %s", key)
		}
	}
	want, err := testKind().Parse("", []byte("kind: Switch\nversion: 2\nports: [{match: \"swp*\"}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := testAgent().config(c), testAgent().config(want); !reflect.DeepEqual(got, want) {
		t.Errorf("the example differs from the defaults:\n%+v\n%+v", got, want)
	}
	checkComments(t, said)
}

// checkComments reads the example with all keys in its comments. They are the defaults, except for values of a single
// port and features that are off by default.
func checkComments(t *testing.T, said string) {
	t.Helper()
	without := func(key string) *Config {
		t.Helper()
		text := regexp.MustCompile(`(?m)^ +`+key+`:.*$`).ReplaceAllString(said, "")
		if text == said {
			t.Fatalf("the example has no %s", key)
		}
		f, err := testKind().Parse("said.yaml", []byte(text))
		if err != nil {
			t.Fatalf("the keys in the example's comments are not valid: %v\n%s", err, text)
		}
		return testAgent().config(f)
	}
	got, shaped := without("shape"), without("rate") // one or the other
	if shaped.Ports[0].Shape == 0 || got.Ports[0].Rate == 0 || got.Ports[0].Buffer == 0 || len(got.Rollback.If) != len(figures) {
		t.Errorf("the example does not show rate, buffer, shape and every rule: %+v", got)
	}
	plain, err := testKind().Parse("", []byte("kind: Switch\nversion: 2\nports: [{match: \"swp*\"}]\nscope: []\nfairq: {edge: {}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := testAgent().config(plain)
	want.Ports[0].Rate, want.Ports[0].Buffer, want.Rollback.If = got.Ports[0].Rate, got.Ports[0].Buffer, got.Rollback.If
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the example's comments are not the defaults:\n%+v\n%+v", got, want)
	}
}

// The unit for one switch and the unit for one of several differ in nothing but the name.
func TestUnits_AreTheSame(t *testing.T) {
	settings := func(file string) (out []string) {
		text, err := os.ReadFile("../../deploy/systemd/" + file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); line != "" && line[0] != '#' && !strings.HasPrefix(line, "Description=") {
				out = append(out, line)
			}
		}
		return out
	}
	one, several := settings("weir-switch.service"), settings("weir-switch@.service")
	for i, line := range several {
		several[i] = strings.NewReplacer("switch-%i.yaml", "switch.yaml", " --name %i", "").Replace(line)
	}
	if !slices.Equal(one, several) || len(one) < 20 {
		t.Errorf("one of several:\n%s\nthe only one:\n%s", strings.Join(several, "\n"), strings.Join(one, "\n"))
	}
}

// keysOf lists the keys of a file, nested ones included.
func keysOf(t reflect.Type) (keys []string) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || t == reflect.TypeFor[netip.Prefix]() {
		return nil
	}
	for _, f := range reflect.VisibleFields(t) {
		if f.Anonymous || !f.IsExported() {
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" {
			continue
		}
		keys = append(append(keys, name), keysOf(f.Type)...)
	}
	return keys
}

// A port's key overrides defaults, and defaults override Weir's own default.
func TestLoad_Precedence(t *testing.T) {
	c, err := parse(t, `kind: Switch
version: 2
defaults: {rtt: 100us, fairq: {min_window: 3000B}, mark: {threshold: 100KB}, buffer: 2MB}
ports:
  - {match: a, rtt: 50us, fairq: {min_window: 0B}, mark: {threshold: 0B}}
  - {match: [b, "c*"], rate: 10Gbit, fairq: {updates: 4}}
enforce: {percent: 10}
`)
	if err != nil {
		t.Fatal(err)
	}
	a, b := c.Ports[0], c.Ports[1]
	if a.RTT.Std() != 50*time.Microsecond || a.Mark.Threshold != 0 || a.Buffer != 2e6 || a.Rate != 0 {
		t.Errorf("a: %+v", a)
	}
	if b.RTT.Std() != 100*time.Microsecond || b.Mark.Threshold != 100e3 || b.Rate != 10e9 {
		t.Errorf("b: %+v", b)
	}
	l, err := lawAt(&b.PortSettings, "b", shaper{Kind: "tbf"})
	if err != nil || l.Figures() != (Figures{Floor: 3000, Target: 400_000, Buffer: 2e6, Cap: 125_000 + 400_000, MTU: 1500, LongestWait: 100 * time.Millisecond}) {
		t.Errorf("law of b: %+v, %v", l, err)
	}
	if l, err := lawAt(&a.PortSettings, "a", shaper{Kind: "tbf", Rate: 1e9}); err != nil || l.Figures().Floor != 0 {
		t.Errorf("law of a: %+v, %v", l, err)
	}
	for port, want := range map[*PortRule]string{&a: "Updates:10 ", &b: "Updates:4 "} {
		if text := fmt.Sprintf("%+v", port.Laws[0]); !strings.Contains(text, want) {
			t.Errorf("keys of %v: %s, want %s", port.Match, text, want)
		}
	}
	if c.Name != "default" || c.Enforce.Percent != 10 || len(c.Enforce.Ports) != 0 || c.Rollback.Over != RollbackOver || c.Metrics.Listen != "127.0.0.1:9187" {
		t.Errorf("%+v", c)
	}
}

// With a shape, the port has the rate and buffer of the tbf.
func TestShape_IsThePort(t *testing.T) {
	for _, row := range []struct {
		s    PortSettings
		want tbf
	}{
		{PortSettings{}, tbf{}},
		{PortSettings{Shape: 10e9}, tbf{Rate: 10e9, Limit: 1_250_000}},
		{PortSettings{Shape: 1e6}, tbf{Rate: 1e6, Limit: leastBuffer}},
		{PortSettings{Shape: 1001e3, Buffer: 50_000}, tbf{Rate: 1001e3, Limit: 50_000}},
		{PortSettings{Shape: 1001, Buffer: 50_000}, tbf{Rate: 1000, Limit: 50_000}}, // whole bytes per second
	} {
		if got := row.s.wantedTBF(); got != row.want {
			t.Errorf("%+v: %+v", row.s, got)
		}
	}
}

// An error about an option names the option.
func TestFromOptions(t *testing.T) {
	at := func(option, text string) *config.Tree {
		return &config.Tree{Value: text, At: config.Place{Option: option}}
	}
	port := &config.Tree{Form: config.Mapping}
	port.Set("match", &config.Tree{Form: config.Sequence, Items: []*config.Tree{at("port eth0", "eth0")}})
	root := &config.Tree{Form: config.Mapping}
	root.Set("kind", at("", "Switch"))
	root.Set("version", &config.Tree{Value: int64(FileVersion)})
	root.Set("ports", &config.Tree{Form: config.Sequence, Items: []*config.Tree{port}})
	if err := root.Put("defaults.rtt", at("--rtt 2s", "2s")); err != nil {
		t.Fatal(err)
	}
	_, err := testAgent().FromOptions(root)
	if want := "--rtt 2s: defaults.rtt: 2s is out of range; above 0s, up to 1s"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	root.Set("defaults", &config.Tree{Form: config.Mapping})
	if c, err := testAgent().FromOptions(root); err != nil || c.Ports[0].Match[0] != "eth0" || c.File != "" {
		t.Errorf("%+v, %v", c, err)
	}
}

// A file of ten thousand ports, each with an entry of its own.
func manyPorts(n int) []byte {
	var b bytes.Buffer
	b.WriteString("kind: Switch\nversion: 2\nports:\n")
	for i := range n {
		fmt.Fprintf(&b, "  - {match: swp%d, rate: 10Gbit, buffer: 1MB, rtt: 250us, fairq: {target_fraction: 0.2, interval: 50us, updates: 10, gain: paper, min_window: 0B, paths: 1}, mark: {threshold: 200KB}}\n", i)
	}
	return b.Bytes()
}

func TestLoad_TenThousandPorts(t *testing.T) {
	f, err := testKind().Parse("many.yaml", manyPorts(10_000))
	if err != nil {
		t.Fatal(err)
	}
	r := newRules([]Law{TestLaw}, testAgent().config(f).Ports)
	if got := r.of("swp9999"); got == nil || got != &r.list[9999] || got.Rate != law.Rate(10e9) {
		t.Errorf("swp9999: %+v", got)
	}
	if r.of("swp10000") != nil {
		t.Error("a device that no rule matches has one")
	}
}

func BenchmarkLoad_10kPorts(b *testing.B) {
	data := manyPorts(10_000)
	kind := testKind() // compiled once
	for b.Loop() {
		if _, err := kind.Parse("many.yaml", data); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(data)), "bytes/file")
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/10_000, "us/port")
}

func BenchmarkRules_10kPorts(b *testing.B) {
	f, err := testKind().Parse("many.yaml", manyPorts(10_000))
	if err != nil {
		b.Fatal(err)
	}
	r := newRules([]Law{TestLaw}, testAgent().config(f).Ports)
	for b.Loop() {
		if r.of("swp9999") == nil {
			b.Fatal("no rule")
		}
	}
}

func FuzzLoad(f *testing.F) {
	paths, err := filepath.Glob("testdata/broken/*.yaml")
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
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := testKind().Parse("fuzz.yaml", data)
		if err == nil {
			c := testAgent().config(file)
			if len(c.Ports) == 0 || CheckName(c.Name) != nil {
				t.Fatalf("accepted: %+v", c)
			}
			if _, err := kernelText(c); err != nil {
				t.Fatalf("accepted, and refused afterwards: %v", err)
			}
			for i := range c.Ports {
				if _, err := lawAt(&c.Ports[i].PortSettings, "p", shaper{Kind: "tbf", Rate: 1e9, Buffer: 1e6}); err != nil {
					t.Fatalf("accepted, and refused afterwards: %v", err)
				}
			}
			return
		}
		var errs config.Errors
		if !errors.As(err, &errs) || len(errs) == 0 || len(errs) > config.MaxErrors {
			t.Fatalf("%T with %d errors", err, len(errs))
		}
		for _, e := range errs {
			ofAnotherKind := strings.Contains(e.Wrong, "file: use weir ") // about the whole file
			if strings.ContainsAny(e.Error(), "\n\r") || e.Line < 1 && !ofAnotherKind {
				t.Fatalf("not one line with a line number: %q", e.Error())
			}
		}
	})
}
