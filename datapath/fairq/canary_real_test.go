package fairq_test

import (
	"fmt"
	"math"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"weir/datapath/attach"
	"weir/datapath/fairq"
	"weir/datapath/testnet"
)

// sharing is a law of a port whose flows have (BDP + target) / flows at equilibrium: `bytes` together.
func sharing(mode fairq.Mode, share, bytes uint32) fairq.Law {
	return fairq.Law{
		TargetBytes: bytes / 2, PipeBytes: bytes - bytes/2, Mode: mode, LimitedBuckets: share,
		Tick: time.Millisecond, Period: 4 * time.Millisecond, Active: 4 * time.Second,
	}
}

// wire returns what a tap saw leave and arrive, a line for each TCP segment, sorted.
func wire(t *testing.T, tap *testnet.Tap) (out, in []string) {
	t.Helper()
	tap.Each(t, func(s *testnet.Segment) {
		line := fmt.Sprintf("%v %v %d %d window %d bits %x flags %x options %x payload %d",
			s.From, s.To, s.Seq, s.Ack, s.Window, s.Reserved, s.Flags, s.Options, s.Payload)
		if s.Out {
			out = append(out, line)
		} else {
			in = append(in, line)
		}
	})
	slices.Sort(out)
	slices.Sort(in)
	return out, in
}

// Observed connections keep every header as it was sent, whichever way scales are known. They are counted: the
// flows, what would be limited, and the window that they would have.
func TestFairQObserve_ChangesNothing(t *testing.T) {
	const flows, share = 4, 40_000
	for _, m := range scaleModes {
		if m.scale == fairq.ScaleShim {
			continue // here the shim changes bits
		}
		t.Run(m.name, func(t *testing.T) {
			p := newRwndPath(t, testnet.PathOptions{}) // without offloads every frame stays one
			law := sharing(fairq.EnforceNone, 0, flows*share)
			f := p.govern(t, law, law, fairq.Config{Scale: m.scale, UnifyShift: uint8(max(m.unify, 0))})
			l := p.Listen(t, testnet.ReceiverIPv4, testnet.WindowScale(7))
			for range flows {
				c := p.Dial(t, l, testnet.WindowScale(9))
				testnet.Send(t, c.Client, c.Server, 300_000)
				testnet.Send(t, c.Server, c.Client, 300_000)
			}
			if err := f.Heartbeat(); err != nil {
				t.Fatal(err)
			}
			out, in := statsOfBoth(t, f)
			for _, s := range []fairq.Stats{out, in} {
				if s.Flows != flows || s.EquilibriumBytes != share || s.WindowBytes != share || s.GrantBytes != 0 {
					t.Errorf("%s: %d flows, an equilibrium window of %d, %d granted; want %d, %d, none", s.Port, s.Flows, s.EquilibriumBytes, s.GrantBytes, flows, share)
				}
				if s.Rewritten != 0 || s.Free == 0 || s.Groups[1] != (fairq.Group{}) {
					t.Errorf("%s: %d rewritten, %d free, limited: %+v", s.Port, s.Rewritten, s.Free, s.Groups[1])
				}
				if a := s.Groups[0]; a.Flows != flows || a.AckedBytes != flows*300_000 || a.Limited == 0 || a.Limited > a.Acks {
					t.Errorf("%s: free: %+v", s.Port, a)
				}
			}
			clientOut, clientIn := wire(t, p.client)
			serverOut, serverIn := wire(t, p.server)
			if len(clientOut) < 100 || !slices.Equal(clientOut, serverIn) || !slices.Equal(serverOut, clientIn) {
				t.Errorf("of %d segments to the receiver and %d to the sender some came as they were not sent", len(clientOut), len(serverOut))
			}
			p.checksums(t)
		})
	}
}

