package lab

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weir/datapath/attach"
	"weir/experiment"
)

// checkHost returns the plan of a lab with this configuration. If this machine cannot run it, the error gives the
// reason in one line, before anything with a name is created. Reasons are: no root, a missing kernel feature, a topology that
// is too large or not in this build.
func checkHost(cfg *experiment.Config, o Options) (*plan, fabric, error) {
	if err := checkRoot(); err != nil {
		return nil, nil, err
	}
	p, err := newPlan(cfg)
	if err != nil {
		return nil, nil, err
	}
	f, err := newFabric(p, o)
	if err != nil {
		return nil, nil, err
	}
	if err := f.check(p); err != nil {
		return nil, nil, err
	}
	return p, f, checkKernel()
}

// CheckHost returns the reason, in one line, why this machine can run no lab: no root, or a missing kernel feature.
func CheckHost() error {
	if err := checkRoot(); err != nil {
		return err
	}
	if err := checkKernel(); err != nil {
		return err
	}
	return attach.CheckMeasure()
}

func checkRoot() error {
	if os.Geteuid() != 0 {
		return errors.New("the lab needs root to make network namespaces: run it with sudo")
	}
	return nil
}

// checkKernel creates every kind of device that labs need, in a namespace without a name that ends with its
// thread. This loads modules, and tests the running kernel instead of its configuration.
func checkKernel() error {
	w, err := startWorker(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("the lab cannot make a network namespace (CONFIG_NET_NS, CAP_SYS_ADMIN; in a container run it --privileged): %w", err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	defer w.stop()
	return w.do(tryParts)
}

func tryParts() error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer h.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "probe0"
	veth := netlink.NewVeth(attrs)
	veth.PeerName = "probe1"
	if err := h.LinkAdd(veth); err != nil {
		return missing("veth pairs", "VETH", "veth", err)
	}
	attrs = netlink.NewLinkAttrs()
	attrs.Name = "probe2"
	if err := h.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
		return missing("bridges", "BRIDGE", "bridge", err)
	}
	p := &port{ifindex: veth.Attrs().Index, rate: 1e6, node: &node{kind: experiment.Guest}}
	if err := shape(h, p); err != nil {
		return missing("token bucket queues", "NET_SCH_TBF", "sch_tbf", err)
	}
	return nil
}

// missing returns an error for a kernel feature that is missing, with the remedy.
func missing(what, option, module string, err error) error {
	return fmt.Errorf("this kernel has no %s (CONFIG_%s): run 'modprobe %s' or use a kernel with it: %w", what, option, module, err)
}

// kernelMemoryKB returns the kernel memory that cannot be reclaimed: most of the memory of a lab.
func kernelMemoryKB() int64 {
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	var sum int64
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) > 1 && slices.Contains([]string{"SUnreclaim:", "KernelStack:", "Percpu:"}, f[0]) {
			kb, _ := strconv.ParseInt(f[1], 10, 64)
			sum += kb
		}
	}
	return sum
}
