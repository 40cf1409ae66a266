package park

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weir/datapath/attach"
)

// The kernel sets the addresses of the pair in the step that makes the devices, and the alias in a later one: a process can
// die between the two. So the addresses show whose the devices are, and the alias shows which owner's.
var inAddress, outAddress = attach.ParkIn, attach.ParkOut

const (
	mtu         = 65535 // of the pair: no packet that a port can send is too long
	noAddresses = 1     // IN6_ADDR_GEN_MODE_NONE: without an address the kernel sends no IPv6
)

func (p *Park) alias() string { return "weir park " + p.o.Owner }

// find looks for the pair, and reports whether it exists. It returns *Foreign if a device of that name is not ours.
func (p *Park) find() (exists bool, err error) {
	ends := []struct {
		name    string
		address net.HardwareAddr
		link    *netlink.Link
	}{{p.o.Name + "0", inAddress, &p.in}, {p.o.Name + "1", outAddress, &p.out}}
	for _, e := range ends {
		l, err := p.net.LinkByName(e.name)
		if errors.As(err, new(netlink.LinkNotFoundError)) {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("find device %s: %w", e.name, err)
		}
		a := l.Attrs()
		switch {
		case l.Type() != "veth" || !bytes.Equal(a.HardwareAddr, e.address):
			return false, &Foreign{e.name, "Weir did not make it"}
		case a.Alias != "" && a.Alias != p.alias():
			return false, &Foreign{e.name, fmt.Sprintf("its alias is %q", a.Alias)}
		}
		*e.link = l
	}
	if (p.in == nil) != (p.out == nil) { // the other end was renamed or moved
		for _, e := range ends {
			if *e.link != nil {
				return false, &Foreign{e.name, "its peer has another name or is in another namespace"}
			}
		}
	}
	return p.in != nil, nil
}

func (p *Park) createPair() error {
	name := p.o.Name + "0"
	v := netlink.NewVeth(netlink.LinkAttrs{
		Name: name, HardwareAddr: inAddress, MTU: mtu, NumTxQueues: 1, NumRxQueues: 1,
		// The limit of every class in packets. The program stops before, so no class drops.
		TxQLen: int(2 * p.o.LimitPackets),
	})
	v.PeerName, v.PeerHardwareAddr, v.PeerMTU = p.o.Name+"1", outAddress, mtu
	if err := p.net.LinkAdd(v); err != nil {
		return fmt.Errorf("make the veth pair %s: %w", name, err)
	}
	exists, err := p.find()
	if err == nil && !exists {
		err = fmt.Errorf("device %s is gone", name)
	}
	return err
}

// configure sets all that may have changed since the pair was made, and brings it up. The end that sends comes last: the
// kernel then starts its queue at once, and not when it next looks at links.
func (p *Park) configure() error {
	for _, l := range []netlink.Link{p.out, p.in} {
		name := l.Attrs().Name
		if err := p.disableIPv6(l); err != nil {
			return fmt.Errorf("switch IPv6 off at %s: %w", name, err)
		}
		for _, step := range []struct {
			what string
			do   func() error
		}{
			{"set the alias", func() error { return p.net.LinkSetAlias(l, p.alias()) }},
			{"set the MTU", func() error { return p.net.LinkSetMTU(l, mtu) }},
			{"switch ARP off", func() error { return p.net.LinkSetARPOff(l) }},
			{"bring it up", func() error { return p.net.LinkSetUp(l) }},
		} {
			if err := step.do(); err != nil {
				return fmt.Errorf("device %s: %s: %w", name, step.what, err)
			}
		}
	}
	return nil
}

// disableIPv6 has the kernel send no IPv6 of its own by a device.
func (p *Park) disableIPv6(l netlink.Link) error {
	err := os.WriteFile("/proc/sys/net/ipv6/conf/"+l.Attrs().Name+"/disable_ipv6", []byte("1"), 0o644)
	switch {
	case errors.Is(err, fs.ErrNotExist): // a kernel without IPv6
		return nil
	case errors.Is(err, unix.EROFS) || attach.IsPermission(err): // in a container
		return p.net.LinkSetIP6AddrGenMode(l, noAddresses)
	}
	return err
}

// remove removes the pair, if it is there and ours.
func (p *Park) remove() error {
	p.in, p.out = nil, nil
	exists, err := p.find()
	if err != nil || !exists {
		return err
	}
	if err := p.net.LinkDel(p.in); err != nil {
		return fmt.Errorf("remove device %s: %w", p.in.Attrs().Name, err)
	}
	p.in, p.out = nil, nil
	return nil
}

// replace removes the pair after what waits in it has left.
func (p *Park) replace() error {
	if err := p.openMaps(); err != nil && !errors.Is(err, errUnusable) {
		return err
	}
	return errors.Join(p.drain(), p.remove(), p.unpin())
}
