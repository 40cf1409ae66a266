package switchd

import (
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weir/datapath/reading"
	"weir/internal/nic"
)

// portDevice is what the kernel says of a port's device, beside what the law reads of it.
type portDevice struct {
	known     bool
	ifindex   int
	up        bool // not taken down
	carrier   bool
	txPackets uint64
	txDropped uint64
	onChip    bool // a switch chip forwards between it and others
	shaper    shaper
	features  map[string]bool // those of interest, by ethtool's names
}

// Features that matter.
const (
	featureFraglist = "rx-gro-list"   // GRO chains whole segments: only the first one's header is seen
	featureHardware = "hw-tc-offload" // tc and netfilter may have the device forward
)

// devices are those of the caller's namespace that ports are on, by name.
type devices map[string]portDevice

// readDevices reads the devices of the ports that are in the caller's namespace.
func readDevices(ports []reading.Pinned) (devices, error) {
	links, err := netlink.LinkList()
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, fmt.Errorf("list devices: %w", err)
	}
	qdiscs, err := listQdiscs()
	if err != nil {
		return nil, err
	}
	named, indexed := map[string]bool{}, map[int]bool{}
	for i := range ports {
		if ports[i].Local {
			named[ports[i].Port], indexed[ports[i].Ifindex] = true, true
		}
	}
	offloads, err := nic.Open()
	if err != nil {
		return nil, err
	}
	defer offloads.Close()
	out := devices{}
	for _, l := range links {
		a := l.Attrs()
		if named[a.Name] || indexed[a.Index] {
			out[a.Name] = readDevice(a, qdiscs[a.Index], offloads)
		}
	}
	return out, nil
}

func readDevice(a *netlink.LinkAttrs, list []qdisc, offloads *nic.Tool) portDevice {
	d := portDevice{
		known: true, ifindex: a.Index, up: a.Flags&net.FlagUp != 0, carrier: a.RawFlags&unix.IFF_LOWER_UP != 0,
		onChip: a.PhysSwitchID != 0,
	}
	if s := a.Statistics; s != nil {
		d.txPackets, d.txDropped = s.TxPackets, s.TxDropped
	}
	// What cannot be read tells nothing, as far as status is concerned: weir switch says why.
	d.shaper, _ = readShaper(a, list)
	d.features, _ = offloads.On(a.Name, featureFraglist, featureHardware)
	return d
}

// of is the device of a port.
func (d devices) of(k *reading.Pinned) portDevice {
	if !k.Local || !k.HasDevice {
		return portDevice{}
	}
	if own := d[k.Port]; own.ifindex == k.Ifindex {
		return own
	}
	for _, one := range d { // it was given another name since
		if one.ifindex == k.Ifindex {
			return one
		}
	}
	return portDevice{}
}

// named is the device that has a port's name.
func (d devices) named(k *reading.Pinned) portDevice {
	if !k.Local {
		return portDevice{}
	}
	return d[k.Port]
}