// Of many connections the limited ones have the equilibrium window, and the others their receiver's own.
func TestFairQPart_LimitsItsGroup(t *testing.T) {
	const flows, share = 48, 20_000
	p := newRwndPath(t, testnet.PathOptions{GSO: true, ChecksumOffload: true})
	part := sharing(fairq.EnforcePart, fairq.Buckets/3, flows*share)
	none := sharing(fairq.EnforceNone, 0, flows*share)
	f := p.govern(t, part, none, fairq.Config{})
	l := p.Listen(t, testnet.ReceiverIPv4, testnet.WindowScale(4))
	pairs := map[netip.AddrPort]*testnet.Pair{}
	for range flows {
		c := p.Dial(t, l, testnet.WindowScale(4))
		pairs[testnet.AddrPort(c.Client.LocalAddr())] = c
	}
	for _, c := range pairs { // now that all count
		testnet.Send(t, c.Client, c.Server, 200_000)
	}
	if err := f.Heartbeat(); err != nil {
		t.Fatal(err)
	}
	limited, again := [2]uint32{}, [2]uint64{} // nothing is lost here, but TCP may probe for a tail
	for flow, err := range f.Flows(p.Port.Name) {
		if err != nil {
			t.Fatal(err)
		}
		c := pairs[flow.From]
		if c == nil {
			t.Fatalf("a flow from %v", flow.From)
		}
		client, own := testnet.ReadTCPInfo(t, c.Client), testnet.ReadTCPInfo(t, c.Server).Rcv_wnd
		want := own
		if flow.Limited {
			limited[1]++
			again[1] += client.Bytes_retrans
			want = granted(share, client.PeerScale)
		} else {
			limited[0]++
			again[0] += client.Bytes_retrans
			if own <= share {
				t.Errorf("the receiver of %v offers %d: this test shows nothing", flow.From, own)
			}
		}
		if flow.GrantedBytes != granted(share, client.PeerScale) || flow.OfferedBytes <= share {
			t.Errorf("%+v: granted, or thought of, is not %d", flow, granted(share, client.PeerScale))
		}
		if client.Snd_wnd != want || !flow.Counted || flow.InFlightBytes == 0 {
			t.Errorf("%+v: a window of %d, want %d", flow, client.Snd_wnd, want)
		}
	}
	s, in := statsOfBoth(t, f)
	if limited[0]+limited[1] != flows || limited[0] == 0 || limited[1] == 0 || limited != [2]uint32{s.Groups[0].Flows, s.Groups[1].Flows} {
		t.Errorf("%v flows are unlimited and limited; counted %d and %d", limited, s.Groups[0].Flows, s.Groups[1].Flows)
	}
	for group, a := range s.Groups {
		if want := uint64(limited[group]) * 200_000; a.AckedBytes != want || a.DataBytes != want+again[group] {
			t.Errorf("group %d: %+v, want %d bytes", group, a, want)
		}
		if a.Limited == 0 {
			t.Errorf("group %d: nothing limited", group)
		}
	}
	if in.Rewritten == 0 || in.Free == 0 { // at the port where the ACKs leave
		t.Errorf("counted %+v", in)
	}
	p.checksums(t)
}

// If the queue behind the switch loses packets, the switch counts the same bytes as sent again as the senders,
// and counts as acknowledged what arrived.
func TestFairQGroups_AgreeWithSenders(t *testing.T) {
	const flows, bytes = 6, 3_000_000
	for _, offload := range []bool{false, true} {
		t.Run(fmt.Sprint("offloads=", offload), func(t *testing.T) {
			o := testnet.PathOptions{PortBps: 100e6, Limit: 60_000, GSO: offload, ChecksumOffload: offload, NoIPv6: true}
			p := &rwndPath{Path: testnet.NewPath(t, o), unified: -1}
			testnet.Shape(t, p.In, 400e6, 10_000_000, 3028)
			law := sharing(fairq.EnforceNone, 0, 100_000)
			f := p.govern(t, law, law, fairq.Config{})
			l := p.Listen(t, testnet.ReceiverIPv4)
			var pairs []*testnet.Pair
			sent := make(chan struct{})
			for range flows {
				pairs = append(pairs, p.Dial(t, l))
			}
			for _, c := range pairs {
				go func() {
					defer func() { sent <- struct{}{} }() // also when it fails
					testnet.Send(t, c.Client, c.Server, bytes)
				}()
			}
			for range pairs {
				<-sent
			}
			again := uint64(0)
			for _, c := range pairs {
				again += testnet.ReadTCPInfo(t, c.Client).Bytes_retrans
			}
			s, _ := statsOfBoth(t, f)
			a := s.Groups[0]
			if again == 0 {
				t.Error("nothing was lost: this test shows nothing")
			}
			// A segment that another CPU brought here first looks like one that was sent again.
			if overtaken := int64(a.RetransmittedBytes - again); overtaken < 0 || overtaken > int64(again/50) {
				t.Errorf("%d bytes more were sent again than the %d that the senders know of", overtaken, again)
			}
			if a.AckedBytes != flows*bytes || a.DataBytes != flows*bytes+again {
				t.Errorf("the senders sent %d bytes again and had %d acknowledged; the switch counts %+v", again, flows*bytes, a)
			}
			t.Logf("%d bytes of %d were sent again; the switch counts %d", again, a.DataBytes, a.RetransmittedBytes)
		})
	}
}

