package agentd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/bus/pki"
)

// The name is that of the certificate. Another name, another role and a missing certificate are refused, with what to do.
func TestCertificate(t *testing.T) {
	dir := t.TempDir()
	ca := &pki.CA{Dir: filepath.Join(dir, "ca")}
	if err := ca.Create(); err != nil {
		t.Fatal(err)
	}
	enrol := func(id string) string {
		who, err := pki.ParseIdentity(id)
		if err != nil {
			t.Fatal(err)
		}
		out := filepath.Join(dir, strings.ReplaceAll(id, "/", "-"))
		if _, err := ca.Enrol(who, out, nil, 0); err != nil {
			t.Fatal(err)
		}
		return out
	}
	h7, c1 := enrol("agent/h7"), enrol("controller/c1")
	both := enrol("agent/h8")
	if err := os.Link(filepath.Join(h7, "h7.pem"), filepath.Join(both, "h7.pem")); err != nil {
		t.Fatal(err)
	}
	wrong := enrol("agent/h9")
	if err := os.Rename(filepath.Join(wrong, "h9.pem"), filepath.Join(wrong, "h1.pem")); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct{ dir, name, want, says string }{
		{h7, "", "h7", ""},
		{h7, "h7", "h7", ""},
		{h7, "h8", "", "enrol this agent: weir bus enrol agent/h8"},
		{c1, "", "", "is for controller/c1, want agent/c1"},
		{both, "", "", "has 2 certificates of its own, want one"},
		{both, "h8", "h8", ""},
		{wrong, "", "", "is for agent/h9, want agent/h1"},
		{filepath.Join(dir, "none"), "", "", "look for a certificate"},
		{t.TempDir(), "", "", "has 0 certificates of its own, want one: enrol this machine"},
	} {
		_, name, err := certificate(row.dir, row.name, nil)
		if name != row.want || (err != nil) != (row.says != "") || err != nil && !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s %q: %q, %v", row.dir, row.name, name, err)
		}
	}
}
