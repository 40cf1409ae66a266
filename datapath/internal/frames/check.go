package frames

import (
	"errors"
	"fmt"
)

// Rules are the changes that a switch may make to a frame.
type Rules struct {
	// Unify: a SYN may announce another window scale, and windows may be converted to it. They may then be
	// larger, or 0.
	Unify bool
	// Edge: an acknowledgement other than a SYN may be flagged, in the highest reserved bit.
	Edge bool
}

// Check returns an error for a change that a switch may not make. It may only make a window in an
// acknowledgement smaller, and update its checksum. A correct checksum must stay correct, and a wrong one wrong
// by the same amount. Check does not know which connections are signed. rewritten reports that the frame has
// changed.
func (r Rules) Check(in, out []byte) (rewritten bool, err error) {
	if string(in) == string(out) {
		return false, nil
	}
	if len(in) != len(out) {
		return false, fmt.Errorf("a frame of %d bytes came out with %d", len(in), len(out))
	}
	a := Parse(in)
	if a.Kind != KindTCP {
		return false, fmt.Errorf("a frame without TCP (%v) was changed", a.Kind)
	}
	b := a
	b.Frame = out
	if err := r.bytes(&a, &b); err != nil {
		return false, err
	}
	if a.Window() != b.Window() {
		if err := r.window(&a, &b); err != nil {
			return false, err
		}
	}
	if a.ChecksumError() != b.ChecksumError() {
		return false, fmt.Errorf("checksum was off by %#x and now is by %#x", a.ChecksumError(), b.ChecksumError())
	}
	return true, nil
}

// bytes checks that only bytes that may change have changed.
func (r Rules) bytes(a, b *View) error {
	window, check := a.L4+14, a.L4+16
	changed := false
	var may []int
	if r.Unify && a.Flags()&SYN != 0 {
		may = scales(a)
	}
	for i, was := range a.Frame {
		if was == b.Frame[i] {
			continue
		}
		allowed := i >= window && i < check+2
		if r.Edge && i == a.L4+12 && was|8 == b.Frame[i] && a.Flags()&(ACK|RST|SYN) == ACK {
			allowed = true
		}
		for _, at := range may {
			allowed = allowed || i == at
		}
		if !allowed {
			return fmt.Errorf("byte %d was changed; the window is at %d", i, window)
		}
		changed = changed || i < check || i >= check+2
	}
	if !changed {
		return errors.New("the checksum alone was changed")
	}
	return nil
}

// window checks a changed window.
func (r Rules) window(a, b *View) error {
	switch {
	case a.Flags()&(ACK|RST) != ACK:
		return fmt.Errorf("the window of a segment with flags %#x was changed: it grants nothing", a.Flags())
	case r.Unify && a.Flags()&SYN == 0:
		return nil
	case b.Window() > a.Window():
		return fmt.Errorf("window %d became %d", a.Window(), b.Window())
	case b.Window() == 0:
		return fmt.Errorf("window %d was closed", a.Window())
	}
	return nil
}

// scales returns the offsets of the shifts that a segment announces.
func scales(v *View) (at []int) {
	list := v.Options()
	for i := 0; i < len(list) && list[i] != OptionEnd; {
		if list[i] == OptionNop {
			i++
			continue
		}
		if i+1 == len(list) || list[i+1] < 2 || i+int(list[i+1]) > len(list) {
			break
		}
		if list[i] == OptionScale && list[i+1] == 3 {
			at = append(at, v.L4+tcpHeader+i+2)
		}
		i += int(list[i+1])
	}
	return at
}
