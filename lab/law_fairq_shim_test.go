package lab

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/datapath/attach"
	"weir/datapath/fairq"
	"weir/datapath/fairq/shim"
	"weir/datapath/testnet"
	"weir/experiment"
	"weir/law"
	fairqlaw "weir/law/fairq"
)

// portOf returns a port of the lab by its name, shaped or not.
func portOf(t testing.TB, l *Lab, name string) attach.PortRef {
	t.Helper()
	for _, n := range l.plan.nodes {
		for _, p := range n.ports {
			if p.name == name {
				return l.portRef(n.name, name, p.ifindex)
			}
		}
	}
	t.Fatalf("no port %s", name)
	return attach.PortRef{}
}

// The shim adds scales where traffic enters the network and removes them at the last port before the guest, also
// behind a hypervisor, and never between switches.
func TestShimStandsAtTheEdge(t *testing.T) {
	for hypervisors, want := range map[bool]string{
		false: "receiver1->switch1 send, receiver2->switch2 send, sender1->switch1 send, sender2->switch2 send, " +
			"switch1->receiver1 clear, switch1->sender1 clear, switch2->receiver2 clear, switch2->sender2 clear",
		true: "receiver1->switch1 send, receiver1.hv->receiver1 clear, receiver2->switch2 send, receiver2.hv->receiver2 clear, " +
			"sender1->switch1 send, sender1.hv->sender1 clear, sender2->switch2 send, sender2.hv->sender2 clear",
	} {
		p, err := newPlan(chain(2, hypervisors).config())
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range (&Lab{plan: p}).shimPorts() {
			got = append(got, s.Name+" "+map[shim.Side]string{shim.Send: "send", shim.Clear: "clear"}[s.Side])
		}
		slices.Sort(got)
		if strings.Join(got, ", ") != want {
			t.Errorf("hypervisors %t: the shim is at %s, want %s", hypervisors, strings.Join(got, ", "), want)
		}
	}
}

// shimWatch records a connection's acknowledgements at a port, by direction.
type shimWatch struct {
	tap     *testnet.Tap
	in, out map[uint8]int // by reserved bits
}

func (w *shimWatch) read(t *testing.T, server net.Conn) {
	t.Helper()
	own, peer := testnet.AddrPort(server.LocalAddr()), testnet.AddrPort(server.RemoteAddr())
	w.in, w.out = map[uint8]int{}, map[uint8]int{}
	w.tap.Each(t, func(s *testnet.Segment) {
		ours := s.From == own && s.To == peer || s.From == peer && s.To == own
		if !ours || s.Flags&testnet.SYN != 0 || s.Flags&testnet.ACK == 0 {
			return
		}
		if s.Out {
			w.out[s.Reserved]++
		} else {
			w.in[s.Reserved]++
		}
	})
}

// receiver is the end of a connection that data goes to.
type receiver interface {
	io.Reader
	SetDeadline(time.Time) error
}

// counting counts what is read.
type counting struct {
	*net.TCPConn
	bytes *atomic.Int64
}

func (c counting) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	c.bytes.Add(int64(n))
	return n, err
}

