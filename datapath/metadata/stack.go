package metadata

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"time"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/channel"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
)

const (
	nic = tcpip.NICID(1)
	// mtu in bytes is the least that IPv6 allows (RFC 8200, section 5), so it fits any guest.
	mtu = header.IPv6MinimumMTU
	// receiveBuffer in bytes, of a connection: less than METADATA_BYTES of bpf/metadata/metadata.bpf.c, so that a large packet of the
	// guest (GSO) fits into a record.
	receiveBuffer = 8 << 10
	sendBuffer    = 64 << 10
	// A guest that does not answer costs memory no longer than these.
	ending  = 2 * time.Second // FIN-WAIT-2, and TIME-WAIT
	retries = 4
)

// tcpStack is the TCP of one port.
type tcpStack struct {
	stack *stack.Stack
	link  *wire
	stop  func() // the listener
}

func newStack(p *port) (*tcpStack, error) {
	t := &tcpStack{link: &wire{Endpoint: channel.New(0, mtu, tcpip.LinkAddress(MAC)), to: p}}
	// Frames pass no wire, and the guest may leave their checksums to its device.
	t.link.LinkEPCapabilities = stack.CapabilityRXChecksumOffload
	t.stack = stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{arp.NewProtocol, ipv4.NewProtocol, ipv6.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol},
	})
	l, err := t.listen(p.cfg)
	if err != nil {
		t.end()
		return nil, err
	}
	t.stop = l.Shutdown
	go func() {
		defer l.Close()
		p.serve(l)
	}()
	return t, nil
}

func (t *tcpStack) listen(c Config) (*gonet.TCPListener, error) {
	var (
		receive = tcpip.TCPReceiveBufferSizeRangeOption{Min: 4096, Default: receiveBuffer, Max: receiveBuffer}
		send    = tcpip.TCPSendBufferSizeRangeOption{Min: 4096, Default: sendBuffer, Max: sendBuffer}
		wait    = tcpip.TCPTimeWaitTimeoutOption(ending)
		linger  = tcpip.TCPLingerTimeoutOption(ending)
		again   = tcpip.TCPMaxRetriesOption(retries)
	)
	for _, o := range []tcpip.SettableTransportProtocolOption{&receive, &send, &wait, &linger, &again} {
		if err := t.stack.SetTransportProtocolOption(tcp.ProtocolNumber, o); err != nil {
			return nil, errors.New(err.String())
		}
	}
	if err := t.stack.CreateNIC(nic, t.link); err != nil {
		return nil, errors.New(err.String())
	}
	for _, a := range []netip.Addr{c.IPv4, c.IPv6} {
		if !a.IsValid() {
			continue
		}
		protocol, prefix := ipv4.ProtocolNumber, tcpip.AddrFromSlice(a.AsSlice()).WithPrefix()
		if a.Is6() {
			protocol = ipv6.ProtocolNumber
		}
		err := t.stack.AddProtocolAddress(nic, tcpip.ProtocolAddress{Protocol: protocol, AddressWithPrefix: prefix}, stack.AddressProperties{})
		if err != nil {
			return nil, errors.New(err.String())
		}
	}
	t.stack.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: nic}, {Destination: header.IPv6EmptySubnet, NIC: nic}})
	return gonet.ListenTCP(t.stack, tcpip.FullAddress{Port: Port}, ipv6.ProtocolNumber) // and IPv4: it is bound to no address
}

// receive takes a frame.
func (t *tcpStack) receive(frame []byte) {
	if len(frame) < header.EthernetMinimumSize {
		return
	}
	pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(frame[header.EthernetMinimumSize:])})
	defer pkt.DecRef()
	t.link.InjectInbound(tcpip.NetworkProtocolNumber(binary.BigEndian.Uint16(frame[2*header.EthernetAddressSize:])), pkt)
}

// close resets all connections.
func (t *tcpStack) close() {
	t.stop()
	t.end()
}

func (t *tcpStack) end() {
	t.stack.Close()
	t.stack.Wait()
}

// wire is the link of a stack: frames to the VM.
type wire struct {
	*channel.Endpoint // the methods of a link without frames
	to                *port
}

func (f *wire) MaxHeaderLength() uint16                 { return header.EthernetMinimumSize }
func (f *wire) ARPHardwareType() header.ARPHardwareType { return header.ARPHardwareEther }

// AddHeader writes the Ethernet header. All frames are for the one VM.
func (f *wire) AddHeader(pkt *stack.PacketBuffer) {
	h := pkt.LinkHeader().Push(header.EthernetMinimumSize)
	copy(h, f.to.mac)
	copy(h[header.EthernetAddressSize:], MAC)
	binary.BigEndian.PutUint16(h[2*header.EthernetAddressSize:], uint16(pkt.NetworkProtocolNumber))
}

// WritePackets sends frames to the VM.
func (f *wire) WritePackets(list stack.PacketBufferList) (int, tcpip.Error) {
	for _, pkt := range list.AsSlice() {
		f.to.send(pkt.AsSlices())
	}
	return list.Len(), nil
}
