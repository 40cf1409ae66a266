package fairq_test

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"weir/datapath/fairq"
	"weir/datapath/internal/frames"
	"weir/datapath/testnet"
)

// heartbeats returns the number of heartbeats in a time.
func heartbeats(d time.Duration) int { return int(d / fairq.HeartbeatInterval) }

// inTable returns which of the connections are in the flow table.
func inTable(t *testing.T, f *fairq.Attachment, list []*testnet.Pair) (found []bool) {
	t.Helper()
	all, err := f.Connections()
	if err != nil {
		t.Fatal(err)
	}
	known := map[netip.AddrPort]bool{}
	for _, c := range all {
		known[c.End[0].Addr], known[c.End[1].Addr] = true, true
	}
	for _, c := range list {
		found = append(found, known[testnet.AddrPort(c.Client.LocalAddr())])
	}
	return found
}

// expect fails unless exactly the connections from..to are in the table and limited to the grant.
func expect(t *testing.T, f *fairq.Attachment, list []*testnet.Pair, from, to int, what string) {
	t.Helper()
	for i, in := range inTable(t, f, list) {
		if want := i >= from && i < to; in != want {
			t.Errorf("%s: connection %d is in the table: %t, want %t", what, i, in, want)
		}
	}
	for i, c := range list[:to] {
		if i < from {
			continue
		}
		testnet.Send(t, c.Client, c.Server, 10_000)
		if info := testnet.ReadTCPInfo(t, c.Client); info.Snd_wnd != granted(liveGrant, info.PeerScale) {
			t.Errorf("%s: connection %d has a window of %d", what, i, info.Snd_wnd)
		}
	}
}

func (p *rwndPath) dialMany(t *testing.T, l *net.TCPListener, n int) (list []*testnet.Pair) {
	t.Helper()
	for range n {
		c := p.Dial(t, l)
		testnet.Send(t, c.Client, c.Server, 1000)
		list = append(list, c)
	}
	return list
}

func heartbeat(t *testing.T, f *fairq.Attachment, n int) {
	t.Helper()
	for range n {
		if err := f.Heartbeat(); err != nil {
			t.Fatal(err)
		}
	}
}

// When the table is full, or the share of the port that connections are opened from behind, new ones pass
// unmanaged and none in the table is removed. The entries of closed ones are free within a second of
// heartbeats, first for those that found no room.
func TestFairQ_TableFull(t *testing.T) {
	const size, more = 8, 4
	share := limitedTo(liveGrant)
	share.Flows = size
	all := limitedTo(liveGrant)
	all.Flows = 1000
	for name, c := range map[string]struct {
		config fairq.Config
		in     fairq.Law // of the port that the clients are behind
		room   int       // for connections from behind the other port
	}{
		"the table": {fairq.Config{Flows: size - 1}, all, 0}, // and one place (bpf/fairq/table.h), which the first connection takes
		"the share": {fairq.Config{Flows: 100}, share, 2},
	} {
		t.Run(name, func(t *testing.T) {
			p := newRwndPath(t, testnet.PathOptions{NoIPv6: true, GSO: true, ChecksumOffload: true})
			f := p.govern(t, all, c.in, c.config)
			l := p.Listen(t, testnet.ReceiverIPv4)
			list := p.dialMany(t, l, size+more)
			expect(t, f, list, 0, size, "full")
			out, in := statsOfBoth(t, f)
			if out.TableFull+in.TableFull < more || in.Connections != size || out.Connections != 0 {
				t.Errorf("%d and %d found no place; shares %d and %d", out.TableFull, in.TableFull, out.Connections, in.Connections)
			}
			for _, conn := range list[size:] { // they pass as if Weir were absent
				i := testnet.ReadTCPInfo(t, conn.Client)
				if peer := testnet.ReadTCPInfo(t, conn.Server); i.Snd_wnd != peer.Rcv_wnd || i.Total_retrans != 0 {
					t.Errorf("without a place: window %d, announced are %d; sent again %d", i.Snd_wnd, peer.Rcv_wnd, i.Total_retrans)
				}
			}
			opposite := p.dialBack(t, c.room+1)
			if found := inTable(t, f, opposite); found[0] != (c.room > 0) {
				t.Errorf("from behind the other port: in the table %v", found)
			}
			for _, conn := range append(list[:more:more], opposite...) {
				conn.Close()
			}
			testnet.Until(t, "the closed ones are known to be", func() bool { return closedInTable(t, f) == more+min(c.room, 1)*len(opposite) })
			heartbeat(t, f, heartbeats(time.Second))
			for _, conn := range list[size:] {
				testnet.Send(t, conn.Client, conn.Server, 1000)
			}
			expect(t, f, list, more, size+more, "after a second")
		})
	}
}

