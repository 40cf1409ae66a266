//go:build !cgo

package native

// FairSwitch is the law of one queue of the hardware. This build has no laws.
type FairSwitch struct{}

// NewFairSwitch panics: this build has no laws.
func NewFairSwitch(FairSwitchConfig) *FairSwitch { panic(withoutC) }

// FairSwitchFrame panics: this build has no laws.
func FairSwitchFrame([]byte, uint32, bool, FairSwitchClear) FairSwitchSeen { panic(withoutC) }
