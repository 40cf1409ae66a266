package fairq_test

import (
	"bytes"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"weir/datapath/fairq"
	"weir/datapath/testnet"
)

// modeGrant is a whole number of steps of every scale, so that nothing is rounded.
const modeGrant = 2 << largestShift

// scaleMode is a source of scales. unify: the scale that SYNs are made to announce, -1: none.
type scaleMode struct {
	name  string
	scale fairq.Scale
	unify int
}

var scaleModes = []scaleMode{
	{"learn", fairq.ScaleLearn, -1}, {"shim", fairq.ScaleShim, -1},
	{"unify to 0", fairq.ScaleUnify, 0}, {"unify to 7", fairq.ScaleUnify, 7}, {"unify to 14", fairq.ScaleUnify, 14},
}

// Real senders have the granted window, from each source of the scales. With a shim this is also true of connections
// older than the switch program, whose scales it could only guess.
func TestFairQ_EveryWayToKnowScales(t *testing.T) {
	t.Parallel()
	pairs := [][2]int{{0, 0}, {0, 14}, {14, 0}, {7, 2}, {3, 11}, {9, 9}, {14, 14}}
	for _, m := range scaleModes {
		for _, offload := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s,offloads=%t", m.name, offload), func(t *testing.T) {
				p := newRwndPath(t, testnet.PathOptions{GSO: offload, ChecksumOffload: offload})
				if m.scale == fairq.ScaleShim {
					p.shimmed(t)
				}
				p.checkMode(t, m, pairs)
				p.checksums(t)
			})
		}
	}
}

// checkMode opens a connection for each pair of scales: with a shim before the switch program is attached, else after.
func (p *rwndPath) checkMode(t *testing.T, m scaleMode, pairs [][2]int) {
	t.Helper()
	var conns []*testnet.Pair
	open := func() {
		for _, scales := range pairs {
			l := p.Listen(t, testnet.ReceiverIPv4, testnet.WindowScale(scales[1]))
			conns = append(conns, p.Dial(t, l, testnet.WindowScale(scales[0])))
			_ = l.Close()
		}
	}
	older := m.scale == fairq.ScaleShim
	if older {
		open()
	}
	f := p.govern(t, limitedTo(modeGrant), limitedTo(modeGrant), fairq.Config{Scale: m.scale, UnifyShift: uint8(max(m.unify, 0))})
	if !older {
		open()
	}
	for i, c := range conns {
		p.checkModeOf(t, m, c, pairs[i])
		c.Close()
	}
	if out, in := statsOfBoth(t, f); older && int(out.Adopted+in.Adopted) != len(pairs) {
		t.Errorf("%d connections were adopted, want %d", out.Adopted+in.Adopted, len(pairs))
	}
}

func (p *rwndPath) checkModeOf(t *testing.T, m scaleMode, c *testnet.Pair, scales [2]int) {
	t.Helper()
	testnet.Send(t, c.Client, c.Server, cellBytes)
	testnet.Send(t, c.Server, c.Client, cellBytes)
	for end, conn := range []*net.TCPConn{c.Client, c.Server} {
		i := testnet.ReadTCPInfo(t, conn)
		own, peer := scales[end], scales[1-end]
		if m.unify >= 0 {
			peer = m.unify
		}
		if int(i.OwnScale) != own || int(i.PeerScale) != peer {
			t.Errorf("%s, scales %v: end %d has %d and believes %d of its peer, want %d and %d", m.name, scales, end, i.OwnScale, i.PeerScale, own, peer)
		}
		if i.Snd_wnd != modeGrant {
			t.Errorf("%s, scales %v: end %d has a window of %d, want %d", m.name, scales, end, i.Snd_wnd, modeGrant)
		}
	}
	p.client.Each(t, func(*testnet.Segment) {})
	p.server.Each(t, func(*testnet.Segment) {})
}