// The round trip of handshakes is that of their senders: here the wait of a SYN behind 60 kB at 2 Mbit/s.
func TestFairQ_HandshakeRTT(t *testing.T) {
	const waiting, bps = 60_000, 2_000_000
	p := &rwndPath{Path: testnet.NewPath(t, testnet.PathOptions{PortBps: bps, Limit: 1 << 20, NoIPv6: true}), unified: -1}
	testnet.Shape(t, p.In, 400e6, 10_000_000, 3028)
	f := p.govern(t, limitedTo(0), limitedTo(0), fairq.Config{})
	l := p.Listen(t, testnet.ReceiverIPv4)
	raw := testnet.NewRaw(t, p.Uplink)
	p.Dial(t, l).Close() // learns the addresses
	quick, _ := statsOfBoth(t, f)
	if quick.HandshakeRTT <= 0 || quick.HandshakeRTT > time.Second {
		t.Errorf("a round trip of %v", quick.HandshakeRTT)
	}
	var min time.Duration
	var out, in fairq.Stats
	testnet.Until(t, "a SYN waits", func() bool { // the frames before it may be gone if this test had to wait
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		f = p.govern(t, limitedTo(0), limitedTo(0), fairq.Config{})
		testnet.Until(t, "frames wait", func() bool {
			for range 20 {
				raw.Send(t, filler(1000))
			}
			return testnet.Queue(t, p.Port).BacklogBytes > waiting
		})
		c := p.Dial(t, l)
		min = time.Duration(testnet.ReadTCPInfo(t, c.Client).Min_rtt) * time.Microsecond
		out, in = statsOfBoth(t, f)
		c.Close()
		return min > 100*time.Millisecond
	})
	if out.HandshakeRTT != in.HandshakeRTT {
		t.Errorf("%v at one port, %v at the other", out.HandshakeRTT, in.HandshakeRTT)
	}
	if out.HandshakeRTT < min/2 || out.HandshakeRTT > 2*min {
		t.Errorf("a round trip of %v; its sender's least is %v", out.HandshakeRTT, min)
	}
	t.Logf("handshake %v, the sender's least %v; before %v", out.HandshakeRTT, min, quick.HandshakeRTT)
}

