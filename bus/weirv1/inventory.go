package weirv1

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
)

// Split divides an inventory into messages that fit the bus. Each is a part with the inventory's serial number. The error is that it
// has too much: more than MaxPorts ports, MaxGuests guests, or MaxParts messages.
func (x *Inventory) Split() ([]*Inventory, error) {
	serial, ports, guests := x.GetSerial(), x.GetPorts(), x.GetGuests()
	if len(ports) > MaxPorts || len(guests) > MaxGuests {
		return nil, fmt.Errorf("%d ports and %d VMs, want at most %d and %d", len(ports), len(guests), MaxPorts, MaxGuests)
	}
	const full = MaxMessage / 2 // leaves room for the rest of the message
	out := []*Inventory{{Serial: serial, Laws: x.GetLaws(), Hypervisor: x.GetHypervisor()}}
	bytes := proto.Size(out[0])
	next := func(m proto.Message) *Inventory {
		if bytes += proto.Size(m) + 8; bytes > full {
			out, bytes = append(out, &Inventory{Serial: serial}), proto.Size(m)+8
		}
		return out[len(out)-1]
	}
	for _, p := range ports {
		to := next(p)
		to.Ports = append(to.Ports, p)
	}
	for _, g := range guests {
		to := next(g)
		to.Guests = append(to.Guests, g)
	}
	if len(out) > MaxParts {
		return nil, fmt.Errorf("the ports and VMs need %d messages, want at most %d: use shorter names and fewer labels", len(out), MaxParts)
	}
	for i, part := range out {
		part.Part, part.Parts = uint32(i), uint32(len(out))
	}
	return out, nil
}

// Parts joins the parts of an agent's inventory. The zero value has none.
type Parts struct {
	serial uint64
	have   []*Inventory
	left   int
}

// Add takes a part, which must come from a decoder. It returns the whole inventory when its last part has come, and nil
// otherwise. A part of another serial number begins anew. whole is valid until the next Add.
func (p *Parts) Add(part *Inventory) (whole *Inventory, err error) {
	if part.GetSerial() != p.serial || len(p.have) != int(part.GetParts()) {
		*p = Parts{serial: part.GetSerial(), have: make([]*Inventory, part.GetParts()), left: int(part.GetParts())}
	}
	if p.have[part.GetPart()] == nil {
		p.left--
	}
	p.have[part.GetPart()] = part
	if p.left > 0 {
		return nil, nil
	}
	whole = &Inventory{Serial: p.serial, Parts: 1}
	for _, h := range p.have {
		whole.Laws = append(whole.Laws, h.GetLaws()...)
		if h.GetHypervisor() != nil {
			whole.Hypervisor = h.GetHypervisor()
		}
		whole.Ports = append(whole.Ports, h.GetPorts()...)
		whole.Guests = append(whole.Guests, h.GetGuests()...)
	}
	*p = Parts{serial: p.serial}
	return whole, whole.unique()
}

// unique checks what the check of a part cannot see.
func (x *Inventory) unique() error {
	if err := errors.Join(atMost("ports", x.GetPorts(), MaxPorts), atMost("VMs", x.GetGuests(), MaxGuests)); err != nil {
		return err
	}
	ports, guests := make(map[uint32]bool, len(x.GetPorts())), make(map[uint32]bool, len(x.GetGuests()))
	for _, p := range x.GetPorts() {
		if ports[p.GetPort()] {
			return fmt.Errorf("port %d twice", p.GetPort())
		}
		ports[p.GetPort()] = true
	}
	for _, g := range x.GetGuests() {
		if guests[g.GetVm()] {
			return fmt.Errorf("VM %d twice", g.GetVm())
		}
		guests[g.GetVm()] = true
	}
	return nil
}

// NewRange returns a range of addresses as a message.
func NewRange(p netip.Prefix) *Range {
	return &Range{Address: p.Addr().AsSlice(), Bits: uint32(p.Bits())}
}

// Law returns the range. x must come from a decoder.
func (x *Range) Law() netip.Prefix { return netip.PrefixFrom(addrOf(x.GetAddress()), int(x.GetBits())) }

