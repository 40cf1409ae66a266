package mark_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/cilium/ebpf"

	"weir/datapath/internal/bpftest"
	"weir/datapath/internal/marktest"
	"weir/datapath/mark"
	"weir/internal/testroot"
)

// The ECN field.
const (
	notECT = 0
	ect1   = 1
	ect0   = 2
	ce     = 3
)

// testMark is the marking program with a backlog that the test sets.
type testMark struct {
	objects marktest.MarkObjects
	last    mark.Stats
}

func newTestMark(tb testing.TB) *testMark {
	testroot.Need(tb, "loads kernel programs")
	tb.Helper()
	if err := mark.Check(); err != nil {
		tb.Fatal(err)
	}
	m := &testMark{}
	if err := marktest.LoadMarkObjects(&m.objects, nil); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = m.objects.Close() })
	return m
}

func (m *testMark) set(tb testing.TB, c marktest.MarkMarkConfig, backlog uint32) {
	tb.Helper()
	if err := m.objects.Configs.Put(uint32(0), c); err != nil {
		tb.Fatal(err)
	}
	if err := m.objects.BacklogBytes.Set(backlog); err != nil {
		tb.Fatal(err)
	}
}

// run sends a frame through the program and returns its verdict and the frame that came out. flags are those of
// BPF_PROG_TEST_RUN.
func (m *testMark) run(in []byte, flags uint32) (verdict uint32, out []byte, err error) {
	o := ebpf.RunOptions{Data: in, DataOut: make([]byte, len(in)+64), Flags: flags}
	verdict, err = m.objects.WeirMark.Run(&o)
	return verdict, o.DataOut, err
}

// counted returns the increase of the counters since the last call.
func (m *testMark) counted(tb testing.TB) (d mark.Stats) {
	tb.Helper()
	var cpus []marktest.MarkPortStats
	if err := m.objects.Counts.Lookup(uint32(0), &cpus); err != nil {
		tb.Fatal(err)
	}
	var now mark.Stats
	for _, c := range cpus {
		now.Seen += c.Seen
		now.Marked += c.Marked
		now.DroppedByLaw += c.DropLaw
		now.DroppedNotECT += c.DropNotEct
		now.PassedUnder += c.PassUnder
		now.PassedCE += c.PassCe
		now.PassedNotECT += c.PassNotEct
		now.PassedNotIP += c.PassNotIp
		now.PassedShort += c.PassShort
		now.PassedUnmarked += c.PassUnwritable
	}
	d = bpftest.Minus(now, m.last)
	m.last = now
	return d
}

// frame describes an Ethernet frame with an IP packet.
type frame struct {
	name string
	tags []uint16 // TPIDs, outer first
	ipv6 bool
	// IPv4: bytes of options, fragment field. IPv6: next header (and 8 bytes of it).
	options  int
	fragment uint16
	next     byte
	dscp     byte
}

// sum returns the Internet checksum of b (RFC 1071), computed in full.
func sum(b []byte) uint16 {
	var s uint32
	for i := 0; i+1 < len(b); i += 2 {
		s += uint32(b[i])<<8 | uint32(b[i+1])
	}
	for s>>16 != 0 {
		s = s&0xffff + s>>16
	}
	return ^uint16(s)
}

// bytes builds the frame with this ECN field, every checksum computed in full.
func (f frame) bytes(ecn byte) []byte {
	b := []byte{0x02, 0, 0, 0, 0, 2, 0x02, 0, 0, 0, 0, 1}
	for i, tpid := range f.tags {
		b = binary.BigEndian.AppendUint16(b, tpid)
		b = binary.BigEndian.AppendUint16(b, uint16(100+i))
	}
	payload := bytes.Repeat([]byte{0xa5, 0x5a, 0x33}, 20)
	tos := f.dscp<<2 | ecn
	if f.ipv6 {
		b = binary.BigEndian.AppendUint16(b, 0x86dd)
		b = binary.BigEndian.AppendUint32(b, 6<<28|uint32(tos)<<20|0xabcde)
		b = binary.BigEndian.AppendUint16(b, uint16(8+len(payload)))
		b = append(b, f.next, 64)
		b = append(b, bytes.Repeat([]byte{0x20}, 16)...)
		b = append(b, bytes.Repeat([]byte{0x30}, 16)...)
		return append(append(b, 6, 0, 0, 0, 0, 0, 0, 1), payload...)
	}
	b = binary.BigEndian.AppendUint16(b, 0x0800)
	h := make([]byte, 20+f.options)
	h[0] = 0x40 | byte(len(h)/4)
	h[1] = tos
	binary.BigEndian.PutUint16(h[2:], uint16(len(h)+len(payload)))
	binary.BigEndian.PutUint16(h[4:], 0xbeef)
	binary.BigEndian.PutUint16(h[6:], f.fragment)
	h[8], h[9] = 64, 6
	copy(h[12:], []byte{10, 0, 0, 1, 10, 0, 0, 2})
	for i := range f.options {
		h[20+i] = 1 // no operation
	}
	binary.BigEndian.PutUint16(h[10:], sum(h))
	return append(append(b, h...), payload...)
}

