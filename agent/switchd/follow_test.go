package switchd

import (
	"errors"
	"testing"

	"github.com/vishvananda/netlink"
)

// A change of a port that fails is tried again at the next look, whether the port is configured or released.
func TestFollow_TriesAgain(t *testing.T) {
	b := newBench(t, "kind: Switch\nversion: 2\nfairq: {flows: 1024}\nports: [{match: p0}]\n")
	set := func(q func(index int) error) {
		b.n.Must(t, func() error {
			l, err := netlink.LinkByName("p0")
			if err != nil {
				return err
			}
			return q(l.Attrs().Index)
		})
	}
	at := func(index int) netlink.QdiscAttrs {
		return netlink.QdiscAttrs{LinkIndex: index, Parent: netlink.HANDLE_ROOT, Handle: handle(1, 0)}
	}
	shape := func(rate uint64) func(index int) error {
		return func(index int) error {
			return netlink.QdiscReplace(&netlink.Tbf{QdiscAttrs: at(index), Rate: rate / 8, Limit: 125_000, Buffer: netlink.Xmittime(rate/8, 3028)})
		}
	}
	for _, row := range []struct {
		what, call string
		change     func(index int) error
	}{
		{"another rate", "attach p0", shape(5e7)},
		{"no queue", "release p0", func(index int) error { return netlink.QdiscDel(&netlink.Tbf{QdiscAttrs: at(index)}) }},
		{"a queue again", "attach p0", shape(5e7)},
	} {
		set(row.change)
		b.f.calls, b.f.failAt, b.f.failed = 0, 1, ""
		follow := func() (err error) {
			b.n.Must(t, func() error { err = b.r.follow(); return nil })
			return err
		}
		if err := follow(); !errors.Is(err, errFault) || b.f.failed != row.call {
			t.Errorf("%s: %v at %q", row.what, err, b.f.failed)
		}
		if err := follow(); err != nil || b.f.calls != 2 {
			t.Errorf("%s, again: %v, %d calls", row.what, err, b.f.calls)
		}
		if err := follow(); err != nil || b.f.calls != 2 {
			t.Errorf("%s, once more: %v, %d calls", row.what, err, b.f.calls)
		}
	}
}

// A port whose device was made again is removed first. If that fails, the law is attached to the new device at the next look, not before.
func TestFollow_RemovalTriedAgain(t *testing.T) {
	b := newBench(t, "kind: Switch\nversion: 2\nfairq: {flows: 1024}\nports: [{match: p0}]\n")
	b.n.Must(t, func() error {
		old, err := netlink.LinkByName("p0")
		if err != nil {
			return err
		}
		if err := netlink.LinkDel(old); err != nil {
			return err
		}
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "p0"}, PeerName: "again0"}); err != nil {
			return err
		}
		l, err := netlink.LinkByName("p0")
		if err != nil {
			return err
		}
		return netlink.QdiscReplace(&netlink.Tbf{
			QdiscAttrs: netlink.QdiscAttrs{LinkIndex: l.Attrs().Index, Parent: netlink.HANDLE_ROOT, Handle: handle(1, 0)},
			Rate:       5e7 / 8, Limit: 125_000, Buffer: netlink.Xmittime(5e7/8, 3028),
		})
	})
	was := b.r.ports["p0"].Ifindex
	b.f.calls, b.f.failAt, b.f.failed = 0, 1, ""
	for look, want := range []struct {
		calls int
		err   error
		again bool
	}{{1, errFault, false}, {3, nil, true}, {3, nil, true}} {
		var err error
		b.n.Must(t, func() error { err = b.r.follow(); return nil })
		if again := b.r.ports["p0"].Ifindex != was; !errors.Is(err, want.err) || b.f.calls != want.calls || again != want.again {
			t.Errorf("look %d: %v at %q, %d calls, the new device: %v; want %+v", look, err, b.f.failed, b.f.calls, again, want)
		}
	}
}