// check accepts nil.
func (x *Inventory) check(host bool) error {
	switch {
	case x == nil:
		return nil
	case x.GetSerial() == 0 || x.GetParts() == 0 || x.GetParts() > MaxParts || x.GetPart() >= x.GetParts():
		return fmt.Errorf("part %d of %d of inventory %d", x.GetPart(), x.GetParts(), x.GetSerial())
	case host && len(x.GetPorts())+len(x.GetLaws()) > 0 || !host && (len(x.GetGuests()) > 0 || x.GetHypervisor() != nil):
		return errors.New("a switch with VMs, or a host with ports of a switch")
	case x.GetHypervisor().GetRate() > MaxRate:
		return fmt.Errorf("an uplink of %d bit/s", x.GetHypervisor().GetRate())
	case len(x.GetHypervisor().GetFrames()) != 0 && (len(x.GetHypervisor().GetFrames()) != 6 || x.GetHypervisor().GetFrames()[0]&1 != 0):
		return fmt.Errorf("%x is no address of a device", x.GetHypervisor().GetFrames())
	case len(x.GetHypervisor().GetFramesForm()) > MaxText:
		return errors.New("the form of frames is too long")
	}
	if err := errors.Join(atMost("laws", x.GetLaws(), MaxPortLaws), atMost("switches", x.GetHypervisor().GetSwitches(), MaxSwitches), CheckTexts(x.GetHypervisor().GetLabels())); err != nil {
		return err
	}
	for _, l := range x.GetLaws() {
		if !ValidName(l) {
			return errors.New("not the name of a law")
		}
	}
	for _, s := range x.GetHypervisor().GetSwitches() {
		if !ValidName(s) {
			return errors.New("a switch of a host has no agent's name")
		}
	}
	for _, p := range x.GetPorts() {
		if p.GetRate() > MaxRate || p.GetBufferBytes() > maxTotal {
			return fmt.Errorf("port %d has a rate of %d bit/s and a buffer of %d bytes", p.GetPort(), p.GetRate(), p.GetBufferBytes())
		}
		if err := CheckTexts(p.GetLabels(), p.GetName()); err != nil {
			return fmt.Errorf("port %d: %w", p.GetPort(), err)
		}
		if p.GetPeer() != "" && !ValidName(p.GetPeer()) {
			return fmt.Errorf("port %d leads to no agent's name", p.GetPort())
		}
	}
	for _, g := range x.GetGuests() {
		if err := g.check(); err != nil {
			return fmt.Errorf("VM %d: %w", g.GetVm(), err)
		}
	}
	return x.unique()
}

func (x *Guest) check() error {
	if x.GetVm() == 0 {
		return errors.New("the number 0")
	}
	if err := errors.Join(atMost("ranges of addresses", x.GetAddresses(), MaxRanges), CheckTexts(x.GetLabels(), x.GetName(), x.GetPort())); err != nil {
		return err
	}
	for _, r := range x.GetAddresses() {
		a := addrOf(r.GetAddress())
		if !a.IsValid() || a.Is4In6() || r.GetBits() > uint32(a.BitLen()) {
			return fmt.Errorf("a range of %d bits of an address of %d bytes", r.GetBits(), len(r.GetAddress()))
		}
	}
	return nil
}

// CheckTexts returns an error if a decoder would refuse these labels and names.
func CheckTexts(labels map[string]string, names ...string) error {
	if len(labels) > MaxLabels {
		return fmt.Errorf("%d labels, want at most %d", len(labels), MaxLabels)
	}
	for key, value := range labels {
		if key == "" {
			return errors.New("a label without a key")
		}
		names = append(names, key, value)
	}
	for _, n := range names {
		// Commands print names, so a name must not be able to control a terminal.
		if len(n) > MaxText || !utf8.ValidString(n) || strings.ContainsFunc(n, func(r rune) bool { return !unicode.IsPrint(r) }) {
			return fmt.Errorf("a name or label of %d bytes, want at most %d of printable UTF-8", len(n), MaxText)
		}
	}
	return nil
}
