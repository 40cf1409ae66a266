package doctor

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"weir/agent/switchd"
	"weir/datapath/attach"
	"weir/internal/nic"
)

// devices reads all devices of the network namespace.
func (g *gatherer) devices() note {
	links, err := netlink.LinkList()
	if errors.Is(err, netlink.ErrDumpInterrupted) { // devices changed during the dump; its entries are valid
		err = nil
	}
	if err != nil {
		return func(f *Facts) { f.unseen(seeDevices, err) }
	}
	// Wanted devices come first, so that the limit never omits them.
	slices.SortStableFunc(links, func(a, b netlink.Link) int {
		return g.rank(a.Attrs().Name) - g.rank(b.Attrs().Name)
	})
	left := max(0, len(links)-devicesMax)
	t := &deviceTables{names: map[int]string{}, kinds: map[int]string{}}
	for _, l := range links {
		t.names[l.Attrs().Index], t.kinds[l.Attrs().Index] = l.Attrs().Name, l.Type()
	}
	var errQdisc, errAddr, errVLANs error
	t.qdiscs, errQdisc = listQdiscs()
	t.addresses, errAddr = countAddresses()
	t.vlans, errVLANs = listVLANs(links)
	verdicts, errVerdict := g.verdicts()
	t.ethtool, err = nic.Open()
	if err == nil {
		defer t.ethtool.Close()
	}
	progs := &programReader{known: map[uint32]Program{}}
	if !g.rights.has(capNetAdmin) && !g.rights.has(capSysAdmin) { // else the library takes it for an old kernel
		progs.err = fmt.Errorf("programs at devices: %w", unix.EPERM)
	}
	var out []Device
	for _, l := range links[:len(links)-left] {
		d := g.device(l, t)
		d.Verdict = verdicts[d.Ifindex]
		progs.fill(&d, l.Attrs(), t.qdiscs[d.Ifindex])
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b Device) int { return strings.Compare(a.Name, b.Name) })
	return func(f *Facts) {
		f.Devices, f.DevicesLeft = out, left
		f.unseen("queue disciplines", errQdisc)
		f.unseen("what weir switch makes of the ports", errVerdict)
		f.unseen("addresses", errAddr)
		f.unseen("VLANs of bridges", errVLANs)
		f.unseen("drivers and offloads", err)
		f.unseen(seePrograms, progs.err)
		f.unseen("filters of tc", progs.errFilters)
		if t.foreignSys {
			f.Unseen = append(f.Unseen, Unseen{What: "/sys of this namespace", Why: "/sys shows the devices of another network namespace: switch chips and XPS are not seen (enter with 'ip netns exec', which mounts it anew)"})
		}
	}
}

func (g *gatherer) rank(name string) int {
	for _, p := range g.o.ports() {
		if ok, err := path.Match(p, name); name == p || err == nil && ok {
			return 0
		}
	}
	return 1
}

// verdicts asks the switch role whether it would accept the devices, by ifindex.
func (g *gatherer) verdicts() (map[int]*Verdict, error) {
	list, err := g.o.Agent.DefaultVerdicts()
	if g.o.Config != nil {
		list, err = g.o.Config.Verdicts()
	}
	if err != nil {
		return nil, err
	}
	out := map[int]*Verdict{}
	for _, v := range list {
		to := &Verdict{
			RateBits: uint64(v.Rate), ShapeBits: uint64(v.Shape), BufferBytes: uint64(v.Buffer), TargetBytes: uint64(v.Target), PipeBytes: uint64(v.Windows),
		}
		if v.Err != nil {
			to.Refusal = firstLine(v.Err)
		}
		out[v.Ifindex] = to
	}
	return out, nil
}

// deviceTables has the data that is read for all devices at once.
type deviceTables struct {
	names, kinds map[int]string // by ifindex
	qdiscs       map[int][]qdisc
	addresses    map[int]int
	vlans        map[int32][]*nl.BridgeVlanInfo // of the ports of bridges that filter VLANs
	ethtool      *nic.Tool                      // nil: not available
	foreignSys   bool                           // /sys is of another namespace
}

func (g *gatherer) device(l netlink.Link, t *deviceTables) Device {
	a := l.Attrs()
	d := Device{
		Name: a.Name, Alias: a.Alias, Ifindex: a.Index, Kind: kindOf(l.Type()), MTU: a.MTU,
		NoEthernet: a.EncapType != "ether" && a.EncapType != "loopback",
		Loopback:   a.RawFlags&unix.IFF_LOOPBACK != 0, Up: a.RawFlags&unix.IFF_UP != 0, Carrier: a.RawFlags&unix.IFF_RUNNING != 0,
		TxQueues: a.NumTxQueues, RxQueues: a.NumRxQueues, Addresses: t.addresses[a.Index],
		Master: t.names[a.MasterIndex], MasterKind: t.kinds[a.MasterIndex], GSOMax: int(a.GSOMaxSize),
		PeerAway: a.NetNsID >= 0 && a.ParentIndex != 0, Parking: attach.IsParking(l),
	}
	if lower := lowerOf(l); lower != 0 && a.NetNsID < 0 && d.Kind != "veth" {
		d.Lower = t.names[lower]
	}
	for _, v := range t.vlans[int32(a.Index)] {
		if v.EngressUntag() {
			d.Untagged = append(d.Untagged, v.Vid)
		} else {
			d.Tagged = append(d.Tagged, v.Vid)
		}
	}
	d.Root, d.Children = rootOf(t.qdiscs[a.Index])
	g.ethtool(&d, t.ethtool)
	g.sysfs(&d, t)
	g.pci(&d)
	d.VFs = max(d.VFs, len(a.Vfs))
	return d
}

