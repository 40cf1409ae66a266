package agentd_test

import (
	"slices"
	"testing"

	"weir/agent/agentd"
	"weir/bus"
	"weir/bus/pki"
	"weir/datapath/testnet"
	"weir/law"
)

// operator connects an operator to the machine's bus.
func (m *machine) operator() *bus.Conn {
	m.t.Helper()
	c, err := bus.Dial(bus.ClientConfig{URLs: []string{"tls://" + m.at}, Files: m.enrol("operator/op"), Log: m.logger("operator")})
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(c.Close)
	testnet.Until(m.t, "the operator is connected", c.Connected)
	return c
}

// An operator learns from the agent when a command arrived, when the kernel had its grants, and when an ACK was limited.
func TestTrace_Obeyed(t *testing.T) {
	m := newMachine(t, 1, testnet.PathOptions{UplinkBps: 200e6, UplinkLimit: 250_000, GSO: true, ChecksumOffload: true})
	m.start(m.hostFile("", 0))
	testnet.Until(t, "the controller knows the VM", func() bool { return slices.Equal(m.guests(), []uint32{1}) })
	m.Path(0).NewStreams(t, testnet.PeerIPv4(0), 1)
	op, agent := m.operator(), pki.Identity{Role: pki.Agent, Name: agentName}
	var brief agentd.Brief
	if err := op.Ask(t.Context(), agent, &bus.Question{What: bus.AskStatus}, &brief); err != nil {
		t.Fatal(err)
	}
	if brief.Name != agentName || !slices.Equal(brief.Roles, []string{"host"}) || brief.VMs != 1 || len(brief.Problems) > 0 || brief.Controller != "c1" || brief.Term == 0 {
		t.Errorf("status %+v", brief)
	}
	grant := window(1, testnet.PeerIPv4(0), granted)
	grant.Cause = 77
	stop := m.keep(grant)
	var all []agentd.Obeyed
	var o *agentd.Obeyed
	testnet.Until(t, "an ACK was seen limited", func() bool {
		if err := op.Ask(t.Context(), agent, &bus.Question{What: bus.AskTrace, VM: 1, Last: 64}, &all); err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(all, func(o agentd.Obeyed) bool { return o.SeenNs > 0 })
		if i >= 0 {
			o = &all[i]
		}
		return i >= 0
	})
	stop()
	if o.Controller != "c1" || o.Run != m.runner.Self().Run || o.Cause != 77 || o.Grants != 1 || !slices.Equal(o.VMs, []law.VM{1}) || o.Watched != 1 || o.Term == 0 || o.Sequence == 0 {
		t.Errorf("%+v", o)
	}
	if o.EchoNs <= 0 || o.EchoNs >= o.CameNs || o.CameNs >= o.SetNs || o.SetNs > o.SeenNs || o.UnseenNs >= o.SeenNs || o.UnseenNs < o.CameNs {
		t.Errorf("the times do not follow one another: %+v", o)
	}
	for _, q := range []bus.Question{{What: bus.AskTrace, VM: 2, Last: 9}, {What: bus.AskTrace, Of: []uint64{78}, Last: 9}} {
		if err := op.Ask(t.Context(), agent, &q, &all); err != nil || len(all) != 0 {
			t.Errorf("%+v: %v, %v", q, err, all)
		}
	}
	if err := op.Ask(t.Context(), agent, &bus.Question{What: bus.AskTrace, Of: []uint64{78, 77}, Last: 1}, &all); err != nil || len(all) != 1 || all[0].Cause != 77 {
		t.Errorf("%v, %v", err, all)
	}
	release := grant
	release.Lease, release.Cause = 0, 90
	if !m.command(release) {
		t.Fatal("the release cannot be sent")
	}
	all = nil // JSON without a key leaves the value of an element that was there before
	testnet.Until(t, "the release", func() bool {
		return op.Ask(t.Context(), agent, &bus.Question{What: bus.AskTrace, Of: []uint64{90}, Last: 1}, &all) == nil && len(all) == 1
	})
	if all[0].Watched != 0 {
		t.Errorf("a release limits nothing, and is watched: %+v", all[0])
	}
}
