package doctor

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// bypass reads the ways by which packets bypass the kernel's hooks.
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
		var err error
		if b.EgressHooks, err = egressHooks(); errTables == nil {
			errTables = err
		}
	}
	return func(f *Facts) {
		tap := slices.ContainsFunc(f.Devices, func(d Device) bool { return d.Kind == "tun" })
		b.VhostNet = b.VhostNet && tap
		f.Bypass = b
		f.unseen("sockets of vhost-user and DPDK", errUnix)
		f.unseen("sockets of AF_XDP", errProtocols)
		f.unseen("flowtables and hooks of nftables", errTables)
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

// daemons returns the forwarders that run, by the names of processes.
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
