package weirv1

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"weir/law"
	"weir/law/telemetry"
)

var kinds = map[law.Kind]GrantKind{
	law.WindowGrant: GrantKind_GRANT_KIND_WINDOW,
	law.RateGrant:   GrantKind_GRANT_KIND_RATE,
	law.PauseGrant:  GrantKind_GRANT_KIND_PAUSE,
	law.MarksGrant:  GrantKind_GRANT_KIND_MARKS,
}

// NewGrant returns g as a message. [Encode] checks its values.
func NewGrant(g law.Grant) *Grant {
	return &Grant{
		Owner: uint32(g.Owner), Kind: kinds[g.Kind], Vm: uint32(g.Key.VM), Peer: g.Key.Peer.AsSlice(), Flow: NewFlow(g.Key.Flow),
		Value: g.Value, LeaseNs: uint64(g.Lease), Cause: g.Cause,
	}
}

// Law returns the grant. x must come from a decoder.
func (x *Grant) Law() law.Grant {
	g := law.Grant{
		Owner: law.Owner(x.GetOwner()), Value: x.GetValue(), Lease: time.Duration(x.GetLeaseNs()), Cause: x.GetCause(),
		Key: law.Key{Pair: law.Pair{VM: law.VM(x.GetVm()), Peer: addrOf(x.GetPeer())}, Flow: x.GetFlow().Law()},
	}
	for k, pb := range kinds {
		if pb == x.GetKind() {
			g.Kind = k
		}
	}
	return g
}

// NewFlow returns f as a message; nil for the zero flow, which means any.
func NewFlow(f law.Flow) *Flow {
	if f == (law.Flow{}) {
		return nil
	}
	return &Flow{
		Source: f.Src.Addr().AsSlice(), SourcePort: uint32(f.Src.Port()),
		Destination: f.Dst.Addr().AsSlice(), DestinationPort: uint32(f.Dst.Port()), Protocol: uint32(f.Proto),
	}
}

// Law returns the flow; the zero flow for nil. x must come from a decoder.
func (x *Flow) Law() law.Flow {
	if x == nil {
		return law.Flow{}
	}
	return law.Flow{
		Src:   netip.AddrPortFrom(addrOf(x.GetSource()), uint16(x.GetSourcePort())),
		Dst:   netip.AddrPortFrom(addrOf(x.GetDestination()), uint16(x.GetDestinationPort())),
		Proto: uint8(x.GetProtocol()),
	}
}

// addrOf returns the zero address for other lengths than 4 and 16.
func addrOf(b []byte) netip.Addr {
	a, _ := netip.AddrFromSlice(b)
	return a
}

func (x *Grant) check() error {
	value, limit := x.GetValue(), uint64(0)
	switch x.GetKind() {
	case GrantKind_GRANT_KIND_WINDOW:
		limit = MaxWindow
	case GrantKind_GRANT_KIND_RATE:
		limit = MaxRate
	case GrantKind_GRANT_KIND_MARKS:
		limit = telemetry.MaxMarks * telemetry.OneMark
	case GrantKind_GRANT_KIND_PAUSE:
	default:
		return fmt.Errorf("a grant of unknown kind %d", x.GetKind())
	}
	switch {
	case x.GetOwner() > 255:
		return fmt.Errorf("owner %d, want 0 to 255", x.GetOwner())
	case value > limit:
		return fmt.Errorf("a grant's value is %d, want at most %d", value, limit)
	case value == 0 && limit > 0:
		return fmt.Errorf("a grant of 0: use a pause")
	case x.GetLeaseNs() > uint64(MaxLease):
		return fmt.Errorf("a lease of %d ns, want at most %v", x.GetLeaseNs(), MaxLease)
	}
	if err := checkAddr(x.GetPeer(), true); err != nil {
		return fmt.Errorf("peer: %w", err)
	}
	return x.GetFlow().check()
}

// check accepts nil, which means any flow.
func (x *Flow) check() error {
	if x == nil {
		return nil
	}
	for _, b := range [][]byte{x.GetSource(), x.GetDestination()} {
		if err := checkAddr(b, true); err != nil {
			return fmt.Errorf("flow: %w", err)
		}
	}
	if s, d := len(x.GetSource()), len(x.GetDestination()); s != d && s != 0 && d != 0 {
		return fmt.Errorf("a flow between IPv4 and IPv6")
	}
	if x.GetSourcePort() > maxTCPPort || x.GetDestinationPort() > maxTCPPort || x.GetProtocol() > 255 {
		return fmt.Errorf("a flow with ports %d and %d and protocol %d, want at most 65535 and 255", x.GetSourcePort(), x.GetDestinationPort(), x.GetProtocol())
	}
	// A port without an address could not be expressed in law.Flow.
	if len(x.GetSource()) == 0 && x.GetSourcePort() != 0 || len(x.GetDestination()) == 0 && x.GetDestinationPort() != 0 {
		return fmt.Errorf("a flow with a port and no address")
	}
	if x.Law() == (law.Flow{}) {
		return fmt.Errorf("an empty flow: leave the field out")
	}
	return nil
}

// ends accepts a TCP flow with both its ends.
func (x *Flow) ends() error {
	if x == nil {
		return errors.New("without its flow")
	}
	if err := x.check(); err != nil {
		return err
	}
	if len(x.GetSource()) == 0 || len(x.GetDestination()) == 0 || x.GetSourcePort() == 0 || x.GetDestinationPort() == 0 || x.GetProtocol() != protocolTCP {
		return errors.New("no TCP flow with both ends")
	}
	return nil
}

const protocolTCP = 6 // IANA

// checkAddr accepts addresses of hosts. An address has one form only, because addresses are keys of tables: so an IPv4
// address in 16 bytes is refused.
func checkAddr(b []byte, optional bool) error {
	if len(b) == 0 && optional {
		return nil
	}
	a, ok := netip.AddrFromSlice(b)
	switch {
	case !ok:
		return fmt.Errorf("an address of %d bytes, want 4 or 16", len(b))
	case a.Is4In6():
		return fmt.Errorf("the IPv4 address %v in 16 bytes", a)
	case a.IsUnspecified():
		return fmt.Errorf("the address %v", a)
	}
	return nil
}
