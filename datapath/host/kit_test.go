package host_test

import (
	"flag"
	"net"
	"net/netip"
	"testing"
	"time"

	"weir/datapath/host"
	"weir/datapath/testnet"
	"weir/law"
)

// open opens a host at a hypervisor, with all its guests as VMs 1, 2, ...
func open(t testing.TB, n *testnet.Hypervisor, c host.Config) *host.Host {
	t.Helper()
	c.Uplink = n.Uplink
	h, err := host.Open(c)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	for i := range n.Guests {
		add(t, h, n, i)
	}
	return h
}

// add adds guest i as VM i+1.
func add(t testing.TB, h *host.Host, n *testnet.Hypervisor, i int) {
	t.Helper()
	if err := h.AddVM(host.VM{Number: law.VM(i + 1), Port: n.Ports[i], MAC: n.MACs[i], Addresses: n.Addresses(i)}); err != nil {
		t.Fatal(err)
	}
}

func addr(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}

// heartbeats sends heartbeats of an owner, and sweeps, until the function that it returns is called, or the test ends.
func heartbeats(t testing.TB, h *host.Host, o law.Owner) (stop func()) {
	t.Helper()
	end, ended := make(chan struct{}), make(chan struct{})
	if err := h.Heartbeat(o); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(ended)
		tick := time.NewTicker(host.HeartbeatInterval)
		defer tick.Stop()
		for {
			select {
			case <-end:
				return
			case <-tick.C:
				if err := h.Heartbeat(o); err != nil {
					t.Errorf("heartbeat: %v", err)
				}
				if err := h.Sweep(); err != nil {
					t.Errorf("sweep: %v", err)
				}
			}
		}
	}()
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			close(end)
			<-ended
		}
	}
	t.Cleanup(stop)
	return stop
}

func set(t testing.TB, h *host.Host, grants ...law.Grant) {
	t.Helper()
	if err := h.SetGrants(grants); err != nil {
		t.Fatal(err)
	}
}

// window is a window grant of owner 1 for the first VM and a peer, of one minute.
func window(peer netip.Addr, bytes uint64) law.Grant {
	return law.Grant{Owner: 1, Kind: law.WindowGrant, Key: law.Key{Pair: law.Pair{VM: 1, Peer: peer}}, Value: bytes, Lease: time.Minute}
}

// statsOf returns a VM's counters.
func statsOf(t testing.TB, h *host.Host, vm law.VM) host.Stats {
	t.Helper()
	all, err := h.Stats()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if s.VM == vm {
			return s
		}
	}
	t.Fatalf("no VM %d: %+v", vm, all)
	return host.Stats{}
}

// long runs the long forms of tests: a million mutated frames.
var long = flag.Bool("long", false, "run the long forms of tests")