// Connections whose data, or whose acknowledgements, pass another switch are found. They are counted at the
// port by which the visible side leaves. Those seen both ways are not counted.
func TestFairQ_AsymmetricPaths(t *testing.T) {
	const flows = 5
	law := sharing(fairq.EnforceAll, 0, 200_000)
	run := func(t *testing.T, f *fairq.Attachment, pairs []*testnet.Pair) {
		t.Helper()
		for range 8 {
			for _, c := range pairs {
				testnet.Send(t, c.Client, c.Server, 50_000)
			}
			if err := f.Heartbeat(); err != nil {
				t.Fatal(err)
			}
		}
	}
	begin := func(t *testing.T, ports ...attach.PortRef) *fairq.Attachment {
		t.Helper()
		var list []fairq.Port
		for _, p := range ports {
			list = append(list, fairq.Port{PortRef: p, Law: law})
		}
		return attachTo(t, fairq.Config{Lease: time.Hour}, list...)
	}
	check := func(t *testing.T, f *fairq.Attachment, port attach.PortRef, data, acks uint32) {
		t.Helper()
		all, err := f.Stats()
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range all {
			if s.Port == port.Name && (s.OneSidedData != data || s.OneSidedAcks != acks) {
				t.Errorf("%s: %d directions with data alone, %d with acknowledgements alone; want %d and %d", s.Port, s.OneSidedData, s.OneSidedAcks, data, acks)
			}
		}
	}
	for _, before := range []bool{false, true} {
		t.Run(fmt.Sprint("connected before=", before), func(t *testing.T) {
			for _, r := range []struct {
				name       string
				data, acks uint32 // at the port to the receiver, at the port to the sender
			}{{"both", 0, 0}, {"data", flows, 0}, {"acks", 0, flows}} {
				p := newRwndPath(t, testnet.PathOptions{GSO: true, ChecksumOffload: true})
				l := p.Listen(t, testnet.ReceiverIPv4)
				var f *fairq.Attachment
				begin := func() {
					switch r.name {
					case "both":
						f = begin(t, p.Port, p.In)
					case "data":
						f = begin(t, p.Port)
					case "acks":
						f = begin(t, p.In)
					}
				}
				if !before {
					begin()
				}
				pairs := p.dialMany(t, l, flows)
				if before {
					begin()
				}
				run(t, f, pairs)
				check(t, f, p.Port, r.data, 0)
				check(t, f, p.In, 0, r.acks)
			}
		})
	}
	t.Run("a connection's data moves away", func(t *testing.T) {
		p := newRwndPath(t, testnet.PathOptions{GSO: true, ChecksumOffload: true})
		f := begin(t, p.Port, p.In)
		pairs := p.dialMany(t, p.Listen(t, testnet.ReceiverIPv4), flows)
		run(t, f, pairs)
		check(t, f, p.In, 0, 0)
		_, mac := p.secondPort(t)
		p.sendBy(t, mac)
		run(t, f, pairs)
		check(t, f, p.Port, 0, 0)
		check(t, f, p.In, 0, flows)
	})
}

