package doctor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"os"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// bypass reads what moves packets past the kernel's hooks.
func (g *gatherer) bypass() note {
	b := Bypass{UserDrivers: g.userDrivers(), Daemons: g.daemons()}
	b.VDPA = first(g.names("sys/bus/vdpa/devices"))
	b.VhostNet = g.exists("sys/module/vhost_net") || g.exists("dev/vhost-net")
	errUnix := g.unixSockets(&b)
	protocols, errProtocols := g.protocols()
	b.XDPSockets = protocols["XDP"]
	var errTables error
	if g.root == "/" {
		b.Flowtables, errTables = flowtables()
	}
	return func(f *Facts) {
		tap := slices.ContainsFunc(f.Devices, func(d Device) bool { return d.Kind == "tun" })
		b.VhostNet = b.VhostNet && tap
		f.Bypass = b
		f.unseen("sockets of vhost-user and DPDK", errUnix)
		f.unseen("sockets of AF_XDP", errProtocols)
		f.unseen("flowtables of nftables", errTables)
	}
}

// first bounds a list of names.
func first(list []string) []string { return list[:min(len(list), namesMax)] }

// userDrivers are the PCI network devices that a process or a VM drives.
func (g *gatherer) userDrivers() (out []UserDevice) {
	const network = "0x02"
	for _, bus := range g.names("sys/bus/pci/devices") {
		dir := "sys/bus/pci/devices/" + bus
		link, err := os.Readlink(g.path(dir, "driver"))
		if err != nil || len(out) >= namesMax {
			continue
		}
		driver := filepath.Base(link)
		if !strings.Contains(driver, "vfio") && !strings.Contains(driver, "uio") {
			continue
		}
		if strings.HasPrefix(g.line(dir, "class"), network) {
			out = append(out, UserDevice{bus, driver})
		}
	}
	return out
}

// forwarders are programs that move packets between ports themselves.
var forwarders = []string{
	"ovs-vswitchd", "vpp_main", "vpp", "dpdk-testpmd", "testpmd", "snabb", "bessd", "contrail-vrouter", "vrouter",
}

// daemons are those that run, by the names of the processes.
func (g *gatherer) daemons() (out []string) {
	for _, pid := range g.names("proc") {
		if _, err := strconv.Atoi(pid); err != nil {
			continue
		}
		comm := g.line("proc", pid, "comm")
		if slices.Contains(forwarders, comm) && !slices.Contains(out, comm) {
			out = append(out, comm)
		}
	}
	return out
}

// unixSockets finds by their paths the sockets of vhost-user back ends and of DPDK processes.
func (g *gatherer) unixSockets(b *Bypass) error {
	const pathField = 7
	seen := 0
	return g.lines(func(f []string) bool {
		if seen++; len(f) <= pathField || seen > entriesMax {
			return seen <= entriesMax
		}
		name := strings.Join(f[pathField:], " ")
		dir, base := path.Split(name)
		switch {
		case strings.Contains(name, "/dpdk/"):
			if run := path.Base(dir); strings.HasPrefix(base, "mp_socket") && !slices.Contains(b.DPDK, run) && len(b.DPDK) < namesMax {
				b.DPDK = append(b.DPDK, run)
			}
		case strings.HasPrefix(base, "vhu") || strings.Contains(name, "vhost"):
			if !slices.Contains(b.VhostUser, name) && len(b.VhostUser) < namesMax {
				b.VhostUser = append(b.VhostUser, name)
			}
		}
		return true
	}, "proc/thread-self/net/unix")
}

// protocols counts the sockets of each protocol in this namespace.
func (g *gatherer) protocols() (map[string]int, error) {
	out := map[string]int{}
	err := g.lines(func(f []string) bool {
		if len(f) > 2 {
			if n, err := strconv.Atoi(f[2]); err == nil {
				out[f[0]] += n
			}
		}
		return true
	}, "proc/thread-self/net/protocols")
	return out, err
}

// Attributes of nftables' flowtables: enum nft_flowtable_attributes and those inside.
const (
	flowtableTable  = 1
	flowtableName   = 2
	flowtableHook   = 3
	flowtableFlags  = 7
	flowtableInHW   = 1
	hookDevices     = 3
	nfgenmsg        = 4 // bytes
	attrType        = 0x3fff
	subsysNFTables  = 10
	getFlowtable    = subsysNFTables<<8 | unix.NFT_MSG_GETFLOWTABLE
	newFlowtable    = subsysNFTables<<8 | unix.NFT_MSG_NEWFLOWTABLE
	flowtableFamily = unix.AF_UNSPEC
)

func flowtables() (out []Flowtable, err error) {
	req := nl.NewNetlinkRequest(getFlowtable, unix.NLM_F_DUMP)
	req.AddRawData([]byte{flowtableFamily, 0, 0, 0})
	err = req.ExecuteIter(unix.NETLINK_NETFILTER, newFlowtable, func(m []byte) bool {
		if t, ok := parseFlowtable(m); ok {
			out = append(out, t)
		}
		return len(out) < namesMax
	})
	if errors.Is(err, unix.EPROTONOSUPPORT) || tooOld(err) { // no nftables here
		err = nil
	}
	if err != nil {
		err = fmt.Errorf("list flowtables: %w", err)
	}
	return out, err
}

func parseFlowtable(m []byte) (t Flowtable, ok bool) {
	if len(m) < nfgenmsg {
		return t, false
	}
	attrs, err := nl.ParseRouteAttr(m[nfgenmsg:])
	if err != nil {
		return t, false
	}
	for _, a := range attrs {
		switch a.Attr.Type & attrType {
		case flowtableTable:
			t.Table = nl.BytesToString(a.Value)
		case flowtableName:
			t.Name = nl.BytesToString(a.Value)
		case flowtableHook:
			t.Devices = hookNames(a.Value)
		case flowtableFlags:
			t.Hardware = len(a.Value) >= 4 && binary.BigEndian.Uint32(a.Value)&flowtableInHW != 0
		}
	}
	return t, t.Name != ""
}

func hookNames(hook []byte) (out []string) {
	attrs, err := nl.ParseRouteAttr(hook)
	if err != nil {
		return nil
	}
	for _, a := range attrs {
		if a.Attr.Type&attrType != hookDevices {
			continue
		}
		names, err := nl.ParseRouteAttr(a.Value)
		if err != nil {
			return out
		}
		for _, n := range names {
			out = append(out, nl.BytesToString(n.Value))
		}
	}
	return first(out)
}
