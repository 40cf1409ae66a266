package mark_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"weir/datapath/attach"
	"weir/datapath/flows"
	"weir/datapath/mark"
	"weir/datapath/telemetry"
	"weir/datapath/testnet"
	"weir/law"
)

// attachMark attaches the program for the length of the test.
func attachMark(t *testing.T, c mark.Config, ports ...attach.PortRef) *mark.Mark {
	t.Helper()
	m, err := mark.Attach(ports, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func statsOf(t *testing.T, m *mark.Mark) mark.Stats {
	t.Helper()
	s, err := m.Stats()
	if err != nil {
		t.Fatal(err)
	}
	return s[0]
}

// programRuns counts how often the program attached first to a port runs during f.
func programRuns(t *testing.T, p attach.PortRef, f func()) uint64 {
	t.Helper()
	stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		t.Fatal(err)
	}
	defer stats.Close()
	f()
	prog := attachedFirst(t, p)
	defer prog.Close()
	s, err := prog.Stats()
	if err != nil {
		t.Fatal(err)
	}
	return s.RunCount
}

// attachedFirst returns the program at the head of a port's egress chain.
func attachedFirst(t *testing.T, p attach.PortRef) *ebpf.Program {
	t.Helper()
	var programs []link.AttachedProgram
	err := p.In(func() (err error) {
		programs, err = attach.ProgramsAt(p.Ifindex, ebpf.AttachTCXEgress)
		return err
	})
	if err != nil || len(programs) == 0 {
		t.Fatalf("nothing at egress of %s: %v", p.Name, err)
	}
	prog, err := ebpf.NewProgramFromID(programs[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	return prog
}

// Real TCP through a shaped port works, every mark arrives as CE, and no checksum is wrong. The port is the
// switch's (forwarded packets) or the sender's own (cloned packets of local TCP). With checksum offload on, the
// program rewrites packets whose checksum is not yet computed; with it off, packets that have one. With GSO on,
// packets have many segments.
func TestMark_RealTCP(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"switch", "sender"} {
		for _, gso := range []bool{false, true} {
			for _, offload := range []bool{false, true} {
				for _, ipv6 := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s,gso=%t,csum=%t,ipv6=%t", at, gso, offload, ipv6), func(t *testing.T) {
						realTCP(t, at, gso, offload, ipv6)
					})
				}
			}
		}
	}
}

func realTCP(t *testing.T, at string, gso, offload, ipv6 bool) {
	o := testnet.PathOptions{GSO: gso, ChecksumOffload: offload}
	if at == "switch" {
		o.PortBps, o.Limit = 50e6, 1_000_000
	} else {
		o.UplinkBps = 50e6
	}
	p := testnet.NewPath(t, o)
	p.Sender.Sysctl(t, "net.ipv4.tcp_ecn", "1")
	p.Receiver.Sysctl(t, "net.ipv4.tcp_ecn", "1")
	port, ip := p.Port, testnet.ReceiverIPv4
	if at == "sender" {
		port = p.Uplink
	}
	if ipv6 {
		ip = testnet.ReceiverIPv6
	}
	m := attachMark(t, mark.Config{ThresholdBytes: 15_000}, port)
	tap := testnet.NewRaw(t, p.Rx)
	runs := programRuns(t, port, func() { p.Transfer(t, ip, "reno", 2, 400_000) })

	s := statsOf(t, m)
	arrived := p.Receiver.SNMP(t, "IpExt", "InCEPkts")
	if ipv6 {
		arrived = p.Receiver.SNMP(t, "", "Ip6InCEPkts")
	}
	if s.Marked == 0 || arrived != s.Marked {
		t.Errorf("%d packets marked, %d arrived with CE", s.Marked, arrived)
	}
	if s.PassedShort+s.PassedUnmarked+s.DroppedByLaw+s.DroppedNotECT != 0 {
		t.Errorf("counted %+v", s)
	}
	for _, c := range [][2]string{{"Tcp", "InCsumErrors"}, {"IpExt", "InCsumErrors"}, {"Ip", "InHdrErrors"}, {"", "Ip6InHdrErrors"}} {
		if n := p.Receiver.SNMP(t, c[0], c[1]); n != 0 {
			t.Errorf("receiver: %s %s = %d", c[0], c[1], n)
		}
	}
	// Check that the two offloads were covered, and not silently off. Local TCP always passes super-packets to
	// its device, which are split after tcx. GRO makes them again, and leaves their checksum to be computed.
	if many := runs*4 < s.Seen*3; many != (gso || at == "sender") {
		t.Errorf("program ran %d times for %d packets", runs, s.Seen)
	}
	// GRO leaves a segment alone if it finds nothing to join it with; the segment keeps its checksum. One
	// packet without a checksum is enough here.
	partial := false
	for range 100 {
		segment := tap.Receive(t, func(b []byte) bool { return len(b) > 1000 })
		if partial = segment.Partial; partial {
			break
		}
	}
	if partial != (offload || gso) {
		t.Errorf("segments arrived with their checksum to be made: %t", partial)
	}
	t.Logf("%d packets, %d program runs, %d marked", s.Seen, runs, s.Marked)
}

