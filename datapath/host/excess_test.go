package host_test

import (
	"testing"
	"time"

	"weir/datapath/host"
	"weir/datapath/testnet"
	"weir/internal/testroot"
	"weir/law"
)

// classQueue returns what waits in the first VM's class of the uplink, and how many packets the class dropped so far.
func classQueue(t testing.TB, n *testnet.Hypervisor) (packets, bytes, dropped uint32) {
	t.Helper()
	_, q := classOfVM(t, n)
	return q.Qlen, q.Backlog, q.Drops
}

// Packets above a VM's rate wait with excess: queue, and none is lost until the limit of 70 KB. With excess: drop one waits, and the
// others are lost. SetExcess changes a VM that is limited already, and VMs that it leaves out have the host's.
func TestExcess_QueueOrDrop(t *testing.T) {
	testroot.Need(t, "namespaces")
	const bytes, few, many, limit = 1400, 40, 200, 70_000
	n := testnet.NewHypervisor(t, 1, 1, testnet.PathOptions{})
	h := open(t, n, host.Config{Rate: 100e6})
	heartbeats(t, h, 1)
	set(t, h, law.Grant{Owner: 1, Kind: law.RateGrant, Key: law.Key{Pair: law.Pair{VM: 1}}, Value: 200_000, Lease: time.Minute})
	u := n.Path(0).NewUDP(t, testnet.PeerIPv4(0), 0)
	inClass := func() uint64 { return statsOf(t, h, 1).InClass }
	// send sends packets, and returns what waits and what was lost as soon as the uplink has all of them: 200 kbit/s take 2.3 s for the few.
	send := func(packets int) (waits, waitBytes, lost uint32) {
		_, _, before := classQueue(t, n)
		seen := inClass()
		u.Send(t, packets, bytes)
		testnet.Until(t, "the uplink has all packets", func() bool { return inClass() >= seen+uint64(packets) })
		waits, waitBytes, lost = classQueue(t, n)
		testnet.Until(t, "the status counts what was lost", func() bool {
			_, _, all := classQueue(t, n)
			return statsOf(t, h, 1).OverRate == uint64(all)
		})
		return waits, waitBytes, lost - before
	}
	drained := func() {
		testnet.Until(t, "the queue has drained", func() bool { waits, _, _ := classQueue(t, n); return waits == 0 })
	}
	if waits, _, lost := send(few); waits < few/2 || lost != 0 {
		t.Errorf("queue: %d of %d packets wait, %d are lost", waits, few, lost)
	}
	if waits, waitBytes, lost := send(many); lost < many/2 || waitBytes > limit || waitBytes < limit*9/10 {
		t.Errorf("queue, beyond its limit: %d packets of %d B wait, %d are lost", waits, waitBytes, lost)
	}
	if err := h.SetExcess(map[law.VM]string{1: law.ExcessDrop, 7: law.ExcessDrop}); err != nil {
		t.Fatal(err)
	}
	if got := statsOf(t, h, 1).Excess; got != law.ExcessDrop {
		t.Errorf("the status says %q", got)
	}
	drained()
	if waits, _, lost := send(few); waits > 1 || lost < few/2 {
		t.Errorf("drop: %d of %d packets wait, %d are lost", waits, few, lost)
	}
	set(t, h, law.Grant{Owner: 1, Kind: law.RateGrant, Key: law.Key{Pair: law.Pair{VM: 1}}, Value: 100_000, Lease: time.Minute})
	if waits, _, lost := send(few); waits > 1 || lost < few/2 {
		t.Errorf("drop, at another rate: %d of %d packets wait, %d are lost", waits, few, lost)
	}
	if err := h.SetExcess(nil); err != nil {
		t.Fatal(err)
	}
	drained()
	if waits, _, lost := send(few); waits < few/2 || lost != 0 {
		t.Errorf("queue again: %d of %d packets wait, %d are lost", waits, few, lost)
	}
	if err := h.SetExcess(map[law.VM]string{1: "keep"}); err == nil {
		t.Error("an unknown excess is accepted")
	}
	if _, err := host.Open(host.Config{Excess: "keep"}); err == nil {
		t.Error("an unknown excess is accepted for the host")
	}
}

// With the host's excess: drop a VM's first class has no queue.
func TestExcess_OfTheHost(t *testing.T) {
	testroot.Need(t, "namespaces")
	const few = 40
	n := testnet.NewHypervisor(t, 1, 1, testnet.PathOptions{})
	h := open(t, n, host.Config{Rate: 100e6, Excess: law.ExcessDrop})
	heartbeats(t, h, 2)
	set(t, h, law.Grant{Owner: 2, Kind: law.RateGrant, Key: law.Key{Pair: law.Pair{VM: 1}}, Value: 200_000, Lease: time.Minute})
	u := n.Path(0).NewUDP(t, testnet.PeerIPv4(0), 0)
	u.Send(t, few, 1400)
	testnet.Until(t, "the uplink has all packets", func() bool { return statsOf(t, h, 1).InClass >= few })
	if waits, _, lost := classQueue(t, n); waits > 1 || lost < few/2 {
		t.Errorf("%d of %d packets wait, %d are lost", waits, few, lost)
	}
}
