package host_test

import (
	"net"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"weir/datapath/attach"
	"weir/datapath/host"
	"weir/datapath/internal/bpftest"
	"weir/datapath/internal/frames"
	"weir/datapath/testnet"
)

// Ends of the frames: VM 1, VM 2 of the same host, and a peer.
var (
	vmMAC, otherMAC, peerMAC = [6]byte{2, 0, 0, 0, 0, 1}, [6]byte{2, 0, 0, 0, 0, 2}, [6]byte{2, 0, 0, 0, 0, 9}
	vmIPv4, otherIPv4        = netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	vmIPv6, otherIPv6        = netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")
	peerIPv4, peerIPv6       = netip.MustParseAddr("10.0.0.9"), netip.MustParseAddr("fd00::9")
)

// rig is a host whose devices are down: only the packets of the test pass.
type rig struct {
	*host.Host
	uplink, vm1, vm2 attach.PortRef
	up, toVM, toVM2  placed
	last             host.Stats
}

func newRig(t testing.TB, c host.Config) *rig {
	t.Helper()
	n := testnet.NewNamespace(t)
	r := &rig{}
	n.Must(t, func() error {
		for _, pair := range [][2]string{{"up", "far"}, {"vm1", "vm2"}} {
			if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: pair[0]}, PeerName: pair[1]}); err != nil {
				return err
			}
		}
		for name, p := range map[string]*attach.PortRef{"up": &r.uplink, "vm1": &r.vm1, "vm2": &r.vm2} {
			l, err := netlink.LinkByName(name)
			if err != nil {
				return err
			}
			*p = attach.PortRef{Name: name, Ifindex: l.Attrs().Index, Enter: n.Enter}
		}
		return nil
	})
	c.Uplink = r.uplink
	var err error
	if r.Host, err = host.Open(c); err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, v := range []host.VM{
		{Number: 1, Port: r.vm1, MAC: net.HardwareAddr(vmMAC[:]), Addresses: hosts(vmIPv4, vmIPv6)},
		{Number: 2, Port: r.vm2, MAC: net.HardwareAddr(otherMAC[:]), Addresses: append(hosts(otherIPv6), netip.MustParsePrefix("10.0.0.2/31"))},
	} {
		if err := r.AddVM(v); err != nil {
			t.Fatalf("%+v", err)
		}
	}
	r.up, r.toVM, r.toVM2 = programAt(t, r.uplink), programAt(t, r.vm1), programAt(t, r.vm2)
	return r
}

func hosts(all ...netip.Addr) (prefixes []netip.Prefix) {
	for _, a := range all {
		prefixes = append(prefixes, netip.PrefixFrom(a, a.BitLen()))
	}
	return prefixes
}

// placed is a program at the egress of a port.
type placed struct {
	*ebpf.Program
	at attach.PortRef
}

// programAt returns the first program at a port's egress.
func programAt(t testing.TB, p attach.PortRef) placed {
	t.Helper()
	var found []link.AttachedProgram
	err := p.In(func() (err error) { found, err = attach.ProgramsAt(p.Ifindex, ebpf.AttachTCXEgress); return err })
	if err != nil || len(found) == 0 {
		t.Fatalf("nothing attached to %s: %v", p.Name, err)
	}
	program, err := ebpf.NewProgramFromID(found[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = program.Close() })
	return placed{program, p}
}

// context is struct __sk_buff.
type context [48]uint32

const (
	atPriority = 8
	atIngress  = 9
	atIfindex  = 10
)

// run sends a frame that came in by a port through a program.
func run(t testing.TB, p placed, in []byte, from attach.PortRef, flags uint32) (verdict uint32, out []byte, priority uint32) {
	t.Helper()
	verdict, out, priority, err := try(p, in, from, flags)
	if err != nil {
		t.Fatalf("frame %x: %v", in, err)
	}
	return verdict, out, priority
}

func try(p placed, in []byte, from attach.PortRef, flags uint32) (verdict uint32, out []byte, priority uint32, err error) {
	var ctx, after context
	ctx[atIngress], ctx[atIfindex] = uint32(from.Ifindex), uint32(p.at.Ifindex)
	o := ebpf.RunOptions{Data: in, DataOut: make([]byte, len(in)+64), Context: ctx, ContextOut: &after, Flags: flags}
	err = p.at.In(func() (err error) { // the kernel looks for the device in the caller's namespace
		verdict, err = p.Run(&o)
		return err
	})
	return verdict, o.DataOut, after[atPriority], err
}

// counted returns the increase of the first VM's counters since the last call.
func (r *rig) counted(t testing.TB) host.Stats {
	t.Helper()
	now := statsOf(t, r.Host, 1)
	last := r.last
	r.last = now
	d := bpftest.Minus(now, last)
	d.VM, d.Port, d.Rate = 0, "", 0
	return d
}

// talk is a connection between VM 1 and the peer.
type talk struct {
	name          string
	ipv6          bool
	tags          []frames.Tag
	vmPort        uint16
	vmSYN, peerTo []byte // options of the SYN and of the SYN-ACK
	peerOpens     bool
}

// segment builds a segment of the talk; fromPeer: towards the VM.
func (k *talk) segment(fromPeer bool, flags byte, window uint16, options []byte, payload int) *frames.Segment {
	s := &frames.Segment{
		Link: frames.Link{Dst: peerMAC, Src: vmMAC, Tags: k.tags}, IP: frames.IP{From: vmIPv4, To: peerIPv4},
		FromPort: k.vmPort, ToPort: 80, Seq: 1001, Ack: 5001, Flags: flags, Window: window, Options: options, Payload: make([]byte, payload),
	}
	if k.ipv6 {
		s.From, s.To = vmIPv6, peerIPv6
	}
	if fromPeer {
		s.Dst, s.Src, s.From, s.To, s.FromPort, s.ToPort, s.Seq, s.Ack = s.Src, s.Dst, s.To, s.From, s.ToPort, s.FromPort, s.Ack, s.Seq
	}
	if flags&frames.SYN != 0 {
		s.Seq--
	}
	if flags&frames.ACK == 0 {
		s.Ack = 0
	}
	return s
}

// shake sends the handshake: what the VM sends through the uplink's program, and what the peer sends through the VM's.
func (r *rig) shake(t testing.TB, k *talk) {
	t.Helper()
	for i, flags := range []byte{frames.SYN, frames.SYN | frames.ACK} {
		fromPeer := (i == 1) != k.peerOpens
		list := k.vmSYN
		if fromPeer {
			list = k.peerTo
		}
		in := k.segment(fromPeer, flags, 60000, list, 0).Bytes()
		p, from := r.up, r.vm1
		if fromPeer {
			p, from = r.toVM, r.uplink
		}
		if verdict, _, _ := run(t, p, in, from, 0); verdict != bpftest.TCXNext {
			t.Fatalf("%s: a SYN was answered with %d", k.name, int32(verdict))
		}
	}
	r.counted(t)
}
