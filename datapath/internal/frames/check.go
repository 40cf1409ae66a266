package frames

import (
	"errors"
	"fmt"
)

// Rules say what a switch may make of a frame.
type Rules struct {
	// Unify: a SYN may be made to announce another window scale, and windows be converted to it, which
	// makes them larger, or 0, too.
	Unify bool
	// Edge: an acknowledgement that is no SYN may be flagged, in the highest reserved bit.
	Edge bool
}

// Check says what a switch that holds windows may not have made of a frame: anything but a smaller
// window in an acknowledgement, with its checksum. (Which segments are signed, their connection says.) A checksum that was right is
// right, and one that was wrong is wrong by the same amount. rewritten says that the frame is another.
func (r Rules) Check(in, out []byte) (rewritten bool, err error) {
	if string(in) == string(out) {
		return false, nil
	}
	if len(in) != len(out) {
		return false, fmt.Errorf("of %d bytes %d came out", len(in), len(out))
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

// bytes checks that only those are others that may be.
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

// window checks a window that was changed.
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

// scales are the offsets of the shifts that a segment announces.
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
