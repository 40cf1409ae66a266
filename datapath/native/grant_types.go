package native

// GrantOwner is struct grant_owner of core/grant.h: a process that grants.
type GrantOwner struct {
	HeartbeatNs uint64 // the last one; 0: never
	LeftNs      uint64 // when it left; 0: it did not
}

// Grant is struct grant of core/grant.h: one owner's limit.
type Grant struct {
	Value     uint64 // bytes, or bit/s
	ExpiresNs uint64 // the end of its own lease
	Owner     uint32
	Flags     uint32 // GrantSet, GrantPause
}

// Flags of a Grant.
const (
	GrantSet   = 1
	GrantPause = 2
)

// GrantLeast is struct grant_least of core/grant.h: the minimum of some grants.
type GrantLeast struct {
	WindowQ8 uint64 // 0: no grant
	Paused   uint32
	Zero     uint32 // 1: a pause is a window of 0
}
