package weirv1

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"weir/law"
)

// Number sets the plan's serial number, which follows from its content: equal plans have the same number.
func (x *PortPlan) Number() (err error) {
	x.Serial = 0
	x.Serial, err = numberOf(x)
	return err
}

// Number sets the plan's serial number, as that of a PortPlan.
func (x *HostPlan) Number() (err error) {
	x.Serial = 0
	x.Serial, err = numberOf(x)
	return err
}

var excesses = map[string]Excess{law.ExcessQueue: Excess_EXCESS_QUEUE, law.ExcessDrop: Excess_EXCESS_DROP}

// NewExcess returns what law.Spec.Excess returns as a message; "": unspecified.
func NewExcess(text string) Excess { return excesses[text] }

// Law is the inverse of NewExcess.
func (x Excess) Law() string {
	for text, e := range excesses {
		if e == x {
			return text
		}
	}
	return ""
}

func numberOf(m proto.Message) (uint64, error) {
	b, err := (proto.MarshalOptions{Deterministic: true}).Marshal(m)
	if err != nil {
		return 0, err
	}
	h := fnv.New64a()
	_, _ = h.Write(b) // returns no error
	return max(h.Sum64(), 1), nil
}

// check accepts nil.
func (x *HostPlan) check() error {
	if x == nil {
		return nil
	}
	if x.GetSerial() == 0 {
		return errors.New("a plan without a serial number")
	}
	if err := atMost("VMs of a plan", x.GetGuests(), MaxGuests); err != nil {
		return err
	}
	seen := make(map[uint32]bool, len(x.GetGuests()))
	for _, g := range x.GetGuests() {
		switch {
		case g.GetExcess() != 0 && g.GetExcess().Law() == "":
			return fmt.Errorf("VM %d: excess %d is unknown", g.GetVm(), g.GetExcess())
		case g.GetVm() == 0 || seen[g.GetVm()]:
			return fmt.Errorf("VM %d without a number, or twice", g.GetVm())
		case g.GetRate() > MaxRate || g.GetWeight() > MaxWeight:
			return fmt.Errorf("VM %d: %d bit/s and a weight of %d", g.GetVm(), g.GetRate(), g.GetWeight())
		}
		seen[g.GetVm()] = true
	}
	return nil
}

// check accepts nil.
func (x *PortPlan) check() error {
	if x == nil {
		return nil
	}
	if x.GetSerial() == 0 {
		return errors.New("a plan without a serial number")
	}
	if err := errors.Join(atMost("settings", x.GetSettings(), MaxSettings), atMost("ports of a plan", x.GetPorts(), MaxPorts)); err != nil {
		return err
	}
	for i, s := range x.GetSettings() {
		if err := s.check(); err != nil {
			return fmt.Errorf("setting %d: %w", i, err)
		}
	}
	seen := make(map[uint32]bool, len(x.GetPorts()))
	for _, p := range x.GetPorts() {
		if seen[p.GetPort()] {
			return fmt.Errorf("port %d twice", p.GetPort())
		}
		seen[p.GetPort()] = true
		if err := atMost("laws of a port", p.GetSettings(), MaxPortLaws); err != nil {
			return err
		}
		laws := map[string]bool{}
		for _, n := range p.GetSettings() {
			if int(n) >= len(x.GetSettings()) {
				return fmt.Errorf("port %d has setting %d of %d", p.GetPort(), n, len(x.GetSettings()))
			}
			law := x.GetSettings()[n].GetLaw()
			if laws[law] {
				return fmt.Errorf("port %d has the law %s twice", p.GetPort(), law)
			}
			laws[law] = true
		}
	}
	return nil
}

func (x *LawSetting) check() error {
	switch {
	case !ValidName(x.GetLaw()):
		return errors.New("not the name of a law")
	case x.GetPercent() > 100:
		return fmt.Errorf("%d %% of the flows", x.GetPercent())
	case len(x.GetParams()) > MaxParams || !json.Valid(x.GetParams()):
		return fmt.Errorf("%d bytes of parameters that are not JSON, or above %d", len(x.GetParams()), MaxParams)
	}
	return nil
}

// check accepts nil.
func (x *PlanState) check() error {
	if err := errors.Join(atMost("ports with problems", x.GetPorts(), MaxStates), checkReason(x.GetProblem())); err != nil {
		return err
	}
	for _, p := range x.GetPorts() {
		if !ValidName(p.GetLaw()) {
			return errors.New("the state of no law")
		}
		if err := checkReason(p.GetReason()); err != nil {
			return err
		}
	}
	return nil
}

func (x *RefusedGrant) check() error {
	if x.GetOwner() > 255 {
		return fmt.Errorf("owner %d, want 0 to 255", x.GetOwner())
	}
	return checkReason(x.GetReason())
}

// checkReason checks a sentence for people. Commands print it, so it must not be able to control a terminal.
func checkReason(s string) error {
	if len(s) > MaxReason || Reason(s) != s {
		return fmt.Errorf("a reason of %d bytes, want at most %d of printable UTF-8", len(s), MaxReason)
	}
	return nil
}

// Reason makes a sentence that a decoder accepts: without what cannot be printed, and cut after MaxReason bytes.
func Reason(s string) string {
	var out []byte
	for _, c := range s {
		if c < ' ' || c == utf8.RuneError || c >= 0x7f && c < 0xa0 {
			c = ' '
		}
		if len(out)+utf8.RuneLen(c) > MaxReason {
			break
		}
		out = utf8.AppendRune(out, c)
	}
	return string(out)
}
