package openflow

// Role is a controller's role among several (ofp_controller_role, specification 7.3.9).
type Role uint32

// The roles. A request with RoleNoChange asks for the present one.
const (
	RoleNoChange Role = iota
	RoleEqual
	RoleMaster
	RoleSlave
)

var roleNames = [...]string{"NOCHANGE", "EQUAL", "MASTER", "SLAVE"}

// String returns the specification's name.
func (r Role) String() string { return nameOf(roleNames[:], uint64(r)) }

// MarshalJSON returns the name as a string, or the number.
func (r Role) MarshalJSON() ([]byte, error) { return nameJSON(r.String()), nil }

// RoleRequest asks for a role (specification 7.3.9).
type RoleRequest struct {
	Role         Role   `json:"role"`
	GenerationID uint64 `json:"generation_id"` // of the election; counts for MASTER and SLAVE
}

// RoleReply gives the role that the controller has.
type RoleReply struct {
	Role         Role   `json:"role"`
	GenerationID uint64 `json:"generation_id"` // the largest that the switch has seen
}

// MessageType returns TypeRoleRequest.
func (*RoleRequest) MessageType() Type { return TypeRoleRequest }

// AppendBody appends the 16 bytes.
func (m *RoleRequest) AppendBody(b []byte) ([]byte, error) {
	return appendRole(b, m.Role, m.GenerationID), nil
}

// DecodeBody reads the 16 bytes.
func (m *RoleRequest) DecodeBody(b []byte) (err error) {
	m.Role, m.GenerationID, err = decodeRole(TypeRoleRequest, b)
	return err
}

func (m *RoleRequest) String() string { return text(m) }

// MessageType returns TypeRoleReply.
func (*RoleReply) MessageType() Type { return TypeRoleReply }

// AppendBody appends the 16 bytes.
func (m *RoleReply) AppendBody(b []byte) ([]byte, error) {
	return appendRole(b, m.Role, m.GenerationID), nil
}

// DecodeBody reads the 16 bytes.
func (m *RoleReply) DecodeBody(b []byte) (err error) {
	m.Role, m.GenerationID, err = decodeRole(TypeRoleReply, b)
	return err
}

func (m *RoleReply) String() string { return text(m) }

func appendRole(b []byte, r Role, generation uint64) []byte {
	b = be.AppendUint32(b, uint32(r))
	b = appendZeros(b, 4)
	return be.AppendUint64(b, generation)
}

func decodeRole(t Type, b []byte) (Role, uint64, error) {
	c := newCursor(t, b)
	r := Role(c.u32("role"))
	c.pad(4)
	generation := c.u64("generation_id")
	return r, generation, c.done()
}
