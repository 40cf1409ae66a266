//go:build !cgo

package native

// SeeArrival panics: this build has no laws.
func SeeArrival(uint64, *ArrivalsFlow, *ArrivalsPacket) uint32 { panic(withoutC) }
