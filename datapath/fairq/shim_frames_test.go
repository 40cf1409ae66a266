package fairq_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"weir/datapath/attach"
	"weir/datapath/fairq/shim"
	"weir/datapath/internal/bpftest"
	"weir/datapath/internal/frames"
	"weir/datapath/testnet"
)

// shimBench is a sending and a receiving shim, and their programs, to be run on frames.
type shimBench struct {
	*shim.Shim
	send, clear             *ebpf.Program // egress
	hearSending, hearClears *ebpf.Program // ingress of the same ports
	last                    [2]shim.Stats
}

func newShimBench(t *testing.T) *shimBench {
	t.Helper()
	return newShimBenchOf(t, shim.Config{})
}

// newShimBenchOf attaches them to devices that are down: only the packets of the test pass.
func newShimBenchOf(t *testing.T, c shim.Config) *shimBench {
	t.Helper()
	ports := downPorts(t, "sends", "clears")
	b := &shimBench{Shim: attachShim(t, c, send(ports[0]), cleared(ports[1]))}
	b.send, b.hearSending = programAt(t, ports[0], ebpf.AttachTCXEgress), programAt(t, ports[0], ebpf.AttachTCXIngress)
	b.clear, b.hearClears = programAt(t, ports[1], ebpf.AttachTCXEgress), programAt(t, ports[1], ebpf.AttachTCXIngress)
	return b
}

// downPorts makes two devices that are down: only the packets of the test pass.
func downPorts(t *testing.T, names ...string) (ports [2]attach.PortRef) {
	t.Helper()
	n := testnet.NewNamespace(t)
	n.Must(t, func() error {
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: names[0]}, PeerName: names[1]}); err != nil {
			return err
		}
		for i, name := range names {
			l, err := netlink.LinkByName(name)
			if err != nil {
				return err
			}
			ports[i] = attach.PortRef{Name: name, Ifindex: l.Attrs().Index, Enter: n.Enter}
		}
		return nil
	})
	return ports
}

func send(p attach.PortRef) shim.Port {
	return shim.Port{PortRef: p, Side: shim.Send}
}

func cleared(p attach.PortRef) shim.Port {
	return shim.Port{PortRef: p, Side: shim.Clear}
}

