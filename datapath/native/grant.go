//go:build cgo

package native

/*
#include "../core/bucket.h"
#include "../core/grant.h"

#cgo noescape grant_add
#cgo nocallback grant_add
#cgo noescape grant_rate
#cgo nocallback grant_rate
#cgo noescape grant_end
#cgo nocallback grant_end
#cgo noescape grant_field
#cgo nocallback grant_field
#cgo nocallback bucket_burst
#cgo nocallback bucket_limit
#cgo nocallback released_after
*/
import "C"

func (g *Grant) c() C.struct_grant {
	return C.struct_grant{value: C.weir_u64(g.Value), expires_ns: C.weir_u64(g.ExpiresNs), owner: C.weir_u32(g.Owner), flags: C.weir_u32(g.Flags)}
}

func (o *GrantOwner) c() C.struct_grant_owner {
	return C.struct_grant_owner{heartbeat_ns: C.weir_u64(o.HeartbeatNs), left_ns: C.weir_u64(o.LeftNs)}
}

// Add adds a grant for a window to the minimum: grant_add.
func (l *GrantLeast) Add(g *Grant, o *GrantOwner, nowNs uint64) {
	least := C.struct_grant_least{window_q8: C.weir_u64(l.WindowQ8), paused: C.weir_u32(l.Paused), zero: C.weir_u32(l.Zero)}
	grant, owner := g.c(), o.c()
	C.grant_add(&least, &grant, &owner, C.weir_u64(nowNs))
	l.WindowQ8, l.Paused = uint64(least.window_q8), uint32(least.paused)
}

// Field returns the field that an ACK leaves with. mss: of the flow, in bytes; 0: not seen. mssMax: the most that the port
// carries: grant_field.
func (l *GrantLeast) Field(a *WindowAck, mss, mssMax uint32) uint16 {
	least := C.struct_grant_least{window_q8: C.weir_u64(l.WindowQ8), paused: C.weir_u32(l.Paused), zero: C.weir_u32(l.Zero)}
	ack := C.struct_window_ack{ack: C.weir_u32(a.Ack), field: C.weir_u16(a.Field), shift: C.weir_u8(a.Shift), syn: C.weir_u8(a.SYN)}
	return uint16(C.grant_field(&least, &ack, C.weir_u32(mss), C.weir_u32(mssMax)))
}

// GrantRate returns the smaller of a rate and that of a grant, in bit/s; 0: no limit: grant_rate.
func GrantRate(bps uint64, g *Grant, o *GrantOwner, nowNs uint64) uint64 {
	grant, owner := g.c(), o.c()
	return uint64(C.grant_rate(C.weir_u64(bps), &grant, &owner, C.weir_u64(nowNs)))
}

// GrantEnd returns the time at which a grant is no longer valid: grant_end.
func GrantEnd(g *Grant, o *GrantOwner) uint64 {
	grant, owner := g.c(), o.c()
	return uint64(C.grant_end(&grant, &owner))
}

// ReleasedAfter returns a grant elapsedNs after its end; 0: it has ended: released_after.
func ReleasedAfter(grantQ8, elapsedNs uint64) uint64 {
	return uint64(C.released_after(C.weir_u64(grantQ8), C.weir_u64(elapsedNs)))
}

// Released returns a released grant after gapNs, tick by tick: released of core/lease.h.
func Released(grantQ8, gapNs uint64) uint64 {
	return uint64(C.released(C.weir_u64(grantQ8), C.weir_u64(gapNs)))
}

// BucketBurst returns the bytes of a class's token bucket: bucket_burst.
func BucketBurst(bps uint64) uint32 { return uint32(C.bucket_burst(C.weir_u64(bps))) }

// BucketLimit returns the bytes that may wait in a class: bucket_limit.
func BucketLimit(bps uint64) uint32 { return uint32(C.bucket_limit(C.weir_u64(bps))) }

// BucketRate returns a rate within the limits of a class: bucket_rate.
func BucketRate(bps uint64) uint64 { return uint64(C.bucket_rate(C.weir_u64(bps))) }
