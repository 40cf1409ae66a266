package metadata_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"

	"weir/datapath/metadata"
	"weir/datapath/testnet"
)

var (
	ipv4 = netip.MustParseAddr("169.254.169.253")
	ipv6 = netip.MustParseAddr("fe80::a9fe:a9fd")
)

// open serves guests of a hypervisor: each is answered with its number.
func open(t testing.TB, n *testnet.Hypervisor, guests ...int) *metadata.Metadata {
	t.Helper()
	m, err := metadata.Open(metadata.Config{IPv4: ipv4, IPv6: ipv6})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, i := range guests {
		add(t, m, n, i)
	}
	return m
}

func add(t testing.TB, m *metadata.Metadata, n *testnet.Hypervisor, guest int) {
	t.Helper()
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, guest) })}
	t.Cleanup(func() { _ = s.Close() })
	if err := m.Add(n.Ports[guest], n.MACs[guest], func(l net.Listener) { _ = s.Serve(l) }); err != nil {
		t.Fatal(err)
	}
}

// route gives a guest a way to the IPv4 address: by its device, or by a gateway.
func route(t testing.TB, ns *testnet.Namespace, gateway net.IP) {
	t.Helper()
	ns.Must(t, func() error {
		l, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		r := &netlink.Route{LinkIndex: l.Attrs().Index, Dst: &net.IPNet{IP: ipv4.AsSlice(), Mask: net.CIDRMask(32, 32)}, Gw: gateway}
		if gateway == nil {
			r.Scope = netlink.SCOPE_LINK
		}
		return netlink.RouteAdd(r)
	})
}

// client asks from a namespace, by a connection for each request.
func client(ns *testnet.Namespace) *http.Client {
	dial := func(ctx context.Context, network, address string) (c net.Conn, err error) {
		err = ns.Enter(func() error {
			c, err = (&net.Dialer{}).DialContext(ctx, network, address)
			return err
		})
		return c, err
	}
	return &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
}