// attachShim attaches the shim for the length of the test.
func attachShim(t *testing.T, c shim.Config, ports ...shim.Port) *shim.Shim {
	t.Helper()
	s, err := shim.Attach(ports, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// programAt returns the first program of a port's chain, for the length of the test.
func programAt(t *testing.T, p attach.PortRef, where ebpf.AttachType) *ebpf.Program {
	t.Helper()
	var q *link.QueryResult
	err := p.In(func() (err error) {
		q, err = link.QueryPrograms(link.QueryOptions{Target: p.Ifindex, Attach: where})
		return err
	})
	if err != nil || len(q.Programs) == 0 {
		t.Fatalf("nothing attached to %s: %v", p.Name, err)
	}
	program, err := ebpf.NewProgramFromID(q.Programs[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = program.Close() })
	return program
}

// throughProgram returns the frame that a program makes of one. flags are those of BPF_PROG_TEST_RUN.
func throughProgram(t *testing.T, p *ebpf.Program, in []byte, flags uint32) []byte {
	t.Helper()
	o := ebpf.RunOptions{Data: in, DataOut: make([]byte, len(in)+64), Flags: flags}
	verdict, err := p.Run(&o)
	if err != nil {
		t.Fatalf("frame %x: %v", in, err)
	}
	if verdict != bpftest.TCXNext {
		t.Errorf("frame %x: returned %d, want %d", in, int32(verdict), -1)
	}
	return o.DataOut
}

// counted returns the increase of a port's counters since the last call. Side 0 sends, 1 clears.
func (b *shimBench) counted(t *testing.T, side int) shim.Stats {
	t.Helper()
	all, err := b.Stats()
	if err != nil {
		t.Fatal(err)
	}
	now, last := all[side], b.last[side]
	b.last[side] = now
	return bpftest.Minus(now, last)
}

// talk makes the frames of one connection. Its client always has one of the ends' own addresses: 10.0.0.1 or
// fd00::1.
type talk struct {
	name           string
	tags           []frames.Tag
	ipv6           bool
	ipOptions      []byte
	extensions     []frames.Extension
	port           uint16
	client, server int     // their window scales; -1: no option
	nops           int     // before the option
	signed         []byte  // an option that signs, in the SYNs
	synBits        [2]byte // CWR and ECE of SYN and SYN-ACK
	synReserved    [2]byte // AE
	ends           [2]netip.Addr
	window         int    // in the header; 0: 60000; -1: 0
	acked          uint32 // bytes acknowledged beyond the SYN
}

const clientSeq, serverSeq = 1_000_000, 4_000_000_000

func (k *talk) segment(fromServer bool, flags, reserved byte, options []byte, payload int) []byte {
	if !k.ends[0].IsValid() {
		k.ends = [2]netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")}
		if k.ipv6 {
			k.ends = [2]netip.Addr{netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")}
		}
	}
	s := frames.Segment{
		Link: frames.Link{Dst: [6]byte{2, 0, 0, 0, 0, 2}, Src: [6]byte{2, 0, 0, 0, 0, 1}, Tags: k.tags},
		IP:   frames.IP{From: k.ends[0], To: k.ends[1], Options: k.ipOptions, Extensions: k.extensions},
		Seq:  clientSeq, Ack: serverSeq + 1, FromPort: 40000 + k.port, ToPort: 80, Window: 60000,
		Flags: flags, Reserved: reserved, Options: options, Payload: bytes.Repeat([]byte{0xa5}, payload),
	}
	if flags&frames.SYN == 0 {
		s.Seq = clientSeq + 1
	}
	if fromServer {
		s.From, s.To, s.FromPort, s.ToPort = s.To, s.From, s.ToPort, s.FromPort
		s.Seq, s.Ack = serverSeq, clientSeq+1
		if flags&frames.SYN == 0 {
			s.Seq++
		}
	}
	s.Ack += k.acked
	if k.window != 0 {
		s.Window = uint16(max(k.window, 0))
	}
	return s.Bytes()
}

// syn returns the SYN or, of the server, the SYN-ACK.
func (k *talk) syn(fromServer bool) []byte {
	scale, i, flags := k.client, 0, byte(frames.SYN)
	if fromServer {
		scale, i, flags = k.server, 1, frames.SYN|frames.ACK
	}
	list := [][]byte{frames.MSS(1460), bytes.Repeat(frames.Nop, k.nops)}
	if scale >= 0 {
		list = append(list, frames.Scale(byte(scale)))
	}
	if k.signed != nil {
		list = append(list, k.signed)
	}
	return k.segment(fromServer, flags|k.synBits[i], k.synReserved[i], frames.List(frames.OptionNop, list...), 0)
}

var dataOptions = frames.List(frames.OptionNop, frames.Nop, frames.Nop, frames.Timestamps(1, 2))

// ack returns an acknowledgement with this many bytes of data.
func (k *talk) ack(fromServer bool, reserved byte, payload int) []byte {
	return k.segment(fromServer, frames.ACK, reserved, dataOptions, payload)
}

// shift returns the scale that counts for an end: RFC 7323 1.3.
func (k *talk) shift(server bool) byte {
	switch {
	case k.client < 0 || k.server < 0:
		return 0
	case server:
		return byte(min(k.server, 14))
	}
	return byte(min(k.client, 14))
}

// shakeHands sends a handshake through the shim at a port. own is the end behind the port of a sending shim,
// and the end that a receiving shim receives from.
func (b *shimBench) shakeHands(t *testing.T, k *talk, ownIsServer, atClear bool) {
	t.Helper()
	egress, ingress := b.send, b.hearSending
	if atClear {
		egress, ingress = b.hearClears, b.clear // the host's segments arrive here
	}
	for _, fromServer := range []bool{false, true} {
		p := egress
		if fromServer != ownIsServer {
			p = ingress
		}
		in := k.syn(fromServer)
		if out := throughProgram(t, p, in, 0); !bytes.Equal(in, out) {
			t.Errorf("%s: a SYN was changed:\n in  %x\n out %x", k.name, in, out)
		}
	}
}

// headers returns the ways to wrap a segment.
func headers() []talk {
	v4 := []byte{7, 8, 4, 0, 0, 0, 0, 0} // record route
	extended := []frames.Extension{{Kind: frames.HopByHop, Body: make([]byte, 6)}, {Kind: frames.ToHost, Body: make([]byte, 22)}}
	var all []talk
	for _, tags := range [][]frames.Tag{
		nil, {{TPID: frames.TypeVLAN, TCI: 100}}, {{TPID: frames.TypeQinQ, TCI: 200}, {TPID: frames.TypeVLAN, TCI: 100}},
	} {
		name := fmt.Sprintf(", %d tags", len(tags))
		all = append(all,
			talk{name: "ipv4" + name, tags: tags}, talk{name: "ipv4 options" + name, tags: tags, ipOptions: v4},
			talk{name: "ipv6" + name, tags: tags, ipv6: true}, talk{name: "ipv6 extensions" + name, tags: tags, ipv6: true, extensions: extended},
		)
	}
	return all
}

// A sending shim makes the segment that its sender would have built with the scale in the reserved bits, byte
// for byte, and a receiving shim makes the original again. The rows are every kind of header, both roles,
// scales of both ends, and no option at one of them.
func TestShim_Table(t *testing.T) {
	b := newShimBench(t)
	rows, port := 0, uint16(0)
	for _, k := range headers() {
		for _, scales := range [][2]int{{0, 0}, {0, 7}, {7, 0}, {1, 8}, {14, 14}, {15, 200}, {-1, 7}, {7, -1}, {-1, -1}, {11, 2}} {
			for _, server := range []bool{false, true} {
				port++
				k := k
				k.port, k.client, k.server = port, scales[0], scales[1]
				k.name = fmt.Sprintf("%s, scales %d and %d, server: %t", k.name, k.client, k.server, server)
				b.shakeHands(t, &k, server, false)
				b.shakeHands(t, &k, !server, true)
				b.counted(t, 0)
				b.counted(t, 1)
				for _, payload := range []int{0, 1, 700} {
					for _, flags := range []uint32{0, bpftest.ChecksumComplete} {
						b.row(t, &k, server, payload, flags)
						rows++
					}
				}
			}
		}
	}
	t.Logf("%d rows", rows)
}

// row sends a segment of an end through both shims.
func (b *shimBench) row(t *testing.T, k *talk, server bool, payload int, flags uint32) {
	t.Helper()
	shift := k.shift(server)
	changed := shim.Stats{Seen: 1, Written: 1}
	if shift == 0 {
		changed = shim.Stats{Seen: 1, Same: 1}
	}
	in, want := k.ack(server, 0, payload), k.ack(server, shift, payload)
	sent := throughProgram(t, b.send, in, flags)
	if !bytes.Equal(sent, want) {
		t.Errorf("%s, %d bytes: sent\n in   %x\n out  %x\n want %x", k.name, payload, in, sent, want)
	}
	if got := b.counted(t, 0); got != changed {
		t.Errorf("%s: counted %+v, want %+v", k.name, got, changed)
	}
	if again := throughProgram(t, b.send, sent, flags); !bytes.Equal(again, want) || b.counted(t, 0).Same != 1 {
		t.Errorf("%s: a second time\n out  %x\n want %x", k.name, again, want)
	}
	if wrong := throughProgram(t, b.send, k.ack(server, ^shift&15, payload), flags); !bytes.Equal(wrong, want) || b.counted(t, 0).Written != 1 {
		t.Errorf("%s: with other bits before\n out  %x\n want %x", k.name, wrong, want)
	}
	if got := throughProgram(t, b.clear, sent, flags); !bytes.Equal(got, in) {
		t.Errorf("%s, %d bytes: cleared\n out  %x\n want %x", k.name, payload, got, in)
	}
	if got := b.counted(t, 1); got != changed {
		t.Errorf("%s: counted %+v at the receiver, want %+v", k.name, got, changed)
	}
}
