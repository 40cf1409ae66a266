package fairq_test

import (
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"weir/datapath/attach"
	"weir/datapath/fairq"
	"weir/datapath/fairq/shim"
	"weir/datapath/testnet"
)

// shimmed attaches the shim as for bare-metal hosts: it sends at the hosts' own devices, and the switch's ports
// clear.
func (p *rwndPath) shimmed(t *testing.T) *shim.Shim {
	t.Helper()
	return attachShim(t, shim.Config{}, send(p.Uplink), send(p.Rx), cleared(p.In), cleared(p.Port))
}

// Real TCP with all offloads (checksums not yet computed, packets of many segments). Each segment leaves its
// host with the host's scale, to its last after FIN, and reaches the other with none. No checksum is wrong.
func TestShim_RealTCP(t *testing.T) {
	for _, offload := range []bool{false, true} {
		for _, ipv6 := range []bool{false, true} {
			t.Run(fmt.Sprintf("offloads=%t,ipv6=%t", offload, ipv6), func(t *testing.T) {
				p := newRwndPath(t, testnet.PathOptions{GSO: offload, ChecksumOffload: offload})
				s := p.shimmed(t)
				ip := testnet.ReceiverIPv4
				if ipv6 {
					ip = testnet.ReceiverIPv6
				}
				for _, scales := range [][2]int{{7, 7}, {0, 14}, {9, 1}, {3, 12}} {
					p.checkBitsOnTheWire(t, ip, scales)
				}
				p.checksums(t)
				stats, err := s.Stats()
				if err != nil {
					t.Fatal(err)
				}
				for _, c := range stats {
					if c.Written == 0 || c.Learnt == 0 || c.Unwritable+c.Short+c.Unknown+c.Signed+c.AccECN != 0 {
						t.Errorf("counted %+v", c)
					}
				}
			})
		}
	}
}

func (p *rwndPath) checkBitsOnTheWire(t *testing.T, ip net.IP, scales [2]int) {
	t.Helper()
	l := p.Listen(t, ip, testnet.WindowScale(scales[1]))
	c := p.Dial(t, l, testnet.WindowScale(scales[0]))
	testnet.Send(t, c.Client, c.Server, 200_000)
	testnet.Send(t, c.Server, c.Client, 200_000)
	client := testnet.AddrPort(c.Client.LocalAddr())
	c.Close()
	fins := 0
	out, in := 0, 0
	testnet.Until(t, "both ends' FINs pass", func() bool {
		p.client.Each(t, func(s *testnet.Segment) {
			if s.From != client && s.To != client || s.Flags&testnet.SYN != 0 || s.Flags&testnet.ACK == 0 {
				return
			}
			want := uint8(0)
			if s.Out {
				want, out = uint8(scales[0]), out+1
			} else {
				in++
			}
			if s.Reserved != want {
				t.Errorf("scales %v: flags %#x, out: %t: reserved bits %d, want %d", scales, s.Flags, s.Out, s.Reserved, want)
			}
			if s.Flags&testnet.FIN != 0 {
				fins++
			}
		})
		return fins >= 2
	})
	if out < 10 || in < 10 {
		t.Errorf("scales %v: only %d segments out and %d in", scales, out, in)
	}
}

// chainAt lists the programs attached to a port, first to last.
func chainAt(t *testing.T, p attach.PortRef, where ebpf.AttachType) (names []string) {
	t.Helper()
	var q *link.QueryResult
	err := p.In(func() (err error) {
		q, err = link.QueryPrograms(link.QueryOptions{Target: p.Ifindex, Attach: where})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range q.Programs {
		program, err := ebpf.NewProgramFromID(a.ID)
		if err != nil {
			t.Fatal(err)
		}
		info, err := program.Info()
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, info.Name)
		_ = program.Close()
	}
	return names
}

// At a switch's last port the reader of the bits runs before the program that clears them, whichever was
// attached first. Close leaves nothing. The error for a missing port names it, and nothing stays at the others.
func TestShim_AttachesWhereItBelongs(t *testing.T) {
	p := newRwndPath(t, testnet.PathOptions{NoIPv6: true})
	f := p.govern(t, limitedTo(30000), limitedTo(30000), fairq.Config{Scale: fairq.ScaleShim})
	s := attachShim(t, shim.Config{}, send(p.Uplink), cleared(p.In))
	chains := func() string {
		return fmt.Sprint(chainAt(t, p.Uplink, ebpf.AttachTCXIngress), chainAt(t, p.Uplink, ebpf.AttachTCXEgress),
			chainAt(t, p.In, ebpf.AttachTCXIngress), chainAt(t, p.In, ebpf.AttachTCXEgress))
	}
	if got, want := chains(), "[weir_shim_hear] [weir_shim_send] [weir_shim_hear] [weir_fairq weir_shim_clear]"; got != want {
		t.Errorf("attached %s, want %s", got, want)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got, want := chains(), "[] [] [] [weir_fairq]"; got != want {
		t.Errorf("after Close %s, want %s", got, want)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	s = attachShim(t, shim.Config{}, cleared(p.In))
	f = p.govern(t, limitedTo(30000), limitedTo(30000), fairq.Config{Scale: fairq.ScaleShim})
	if got, want := chains(), "[] [] [weir_shim_hear] [weir_fairq weir_shim_clear]"; got != want {
		t.Errorf("the other way round %s, want %s", got, want)
	}
	if err := errors.Join(f.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	gone := attach.PortRef{Name: "gone", Ifindex: 4711, Enter: p.Switch.Enter}
	if _, err := shim.Attach([]shim.Port{send(p.Uplink), send(gone)}, shim.Config{}); err == nil {
		t.Error("attached to a device that does not exist")
	} else if want := "attach shim to gone: "; err.Error()[:len(want)] != want {
		t.Errorf("error %q does not name the port", err)
	}
	if got := chains(); got != "[] [] [] []" {
		t.Errorf("after an error %s stays", got)
	}
	for _, c := range []struct {
		ports int
		shim.Config
	}{{1025, shim.Config{}}, {1, shim.Config{Connections: 1 << 23}}} {
		if _, err := shim.Attach(make([]shim.Port, c.ports), c.Config); err == nil {
			t.Errorf("%d ports, %d connections: no error", c.ports, c.Connections)
		}
	}
}