// Modes change under load as fast as possible: no connection breaks or stalls, other ports do not change, and
// in the end every flow is limited again.
func TestFairQ_ModesChangeUnderLoad(t *testing.T) {
	const flows = 8
	p := newRwndPath(t, testnet.PathOptions{GSO: true, ChecksumOffload: true})
	law := func(mode fairq.Mode, share uint32) fairq.Law {
		return sharing(mode, share, flows*20_000)
	}
	f := p.govern(t, law(fairq.EnforceAll, 0), law(fairq.EnforceAll, 0), fairq.Config{})
	streams := p.NewStreams(t, testnet.ReceiverIPv4, flows)
	for i := range 300 {
		mode := fairq.Mode(i % 3)
		share := uint32(i) * 7919 % fairq.Buckets
		if err := f.Configure(p.Port.Name, law(mode, share)); err != nil {
			t.Fatal(err)
		}
		testnet.Until(t, "the mode is in effect", func() bool {
			s, _ := statsOfBoth(t, f)
			return (s.GrantBytes == 0) == (mode == fairq.EnforceNone || mode == fairq.EnforcePart && share == 0)
		})
		if i%20 == 0 {
			streams.Progress(t, 20_000)
			if err := f.Heartbeat(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := f.Configure(p.Port.Name, law(fairq.EnforceAll, 0)); err != nil {
		t.Fatal(err)
	}
	streams.Progress(t, 500_000)
	out, in := statsOfBoth(t, f)
	streams.Stop()
	if out.GrantBytes == 0 || out.FlowsReleasing || in.Mode != fairq.EnforceAll {
		t.Errorf("at the end %d are granted, releasing %t; the other port has mode %v", out.GrantBytes, out.FlowsReleasing, in.Mode)
	}
	p.checksums(t)
}

// A port that goes from all to none lets windows grow gradually. In each 32 ms a window grows at most by a
// factor of e, and in the end it is its receiver's own.
func TestFairQ_AllToNoneIsGradual(t *testing.T) {
	p := newRwndPath(t, testnet.PathOptions{GSO: true, ChecksumOffload: true})
	f := p.govern(t, limitedTo(23457), limitedTo(23457), fairq.Config{})
	streams := p.NewStreams(t, testnet.ReceiverIPv4, 1, testnet.WindowScale(4))
	streams.Progress(t, 100_000)
	tap := testnet.NewTap(t, p.Uplink)
	law := limitedTo(23457)
	law.Mode, law.PipeBytes = fairq.EnforceNone, 1
	began := time.Now()
	if err := f.Configure(p.Port.Name, law); err != nil {
		t.Fatal(err)
	}
	sawReleasing, took := false, time.Duration(0)
	testnet.Until(t, "the flows are released", func() bool {
		s, _ := statsOfBoth(t, f)
		took = time.Since(began)
		sawReleasing = sawReleasing || s.FlowsReleasing
		return s.GrantBytes == 0 && !s.FlowsReleasing && s.Mode == fairq.EnforceNone
	})
	streams.Progress(t, 1_000_000)
	streams.Stop()
	if !sawReleasing && took < 200*time.Millisecond { // to 64 MB it takes 255 ms, which a busy machine may miss
		t.Errorf("they were released within %v", took)
	}
	if last := grewGradually(t, tap, 23457, began); last < 4*23457 {
		t.Errorf("in the end a window of %d", last)
	}
}

// grewGradually fails if the window that a sender got, of scale 4, ever grew by more than a factor of e in each
// 32 ms since its release began, from the granted window. A late machine only makes it smaller. The first tick
// may double it, for the time before. It returns the last window.
func grewGradually(t *testing.T, tap *testnet.Tap, granted float64, began time.Time) (last uint32) {
	t.Helper()
	from, seen := netip.MustParseAddr("10.0.0.2"), 0
	tap.Each(t, func(s *testnet.Segment) {
		if s.From.Addr() != from || s.Out || s.Flags&(testnet.SYN|testnet.RST) != 0 {
			return
		}
		seen++
		last = uint32(s.Window) << 4
		passed := max(0, s.At.Sub(began))
		if most := 2 * granted * math.Exp(float64(passed)/float64(32*time.Millisecond)); float64(last) > most && !t.Failed() {
			t.Errorf("%v after its release began the window is %d, want %.0f at most", passed, last, most)
		}
	})
	if seen == 0 {
		t.Error("no acknowledgement was seen")
	}
	return last
}

// A takeover keeps the groups of flows, and the mode. The pinned map of the groups has the name of earlier versions.
func TestFairQ_GroupsSurviveTakeOver(t *testing.T) {
	const flows = 40
	pin := testnet.Mount(t, "bpf") + "/weir"
	p := newRwndPath(t, testnet.PathOptions{GSO: true, ChecksumOffload: true})
	law := sharing(fairq.EnforcePart, fairq.Buckets/2, flows*20_000)
	ports := []fairq.Port{{PortRef: p.Port, Law: law}, {PortRef: p.In, Law: law}}
	config := fairq.Config{Pin: pin, Lease: time.Hour}
	f, err := fairq.Attach(ports, config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(pin + "/arms"); err != nil {
		t.Errorf("an earlier version could not be taken over: %v", err)
	}
	pairs := p.dialMany(t, p.Listen(t, testnet.ReceiverIPv4), flows)
	groups := func() map[netip.AddrPort]bool {
		t.Helper()
		m := map[netip.AddrPort]bool{}
		for flow, err := range f.Flows(p.Port.Name) {
			if err != nil {
				t.Fatal(err)
			}
			m[flow.From] = flow.Limited
		}
		return m
	}
	before := groups()
	if err := f.Leave(); err != nil {
		t.Fatal(err)
	}
	if f, err = fairq.Attach(ports, config); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, c := range pairs {
		testnet.Send(t, c.Client, c.Server, 10_000)
	}
	after := groups()
	if len(before) != flows || len(after) != flows {
		t.Fatalf("%d flows, then %d", len(before), len(after))
	}
	limited := 0
	for from, was := range before {
		if after[from] != was {
			t.Errorf("%v: limited %t, then %t", from, was, after[from])
		}
		if was {
			limited++
		}
	}
	if limited == 0 || limited == flows {
		t.Errorf("%d of %d flows are limited: the test needs some of both", limited, flows)
	}
}
