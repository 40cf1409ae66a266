package fairq_test

import (
	"net/netip"
	"testing"
	"time"

	"weir/datapath/fairq"
	"weir/datapath/testnet"
)

// A port that limits only a part of its flows, or none, has a full queue that it does not govern. When all are
// limited again the law begins afresh at its target, as if it had seen nothing.
func TestFairQ_LawBeginsAnewWhenAllAreLimited(t *testing.T) {
	const flows, target = 4, 80_000
	for _, mode := range []fairq.Mode{fairq.EnforceNone, fairq.EnforcePart} {
		p := newRwndPath(t, testnet.PathOptions{GSO: true, ChecksumOffload: true})
		law := fairq.Law{
			TargetBytes: target, PipeBytes: 100_000, Tick: time.Millisecond, Period: 2 * time.Millisecond,
			SlowStart: fairq.SlowStartOff, Gain: fairq.GainOVS, Active: 4 * time.Second,
		}
		f := p.govern(t, law, law, fairq.Config{})
		streams := p.NewStreams(t, testnet.ReceiverIPv4, flows)
		other := law
		other.Mode, other.LimitedBuckets = mode, fairq.Buckets/100
		if err := f.Configure(p.Port.Name, other); err != nil {
			t.Fatal(err)
		}
		testnet.Until(t, "the queue is the unlimited flows'", func() bool {
			s, _ := statsOfBoth(t, f)
			return s.QueueBytes > 3*target && !s.FlowsReleasing
		})
		streams.Progress(t, 500_000)
		slow := law // so that its first window can be seen
		slow.Tick, slow.Period = time.Second, time.Second
		if err := f.Configure(p.Port.Name, slow); err != nil {
			t.Fatal(err)
		}
		var s fairq.Stats
		testnet.Until(t, "all are limited", func() bool {
			s, _ = statsOfBoth(t, f)
			return s.Mode == fairq.EnforceAll && s.GrantBytes > 0 && s.Groups[1].Acks > 0
		})
		if s.GrantBytes != target/flows {
			t.Errorf("after %v: the first grant is %d, want %d", mode, s.GrantBytes, target/flows)
		}
	}
}

// When a share becomes smaller, the flows that stay in it keep their windows, and the others are released.
func TestFairQ_SmallerShareLetsOnlyTheOthersGo(t *testing.T) {
	const flows, share = 24, 20_000
	p := newRwndPath(t, testnet.PathOptions{GSO: true, ChecksumOffload: true})
	f := p.govern(t, sharing(fairq.EnforcePart, fairq.Buckets, flows*share), sharing(fairq.EnforceNone, 0, flows*share), fairq.Config{})
	pairs := p.dialMany(t, p.Listen(t, testnet.ReceiverIPv4, testnet.WindowScale(4)), flows)
	check := func(when string, all bool) (limited [2]int) {
		t.Helper()
		group := map[netip.AddrPort]bool{}
		for flow, err := range f.Flows(p.Port.Name) {
			if err != nil {
				t.Fatal(err)
			}
			group[flow.From] = flow.Limited
		}
		for _, c := range pairs {
			testnet.Send(t, c.Client, c.Server, 50_000)
			window, own := testnet.ReadTCPInfo(t, c.Client).Snd_wnd, testnet.ReadTCPInfo(t, c.Server).Rcv_wnd
			is := group[testnet.AddrPort(c.Client.LocalAddr())]
			want := own
			if is || all {
				want = granted(share, 4)
			}
			if window != want || own <= 2*share {
				t.Errorf("%s: limited %t, a window of %d, want %d; its receiver's own is %d", when, is, window, want, own)
			}
			if is {
				limited[1]++
			} else {
				limited[0]++
			}
		}
		return limited
	}
	check("all are limited", true)
	if err := f.Configure(p.Port.Name, sharing(fairq.EnforcePart, fairq.Buckets/2, flows*share)); err != nil {
		t.Fatal(err)
	}
	from, _ := statsOfBoth(t, f)
	testnet.Until(t, "the others are released", func() bool { // the release begins at the next tick; two ticks show it
		testnet.Send(t, pairs[0].Client, pairs[0].Server, 1) // a port whose flows are silent has none
		s, _ := statsOfBoth(t, f)
		return s.Samples+s.SamplesByPacket > from.Samples+from.SamplesByPacket+1 && !s.FlowsReleasing
	})
	if limited := check("half of them are", false); limited[0] == 0 || limited[1] == 0 {
		t.Errorf("%v flows are unlimited and limited: this test shows nothing", limited)
	}
}

