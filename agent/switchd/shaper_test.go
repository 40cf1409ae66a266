package switchd

import (
	"errors"
	"fmt"
	"testing"

	"github.com/vishvananda/netlink"

	"weir/datapath/attach"
	"weir/datapath/testnet"
	"weir/law"
)

// device makes a veth in a namespace. It returns a function that runs something on it and reads what is there
// afterwards.
func device(t *testing.T) (n *testnet.Namespace, index int) {
	t.Helper()
	n = testnet.NewNamespace(t)
	n.Must(t, func() error {
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "p0", TxQLen: 100}, PeerName: "p1"}); err != nil {
			return err
		}
		l, err := netlink.LinkByName("p0")
		if err == nil {
			index = l.Attrs().Index
		}
		return err
	})
	return n, index
}

// lookAt returns the one port that c finds in the namespace.
func lookAt(t *testing.T, n *testnet.Namespace, s PortSettings) (found candidate) {
	t.Helper()
	r := newRules([]Law{TestLaw}, []PortRule{{Match: []string{"p0"}, PortSettings: s}})
	n.Must(t, func() error {
		all, err := r.look()
		if err == nil && len(all) != 1 {
			err = fmt.Errorf("found %+v, want one port", all)
		}
		if err == nil {
			found = all[0]
		}
		return err
	})
	return found
}

func handle(major, minor uint16) uint32 { return netlink.MakeHandle(major, minor) }

func TestLook_TBF(t *testing.T) {
	n, index := device(t)
	for _, rate := range []uint64{1e9, 10e9, 100e9} { // rates over 34 Gbit/s have an attribute of their own
		n.Must(t, func() error {
			return netlink.QdiscReplace(&netlink.Tbf{
				QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Parent: netlink.HANDLE_ROOT, Handle: handle(1, 0)},
				Rate:       rate / 8, Limit: 1_000_000, Buffer: 10_000,
			})
		})
		c := defaultPort(testKeys())
		found := lookAt(t, n, c)
		pipe := uint32(float64(rate) / 8 * c.RTT.Std().Seconds())
		if l := found.params[0].Figures(); found.err != nil || l.Buffer != 1_000_000 || l.Target != 200_000 || l.Cap != pipe+200_000 {
			t.Errorf("%d bit/s: %+v, %v", rate, l, found.err)
		}
	}
	c := defaultPort(testKeys())
	c.Rate, c.Buffer = 1e9, 500_000
	if l := lookAt(t, n, c).params[0].Figures(); l.Buffer != 500_000 || l.Target != 100_000 || l.Cap != 100_000+31_250 {
		t.Errorf("the configured rate is not used: %+v", l)
	}
}

// The rate of HTB is that of the default class's topmost parent, its buffer that of the leaf.
func TestLook_HTB(t *testing.T) {
	n, index := device(t)
	class := func(minor uint16, parent uint32, rate, ceil uint64) error {
		return netlink.ClassReplace(netlink.NewHtbClass(
			netlink.ClassAttrs{LinkIndex: index, Parent: parent, Handle: handle(1, minor)},
			netlink.HtbClassAttrs{Rate: rate, Ceil: ceil},
		))
	}
	n.Must(t, func() error {
		q := netlink.NewHtb(netlink.QdiscAttrs{LinkIndex: index, Parent: netlink.HANDLE_ROOT, Handle: handle(1, 0)})
		q.Defcls = 0x20
		return errors.Join(netlink.QdiscReplace(q),
			class(1, handle(1, 0), 1e9, 9e9), class(0x10, handle(1, 1), 1e8, 2e8), class(0x20, handle(1, 1), 3e8, 4e8))
	})
	found := lookAt(t, n, defaultPort(testKeys()))
	const full = 100 * 1514 // txqueuelen packets
	if l := found.params[0].Figures(); found.err != nil || l.Buffer != full || l.Cap != l.Target+281_250 {
		t.Errorf("%+v, %v", l, found.err)
	}
	// Without a default class traffic is not shaped: there is no rate.
	n.Must(t, func() error {
		return errors.Join(netlink.QdiscDel(&netlink.Htb{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Parent: netlink.HANDLE_ROOT, Handle: handle(1, 0)}}),
			netlink.QdiscReplace(netlink.NewHtb(netlink.QdiscAttrs{LinkIndex: index, Parent: netlink.HANDLE_ROOT, Handle: handle(1, 0)})))
	})
	var none *NoRate
	if found := lookAt(t, n, defaultPort(testKeys())); !errors.As(found.err, &none) || none.Missing != "rate" {
		t.Errorf("htb without a default class: %+v", found)
	}
}

