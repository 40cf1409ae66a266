package openflow

// GroupCommand is what a group-mod does (ofp_group_mod_command, specification 7.3.4.2).
type GroupCommand uint16

// The commands.
const (
	GroupAdd GroupCommand = iota
	GroupModify
	GroupDelete
)

var groupCommands = [...]string{"ADD", "MODIFY", "DELETE"}

// String returns the specification's name.
func (c GroupCommand) String() string { return nameOf(groupCommands[:], uint64(c)) }

// MarshalJSON returns the name as a string, or the number.
func (c GroupCommand) MarshalJSON() ([]byte, error) { return nameJSON(c.String()), nil }

// GroupType is the way to choose among a group's buckets (ofp_group_type).
type GroupType uint8

// The types.
const (
	GroupTypeAll      GroupType = iota // every bucket, each with a copy
	GroupTypeSelect                    // one, by the switch's hash and the weights
	GroupTypeIndirect                  // the only one
	GroupTypeFF                        // fast failover: the first that is live
)

var groupTypes = [...]string{"ALL", "SELECT", "INDIRECT", "FF"}

// String returns the specification's name.
func (t GroupType) String() string { return nameOf(groupTypes[:], uint64(t)) }

// MarshalJSON returns the name as a string, or the number.
func (t GroupType) MarshalJSON() ([]byte, error) { return nameJSON(t.String()), nil }

// Bucket is one set of actions of a group (ofp_bucket).
type Bucket struct {
	Weight     uint16  `json:"weight"`      // of GroupTypeSelect: its share
	WatchPort  PortNo  `json:"watch_port"`  // of GroupTypeFF: the bucket is live while this port is; else PortAny
	WatchGroup GroupID `json:"watch_group"` // the same of a group; else GroupAny
	Actions    Actions `json:"actions"`
}

// GroupMod changes a group (specification 7.3.4.2).
type GroupMod struct {
	Command GroupCommand `json:"command"`
	Type    GroupType    `json:"type"`
	GroupID GroupID      `json:"group_id"` // GroupAll: delete all
	Buckets []Bucket     `json:"buckets"`
}

// MessageType returns TypeGroupMod.
func (*GroupMod) MessageType() Type { return TypeGroupMod }

// AppendBody appends all fields.
func (m *GroupMod) AppendBody(b []byte) ([]byte, error) {
	b = be.AppendUint16(b, uint16(m.Command))
	b = append(b, byte(m.Type), 0)
	return appendBuckets(be.AppendUint32(b, uint32(m.GroupID)), m.Buckets)
}

// DecodeBody reads all fields.
func (m *GroupMod) DecodeBody(b []byte) error {
	c := newCursor(TypeGroupMod, b)
	m.Command = GroupCommand(c.u16("command"))
	m.Type = GroupType(c.u8("type"))
	c.pad(1)
	m.GroupID = GroupID(c.u32("group_id"))
	m.Buckets = c.buckets(m.Buckets)
	return c.err
}

func (m *GroupMod) String() string { return text(m) }

func appendBuckets(b []byte, buckets []Bucket) ([]byte, error) {
	for i := range buckets {
		k := &buckets[i]
		start := len(b)
		b = be.AppendUint16(b, 0)
		b = be.AppendUint16(b, k.Weight)
		b = be.AppendUint32(b, uint32(k.WatchPort))
		b = be.AppendUint32(b, uint32(k.WatchGroup))
		var err error
		if b, err = k.Actions.append(appendZeros(b, 4)); err != nil {
			return b, err
		}
		if b, err = putLength(b, start, start, "bucket"); err != nil {
			return b, err
		}
	}
	return b, nil
}

// buckets reads all that is left as buckets.
func (c *cursor) buckets(list []Bucket) []Bucket {
	list = list[:0]
	for c.more() {
		e := c.sized("bucket.len", 16, 8)
		if c.err != nil {
			break
		}
		k := Bucket{Weight: e.u16("bucket.weight")}
		k.WatchPort = PortNo(e.u32("bucket.watch_port"))
		k.WatchGroup = GroupID(e.u32("bucket.watch_group"))
		e.pad(4)
		k.Actions = e.actions(nil)
		c.join(&e)
		list = append(list, k)
	}
	return list
}
