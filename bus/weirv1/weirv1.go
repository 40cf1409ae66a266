// Package weirv1 has the messages of Weir's bus: protobuf package weir.v1 (weir.proto), their decoders with checks, and the
// way between them and the types in law.
//
//	decode.go     decoders: sizes, counts and ranges are checked
//	grant.go      law.Grant and law.Flow
//	inventory.go  what an agent has, and its parts
//	plan.go       the laws of a switch's ports, and the guarantees of a host's VMs
//	totals.go     an agent's readings as messages
//	differences.go  messages as a controller's events
//
// Every message from the network goes through a decoder. Its result can be used without further checks.
package weirv1

import (
	"errors"
	"time"
)

// Limits of messages. An encoder that exceeds one gets an error from [Encode].
const (
	MaxMessage   = 128 << 10 // bytes of one message
	MaxPorts     = 1024      // in a Telemetry, Events or Arrivals
	MaxSources   = 8192      // in a Telemetry, at all ports together
	MaxPairs     = 64        // at one port
	MaxDrops     = 256
	MaxDeadlines = 256
	MaxFlows     = 512  // in an Events
	MaxValue     = 100  // of a deadline
	MaxGrants    = 1024 // in one message
	MaxGuests    = 4096 // VMs of an agent
	MaxParts     = 64   // of an inventory
	MaxRanges    = 16   // of addresses of a VM
	MaxLabels    = 32   // of a port or VM
	MaxText      = 63   // bytes of a label's key or value, or of the name of a port or VM
	MaxBuckets   = 1024 // buckets are 0 to MaxBuckets-1
	MaxName      = 63   // bytes of a name
	MaxLease     = time.Minute
	MaxWindow    = 65535 << 14     // bytes, the largest receive window of TCP (RFC 7323, 2.3)
	MaxWeight    = 1 << 20         // of a VM's guarantee
	MaxRate      = 100e12          // bit/s
	maxTotal     = 1<<62 - 1       // bytes or packets
	maxDuration  = uint64(1 << 62) // ns
	maxTCPPort   = 1<<16 - 1
	maxVersion   = 128  // bytes
	MaxSettings  = 64   // of a plan
	MaxParams    = 4096 // bytes of a law's parameters
	MaxSwitches  = 16   // that a host is connected to
	MaxPortLaws  = 8    // at one port, and names of laws that an agent has
	MaxStates    = 256  // ports whose laws do not hold completely
	MaxReason    = 256  // bytes
	MaxRefused   = 64   // grants
	// MaxMarkedPairs is how many pairs a PairMarks has.
	MaxMarkedPairs = 1024
)

// MaxTerm limits terms, so that adding to a term cannot overflow.
const MaxTerm = 1 << 62

// ErrMalformed is the error of all decoders.
var ErrMalformed = errors.New("malformed message")

// ValidName reports whether name can be an agent's or a controller's: 1 to 63 of a-z, 0-9 and -, first no hyphen. So a name
// is one token of a subject.
func ValidName(name string) bool {
	if name == "" || len(name) > MaxName || name[0] == '-' {
		return false
	}
	for _, c := range []byte(name) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}
