package main

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf/link"

	"weir/datapath/attach"
	"weir/datapath/testnet"
)

// detachMark detaches the marking program from the data's port, as somebody with root rights can.
func (m *machine) detachMark() {
	m.t.Helper()
	m.Switch.Must(m.t, func() error {
		cookie, err := attach.NetnsCookie()
		if err != nil {
			return err
		}
		pinned, err := attach.ReadPins(bpffs + "/weir/mark/default")
		if err != nil {
			return err
		}
		l, err := link.LoadPinnedLink(pinned.Links[attach.PortPin(cookie, m.Port.Ifindex)].Path, nil)
		if err != nil {
			return err
		}
		return errors.Join(l.Detach(), l.Close())
	})
}

// Marking runs after FairQ, follows the file, and is removed with Weir or by a purge.
func TestSwitch_Mark(t *testing.T) {
	parallel(t)
	m := newMachine(t)
	chains := m.chains()
	marks := func() (n int) {
		for _, l := range m.egress() {
			if l == "weir_mark" {
				n++
			}
		}
		return n
	}
	marking := strings.Replace(both, "in0]\n", "in0]\n    mark: {threshold: 30KB}\n", 1)
	c := m.switchFrom(marking)
	if got := m.egress(); !slices.Equal(got, []string{"weir_fairq", "weir_mark"}) {
		t.Errorf("at out0: %v", got)
	}
	m.detachMark()
	m.until(c.p, "the marking is attached again", func() bool { return slices.Equal(m.egress(), []string{"weir_fairq", "weir_mark"}) })
	c.applied(both)
	if marks() != 0 {
		t.Errorf("at out0, without marking: %v", m.egress())
	}
	c.applied(marking)
	c.p.kill()
	if marks() != 1 {
		t.Errorf("at out0, killed: %v", m.egress())
	}
	c = m.switchFrom(both)
	testnet.Until(t, "what a former one left is gone", func() bool { return marks() == 0 })
	c.applied(marking)
	c.p.kill()
	if code := m.start("weir", "switch", "--purge").wait(); code != 0 {
		t.Errorf("purge ends with %d", code)
	}
	if now := m.chains(); !slices.Equal(now, chains) || len(m.pins()) != 0 {
		t.Errorf("purge left something:\n%s\n%v", difference(chains, now), m.pins())
	}
}