// fromTest recognises the frames that frame.bytes makes, by their source address.
func fromTest(b []byte) bool {
	return len(b) >= 14 && bytes.Equal(b[6:12], []byte{0x02, 0, 0, 0, 0, 1})
}

// through sends frames into a port whose queue already has more than the threshold (0) of bytes. It lets the
// queue drain and returns the frames that arrived at the tap, in any order. A frame that leaves a veth device waits at
// the processor that ran the queue, so two that left on different processors can be exchanged.
func through(t *testing.T, from *testnet.Raw, tap *testnet.Raw, port attach.PortRef, limit, burst uint32, frames [][]byte) (got []testnet.Captured) {
	t.Helper()
	filler := append(frame{}.bytes(notECT), make([]byte, 1300)...)
	filler[12], filler[13] = 0x88, 0xb5 // not IP
	// Send as much as the token bucket passes at once, and more, which waits.
	var all [][]byte
	for bytes := uint32(0); bytes < burst+3000; bytes += uint32(len(filler)) {
		all = append(all, filler)
	}
	for _, f := range append(all, frames...) {
		from.Send(t, f)
	}
	testnet.Shape(t, port, testnet.QuickBps, limit, burst)
	for range frames {
		got = append(got, tap.Receive(t, func(b []byte) bool { return fromTest(b) && !bytes.Equal(b, filler) }))
	}
	return got
}

// shown is a frame as text, with the tag that is in its metadata.
func shown(tpid, tci uint16, data []byte) string { return fmt.Sprintf("%#x:%d %x", tpid, tci, data) }

// arrived checks that exactly the wanted frames have arrived. in are the same ones when they were sent.
func arrived(t *testing.T, in [][]byte, want, got []string) {
	t.Helper()
	for i, w := range want {
		if at := slices.Index(got, w); at >= 0 {
			got = slices.Delete(got, at, at+1)
		} else {
			t.Errorf("frame %d of %d bytes has not arrived:\n in   %x\n want %.160s", i, len(in[i]), in[i][:min(64, len(in[i]))], w)
		}
	}
	for _, g := range got {
		t.Errorf("arrived, and was not wanted:\n      %.160s", g)
	}
}

