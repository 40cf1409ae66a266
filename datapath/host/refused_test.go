package host_test

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"weir/datapath/host"
	"weir/law"
)

// A grant that is refused has its reason in the error, and the others are set.
func TestSetGrants_Refused(t *testing.T) {
	r := newRig(t, host.Config{Pairs: 1})
	for o := law.Owner(0); o < 6; o++ {
		if err := r.Heartbeat(o); err != nil {
			t.Fatal(err)
		}
	}
	vm := law.Key{Pair: law.Pair{VM: 1}}
	with := func(change func(g *law.Grant)) law.Grant {
		g := law.Grant{Key: vm, Value: 1, Lease: time.Minute}
		change(&g)
		return g
	}
	list := []law.Grant{
		with(func(g *law.Grant) { g.Key.VM = 9 }), with(func(g *law.Grant) { g.Owner = 8 }), with(func(g *law.Grant) { g.Owner = 7 }),
		with(func(g *law.Grant) { g.Lease = 2 * host.MaxLease }), with(func(g *law.Grant) { g.Kind = law.RateGrant }),
		with(func(g *law.Grant) { g.Kind, g.Key.Peer = law.RateGrant, peerIPv4 }), with(func(g *law.Grant) { g.Kind = 9 }),
		with(func(g *law.Grant) { g.Key.Flow.Proto = 17 }),
	}
	want := []host.Reason{host.NoVM, host.BadOwner, host.BadOwner, host.BadLease, host.NoLimiter, host.BadKey, host.BadKey, host.BadKey}
	for o := law.Owner(0); o < 5; o++ { // the fifth is one too many
		list = append(list, with(func(g *law.Grant) { g.Owner = o }))
	}
	want = append(want, host.Full)
	for _, peer := range []netip.Addr{peerIPv4, peerIPv6} { // the table has room for one
		list = append(list, with(func(g *law.Grant) { g.Key.Peer = peer }))
	}
	want = append(want, host.Full)
	var got []*host.Refused
	for _, e := range r.SetGrants(list).(interface{ Unwrap() []error }).Unwrap() {
		one := (*host.Refused)(nil)
		if !errors.As(e, &one) {
			t.Fatal(e)
		}
		got = append(got, one)
	}
	if len(got) != len(want) {
		t.Fatalf("%v, want %v", got, want)
	}
	for i, e := range got {
		if e.Why != want[i] || e.Error() == "" {
			t.Errorf("%v: reason %s, want %s", e, e.Why, want[i])
		}
	}
	if all, err := r.Grants(1); err != nil || len(all) != 5 {
		t.Errorf("%d grants are set, want 5: %v", len(all), err)
	}
}