// packets are the IP packets of the table.
func packets() []frame {
	return []frame{
		{name: "ipv4"},
		{name: "ipv4 dscp", dscp: 46},
		{name: "ipv4 options", options: 4},
		{name: "ipv4 most options", options: 40, dscp: 63},
		{name: "ipv4 first fragment", fragment: 0x2000},
		{name: "ipv4 later fragment", fragment: 0x2010},
		{name: "ipv4 last fragment", fragment: 0x0020},
		{name: "ipv6", ipv6: true, next: 6},
		{name: "ipv6 dscp", ipv6: true, next: 6, dscp: 46},
		{name: "ipv6 fragment", ipv6: true, next: 44, dscp: 63},
		{name: "ipv6 options", ipv6: true, next: 0},
	}
}

func tagStacks() map[string][]uint16 {
	return map[string][]uint16{
		"untagged": nil, "802.1Q": {0x8100}, "802.1ad": {0x88a8}, "802.1ad+Q": {0x88a8, 0x8100}, "802.1Q+Q": {0x8100, 0x8100},
	}
}

// outcome is what the law does with a packet: its ECN field, or drop, and the counter that it increases.
type outcome struct {
	ecn  byte
	drop bool
	why  mark.Stats
}

// mode is a configuration and its outcome over the threshold, by the arriving ECN field.
type mode struct {
	name string
	conf marktest.MarkMarkConfig
	over [4]outcome
}

const threshold = 15_000

func modes() []mode {
	marked := outcome{ecn: ce, why: mark.Stats{Seen: 1, Marked: 1}}
	isCE := outcome{ecn: ce, why: mark.Stats{Seen: 1, PassedCE: 1}}
	spared := outcome{ecn: notECT, why: mark.Stats{Seen: 1, PassedNotECT: 1}}
	notSpared := outcome{drop: true, why: mark.Stats{Seen: 1, DroppedNotECT: 1}}
	dropped := outcome{drop: true, why: mark.Stats{Seen: 1, DroppedByLaw: 1}}
	return []mode{
		{"ecn", marktest.MarkMarkConfig{ThresholdBytes: threshold}, [4]outcome{notECT: spared, ect1: marked, ect0: marked, ce: isCE}},
		{"ecn not_ect drop", marktest.MarkMarkConfig{ThresholdBytes: threshold, NotEct: 1}, [4]outcome{notECT: notSpared, ect1: marked, ect0: marked, ce: isCE}},
		{"red", marktest.MarkMarkConfig{ThresholdBytes: threshold, Action: 1}, [4]outcome{dropped, dropped, dropped, dropped}},
		{"red not_ect pass", marktest.MarkMarkConfig{ThresholdBytes: threshold, Action: 1, NotEct: 0}, [4]outcome{dropped, dropped, dropped, dropped}},
		{"unknown action", marktest.MarkMarkConfig{ThresholdBytes: threshold, Action: 7, NotEct: 9}, [4]outcome{notECT: spared, ect1: marked, ect0: marked, ce: isCE}},
	}
}

// The program marks every kind of IP packet exactly as its sender would have: the frame is equal byte for byte,
// checksums included. The rows combine all frames, ECN fields, configurations, and backlogs below, at and over
// the threshold.
func TestMark_Table(t *testing.T) {
	m := newTestMark(t)
	rows := 0
	for _, mode := range modes() {
		for _, backlog := range []uint32{0, threshold - 1, threshold, threshold + 1, 1<<32 - 1} {
			m.set(t, mode.conf, backlog)
			for tags, stack := range tagStacks() {
				for _, f := range packets() {
					f.tags = stack
					for ecn := range byte(4) {
						want := outcome{ecn: ecn, why: mark.Stats{Seen: 1, PassedUnder: 1}}
						if backlog > threshold {
							want = mode.over[ecn]
						}
						name := fmt.Sprintf("%s, backlog %d, %s, %s, ECN %d", mode.name, backlog, tags, f.name, ecn)
						m.row(t, name, f.bytes(ecn), f.bytes(want.ecn), want)
						rows++
					}
				}
			}
		}
	}
	t.Logf("%d rows", rows)
}

// row checks one row of the table, with and without a checksum of the whole packet.
func (m *testMark) row(t *testing.T, name string, in, want []byte, o outcome) {
	t.Helper()
	for _, flags := range []uint32{0, bpftest.ChecksumComplete} {
		verdict, out, err := m.run(in, flags)
		if err != nil {
			t.Fatalf("%s, flags %d: %v", name, flags, err)
		}
		wantVerdict := uint32(bpftest.TCXNext)
		if o.drop {
			wantVerdict, want = bpftest.TCXDrop, in
		}
		if verdict != wantVerdict {
			t.Errorf("%s: returned %d, want %d", name, int32(verdict), int32(wantVerdict))
		}
		if !bytes.Equal(out, want) {
			t.Errorf("%s:\n in   %x\n out  %x\n want %x", name, in, out, want)
		}
		if got := m.counted(t); got != o.why {
			t.Errorf("%s: counted %+v, want %+v", name, got, o.why)
		}
	}
}

