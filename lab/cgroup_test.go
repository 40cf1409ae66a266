package lab

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"weir/internal/testroot"
)

// childCgroup moves this process into a cgroup, joins that of a lab, and comes back when the first is removed. It returns the cgroup where
// the process then is.
func childCgroup(from string) string {
	if err := moveSelf(from); err != nil {
		return err.Error()
	}
	l, err := Up(context.Background(), os.Getenv("WEIR_TEST_LAB"), dumbbell(1, false).config(), Options{Owned: true})
	if err != nil {
		return err.Error()
	}
	err = errors.Join(l.JoinCgroup(), os.Remove(from), l.leaveCgroup())
	at, e := ownCgroup()
	if err := errors.Join(err, e, l.Down()); err != nil {
		return err.Error()
	}
	return at
}

// A process whose cgroup was removed while it was in the lab's comes back to the nearest one above, and the lab is removed.
func TestCgroup_RemovedMeanwhile(t *testing.T) {
	testroot.Need(t, "makes control groups")
	root, err := cgroup2Root()
	switch {
	case errors.Is(err, errNoCgroup2):
		t.Skip("no cgroup to move to and from: ", err)
	case err != nil:
		t.Fatal(err)
	}
	before := hostState(t)
	name := testName("cgroup")
	above := filepath.Join(root, "weir-"+name)
	from := filepath.Join(above, "from")
	for _, dir := range []string{above, from} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Remove(dir) })
	}
	out, err := child(t, "cgroup", name, "", from).Output()
	if string(out) != above+"\n" || err != nil {
		t.Errorf("the process is in %s, want %s; %v", out, above, err)
	}
	if err := os.Remove(above); err != nil {
		t.Error(err)
	}
	sameHost(t, before, "after Down")
}
