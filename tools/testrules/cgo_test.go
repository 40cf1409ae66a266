package testrules

import (
	"os/exec"
	"strings"
	"testing"
)

// TestImports_LoadersHaveNoCgo: packages that load the kernel programs of a switch have no C code of ours, so that
// they build without a C compiler. The simulator's laws and the differential run use cgo.
func TestImports_LoadersHaveNoCgo(t *testing.T) {
	list := exec.Command("go", "list", "-deps", "-f", `{{if .CgoFiles}}{{.ImportPath}}{{end}}`,
		"./datapath/attach", "./datapath/fairq", "./datapath/fairq/edge", "./datapath/fairq/shim", "./datapath/mark", "./datapath/rto", "./agent/...")
	list.Dir = root
	list.Env = append(list.Environ(), "CGO_ENABLED=1")
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	for pkg := range strings.Lines(string(out)) {
		if strings.HasPrefix(pkg, "weir/") {
			t.Errorf("%s is cgo, and a loader links it", strings.TrimSpace(pkg))
		}
	}
}