// Frames that BPF_PROG_TEST_RUN cannot make, on the program of a real queue: shorter than their headers, or
// larger than a page with the headers outside of the linear part.
func TestMark_RealFrames(t *testing.T) {
	const burst, limit = 9100, 1 << 20
	p := testnet.NewPath(t, testnet.PathOptions{UplinkBps: testnet.SlowBps, Burst: burst, MTU: 9000})
	m := attachMark(t, mark.Config{ThresholdBytes: 0}, p.Uplink)
	big := func(f frame, ecn byte) []byte { return append(f.bytes(ecn), make([]byte, 8800)...) }
	ipv4, ipv6 := frame{options: 8, dscp: 5}, frame{ipv6: true, next: 6, dscp: 5}
	tagged := frame{tags: []uint16{0x88a8, 0x8100}, ipv6: true, next: 6}
	var in, want [][]byte
	for _, cut := range []int{14, 15, 16, 33, 34, 41} { // the header is 28 bytes
		in, want = append(in, ipv4.bytes(ect0)[:cut]), append(want, ipv4.bytes(ect0)[:cut])
	}
	for _, cut := range []int{14, 15, 16, 53} {
		in, want = append(in, ipv6.bytes(ect1)[:cut]), append(want, ipv6.bytes(ect1)[:cut])
	}
	in = append(in, ipv4.bytes(ect0)[:42], ipv6.bytes(ect1)[:54], big(ipv4, ect0), big(ipv6, ect1), big(tagged, ect0), big(ipv4, notECT))
	want = append(want, ipv4.bytes(ce)[:42], ipv6.bytes(ce)[:54], big(ipv4, ce), big(ipv6, ce), big(tagged, ce), big(ipv4, notECT))
	before := statsOf(t, m)
	var got, wanted []string
	for _, g := range through(t, testnet.NewRaw(t, p.Uplink), testnet.NewRaw(t, p.In), p.Uplink, limit, burst, in) {
		data := g.Data
		if g.TPID != 0 { // the kernel moved the outer tag to the metadata on arrival
			data = append(bytes.Clone(data[:12]), append([]byte{byte(g.TPID >> 8), byte(g.TPID), byte(g.TCI >> 8), byte(g.TCI)}, data[12:]...)...)
		}
		got = append(got, shown(0, 0, data))
	}
	for _, w := range want {
		wanted = append(wanted, shown(0, 0, w))
	}
	arrived(t, in, wanted, got)
	s := statsOf(t, m)
	if short, marked := s.PassedShort-before.PassedShort, s.Marked-before.Marked; short != 10 || marked != 5 {
		t.Errorf("%d short, %d marked, want 10 and 5: %+v", short, marked, s)
	}
}

// A switch's kernel keeps the outer tag of a forwarded frame in the packet's metadata, out of the data.
func TestMark_TagInMetadata(t *testing.T) {
	const burst, limit = 3000, 1 << 20
	p := testnet.NewPath(t, testnet.PathOptions{PortBps: testnet.SlowBps, Limit: limit, Burst: burst})
	attachMark(t, mark.Config{ThresholdBytes: 0}, p.Port)
	var in [][]byte
	var got, want []string
	for _, tags := range [][]uint16{nil, {0x8100}, {0x88a8}, {0x88a8, 0x8100}, {0x88a8, 0x8100, 0x8100}} {
		for _, f := range []frame{{}, {ipv6: true, next: 6}} {
			f.tags = tags
			in = append(in, f.bytes(ect0))
			var outer, number uint16
			if len(tags) > 0 {
				outer, number, f.tags = tags[0], 100, tags[1:]
			}
			inner := f.bytes(ce)
			// The inner tags are numbered from 101 in the frame sent.
			for j := range f.tags {
				inner[15+4*j] = byte(101 + j)
			}
			want = append(want, shown(outer, number, inner))
		}
	}
	for _, g := range through(t, testnet.NewRaw(t, p.Uplink), testnet.NewRaw(t, p.Rx), p.Port, limit, burst, in) {
		got = append(got, shown(g.TPID, g.TCI, g.Data))
	}
	arrived(t, in, want, got)
}

// Attach refuses a port without a queue by its name, and nothing stays attached to the other ports.
func TestMark_RefusesPortWithoutQueue(t *testing.T) {
	p := testnet.NewPath(t, testnet.PathOptions{PortBps: 50e6, Limit: 100_000})
	_, err := mark.Attach([]attach.PortRef{p.Port, p.Uplink}, mark.Config{})
	var none *attach.NoQueue
	if !errors.As(err, &none) || none.Port != p.Uplink.Name || none.Kind != "noqueue" {
		t.Errorf("error %v", err)
	}
	if n := testnet.AttachedTo(t, p.Port); n != 0 {
		t.Errorf("%d programs stay attached to %s", n, p.Port.Name)
	}
	if _, err := mark.Attach([]attach.PortRef{{Name: "gone", Ifindex: 4711, Enter: p.Switch.Enter}}, mark.Config{}); err == nil {
		t.Error("attached to a device that does not exist")
	}
}