// Windows of unified connections are still converted on ports that observe. Connections that begin there are
// not unified, and are limited by their own scales when the port limits flows again.
func TestFairQUnify_Observed(t *testing.T) {
	const own, announced, peer = 3, 11, 7
	p := newRwndPath(t, testnet.PathOptions{})
	config := fairq.Config{Scale: fairq.ScaleUnify, UnifyShift: announced}
	f := p.govern(t, limitedTo(modeGrant), limitedTo(modeGrant), config)
	none := limitedTo(modeGrant)
	none.Mode, none.PipeBytes = fairq.EnforceNone, 1
	mode := func(law fairq.Law) {
		t.Helper()
		for _, port := range []string{p.Port.Name, p.In.Name} {
			if err := f.Configure(port, law); err != nil {
				t.Fatal(err)
			}
		}
		testnet.Until(t, "the mode is in effect", func() bool {
			out, in := statsOfBoth(t, f)
			return (out.GrantBytes == 0) == (law.Mode == fairq.EnforceNone) && !out.FlowsReleasing && !in.FlowsReleasing
		})
	}
	l := p.Listen(t, testnet.ReceiverIPv4, testnet.WindowScale(own))
	before := p.Dial(t, l, testnet.WindowScale(peer))
	testnet.Send(t, before.Client, before.Server, cellBytes)
	mode(none)
	p.client.Each(t, func(*testnet.Segment) {})
	p.server.Each(t, func(*testnet.Segment) {})
	testnet.Send(t, before.Client, before.Server, 10*cellBytes)
	sent, _ := acks(t, p.server, before.Server.LocalAddr(), true)
	got, _ := acks(t, p.client, before.Server.LocalAddr(), false)
	if len(sent) != len(got) || len(sent) < 10 {
		t.Fatalf("%d acknowledgements sent, %d came", len(sent), len(got))
	}
	for i := range sent {
		if want := uint16(min(uint64(sent[i])<<own>>announced, 65535)); got[i] != want {
			t.Errorf("the server's window field %d came as %d, want %d", sent[i], got[i], want)
		}
	}
	during := p.Dial(t, l, testnet.WindowScale(peer))
	testnet.Send(t, during.Client, during.Server, cellBytes)
	for i, c := range []*testnet.Pair{before, during} {
		client, server := testnet.ReadTCPInfo(t, c.Client), testnet.ReadTCPInfo(t, c.Server)
		want := [2]uint8{announced, announced}
		if i == 1 {
			want = [2]uint8{own, peer}
		}
		if client.PeerScale != want[0] || server.PeerScale != want[1] {
			t.Errorf("connection %d: its ends take each other's scale for %d and %d, want %v", i, client.PeerScale, server.PeerScale, want)
		}
	}
	mode(limitedTo(modeGrant))
	for i, c := range []*testnet.Pair{before, during} {
		testnet.Send(t, c.Client, c.Server, cellBytes)
		testnet.Send(t, c.Server, c.Client, cellBytes)
		if client, server := testnet.ReadTCPInfo(t, c.Client), testnet.ReadTCPInfo(t, c.Server); client.Snd_wnd != modeGrant || server.Snd_wnd != modeGrant {
			t.Errorf("connection %d: windows of %d and %d, want %d", i, client.Snd_wnd, server.Snd_wnd, modeGrant)
		}
	}
	p.checksums(t)
}
