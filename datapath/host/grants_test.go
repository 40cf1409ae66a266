package host

import "testing"

// A VM or a pair has four grants at most. A window and a pause of one owner are two; a grant replaces only its owner's of the same kind,
// or one that was released.
func TestPut(t *testing.T) {
	const now, valid = 10e9, 11e9
	var all hostGrants
	of := func(owner, flags uint32, value uint64) grant {
		return grant{Value: value, ExpiresNs: valid, Owner: owner, Flags: grantSet | flags}
	}
	for _, g := range []grant{of(1, 0, 10), of(1, grantPause, 0), of(2, 0, 20), of(2, grantPause, 0)} {
		if err := put(&all, g, now); err != nil {
			t.Fatal(err)
		}
	}
	if err := put(&all, of(3, 0, 30), now); err == nil {
		t.Error("a fifth grant was set")
	}
	all.Grant[0].ExpiresNs = now - uint64(releaseTime) - 1
	if err := put(&all, of(2, 0, 21), now); err != nil || all.Grant[2].Value != 21 || all.Grant[0].Value != 10 {
		t.Errorf("owner 2's grant was not replaced: %v, %+v", err, all)
	}
	if err := put(&all, of(3, 0, 30), now); err != nil || all.Grant[0].Value != 30 {
		t.Errorf("a released grant was not replaced: %v, %+v", err, all)
	}
}

// A flow has one grant of each owner: a window replaces the pause, and a pause the window. Grants of other owners stay.
func TestPutFlow(t *testing.T) {
	const now, valid = 10e9, 11e9
	var all hostGrants
	of := func(owner, flags uint32, value uint64) grant {
		return grant{Value: value, ExpiresNs: valid, Owner: owner, Flags: grantSet | flags}
	}
	// An earlier version kept both kinds. They are in its pinned tables.
	for _, g := range []grant{of(1, 0, 10), of(1, grantPause, 0), of(2, 0, 20), of(3, 0, 30)} {
		if err := put(&all, g, now); err != nil {
			t.Fatal(err)
		}
	}
	for _, g := range []grant{of(1, 0, 11), of(1, grantPause, 0), of(1, 0, 12), of(2, grantPause, 0)} {
		if err := putFlow(&all, g, now); err != nil {
			t.Fatal(err)
		}
		kinds, owners := 0, map[uint32]int{}
		for i := range all.Grant {
			if h := &all.Grant[i]; h.Flags&grantSet != 0 {
				owners[h.Owner]++
				if h.Owner == g.Owner && h.Flags == g.Flags && h.Value == g.Value {
					kinds++
				}
			}
		}
		if kinds != 1 || owners[1] != 1 || owners[2] != 1 || owners[3] != 1 {
			t.Errorf("after %+v: %+v", g, all)
		}
	}
}