// Frames that are not IP, end too early, or contradict themselves pass unchanged, however long the queue.
// TestMark_RealFrames has the frames that BPF_PROG_TEST_RUN refuses (untagged and shorter than their header).
func TestMark_Untouched(t *testing.T) {
	m := newTestMark(t)
	ipv4, ipv6 := frame{}.bytes(ect0), frame{ipv6: true, next: 6}.bytes(ect0)
	tagged4 := frame{tags: []uint16{0x8100}}.bytes(ect0)
	tagged6 := frame{tags: []uint16{0x8100}, ipv6: true}.bytes(ect0)
	double4 := frame{tags: []uint16{0x88a8, 0x8100}}.bytes(ect0)
	triple := frame{tags: []uint16{0x88a8, 0x8100, 0x8100}}.bytes(ect0)
	with := func(b []byte, at int, v byte) []byte { b = bytes.Clone(b); b[at] = v; return b }
	short := mark.Stats{Seen: 1, PassedShort: 1}
	notIP := mark.Stats{Seen: 1, PassedNotIP: 1}
	rows := []struct {
		name string
		in   []byte
		why  mark.Stats
	}{
		{"ARP", append(with(with(ipv4, 12, 0x08), 13, 0x06), 0, 1), notIP},
		{"LLDP", with(with(ipv4, 12, 0x88), 13, 0xcc), notIP},
		{"MPLS", with(with(ipv4, 12, 0x88), 13, 0x47), notIP},
		{"802.3 length", with(with(ipv4, 12, 0), 13, 60), notIP},
		{"three tags", triple, notIP},
		{"Ethernet header alone", with(with(ipv4, 12, 0x88), 13, 0xcc)[:14], notIP},
		{"tag cut", tagged4[:16], short},
		{"tag without type", tagged4[:17], short},
		{"second tag cut", double4[:20], short},
		{"tagged ipv4, no header", tagged4[:18], short},
		{"tagged ipv4, 1 byte", tagged4[:19], short},
		{"tagged ipv4, 19 bytes", tagged4[:18+19], short},
		{"double tagged ipv4, 19 bytes", double4[:22+19], short},
		{"tagged ipv6, 2 bytes", tagged6[:20], short},
		{"tagged ipv6, 39 bytes", tagged6[:18+39], short},
		{"ipv4 with version 5", with(ipv4, 14, 0x55), short},
		{"ipv4 with version 6", with(ipv4, 14, 0x65), short},
		{"ipv4 header of 16 bytes", with(ipv4, 14, 0x44), short},
		{"ipv4 header of 0 bytes", with(ipv4, 14, 0x40), short},
		{"ipv4 options past the end", with(ipv4, 14, 0x4f)[:14+59], short},
		{"ipv6 with version 4", with(ipv6, 14, 0x40), short},
	}
	for _, mode := range modes() {
		m.set(t, mode.conf, threshold+1)
		for _, r := range rows {
			m.row(t, mode.name+", "+r.name, r.in, r.in, outcome{why: r.why})
		}
	}
	// The frame ends exactly after its headers: the law applies.
	m.set(t, marktest.MarkMarkConfig{ThresholdBytes: threshold}, threshold+1)
	for name, f := range map[string]struct {
		f   frame
		cut int
	}{
		"ipv4 header alone": {frame{}, 34}, "ipv4 header with options alone": {frame{options: 40}, 74},
		"ipv6 header alone": {frame{ipv6: true}, 54}, "double tagged ipv6 header alone": {frame{ipv6: true, tags: []uint16{0x88a8, 0x8100}}, 62},
	} {
		m.row(t, name, f.f.bytes(ect0)[:f.cut], f.f.bytes(ce)[:f.cut], outcome{why: mark.Stats{Seen: 1, Marked: 1}})
	}
}

// A wrong header checksum stays wrong: the program updates it by its own change and repairs nothing.
func TestMark_WrongChecksumStaysWrong(t *testing.T) {
	m := newTestMark(t)
	m.set(t, marktest.MarkMarkConfig{ThresholdBytes: threshold}, threshold+1)
	in := frame{}.bytes(ect0)
	in[24] ^= 0x10
	_, out, err := m.run(in, 0)
	if err != nil {
		t.Fatal(err)
	}
	if sum(out[14:34]) != sum(in[14:34]) || sum(out[14:34]) == 0 {
		t.Errorf("checksum error %#x became %#x", sum(in[14:34]), sum(out[14:34]))
	}
}
