package host_test

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"weir/datapath/attach"
	"weir/datapath/host"
	"weir/datapath/testnet"
	"weir/law"
)

// scalePorts makes an uplink and n ports in a namespace. They are both ends of veth pairs, and down.
func scalePorts(tb testing.TB, n int) (uplink attach.PortRef, ports []attach.PortRef) {
	tb.Helper()
	ns := testnet.NewNamespace(tb)
	ns.Must(tb, func() error {
		for i := 0; i <= n; i += 2 {
			v := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: fmt.Sprintf("p%d", i), NumTxQueues: 1, NumRxQueues: 1}, PeerName: fmt.Sprintf("p%d", i+1)}
			if err := netlink.LinkAdd(v); err != nil {
				return err
			}
		}
		all, err := netlink.LinkList()
		for _, l := range all {
			if l.Type() == "veth" {
				ports = append(ports, attach.PortRef{Name: l.Attrs().Name, Ifindex: l.Attrs().Index, Enter: ns.Enter})
			}
		}
		return err
	})
	return ports[n], ports[:n]
}

// BenchmarkHost_VMs sets 1000 VMs up, each with a port of its own, and changes their grants. Traffic is none.
func BenchmarkHost_VMs(b *testing.B) {
	const vms = 1000
	uplink, ports := scalePorts(b, vms)
	h, err := host.Open(host.Config{Uplink: uplink, Rate: 1e11})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		start := time.Now()
		if err := h.Close(); err != nil {
			b.Error(err)
		}
		b.Logf("detached in %v", time.Since(start))
	})
	maps := h.Memory(b)
	start := time.Now()
	for i, p := range ports {
		a := netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
		v := host.VM{Number: law.VM(i + 1), Port: p, MAC: net.HardwareAddr{2, 0, 0, 0, byte(i >> 8), byte(i)}, Addresses: []netip.Prefix{netip.PrefixFrom(a, 32)}}
		if err := h.AddVM(v); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(time.Since(start).Milliseconds())/vms, "ms/VM")
	b.ReportMetric(float64(h.Memory(b)-maps)/vms/1024, "KiB/VM")
	b.ReportMetric(float64(maps)/1024/1024, "MiB-tables")
	if err := h.Heartbeat(1); err != nil {
		b.Fatal(err)
	}
	batch := func(kind law.Kind, peer bool, value uint64) float64 {
		var all []law.Grant
		for i := range vms {
			g := law.Grant{Owner: 1, Kind: kind, Key: law.Key{Pair: law.Pair{VM: law.VM(i + 1)}}, Value: value, Lease: time.Minute}
			if peer {
				g.Key.Peer = netip.AddrFrom4([4]byte{10, 9, 9, 9})
			}
			all = append(all, g)
		}
		start := time.Now()
		set(b, h, all...)
		took := time.Since(start)
		if err := h.Heartbeat(1); err != nil {
			b.Fatal(err)
		}
		return float64(took.Microseconds()) / vms
	}
	start = time.Now()
	for range vms {
		if err := h.Heartbeat(1); err != nil {
			b.Fatal(err)
		}
	}
	heartbeat := float64(time.Since(start).Microseconds()) / vms
	b.ReportMetric(batch(law.WindowGrant, true, 20000), "us/new-pair")
	changed := batch(law.WindowGrant, true, 10000)
	b.ReportMetric(changed, "us/pair-changed")
	b.ReportMetric(changed/heartbeat, "pair-changed-x-heartbeat")
	b.ReportMetric(batch(law.RateGrant, false, 50e6), "us/new-class")
	b.ReportMetric(batch(law.RateGrant, false, 50.5e6), "us/rate-within-2%")
	b.ReportMetric(batch(law.RateGrant, false, 60e6), "us/class-changed")
	start = time.Now()
	if err := h.Sweep(); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(time.Since(start).Microseconds()), "us/sweep")
	const peers = 50 // of each VM
	for p := range peers {
		var all []law.Grant
		for i := range vms {
			g := law.Grant{Owner: 1, Key: law.Key{Pair: law.Pair{VM: law.VM(i + 1), Peer: netip.AddrFrom4([4]byte{10, 8, 0, byte(p)})}}, Value: 20000, Lease: time.Minute}
			if p == peers-1 {
				g.Lease = 0
			}
			all = append(all, g)
		}
		if err := h.Heartbeat(1); err != nil {
			b.Fatal(err)
		}
		set(b, h, all...)
	}
	took := time.Duration(0)
	for left := (peers + 2) * vms; left == (peers+2)*vms; { // until the windows of lease 0 are released
		start = time.Now()
		if err := h.Sweep(); err != nil {
			b.Fatal(err)
		}
		took = max(took, time.Since(start))
		if err := h.Heartbeat(1); err != nil {
			b.Fatal(err)
		}
		grants, err := h.Grants(0)
		if err != nil {
			b.Fatal(err)
		}
		left = len(grants)
	}
	b.ReportMetric(float64(took.Microseconds())/1000, "ms/sweep-1000-of-50000-pairs-ended")
	b.ReportMetric(0, "ns/op")
}