// closedInTable returns the number of connections in the table both of whose ends have ended.
func closedInTable(t *testing.T, f *fairq.Attachment) (n int) {
	t.Helper()
	all, err := f.Connections()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		if c.Reset || c.End[0].Ended && c.End[1].Ended {
			n++
		}
	}
	return n
}

// dialBack opens connections from the receiver to the sender.
func (p *rwndPath) dialBack(t *testing.T, n int) (list []*testnet.Pair) {
	t.Helper()
	var l net.Listener
	p.Sender.Must(t, func() (err error) {
		l, err = net.Listen("tcp", net.JoinHostPort(testnet.SenderIPv4.String(), "0"))
		return err
	})
	t.Cleanup(func() { _ = l.Close() })
	for range n {
		c := &testnet.Pair{}
		p.Receiver.Must(t, func() error {
			conn, err := (&net.Dialer{Timeout: testnet.Patience}).DialContext(context.Background(), "tcp", l.Addr().String())
			if err == nil {
				c.Client = conn.(*net.TCPConn)
			}
			return err
		})
		t.Cleanup(c.Close)
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		c.Server = conn.(*net.TCPConn)
		testnet.Send(t, c.Client, c.Server, 1000)
		list = append(list, c)
	}
	return list
}

// Connections that are silent for Forget are removed, not before; when they send again they are adopted. Closed
// ones are removed within a second of heartbeats.
func TestFairQ_Forgets(t *testing.T) {
	const forget = 10 * time.Second
	p := newRwndPath(t, testnet.PathOptions{NoIPv6: true, GSO: true, ChecksumOffload: true})
	f := p.govern(t, limitedTo(liveGrant), limitedTo(liveGrant), fairq.Config{Forget: forget})
	l := p.Listen(t, testnet.ReceiverIPv4)
	list := p.dialMany(t, l, 4)
	silent, speaking, closed, reset := list[0], list[1], list[2], list[3]
	closed.Close()
	if err := reset.Client.SetLinger(0); err != nil {
		t.Fatal(err)
	}
	reset.Close()
	testnet.Until(t, "two connections are known to be closed", func() bool { return closedInTable(t, f) == 2 })
	table := func(what string, want ...bool) {
		t.Helper()
		for i, in := range inTable(t, f, list) {
			if in != want[i] {
				t.Errorf("%s: connection %d is in the table: %t", what, i, in)
			}
		}
	}
	table("at once", true, true, true, true)
	heartbeat(t, f, heartbeats(time.Second))
	table("after 1 s", true, true, false, false)
	for range heartbeats(forget) - heartbeats(time.Second) - 1 {
		testnet.Send(t, speaking.Client, speaking.Server, 1)
		heartbeat(t, f, 1)
	}
	table("before it is time", true, true, false, false)
	heartbeat(t, f, 2)
	table("when it is", false, true, false, false)
	testnet.Send(t, silent.Client, silent.Server, 1000)
	table("when it speaks", true, true, false, false)
	out, in := statsOfBoth(t, f)
	if out.Adopted+in.Adopted != 1 || in.Connections+out.Connections != 2 {
		t.Errorf("%d and %d adopted, shares %d and %d", out.Adopted, in.Adopted, in.Connections, out.Connections)
	}
}

// However many connections are begun, the table has a fixed number of them. The oldest are removed, not the
// newest: a connection that opens meanwhile enters the table.
func TestFairQ_HalfOpenTableIsBounded(t *testing.T) {
	l := newLive(t, fairq.Config{Flows: 1000})
	begin := func(n int) {
		l.flood(t, n, func(s *frames.Segment) { s.Flags, s.Options = frames.SYN, synOptions })
	}
	_, limit, err := l.f.Pending()
	if err != nil {
		t.Fatal(err)
	}
	begin(limit / 2)
	if n, _, err := l.f.Pending(); err != nil || n < limit/4 || n > limit/2 {
		t.Errorf("%d of %d begun connections are remembered: %v", n, limit/2, err)
	}
	listener := l.Listen(t, testnet.ReceiverIPv4)
	for i := range 10 {
		begin(limit)
		if n, _, err := l.f.Pending(); err != nil || n > limit {
			t.Errorf("%d begun connections are remembered, of at most %d: %v", n, limit, err)
		}
		c := l.Dial(t, listener)
		testnet.Send(t, c.Client, c.Server, 1000)
		if now := l.table(t); len(now) != len(l.known)+i+1 {
			t.Errorf("%d connections are known, %d were opened", len(now), len(l.known)+i+1)
		}
	}
	for _, c := range l.table(t) {
		if c.Adopted {
			t.Errorf("not known from its handshake: %+v", c)
		}
	}
}
