package agentd_test

import (
	"testing"

	"github.com/vishvananda/netlink"

	"weir/agent/agentd"
	"weir/datapath/testnet"
	"weir/internal/testroot"
)

// Somebody removes the uplink's queue discipline while the agent runs: it makes its own again.
func TestHost_LimiterRemoved(t *testing.T) {
	testroot.Need(t, "namespaces")
	m := newMachine(t, 1, testnet.PathOptions{})
	m.start(m.hostFile(", rate: 200Mbit", 0))
	m.until("the VM is added", func(s *agentd.Status) bool {
		return s.Host != nil && s.Host.VMs[0].Off == "" && s.Host.VMs[0].Counts != nil
	})
	if q := testnet.Queue(t, m.Uplink); q.Kind != "htb" {
		t.Fatalf("the uplink has %+v", q)
	}
	err := m.Uplink.In(func() error {
		link, err := netlink.LinkByIndex(m.Uplink.Ifindex)
		if err != nil {
			return err
		}
		all, err := netlink.QdiscList(link)
		if err != nil {
			return err
		}
		for _, q := range all {
			if q.Type() == "htb" {
				return netlink.QdiscDel(q)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	testnet.Until(t, "the limiter is made again", func() bool { return testnet.Queue(t, m.Uplink).Kind == "htb" })
}
