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

// portDevice is what the kernel reports about a port's device, in addition to the law's own readings.
type portDevice struct {
	known     bool
	ifindex   int
	up        bool // administratively up
	carrier   bool
	txPackets uint64
	txDropped uint64
	onChip    bool // a switch chip forwards between it and others
	shaper    shaper
	features  map[string]bool // the features below, by ethtool's names
}

// Features that matter here.
const (
	featureFraglist = "rx-gro-list"   // GRO chains whole segments, and only the header of the first is seen
	featureHardware = "hw-tc-offload" // tc and netfilter may let the device forward by itself
)

// devices are the devices of the ports in the caller's namespace, by name.
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
	// A queue discipline that cannot be parsed counts as one that reports nothing; weir switch logs the reason.
	d.shaper, _ = readShaper(a, list)
	d.features, _ = offloads.On(a.Name, featureFraglist, featureHardware)
	return d
}

// of returns the device of a port.
func (d devices) of(k *reading.Pinned) portDevice {
	if !k.Local || !k.HasDevice {
		return portDevice{}
	}
	if own := d[k.Port]; own.ifindex == k.Ifindex {
		return own
	}
	for _, one := range d { // it was renamed
		if one.ifindex == k.Ifindex {
			return one
		}
	}
	return portDevice{}
}

// named returns the device that has a port's name.
func (d devices) named(k *reading.Pinned) portDevice {
	if !k.Local {
		return portDevice{}
	}
	return d[k.Port]
}