// acks returns the windows of a connection's acknowledgements from one end without SYNs, as a tap sees them.
// They are in the order of what they acknowledge, since a switch with several CPUs may reorder the packets.
func acks(t *testing.T, tap *testnet.Tap, from net.Addr, out bool) (fields []uint16, scale []byte) {
	t.Helper()
	var all []uint64
	var first uint32
	tap.Each(t, func(s *testnet.Segment) {
		switch {
		case s.From != testnet.AddrPort(from) || s.Out != out:
		case s.Flags&testnet.SYN != 0:
			scale = bytes.Clone(s.Option(3))
		case s.Flags&testnet.ACK != 0:
			if len(all) == 0 {
				first = s.Ack - 1<<30
			}
			all = append(all, uint64(s.Ack-first)<<16|uint64(s.Window))
		}
	})
	slices.Sort(all)
	for _, a := range all {
		fields = append(fields, uint16(a))
	}
	return fields, scale
}

// Flows are released, and unifying continues. Each window that the server sends reaches the client in the
// announced unit, never above the server's, and less than a step below it.
func TestFairQUnify_GoesOnWhenWindowsAreReleased(t *testing.T) {
	const own = 3
	for _, announced := range []uint8{0, 7, 11} {
		p := newRwndPath(t, testnet.PathOptions{})
		f := p.govern(t, limitedTo(modeGrant), limitedTo(modeGrant), fairq.Config{Scale: fairq.ScaleUnify, UnifyShift: announced})
		l := p.Listen(t, testnet.ReceiverIPv4, testnet.WindowScale(own))
		c := p.Dial(t, l, testnet.WindowScale(7))
		testnet.Send(t, c.Client, c.Server, cellBytes)
		_, said := acks(t, p.server, c.Server.LocalAddr(), true)
		_, heard := acks(t, p.client, c.Server.LocalAddr(), false)
		if !bytes.Equal(said, []byte{own}) || !bytes.Equal(heard, []byte{announced}) {
			t.Fatalf("the server announced the scale %v, the client heard %v, want %d and %d", said, heard, own, announced)
		}
		if err := f.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		testnet.Until(t, "the port limits nothing", func() bool {
			s, err := f.Stats()
			if err != nil {
				t.Fatal(err)
			}
			return s[0].GrantBytes == 0
		})
		testnet.Send(t, c.Client, c.Server, 10*cellBytes)
		sent, _ := acks(t, p.server, c.Server.LocalAddr(), true)
		got, _ := acks(t, p.client, c.Server.LocalAddr(), false)
		if len(sent) != len(got) || len(sent) < 10 {
			t.Fatalf("%d acknowledgements sent, %d came", len(sent), len(got))
		}
		for i := range sent {
			room, granted := uint64(sent[i])<<own, uint64(got[i])<<announced
			step, most := uint64(1)<<announced, uint64(65535)<<announced
			if granted > room || granted+step <= room && granted < most {
				t.Errorf("unified to %d: the server has room for %d bytes, the client hears of %d", announced, room, granted)
			}
		}
		if i := testnet.ReadTCPInfo(t, c.Client); i.Snd_wnd&(1<<announced-1) != 0 || i.Snd_wnd <= modeGrant {
			t.Errorf("unified to %d: the client's window is %d, of which %d were granted before", announced, i.Snd_wnd, modeGrant)
		}
		p.checksums(t)
		c.Close()
		_ = l.Close()
	}
}

// A unified connection that is silent for minutes still has its windows converted: its entry stays.
func TestFairQUnify_RemembersSilentConnections(t *testing.T) {
	p := newRwndPath(t, testnet.PathOptions{})
	f := p.govern(t, limitedTo(modeGrant), limitedTo(modeGrant), fairq.Config{Scale: fairq.ScaleUnify, UnifyShift: 2})
	l := p.Listen(t, testnet.ReceiverIPv4, testnet.WindowScale(9))
	c := p.Dial(t, l, testnet.WindowScale(9))
	testnet.Send(t, c.Client, c.Server, cellBytes)
	for range 6 * time.Minute / fairq.HeartbeatInterval { // a sweep for each heartbeat
		if err := f.Heartbeat(); err != nil {
			t.Fatal(err)
		}
	}
	testnet.Send(t, c.Client, c.Server, cellBytes)
	if i := testnet.ReadTCPInfo(t, c.Client); i.Snd_wnd != modeGrant {
		t.Errorf("the window is %d, want %d", i.Snd_wnd, modeGrant)
	}
}