// kindOf is the kind by rtnetlink; the library calls hardware "device".
func kindOf(kind string) string {
	switch kind {
	case "device":
		return ""
	case "tuntap":
		return "tun"
	}
	return kind
}

// lowerOf is the device that another stands on.
func lowerOf(l netlink.Link) int {
	switch v := l.(type) {
	case *netlink.Vxlan:
		return v.VtepDevIndex
	case *netlink.Gretun:
		return int(v.Link)
	case *netlink.Gretap:
		return int(v.Link)
	case *netlink.Iptun:
		return int(v.Link)
	}
	return l.Attrs().ParentIndex
}

// rootOf finds the root qdisc, and the kinds of those below it if it has none of its own.
func rootOf(list []qdisc) (root Qdisc, children []string) {
	root = Qdisc{Kind: "noqueue", Default: true}
	for _, q := range list {
		switch q.parent {
		case netlink.HANDLE_ROOT:
			// One that somebody makes gets a handle; Weir's has one of its own (switchd).
			root = Qdisc{Kind: q.kind, Default: q.handle == 0, Ours: q.kind == "tbf" && q.handle>>16 == switchd.ShapeMajor}
			root.Bursts = q.bucket()
		case netlink.HANDLE_INGRESS:
		default:
			if len(children) < namesMax {
				children = append(children, q.kind)
			}
		}
	}
	if root.Kind != "mq" && root.Kind != "mqprio" {
		children = nil
	}
	return root, children
}

// countAddresses counts addresses beyond the link, by ifindex.
func countAddresses() (map[int]int, error) {
	all, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	out := map[int]int{}
	for _, a := range all {
		if !a.IP.IsLinkLocalUnicast() {
			out[a.LinkIndex]++
		}
	}
	return out, nil
}

// listVLANs lists the VLANs of the ports of bridges that filter VLANs, by ifindex. The library's word for egress is engress.
func listVLANs(links []netlink.Link) (map[int32][]*nl.BridgeVlanInfo, error) {
	filters := map[int]bool{}
	for _, l := range links {
		if b, is := l.(*netlink.Bridge); is && b.VlanFiltering != nil && *b.VlanFiltering {
			filters[b.Index] = true
		}
	}
	if len(filters) == 0 {
		return nil, nil
	}
	all, err := netlink.BridgeVlanList()
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, fmt.Errorf("list VLANs: %w", err)
	}
	for _, l := range links {
		if a := l.Attrs(); !filters[a.MasterIndex] {
			delete(all, int32(a.Index))
		}
	}
	return all, nil
}

// offloadsOfInterest are those that Weir has something to say of.
var offloadsOfInterest = []string{
	"tx-generic-segmentation", "tx-tcp-segmentation", "rx-gro", "rx-gro-hw", "rx-lro", "hw-tc-offload", "esp-hw-offload",
}

func (g *gatherer) ethtool(d *Device, e *nic.Tool) {
	if e == nil {
		return
	}
	if driver, bus, err := e.Driver(d.Name); err == nil {
		d.Driver, d.Bus = driver, bus
		if !pciAddress.MatchString(d.Bus) && d.Kind != "" {
			d.Bus = ""
		}
	}
	if all, err := e.Features(d.Name); err == nil {
		d.Offloads = map[string]bool{}
		for _, name := range offloadsOfInterest {
			if offload, there := all[name]; there {
				d.Offloads[name] = offload.On
			}
		}
	}
	if d.Kind != "" {
		return // speeds and channels of software are made up
	}
	if tx, rx, err := e.Channels(d.Name); err == nil && tx > 0 {
		d.TxQueues, d.RxQueues = tx, rx
	}
	if speed, err := e.SpeedMbit(d.Name); err == nil && speed > 0 {
		d.SpeedMbit = speed
	}
}

// sysfs reads what stands only there: if it is the /sys of this namespace.
func (g *gatherer) sysfs(d *Device, t *deviceTables) {
	dir := filepath.Join("sys/class/net", d.Name)
	if g.number(0, dir, "ifindex") != d.Ifindex {
		t.foreignSys = t.foreignSys || !d.Loopback
		return
	}
	d.SwitchID, d.Represents = g.line(dir, "phys_switch_id"), representor.MatchString(g.line(dir, "phys_port_name"))
	for i, q := range g.names(dir, "queues") {
		if i >= devicesMax {
			break
		}
		if strings.HasPrefix(q, "tx-") && strings.Trim(g.line(dir, "queues", q, "xps_cpus"), "0,") != "" {
			d.XPS++
		}
	}
}

// representor is the name that a NIC gives to what stands for one of its functions.
var representor = regexp.MustCompile(`^(c[0-9]+)?pf[0-9]+((vf|sf)[0-9]+)?$`)

var pciAddress = regexp.MustCompile(`^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)

// pci reads of SR-IOV: PCI devices are the same in all namespaces.
func (g *gatherer) pci(d *Device) {
	if !pciAddress.MatchString(d.Bus) {
		return
	}
	dir := "sys/bus/pci/devices/" + d.Bus
	d.VFs, d.MaxVFs = g.number(0, dir, "sriov_numvfs"), g.number(0, dir, "sriov_totalvfs")
	d.IsVF = g.exists(dir, "physfn")
}
