package pki

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/bus/inband"
)

// An agent's key follows from the controllers', and is no other agent's. It changes with the CA's key, and others may not read it.
func TestFrameKey(t *testing.T) {
	ca := newCA(t)
	of := func(id string) inband.Key {
		t.Helper()
		k, err := FrameKey(filepath.Dir(enrol(t, ca, id, 0).Own))
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	controllers, a := of("controller/c1"), of("agent/a")
	if of("controller/c2") != controllers || of("agent/a") != a || controllers.Of("a") != a || of("agent/b") == a || a == controllers || controllers == (inband.Key{}) {
		t.Error("keys do not follow from the identity")
	}
	files := enrol(t, ca, "operator/op", 0)
	if _, err := FrameKey(filepath.Dir(files.Own)); err == nil || !strings.Contains(err.Error(), "enrol again") {
		t.Errorf("an operator has a key: %v", err)
	}
	if err := ca.Rotate(); err != nil {
		t.Fatal(err)
	}
	if of("controller/c1") == controllers || of("agent/a") == a {
		t.Error("a rotated CA has the same keys")
	}
	dir := filepath.Dir(enrol(t, ca, "agent/a", 0).Own)
	name := filepath.Join(dir, frameFile)
	if err := os.Chmod(name, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := FrameKey(dir); err == nil || !strings.Contains(err.Error(), "mode 0644") {
		t.Errorf("others can read it: %v", err)
	}
	if err := os.WriteFile(name, []byte("abc\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(name, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := FrameKey(dir); err == nil || !strings.Contains(err.Error(), "64 hexadecimal digits") {
		t.Errorf("no key: %v", err)
	}
}
