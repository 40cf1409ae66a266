package host

import (
	"errors"
	"fmt"

	"weir/law"
)

// Reason is why a grant is refused.
type Reason string

// The reasons.
const (
	NoVM      Reason = "vm"      // there is no such VM
	BadOwner  Reason = "owner"   // above Owners, or without a heartbeat
	BadLease  Reason = "lease"   // below 0, or above MaxLease
	BadKey    Reason = "key"     // no grant of this kind is for such traffic
	NoLimiter Reason = "no_rate" // the uplink has no limiter
	Full      Reason = "full"    // there are GrantsAKey grants for the same, or a table is full
	Failed    Reason = "not_set" // the kernel refused it
)

// Reasons lists them all.
var Reasons = []Reason{NoVM, BadOwner, BadLease, BadKey, NoLimiter, Full, Failed}

// Refused is the error for a grant that is not set.
type Refused struct {
	Grant law.Grant
	Why   Reason
	Err   error
}

func (e *Refused) Error() string { return fmt.Sprintf("grant for VM %d: %v", e.Grant.Key.VM, e.Err) }

func (e *Refused) Unwrap() error { return e.Err }

// because is an error with its reason.
type because struct {
	why Reason
	error
}

func (e because) Unwrap() error { return e.error }

// refused returns the error of a grant.
func refused(g *law.Grant, err error) error {
	why := Failed
	if b := (because{}); errors.As(err, &b) {
		why = b.why
	}
	return &Refused{*g, why, err}
}