// A program at the tail marks before the telemetry counts, whichever was attached first.
func TestMark_BeforeTelemetry(t *testing.T) {
	p := testnet.NewPath(t, testnet.PathOptions{PortBps: 50e6})
	tm, err := telemetry.Attach([]telemetry.Port{{PortRef: p.Port, N: 1}}, telemetry.Config{Switch: 1, Signals: []law.Signal{law.Marks}})
	if err != nil {
		t.Fatal(err)
	}
	defer tm.Close()
	fl, err := flows.New()
	if err != nil {
		t.Fatal(err)
	}
	defer fl.Close()
	if err := fl.Add(flows.Port{PortRef: p.Port, N: 1}); err != nil {
		t.Fatal(err)
	}
	for what, attached := range map[string]func() (*mark.Mark, error){
		"with all rights": func() (*mark.Mark, error) { return mark.Attach([]attach.PortRef{p.Port}, mark.Config{Tail: true}) },
		"without CAP_SYS_ADMIN": func() (m *mark.Mark, err error) {
			here := attach.PortRef{Name: p.Port.Name, Ifindex: p.Port.Ifindex}
			return m, p.Port.In(func() error {
				return withoutAdmin(func() (err error) {
					m, err = mark.Attach([]attach.PortRef{here}, mark.Config{Tail: true})
					return err
				})
			})
		},
	} {
		m, err := attached()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		_, chain, err := p.Port.Egress()
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, at := range chain.Programs {
			names = append(names, attach.ProgramName(at.ID))
		}
		if want := []string{"weir_mark", attach.TelemetryProgram, attach.FlowsProgram}; !slices.Equal(names, want) {
			t.Errorf("%s: programs %q, want %q", what, names, want)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		testnet.Until(t, "the marking is detached", func() bool { return testnet.AttachedTo(t, p.Port) == 2 })
	}
}

// withoutAdmin calls f on this thread without CAP_SYS_ADMIN, as under the units.
func withoutAdmin(f func() error) error {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&head, &data[0]); err != nil {
		return err
	}
	all := data
	data[0].Effective &^= 1 << unix.CAP_SYS_ADMIN
	if err := unix.Capset(&head, &data[0]); err != nil {
		return err
	}
	return errors.Join(f(), unix.Capset(&head, &all[0]))
}

// Two ports have their own thresholds. `red` drops what `ecn` would mark, and the sender notices.
func TestMark_Red(t *testing.T) {
	p := testnet.NewPath(t, testnet.PathOptions{PortBps: 50e6, Limit: 1_000_000, UplinkBps: 200e6})
	m, err := mark.Attach([]attach.PortRef{p.Uplink, p.Port}, mark.Config{
		ThresholdBytes: 15_000, Action: mark.ActionDrop,
		PortThresholds: map[string]uint32{p.Uplink.Name: 100_000_000},
	})
	if err != nil {
		t.Fatal(err)
	}
	p.Transfer(t, testnet.ReceiverIPv4, "reno", 2, 400_000)
	stats, err := m.Stats()
	if err != nil {
		t.Fatal(err)
	}
	up, port := stats[0], stats[1]
	if up.Port != p.Uplink.Name || up.DroppedByLaw != 0 || up.PassedUnder == 0 || port.DroppedByLaw == 0 || port.Marked != 0 {
		t.Errorf("counted %+v", stats)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if n := testnet.AttachedTo(t, p.Port) + testnet.AttachedTo(t, p.Uplink); n != 0 {
		t.Errorf("%d programs attached after Close", n)
	}
}
