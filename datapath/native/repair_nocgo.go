//go:build !cgo

package native

// Repair panics: this build has no laws.
func Repair(*RepairConfig, uint32, uint32, uint32, bool, bool) RepairVerdict { panic(withoutC) }

// RepairWaits panics: this build has no laws.
func RepairWaits(*RepairFlow, uint64, uint64) bool { panic(withoutC) }

// RepairAgain panics: this build has no laws.
func RepairAgain(*RepairConfig, uint32, uint32, bool, uint64) bool { panic(withoutC) }
