package policy

import (
	"encoding/json"
	"fmt"
	"strings"

	"weir/law"
)

// MaxLeft limits how many settings that do not hold are listed for a target.
const MaxLeft = 32

// State is what holds where.
type State struct {
	Targets  []Here   `json:"targets"`  // sorted by kind, node and name
	Policies []Status `json:"policies"` // sorted by name
}

// Here is what holds at one target.
type Here struct {
	Target    Target     `json:"target"`
	Laws      []Applied  `json:"laws,omitempty"` // sorted by age of the policy, then by law
	Guarantee *Guarantor `json:"guarantee,omitempty"`
	Left      []Left     `json:"left,omitempty"`      // settings that do not hold, at most MaxLeft
	MoreLeft  int        `json:"more_left,omitempty"` // further ones
}

// Applied is a law at a target.
type Applied struct {
	Law     string          `json:"law"`
	Params  json.RawMessage `json:"params"` // all of them
	Percent int             `json:"percent"`
	// Policies that ask for it, the oldest first. They agree in parameters and percentage.
	Policies []string `json:"policies"`

	given string
	spec  *law.Spec
}

// Guarantor is the guarantee of a VM, and the policies that give it.
type Guarantor struct {
	Guarantee
	Policies []string `json:"policies"` // the oldest first
}

// Cause is why a setting does not hold.
type Cause string

// The causes.
const (
	SameLaw       Cause = "same law"       // an older policy gives the law other parameters, or another percentage
	SameResource  Cause = "same resource"  // an older policy has a law that owns the same resource
	SameGuarantee Cause = "same guarantee" // an older policy gives another guarantee
	Capacity      Cause = "capacity"       // the guarantees of older policies leave too little
	UnknownRate   Cause = "unknown rate"   // of the uplink
	Unsupported   Cause = "unsupported"    // no agent or controller runs the law there
	NoSharing     Cause = "no sharing law" // no law at the VM or its host shares the uplink: of the guarantee only the cap is enforced
	Reported      Cause = "reported"       // an agent or controller reports it
)

// conflict reports whether the cause is one for which apply refuses a policy.
func (c Cause) conflict() bool {
	return c == SameLaw || c == SameResource || c == SameGuarantee || c == Capacity
}

// Left is a setting of a policy that does not hold at a target, or not completely.
type Left struct {
	Policy string `json:"policy"`
	Law    string `json:"law,omitempty"` // "": the guarantee
	Cause  Cause  `json:"cause"`
	With   string `json:"with,omitempty"`     // the older policy
	Other  string `json:"with_law,omitempty"` // its law
	Detail string `json:"detail,omitempty"`
}

// Reason is one sentence.
func (l *Left) Reason() string {
	switch l.Cause {
	case SameLaw:
		return fmt.Sprintf("policy %s gives the law %s other parameters, or another percentage", l.With, l.Law)
	case SameResource:
		return fmt.Sprintf("its law %s and the law %s of policy %s both own the %s", l.Law, l.Other, l.With, l.Detail)
	case SameGuarantee:
		return fmt.Sprintf("policy %s gives another guarantee", l.With)
	case Capacity, Reported:
		return l.Detail
	case NoSharing:
		return "no law that shares the uplink runs at the VM or its host, so the rate and the weight are reserved and not enforced"
	case UnknownRate:
		return "the rate of the host's uplink is not known, so nothing can be guaranteed"
	}
	return fmt.Sprintf("nothing runs the law %s there", l.Law)
}

// Item returns the name of the setting.
func (l *Left) Item() string {
	if l.Law == "" {
		return "guarantee"
	}
	return "law " + l.Law
}

// Condition is how much of a policy holds.
type Condition string

// The conditions.
const (
	Enforced Condition = "enforced" // all of it, at all targets
	Observed Condition = "observed" // all of it, and its laws only observe
	Degraded Condition = "degraded" // a part of it
	Off      Condition = "off"      // nothing of it
)

// Status is the condition of a policy.
type Status struct {
	Name      string    `json:"name"`
	Version   int       `json:"version"`
	Condition Condition `json:"condition"`
	Reason    string    `json:"reason,omitempty"` // of degraded and off
	Targets   int       `json:"targets"`          // that are selected
	Hold      int       `json:"hold"`             // settings that hold, over all targets
	Left      int       `json:"left"`             // settings that do not hold, or not completely
}

// Bytes returns the state in a fixed form: equal states have equal bytes.
func (s *State) Bytes() []byte {
	b, err := json.Marshal(s)
	if err != nil { // all types are ours
		panic(fmt.Sprintf("encode the state of policies: %v", err))
	}
	return b
}

// String is the guarantee for people.
func (g Guarantee) String() string {
	var out []string
	if g.Rate > 0 {
		out = append(out, "rate "+g.Rate.String())
	}
	if g.Weight > 0 {
		out = append(out, fmt.Sprintf("weight %d", g.Weight))
	}
	if g.Cap > 0 {
		out = append(out, "cap "+g.Cap.String())
	}
	if g.Excess != "" {
		out = append(out, "excess "+g.Excess)
	}
	return strings.Join(out, ", ")
}
