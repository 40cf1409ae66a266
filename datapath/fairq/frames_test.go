package fairq

import (
	"bytes"
	"fmt"
	"net/netip"
	"reflect"
	"testing"

	"github.com/cilium/ebpf"

	"weir/datapath/attach"
	"weir/datapath/internal/frames"
	"weir/internal/testroot"
)

// frameSwitch is the switch program on ports without devices: BPF_PROG_TEST_RUN sends frames through it. Its
// timers do not run, so a grant stays as a test sets it.
type frameSwitch struct {
	*loaded
	last []fairqPortCounts
}

// frameConfig is the configuration of the switch. Zeros: the program's defaults.
type frameConfig struct {
	count, scale, shrink, unifyShift uint8
	signed                           Signed
	vlansIgnored                     bool
	scope                            []fairqScopeKey
	flows, pending                   uint32          // sizes of the tables
	law                              fairqPortConfig // of every port
	edge                             EdgeMode
}

// newFrameSwitch makes a switch with this many ports.
func newFrameSwitch(tb testing.TB, c frameConfig, ports int) *frameSwitch {
	tb.Helper()
	testroot.Need(tb, "loads kernel programs")
	if err := Check(); err != nil {
		tb.Fatal(err)
	}
	must := func(err error) {
		tb.Helper()
		if err != nil {
			tb.Fatalf("%+v", err)
		}
	}
	s := &frameSwitch{loaded: frameConstants{
		count: c.count, scale: c.scale, shrink: c.shrink, unifyShift: c.unifyShift, signed: c.signed, vlansIgnored: c.vlansIgnored,
		scoped: len(c.scope) > 0, flows: c.flows, pending: c.pending, edge: c.edge,
	}.take(tb, ports)}
	for i := range uint32(ports) {
		must(s.Configs.Put(i, c.law.withDefaults(tb)))
		must(s.Ports.Put(i, fairqPort{Generation: 1}))
	}
	for _, k := range c.scope {
		must(s.Scope.Put(k, uint32(1)))
	}
	s.last = make([]fairqPortCounts, ports)
	must(s.Controls.Put(uint32(0), fairqControl{Schema: schemaVersion, HeartbeatNs: attach.MonotonicNs(), LeaseNs: 1 << 62, IdleSweeps: 1 << 20, Watched: 1}))
	return s
}

// withDefaults returns a port's configuration with defaults for unset fields.
func (c *fairqPortConfig) withDefaults(tb testing.TB) *fairqPortConfig {
	tb.Helper()
	cookie, err := attach.NetnsCookie()
	if err != nil {
		tb.Fatal(err)
	}
	f := *c
	f.NetnsCookie, f.Ifindex = cookie, 1 // TEST_RUN's packets are of the loopback device
	if f.Law.TargetBytes == 0 {
		f.Law.TargetBytes, f.Law.TickNs, f.Law.PeriodNs, f.Law.MssMaxBytes = rowTarget, 1e9, 1e9, 1460
	}
	if f.FlowsMax == 0 {
		f.FlowsMax = 1 << 20
	}
	if f.EpochNs == 0 {
		f.EpochNs = 1e9
	}
	f.IdleNs, f.MssUnknown = 1e9, 1460
	return &f
}

// run sends a frame out of a port.
func (s *frameSwitch) run(port int, in []byte, flags uint32, context any) ([]byte, error) {
	o := ebpf.RunOptions{Data: in, DataOut: make([]byte, len(in)), Flags: flags, Context: context}
	verdict, err := s.programs[port].Run(&o)
	if err == nil && int32(verdict) != -1 {
		err = fmt.Errorf("the program returned %d, not NEXT", int32(verdict))
	}
	return o.DataOut, err
}

// mustRun is run for frames that only set up a connection.
func (s *frameSwitch) mustRun(tb testing.TB, port int, in []byte) {
	tb.Helper()
	if _, err := s.run(port, in, 0, nil); err != nil {
		tb.Fatalf("%v: %x", err, in)
	}
}

// setGrant sets the window to which data that leaves by a port is limited.
func (s *frameSwitch) setGrant(tb testing.TB, port int, bytes uint64) {
	tb.Helper()
	var p fairqPort
	if err := s.Ports.Lookup(uint32(port), &p); err != nil {
		tb.Fatal(err)
	}
	p.GrantQ8, p.Running = bytes<<8, 0 // packets must not replace the timer either
	if err := s.Ports.Put(uint32(port), p); err != nil {
		tb.Fatal(err)
	}
}

