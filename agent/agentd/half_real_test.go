package agentd_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"weir/agent/agentd"
	"weir/datapath/testnet"
	"weir/law"
	"weir/law/gcc"
)

// took is how long a stream needs for 100 KB: 100 ms at 8 Mbit/s, and 4 at 200.
func took(t *testing.T, s *testnet.Streams) time.Duration {
	t.Helper()
	begun := time.Now()
	s.Progress(t, 1e5)
	return time.Since(begun)
}

// Marks of a controller lower the rate of a VM to the least one, 8 Mbit/s, by the law at its host. Packets of the VM are ECT on the wire.
// kill -9 of the agent ends the limit within 1.5 s.
func TestHalf_LimitsAndIsKilled(t *testing.T) {
	m := newMachine(t, 1, testnet.PathOptions{GSO: true, ChecksumOffload: true})
	file := strings.Replace(m.hostFile(", rate: 200Mbit", 0), "  vms:", "  laws: {gcc: {min_rate: 8Mbit, increase: 1kbit}}\n  vms:", 1)
	a := m.start(file)
	testnet.Until(t, "the controller knows the VM", func() bool { return slices.Equal(m.guests(), []uint32{1}) })
	s := m.Path(0).NewStreams(t, testnet.PeerIPv4(0), 1)
	testnet.Until(t, "the stream is fast", func() bool { return took(t, s) < 30*time.Millisecond })
	stop := m.keep(law.Grant{Kind: law.MarksGrant, Key: law.Key{Pair: law.Pair{VM: 1}}, Value: 1e6, Lease: time.Second})
	status := m.until("the VM is in its class, at the least rate", func(s *agentd.Status) bool {
		c := s.Host.VMs[0].Counts
		return c != nil && c.InClass > 0 && c.Rate > 7e6 && c.Rate < 9e6
	})
	if h := status.Host.Half; h == nil || h.Law != gcc.Spec().Name || h.Marks == 0 || h.Granted == 0 || h.Lost != 0 || h.Failed != 0 {
		t.Errorf("%+v", h)
	}
	if c := status.Host.VMs[0].Counts; c.ECNSet == 0 {
		t.Errorf("nothing was made ECT: %+v", c)
	}
	testnet.Until(t, "the queue of before has left", func() bool { return took(t, s) > 80*time.Millisecond })
	a.kill()
	killed := time.Now()
	testnet.Until(t, "the stream is fast again", func() bool { return took(t, s) < 30*time.Millisecond })
	if d := time.Since(killed); d > 1500*time.Millisecond {
		t.Errorf("limited for %v after the kill", d)
	}
	stop()
	m.start(file)
	m.until("the next process runs the law", func(s *agentd.Status) bool { return s.Host != nil && s.Host.Half != nil && s.Host.Half.Steps > 0 })
}

// A file that names another law, or no rate of the uplink, is refused.
func TestHalf_Refuses(t *testing.T) {
	alone := gcc.Spec()
	alone.Name, alone.Sites = "alone", []law.Site{law.Uplink} // no controller would send it marks
	specs := law.Specs{gcc.Spec(), alone}
	for want, h := range map[string]agentd.Host{
		"":                                {Rate: 1e9, Laws: map[string]map[string]any{"gcc": {"gain": 0.5}}},
		"set host.uplink.rate":            {Laws: map[string]map[string]any{"gcc": {}}},
		"is no law with a half at a host": {Rate: 1e9, Laws: map[string]map[string]any{"other": {}}},
		`"alone" is no law with a half`:   {Rate: 1e9, Laws: map[string]map[string]any{"alone": {}}},
		"gains":                           {Rate: 1e9, Laws: map[string]map[string]any{"gcc": {"gains": 1}}},
		"increase":                        {Rate: 1e9, Laws: map[string]map[string]any{"gcc": {"increase": "0kbit"}}},
	} {
		err := (&agentd.Config{Host: &h}).CheckLaws(specs)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
	if err := (&agentd.Config{}).CheckLaws(specs); err != nil {
		t.Error(err)
	}
}
