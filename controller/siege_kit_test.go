package controller

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"weir/datapath/testnet"
	"weir/internal/testroot"
	"weir/law/fabric"
	"weir/law/fabric/modelnet"
	"weir/openflow"
)

// remote is the far end of one connection to the controller.
type remote struct {
	nc   net.Conn
	r    *bufio.Reader
	turn chan struct{} // of writing; not a mutex, which holds up the clock of a bubble
}

// dialFrom connects from an address of this machine: the controller counts connections by address.
func dialFrom(from string) (*remote, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: testnet.Patience}
	nc, err := d.Dial("tcp4", siegeAddress)
	if err != nil {
		return nil, err
	}
	return newRemote(nc), nil
}

func newRemote(nc net.Conn) *remote {
	return &remote{nc: nc, r: bufio.NewReaderSize(nc, 64<<10), turn: make(chan struct{}, 1)}
}

func (p *remote) write(b []byte) error {
	p.turn <- struct{}{}
	defer func() { <-p.turn }()
	_, err := p.nc.Write(b)
	return err
}

func (p *remote) send(xid uint32, m openflow.Message) error {
	b, err := openflow.Append(nil, xid, m)
	if err != nil {
		return err
	}
	return p.write(b)
}

func (p *remote) read() (openflow.Header, openflow.Message, error) {
	head, err := p.r.Peek(openflow.HeaderLen)
	if err != nil {
		return openflow.Header{}, nil, err
	}
	h, err := openflow.ParseHeader(head)
	if err != nil {
		return h, nil, err
	}
	b := make([]byte, h.Length)
	if _, err := io.ReadFull(p.r, b); err != nil {
		return h, nil, err
	}
	return openflow.Decode(b)
}

// drain reads until the controller hangs up.
func (p *remote) drain() { _, _ = io.Copy(io.Discard, p.r) }

// model is a switch without flows, as honest as its fields leave it.
type model struct {
	id    uint64
	ports int
	now   func() int                                         // ports at the moment; nil: as above
	role  func(asked *openflow.RoleRequest) openflow.Message // nil: confirms what is asked
	flows func(p *remote, xid uint32) error                  // nil: none
	seen  func(h openflow.Header, m openflow.Message)
	begun func(p *remote) // called on a goroutine of its own after the handshake
	// joined is called when the controller has sent the switch orders and waits for their confirmation.
	joined func()
}

func modelPort(n int) openflow.Port {
	return openflow.Port{PortNo: openflow.PortNo(n), HwAddr: openflow.MAC{2, 1, 0, 0, 0, byte(n)}, Name: fmt.Sprintf("p%d", n)}
}

// be answers the controller until the connection ends.
func (p *remote) be(m model) error {
	var generation uint64
	first := true
	if err := p.send(0, &openflow.Hello{Versions: []uint8{openflow.Version13}}); err != nil {
		return err
	}
	for {
		h, q, err := p.read()
		if err != nil {
			return err
		}
		if m.seen != nil {
			m.seen(h, q)
		}
		var answer openflow.Message
		switch q := q.(type) {
		case *openflow.FeaturesRequest:
			answer = &openflow.FeaturesReply{DatapathID: m.id, Tables: 254}
		case *openflow.EchoRequest:
			answer = &openflow.EchoReply{Data: q.Data}
		case *openflow.BarrierRequest:
			answer = &openflow.BarrierReply{}
		case *openflow.RoleRequest:
			if m.role != nil {
				answer = m.role(q)
				break
			}
			if q.Role == openflow.RoleNoChange {
				q.Role, q.GenerationID = openflow.RoleMaster, generation
			}
			generation = q.GenerationID
			answer = &openflow.RoleReply{Role: q.Role, GenerationID: generation}
		case *openflow.MultipartRequest:
			if q.Type == openflow.MultipartFlow && m.flows != nil {
				if err := m.flows(p, h.XID); err != nil {
					return err
				}
				continue
			}
			answer = m.statistics(q.Type)
		}
		if answer == nil {
			continue
		}
		if err := p.send(h.XID, answer); err != nil {
			return err
		}
		if _, is := answer.(*openflow.FeaturesReply); is && m.begun != nil {
			go m.begun(p)
		}
		if _, is := answer.(*openflow.BarrierReply); is && first {
			first = false
			if m.joined != nil {
				m.joined()
			}
		}
	}
}