// counts reads the counters of a port.
func (s *frameSwitch) counts(tb testing.TB, port int) (sum fairqPortCounts) {
	tb.Helper()
	var cpus []fairqPortCounts
	if err := s.Counts.Lookup(uint32(port), &cpus); err != nil {
		tb.Fatal(err)
	}
	for i := range cpus {
		sum.add(&cpus[i], 1)
	}
	return sum
}

// counted returns the increase of a port's counters since the last call.
func (s *frameSwitch) counted(tb testing.TB, port int) fairqPortCounts {
	tb.Helper()
	now := s.counts(tb, port)
	d := now
	d.add(&s.last[port], ^uint64(0))
	s.last[port] = now
	return d
}

// add adds o, multiplied by times.
func (c *fairqPortCounts) add(o *fairqPortCounts, times uint64) {
	sum, more := reflect.ValueOf(c).Elem(), reflect.ValueOf(o).Elem()
	for i := range sum.NumField() {
		if f := sum.Field(i); f.Kind() == reflect.Uint64 {
			f.SetUint(f.Uint() + times*more.Field(i).Uint())
		}
	}
}

// walk reads the flow table.
func (s *frameSwitch) walk(tb testing.TB, do func(*fairqFlowKey, *fairqConnection)) {
	tb.Helper()
	err := s.eachConnection(func(k *fairqFlowKey, c *fairqConnection) bool {
		do(k, c)
		return true
	})
	if err != nil {
		tb.Fatal(err)
	}
}

// remove removes a connection from the flow table.
func (s *frameSwitch) remove(tb testing.TB, key fairqFlowKey) {
	tb.Helper()
	removed := false
	err := eachEntry(s.Near, func(place *uint32, at *fairqNearPlace) bool {
		if at.Holder != 0 && at.Key == key {
			removed = true
			if err := s.Near.Put(*place, fairqNearPlace{}); err != nil {
				tb.Fatal(err)
			}
		}
		return !removed
	})
	if err == nil && !removed {
		err = s.Flows.Delete(key)
	}
	if err != nil {
		tb.Fatal(err)
	}
}

// checkShares checks how many connections in the table were opened from behind each port, and that the ports
// have the same count.
func (s *frameSwitch) checkShares(tb testing.TB, want ...int) {
	tb.Helper()
	got := make([]int, len(want))
	s.walk(tb, func(_ *fairqFlowKey, c *fairqConnection) { got[c.Owner-1]++ })
	for i := range want {
		var p fairqPort
		if err := s.Ports.Lookup(uint32(i), &p); err != nil {
			tb.Fatal(err)
		}
		if got[i] != want[i] || int(p.Owned) != want[i] {
			tb.Errorf("%d connections of port %d in the table, of which it knows %d; want %d", got[i], i, p.Owned, want[i])
		}
	}
}

// row sends a frame out of port 0, with a checksum of the whole packet and without one, and checks the frame
// that comes out and the counters.
func (s *frameSwitch) row(t *testing.T, name string, in, want []byte, why fairqPortCounts) {
	t.Helper()
	s.counted(t, 0)
	for _, flags := range []uint32{0, testRunChecksumComplete} {
		out, err := s.run(0, in, flags, nil)
		if err != nil {
			t.Errorf("%s, flags %d: %v: %x", name, flags, err, in)
			return
		}
		if !bytes.Equal(out, want) {
			t.Errorf("%s:\n in   %x\n out  %x\n want %x", name, in, out, want)
		}
		why.Seen = 1
		if got := s.counted(t, 0); got != why {
			t.Errorf("%s: counted %+v, want %+v", name, got, why)
		}
		why.Opened, why.Adopted = 0, 0 // it is in the table the second time
	}
}

// testRunChecksumComplete makes the kernel compute a sum of the whole packet. The run fails with EBADMSG if the
// sum is wrong after the program (BPF_F_TEST_SKB_CHECKSUM_COMPLETE).
const testRunChecksumComplete = 4

// Rows of the table are acknowledgements from right to left, leaving by port 0. Their data leaves by port 1,
// which grants so many bytes.
const (
	rowGrant  = 25600
	rowShift  = 7
	rowField  = rowGrant >> rowShift // written by the program
	rowWindow = 60000                // in the frame before
	rowTarget = 25000                // of every port, unless a test sets it
)