// sending sends on a connection while body runs.
func sending(client *net.TCPConn, server receiver, body func() error) error {
	ended := make(chan error, 2)
	go func() {
		_, err := io.Copy(client, zeros{})
		ended <- err
	}()
	go func() {
		for b := make([]byte, 64<<10); ; {
			if _, err := server.Read(b); err != nil {
				ended <- err
				return
			}
		}
	}()
	err := body()
	err = errors.Join(err, client.SetDeadline(time.Unix(1, 0)), server.SetDeadline(time.Unix(1, 0)))
	for range 2 {
		if e := <-ended; !errors.Is(e, os.ErrDeadlineExceeded) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// send sends bytes from one end of a connection and reads them at the other.
func send(from, to net.Conn, bytes int64) error {
	if err := errors.Join(from.SetDeadline(time.Now().Add(testnet.Patience)), to.SetDeadline(time.Now().Add(testnet.Patience))); err != nil {
		return err
	}
	sent := make(chan error, 1)
	go func() {
		_, err := io.CopyN(from, zeros{}, bytes)
		sent <- err
	}()
	_, err := io.CopyN(io.Discard, to, bytes)
	return errors.Join(err, <-sent)
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// both sends both ways.
func both(client, server net.Conn, bytes int64) error {
	return errors.Join(send(client, server, bytes), send(server, client, bytes))
}

// flowsCount is how long a flow counts after its last data in these tests: the maximum, for slow machines.
const flowsCount = fairq.MaxActive

// grants returns the windows, in bytes, of the acknowledgements that reached a sender of data while its flow counted. It
// leaves out those that came flowsCount or more after the latest data that they acknowledge: the switch may have stopped
// limiting the flow. tap is at a port on the flow's path before the switch that limits, as seen by the data.
func grants(tb testing.TB, tap *testnet.Tap, sender *net.TCPConn) (windows []uint32) {
	tb.Helper()
	own, peer := testnet.AddrPort(sender.LocalAddr()), testnet.AddrPort(sender.RemoteAddr())
	shift := testnet.ReadTCPInfo(tb, sender).PeerScale
	var sent []*testnet.Segment // not acknowledged yet
	var latest time.Time        // when the latest data left that is acknowledged
	tap.Each(tb, func(s *testnet.Segment) {
		switch {
		case s.Out && s.From == own && s.To == peer && s.Payload > 0:
			sent = append(sent, s)
		case !s.Out && s.From == peer && s.To == own && s.Flags&testnet.ACK != 0 && s.Flags&testnet.SYN == 0:
			for len(sent) > 0 && int32(s.Ack-sent[0].End()) >= 0 {
				latest, sent = sent[0].At, sent[1:]
			}
			if s.At.Sub(latest) < flowsCount {
				windows = append(windows, uint32(s.Window)<<shift)
			}
		}
	})
	return windows
}

// sendLimited sends bytes from one end of a connection to the other until an acknowledgement came while the flow counted.
// It returns their windows (grants).
func sendLimited(tb testing.TB, tap *testnet.Tap, from, to *net.TCPConn, bytes int64) (windows []uint32, err error) {
	tb.Helper()
	for end := time.Now().Add(testnet.Patience); len(windows) == 0; windows = grants(tb, tap, from) {
		if time.Now().After(end) {
			return nil, fmt.Errorf("no acknowledgement came within %v of its data", flowsCount)
		}
		if err := send(from, to, bytes); err != nil {
			return nil, err
		}
	}
	return windows, nil
}

// limitedTo sends until this many acknowledgements grant this window. It returns an error if one grants more.
func limitedTo(tb testing.TB, tap *testnet.Tap, from, to *net.TCPConn, grant uint32, times int) error {
	tb.Helper()
	for end := time.Now().Add(testnet.Patience); times > 0; {
		windows, err := sendLimited(tb, tap, from, to, 300_000)
		if err != nil {
			return err
		}
		if w := slices.Max(windows); w > grant {
			return fmt.Errorf("an acknowledgement says %d, granted are %d", w, grant)
		}
		for _, w := range windows {
			if w == grant { // it is less while the receiver has little room
				times--
			}
		}
		if time.Now().After(end) {
			return fmt.Errorf("%d acknowledgements fewer than wanted say %d; the last ones say %v", times, grant, windows)
		}
	}
	return nil
}

// shimRun is a run of fairq on all switches with one of the ways to learn window scales.
func shimRun(g *graphBuilder, scale string) *experiment.Run {
	r := &experiment.Run{Laws: []string{"fairq"}, Config: *g.config(), Params: map[string]any{"fairq": fairqlaw.Params{
		Interval: 500e3, Updates: 10, TargetFraction: 0.5, Gain: "paper",
		Count: "handshake", Idle: law.Duration(flowsCount),
		Scale: scale, UnifyShift: 5, Shrink: "allow",
	}}}
	r.Config.RTT = 200e3
	for _, n := range g.Nodes {
		if n.Kind == experiment.Switch {
			r.At = append(r.At, n.Name)
		}
	}
	return r
}

// With scale: shim the segments carry their sender's scale between all switches, and guests neither send nor see
// it. unify makes guests use the scale that was set. learn changes nothing. After detaching, the state is as
// before.
func TestFairQWaysToKnowScales(t *testing.T) {
	t.Parallel()
	for _, hypervisors := range []bool{false, true} {
		g := chain(3, hypervisors)
		l := up(t, map[bool]string{false: "scales", true: "scaleshv"}[hypervisors], g.config())
		middle := &shimWatch{tap: testnet.NewTap(t, portOf(t, l, "switch2->switch3"))}
		edge := "receiver3->switch3"
		if hypervisors {
			edge = "receiver3->receiver3.hv"
		}
		guest := &shimWatch{tap: testnet.NewTap(t, portOf(t, l, edge))}
		for _, scale := range []string{"learn", "shim", "unify", ""} {
			stop := func() error { return nil }
			if scale != "" {
				var err error
				if stop, err = l.Enforce(t.Context(), shimRun(g, scale), testWorks); err != nil {
					t.Fatal(err)
				}
			}
			err := dial(l, "sender1", "receiver3", 0, func(client, server *net.TCPConn) error {
				c, s := testnet.ReadTCPInfo(t, client), testnet.ReadTCPInfo(t, server)
				scales := [2]uint8{s.OwnScale, c.OwnScale}
				if scale == "unify" {
					scales = [2]uint8{5, 5}
				}
				if c.OwnScale < 2 || s.OwnScale < 2 || c.PeerScale != scales[0] || s.PeerScale != scales[1] {
					t.Errorf("hypervisors %t, scale %q: the ends have %d and %d, and take each other's for %d and %d",
						hypervisors, scale, c.OwnScale, s.OwnScale, s.PeerScale, c.PeerScale)
				}
				err := both(client, server, 300_000)
				middle.read(t, server)
				guest.read(t, server)
				want := [2]uint8{}
				if scale == "shim" {
					want = [2]uint8{c.OwnScale, s.OwnScale}
				}
				onlyBits(t, scale+", between switches, towards the server", middle.out, want[0])
				onlyBits(t, scale+", between switches, towards the client", middle.in, want[1])
				onlyBits(t, scale+", at the guest", guest.in, 0)
				return err
			})
			if err := errors.Join(err, stop()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func onlyBits(t *testing.T, where string, seen map[uint8]int, want uint8) {
	t.Helper()
	if len(seen) != 1 || seen[want] < 10 {
		t.Errorf("%s: segments by their reserved bits %v, want %d only", where, seen, want)
	}
}

// Every switch on the path reads the bits (FQ-17): for a connection whose start none of them saw, each limits the
// window to exactly its grant.
func TestFQ17_TwoSwitchesReadTheShim(t *testing.T) {
	t.Parallel()
	const near, far = 2 << 14, 4 << 14
	g := chain(3, true)
	l := up(t, "fq17", g.config())
	shims, err := shim.Attach(l.shimPorts(), shim.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer shims.Close()
	middle := testnet.NewTap(t, portOf(t, l, "switch2->switch3"))
	guest := testnet.NewTap(t, portOf(t, l, "sender1->sender1.hv"))
	err = dial(l, "sender1", "receiver3", 0, func(client, server *net.TCPConn) error {
		if err := both(client, server, 10_000); err != nil {
			return err
		}
		// The receiver's acknowledgements pass switch3 first, which grants more than switch1.
		for node, grant := range map[string]uint32{"switch3": far, "switch1": near} {
			f, err := l.limitWindows(node, grant)
			if err != nil {
				return err
			}
			defer f.Close()
		}
		ignore := func(*testnet.Segment) {} // what passed before FairQ was attached
		middle.Each(t, ignore)
		guest.Each(t, ignore)
		if err := limitedTo(t, middle, client, server, far, 1); err != nil {
			return fmt.Errorf("between the switches: %w", err)
		}
		if err := limitedTo(t, guest, client, server, near, 1); err != nil {
			return fmt.Errorf("at the sender: %w", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// limitWindows attaches FairQ to a switch, with a law that always grants this many bytes.
func (l *Lab) limitWindows(node string, bytes uint32) (*fairq.Attachment, error) {
	var ports []fairq.Port
	for _, p := range l.switchPorts([]string{node}) {
		ports = append(ports, fairq.Port{PortRef: p, Law: fairq.Law{
			TargetBytes: 1 << 20, Tick: time.Millisecond, Period: time.Millisecond, FloorBytes: bytes, CapBytes: bytes, Active: 4 * time.Second,
		}})
	}
	return fairq.Attach(ports, fairq.Config{Scale: fairq.ScaleShim, Lease: time.Hour})
}
