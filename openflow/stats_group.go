package openflow

// GroupStatsRequest asks for a group's counters, or all groups' with GroupAll (specification 7.3.5.9).
type GroupStatsRequest struct {
	GroupID GroupID `json:"group_id"`
}

// BucketCounter counts one bucket of a group (ofp_bucket_counter).
type BucketCounter struct {
	PacketCount uint64 `json:"packet_count"`
	ByteCount   uint64 `json:"byte_count"`
}

// GroupStats are a group's counters (ofp_group_stats, specification 7.3.5.9).
type GroupStats struct {
	GroupID      GroupID         `json:"group_id"`
	RefCount     uint32          `json:"ref_count"` // flow entries and groups that use it
	PacketCount  uint64          `json:"packet_count"`
	ByteCount    uint64          `json:"byte_count"`
	DurationSec  uint32          `json:"duration_sec"`
	DurationNsec uint32          `json:"duration_nsec"`
	BucketStats  []BucketCounter `json:"bucket_stats"`
}

// GroupStatsReply gives the counters of groups.
type GroupStatsReply []GroupStats

// GroupDesc is a group as it was made (ofp_group_desc, specification 7.3.5.10).
type GroupDesc struct {
	Type    GroupType `json:"type"`
	GroupID GroupID   `json:"group_id"`
	Buckets []Bucket  `json:"buckets"`
}

// GroupDescReply gives all groups.
type GroupDescReply []GroupDesc

// GroupCapabilities are the optional features of a switch's groups (ofp_group_capabilities, specification 7.3.5.11).
type GroupCapabilities uint32

// The bits of GroupCapabilities.
const (
	GroupSelectWeight GroupCapabilities = 1 << iota
	GroupSelectLiveness
	GroupChaining
	GroupChainingChecks
)

var groupCapabilityNames = [...]string{"SELECT_WEIGHT", "SELECT_LIVENESS", "CHAINING", "CHAINING_CHECKS"}

// String returns the names of the bits.
func (c GroupCapabilities) String() string { return flagsOf(groupCapabilityNames[:], uint64(c)) }

// MarshalJSON returns an array of names.
func (c GroupCapabilities) MarshalJSON() ([]byte, error) { return flagsJSON(c.String()), nil }

// GroupFeaturesReply has the features of a switch's groups (specification 7.3.5.11). The arrays are indexed by GroupType.
type GroupFeaturesReply struct {
	Types        uint32            `json:"types"` // bit n: GroupType n
	Capabilities GroupCapabilities `json:"capabilities"`
	MaxGroups    [4]uint32         `json:"max_groups"`
	Actions      [4]uint32         `json:"actions"` // bit n: ActionType n
}

// MultipartType returns MultipartGroup.
func (GroupStatsRequest) MultipartType() MultipartType { return MultipartGroup }

// MultipartType returns MultipartGroup.
func (GroupStatsReply) MultipartType() MultipartType { return MultipartGroup }

// MultipartType returns MultipartGroupDesc.
func (GroupDescReply) MultipartType() MultipartType { return MultipartGroupDesc }

// MultipartType returns MultipartGroupFeatures.
func (GroupFeaturesReply) MultipartType() MultipartType { return MultipartGroupFeatures }

func (r GroupStatsRequest) append(b []byte, reply bool) ([]byte, error) {
	return appendZeros(be.AppendUint32(b, uint32(r.GroupID)), 4), onlyRequest(MultipartGroup, reply)
}

func (r GroupStatsReply) append(b []byte, reply bool) ([]byte, error) {
	err := onlyReply(MultipartGroup, reply)
	for i := 0; i < len(r) && err == nil; i++ {
		s := &r[i]
		start := len(b)
		b = appendZeros(b, 4)
		b = be.AppendUint32(b, uint32(s.GroupID))
		b = be.AppendUint32(b, s.RefCount)
		b = appendZeros(b, 4)
		b = be.AppendUint64(b, s.PacketCount)
		b = be.AppendUint64(b, s.ByteCount)
		b = be.AppendUint32(b, s.DurationSec)
		b = be.AppendUint32(b, s.DurationNsec)
		for _, k := range s.BucketStats {
			b = be.AppendUint64(be.AppendUint64(b, k.PacketCount), k.ByteCount)
		}
		b, err = putLength(b, start, start, "group stats")
	}
	return b, err
}

func (c *cursor) groupStats() GroupStatsReply {
	r := GroupStatsReply{}
	for c.more() {
		e := c.sized("group_stats.length", 40, 8)
		if c.err != nil {
			break
		}
		e.pad(2)
		s := GroupStats{GroupID: GroupID(e.u32("group_id")), RefCount: e.u32("ref_count")}
		e.pad(4)
		s.PacketCount = e.u64("packet_count")
		s.ByteCount = e.u64("byte_count")
		s.DurationSec = e.u32("duration_sec")
		s.DurationNsec = e.u32("duration_nsec")
		for e.more() {
			s.BucketStats = append(s.BucketStats, BucketCounter{e.u64("bucket.packet_count"), e.u64("bucket.byte_count")})
		}
		c.join(&e)
		r = append(r, s)
	}
	return r
}

func (r GroupDescReply) append(b []byte, reply bool) ([]byte, error) {
	err := onlyReply(MultipartGroupDesc, reply)
	for i := 0; i < len(r) && err == nil; i++ {
		start := len(b)
		b = append(b, 0, 0, byte(r[i].Type), 0)
		if b, err = appendBuckets(be.AppendUint32(b, uint32(r[i].GroupID)), r[i].Buckets); err == nil {
			b, err = putLength(b, start, start, "group desc")
		}
	}
	return b, err
}

func (c *cursor) groupDesc() GroupDescReply {
	r := GroupDescReply{}
	for c.more() {
		e := c.sized("group_desc.length", 8, 8)
		if c.err != nil {
			break
		}
		d := GroupDesc{Type: GroupType(e.u8("type"))}
		e.pad(1)
		d.GroupID = GroupID(e.u32("group_id"))
		d.Buckets = e.buckets(nil)
		c.join(&e)
		r = append(r, d)
	}
	return r
}

func (r GroupFeaturesReply) append(b []byte, reply bool) ([]byte, error) {
	b = be.AppendUint32(b, r.Types)
	b = be.AppendUint32(b, uint32(r.Capabilities))
	for _, four := range [...]*[4]uint32{&r.MaxGroups, &r.Actions} {
		for _, v := range four {
			b = be.AppendUint32(b, v)
		}
	}
	return b, onlyReply(MultipartGroupFeatures, reply)
}

func (c *cursor) groupFeatures() GroupFeaturesReply {
	r := GroupFeaturesReply{Types: c.u32("types"), Capabilities: GroupCapabilities(c.u32("capabilities"))}
	for i := range r.MaxGroups {
		r.MaxGroups[i] = c.u32("max_groups")
	}
	for i := range r.Actions {
		r.Actions[i] = c.u32("actions")
	}
	return r
}