// frameConn is a connection of the table: opened from the left, which is behind port 0.
type frameConn struct {
	link        frames.Link
	ip          frames.IP // from right to left
	port        uint16    // of the left
	syn, synAck []byte    // options
}

// segment returns a segment from right to left, acknowledging.
func (c *frameConn) segment() *frames.Segment {
	return &frames.Segment{
		Link: c.link, IP: c.ip, FromPort: 80, ToPort: c.port,
		Seq: 7001, Ack: 3001, Flags: frames.ACK, Window: rowWindow,
	}
}

// back returns a segment from left to right.
func (c *frameConn) back() *frames.Segment {
	s := c.segment()
	s.From, s.To, s.FromPort, s.ToPort, s.Seq, s.Ack = s.To, s.From, s.ToPort, s.FromPort, s.Ack, s.Seq
	s.Dst, s.Src = s.Src, s.Dst
	return s
}

// open sends the connection's handshake through the switch and then sets the grant of port 1.
func (c *frameConn) open(t *testing.T, s *frameSwitch) {
	t.Helper()
	syn, synAck, ack := c.back(), c.segment(), c.back()
	syn.Flags, syn.Seq, syn.Ack, syn.Options = frames.SYN, 3000, 0, c.syn
	synAck.Flags, synAck.Seq, synAck.Options = frames.SYN|frames.ACK, 7000, c.synAck
	s.mustRun(t, 1, syn.Bytes())
	s.mustRun(t, 0, synAck.Bytes())
	s.mustRun(t, 1, ack.Bytes())
	s.setGrant(t, 0, 0)
	s.setGrant(t, 1, rowGrant)
}

// adopt makes the switch see the connection for the first time in mid-stream.
func (c *frameConn) adopt(t *testing.T, s *frameSwitch) {
	t.Helper()
	s.mustRun(t, 1, c.back().Bytes())
	s.mustRun(t, 0, c.segment().Bytes())
	s.setGrant(t, 0, 0)
	s.setGrant(t, 1, rowGrant)
}

var (
	leftMAC, rightMAC = [6]byte{2, 0, 0, 0, 0, 1}, [6]byte{2, 0, 0, 0, 0, 2}
	leftIPv4          = netip.MustParseAddr("10.0.0.1")
	rightIPv4         = netip.MustParseAddr("10.0.0.2")
	leftIPv6          = netip.MustParseAddr("fd00::1")
	rightIPv6         = netip.MustParseAddr("fd00::2")
)

// frameTable makes the table's connections, each with a port of its own.
type frameTable struct {
	*frameSwitch
	port uint16
}

func newFrameTable(t *testing.T, c frameConfig) *frameTable {
	return &frameTable{newFrameSwitch(t, c, 2), 1024}
}

// conn returns a connection of hosts that scale their windows, not yet opened.
func (f *frameTable) conn(ip frames.IP) *frameConn {
	f.port++
	if !ip.From.IsValid() {
		ip.From, ip.To = rightIPv4, leftIPv4
	}
	return &frameConn{
		link: frames.Link{Dst: leftMAC, Src: rightMAC}, ip: ip, port: f.port,
		syn:    frames.List(frames.OptionNop, frames.MSS(1460), frames.Scale(2)),
		synAck: frames.List(frames.OptionNop, frames.MSS(1460), frames.Scale(rowShift)),
	}
}

// with returns a segment's bytes after a change of the segment.
func with(s *frames.Segment, change func(*frames.Segment)) []byte {
	c := *s
	change(&c)
	return c.Bytes()
}

// rewritten is a row whose window changes: the frame that comes out is the one that its sender would have built
// with that window, checksum included, to the byte.
func (f *frameTable) rewritten(t *testing.T, name string, s *frames.Segment, window uint16, why fairqPortCounts) {
	t.Helper()
	want := with(s, func(s *frames.Segment) { s.Window = window })
	if window != s.Window {
		why.Rewritten = 1
	}
	f.row(t, name, s.Bytes(), want, why)
}

// same is a row that comes out unchanged.
func (f *frameTable) same(t *testing.T, name string, in []byte, why fairqPortCounts) {
	t.Helper()
	f.row(t, name, in, in, why)
}