func (m *model) statistics(kind openflow.MultipartType) openflow.Message {
	a := &openflow.MultipartReply{Type: kind}
	if m.now != nil {
		m.ports = m.now()
	}
	switch kind {
	case openflow.MultipartPortDesc:
		var ports openflow.PortDescReply
		for n := range m.ports {
			ports = append(ports, modelPort(n+1))
		}
		a.Body = ports
	case openflow.MultipartFlow:
		a.Body = openflow.FlowStatsReply{}
	case openflow.MultipartGroupDesc:
		a.Body = openflow.GroupDescReply{}
	case openflow.MultipartMeterConfig:
		a.Body = openflow.MeterConfigReply{}
	case openflow.MultipartPortStats:
		stats := openflow.PortStatsReply{}
		for n := range m.ports {
			stats = append(stats, openflow.PortStats{PortNo: openflow.PortNo(n + 1)})
		}
		a.Body = stats
	}
	return a
}

// copyOf is a packet-in of a frame, as by a flow of Weir's.
func copyOf(k fabric.Kind, port int, frame []byte) *openflow.PacketIn {
	return &openflow.PacketIn{
		BufferID: openflow.NoBuffer, TotalLen: uint16(len(frame)), Reason: openflow.PacketInAction, Cookie: k.Cookie(),
		Match: openflow.Match{openflow.InPort(openflow.PortNo(port))}, Data: frame,
	}
}

// honest is a modelled switch with two hosts. One asks for the other's address again and again: the packet-in
// goes through the whole controller, its law with it, and a packet-out comes back.
type honest struct {
	p       *remote
	answers chan byte // the number of the question
}

const honestID = 0xabc

func newHonest(tb testing.TB, r *racks) *honest {
	tb.Helper()
	h := &honest{answers: make(chan byte, 64)}
	r.fabric.Must(tb, func() (err error) { h.p, err = dialFrom("127.0.0.1"); return err })
	tb.Cleanup(func() { _ = h.p.nc.Close() })
	up := make(chan struct{})
	go func() {
		_ = h.p.be(model{id: honestID, ports: 2, joined: func() { close(up) }, seen: func(_ openflow.Header, m openflow.Message) {
			if out, is := m.(*openflow.PacketOut); is && len(out.Data) >= 42 && out.Data[12] == 8 && out.Data[13] == 6 && out.Data[21] == 2 { // an ARP reply
				select {
				case h.answers <- out.Data[41]:
				default:
				}
			}
		}})
	}()
	select {
	case <-up:
	case <-time.After(testnet.Patience):
		tb.Fatal("the modelled switch is not taken in")
	}
	testnet.Until(tb, "the modelled switch is served", func() bool {
		second := modelnet.ARP(honestMAC(2), fabric.IPv4{10, 2, 0, 0}, fabric.Broadcast, fabric.IPv4{10, 9, 9, 9})
		if err := h.p.send(0, copyOf(fabric.ARP, 2, second)); err != nil {
			return false
		}
		_, ok := h.ask(0, 100*time.Millisecond)
		return ok
	})
	return h
}

func honestMAC(n byte) fabric.MAC { return fabric.MAC{2, 0xaa, 0, 0, 0, n} }

// ask returns how long the controller took to answer; false: longer than it was waited for.
func (h *honest) ask(number byte, wait time.Duration) (time.Duration, bool) {
	number %= 8 // as many addresses as a host may have
	frame := modelnet.ARP(honestMAC(1), fabric.IPv4{10, 1, 0, number}, fabric.Broadcast, fabric.IPv4{10, 2, 0, 0})
	begun := time.Now()
	if err := h.p.send(0, copyOf(fabric.ARP, 1, frame)); err != nil {
		return 0, false
	}
	late := time.NewTimer(wait)
	defer late.Stop()
	for {
		select {
		case n := <-h.answers:
			if n == number {
				return time.Since(begun), true
			}
		case <-late.C:
			return 0, false
		}
	}
}

const siegeAddress = "127.0.0.1:6653"

// newSiege is a controller in a namespace, without switches.
func newSiege(tb testing.TB) *racks {
	testroot.Need(tb, "namespaces")
	r := &racks{tb: tb, fabric: testnet.NewNamespace(tb), OpenVSwitch: &testnet.OpenVSwitch{Dir: tb.TempDir()}}
	r.fabric.Must(tb, r.makeCables) // lo
	r.startController()
	testnet.Until(tb, "the controller is active", func() bool { s := r.status(tb); return s != nil && s.Active == "" })
	return r
}

// testHostile is set in the environment of the process that attacks: the attack's name, and gently.
const (
	testHostile = "WEIR_TEST_HOSTILE"
	gently      = " gently"
)

// attackFrom starts an attack in a process of its own, so that what is measured is the controller's delay. A gentle attacker has a
// low priority: the machines of real attackers take no processor time from the controller and the switches.
func (r *racks) attackFrom(tb testing.TB, name, how string) *testnet.Process {
	tb.Helper()
	cmd := exec.Command(os.Args[0])
	if how == gently {
		cmd = exec.Command("nice", "-n", "10", os.Args[0])
	}
	cmd.Env = append(os.Environ(), testHostile+"="+name+how)
	return testnet.Start(tb, r.fabric, cmd)
}