func TestLook_Refuses(t *testing.T) {
	n, index := device(t)
	var queue *attach.NoQueue
	if found := lookAt(t, n, defaultPort(testKeys())); !errors.As(found.err, &queue) || queue.Kind != "noqueue" {
		t.Errorf("without a queue: %+v", found)
	}
	n.Must(t, func() error {
		return netlink.QdiscReplace(&netlink.GenericQdisc{
			QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Parent: netlink.HANDLE_ROOT, Handle: handle(2, 0)}, QdiscType: "bfifo",
		})
	})
	var none *NoRate
	if found := lookAt(t, n, defaultPort(testKeys())); !errors.As(found.err, &none) || none.Missing != "rate" || none.Port != "p0" {
		t.Errorf("a queue without a rate: %+v", found)
	}
	c := defaultPort(testKeys())
	c.Rate = 1e9
	if found := lookAt(t, n, c); found.err != nil || found.params[0].Figures().Buffer != 100*1514 {
		t.Errorf("a FIFO and a rate: %+v", found)
	}
}

// The first rule that matches applies, whether by name or by pattern.
func TestRules(t *testing.T) {
	r := newRules([]Law{TestLaw}, []PortRule{
		{Match: []string{"eth1", "swp1"}}, {Match: []string{"swp*", "veth[0-9]"}}, {Match: []string{"swp2", "eth*"}},
	})
	for _, row := range []struct {
		device string
		rule   int // -1: none
		byName bool
	}{
		{"eth1", 0, true}, {"eth10", 2, false}, {"swp1", 0, true}, {"swp2", 1, false}, {"swp", 1, false},
		{"veth3", 1, false}, {"veth10", -1, false}, {"lo", -1, false},
	} {
		got := r.of(row.device)
		if (got == nil) != (row.rule < 0) || got != nil && got != &r.list[row.rule] || r.byName(row.device) != row.byName {
			t.Errorf("%s: %+v, by its name %t", row.device, got, r.byName(row.device))
		}
	}
}

// The kernel reports a tbf of Weir as it was set, at any rate. With another MTU it differs from the one that the port must have.
func TestLook_OwnShaper(t *testing.T) {
	n, index := device(t)
	for _, rate := range []uint64{1e3, 100e6, 40e9} {
		r := newRules([]Law{TestLaw}, []PortRule{{Match: []string{"p0"}, PortSettings: defaultPort(testKeys())}})
		r.list[0].Shape, r.list[0].Buffer = law.Rate(rate), 100_000
		r.made = &shapes{made: map[uint32]string{uint32(index): "noqueue"}}
		n.Must(t, func() error {
			for _, mtu := range []int{1500, 9000} {
				l, err := netlink.LinkByIndex(index)
				if err == nil {
					err = netlink.LinkSetMTU(l, mtu)
				}
				if err == nil && mtu == 1500 {
					err = netlink.QdiscReplace(r.list[0].wantedTBF().forMTU(mtu).qdisc(index))
				}
				if err != nil {
					return err
				}
				all, err := r.look()
				if err != nil {
					return err
				}
				if c := all[0]; c.has.Rate != law.Rate(rate) || (c.has == c.tbf) != (mtu == 1500 || rate != 100e6) { // the rate alone decides
					t.Errorf("%d bit/s, MTU %d: it has %+v and must have %+v", rate, mtu, c.has, c.tbf)
				}
			}
			return netlink.QdiscDel(&netlink.Tbf{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Parent: netlink.HANDLE_ROOT, Handle: shapeHandle}})
		})
	}
}
