package host

import "testing"

// A key has four grants at most. A window and a pause of one owner are two; a grant replaces only its owner's of the same kind,
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
