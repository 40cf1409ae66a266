package openflow

import "bytes"

// PortConfig is the configuration of a port by an operator or controller (ofp_port_config, specification 7.2.1).
type PortConfig uint32

// The bits of PortConfig.
const (
	PortDown       PortConfig = 1 << 0
	PortNoRecv     PortConfig = 1 << 2
	PortNoFwd      PortConfig = 1 << 5
	PortNoPacketIn PortConfig = 1 << 6
)

var portConfigNames = [...]string{"PORT_DOWN", "", "NO_RECV", "", "", "NO_FWD", "NO_PACKET_IN"}

// String returns the names of the bits.
func (c PortConfig) String() string { return flagsOf(portConfigNames[:], uint64(c)) }

// MarshalJSON returns an array of names.
func (c PortConfig) MarshalJSON() ([]byte, error) { return flagsJSON(c.String()), nil }

// PortState is the state of a port (ofp_port_state, specification 7.2.1).
type PortState uint32

// The bits of PortState.
const (
	PortLinkDown PortState = 1 << iota
	PortBlocked
	PortLive // for fast failover groups
)

var portStateNames = [...]string{"LINK_DOWN", "BLOCKED", "LIVE"}

// String returns the names of the bits.
func (s PortState) String() string { return flagsOf(portStateNames[:], uint64(s)) }

// MarshalJSON returns an array of names.
func (s PortState) MarshalJSON() ([]byte, error) { return flagsJSON(s.String()), nil }

// PortFeatures are a link's speeds and kinds (ofp_port_features, specification 7.2.1).
type PortFeatures uint32

var portFeatureNames = [...]string{
	"10MB_HD", "10MB_FD", "100MB_HD", "100MB_FD", "1GB_HD", "1GB_FD", "10GB_FD", "40GB_FD", "100GB_FD", "1TB_FD",
	"OTHER", "COPPER", "FIBER", "AUTONEG", "PAUSE", "PAUSE_ASYM", //nolint:misspell // the specification's word
}

// String returns the names of the bits.
func (f PortFeatures) String() string { return flagsOf(portFeatureNames[:], uint64(f)) }

// MarshalJSON returns an array of names.
func (f PortFeatures) MarshalJSON() ([]byte, error) { return flagsJSON(f.String()), nil }

const (
	portLen     = 64
	portNameLen = 16
)

// Port describes a port (ofp_port, specification 7.2.1).
type Port struct {
	PortNo     PortNo       `json:"port_no"`
	HwAddr     MAC          `json:"hw_addr"`
	Name       string       `json:"name"` // at most 16 bytes, without NUL
	Config     PortConfig   `json:"config"`
	State      PortState    `json:"state"`
	Curr       PortFeatures `json:"curr"`
	Advertised PortFeatures `json:"advertised"`
	Supported  PortFeatures `json:"supported"`
	Peer       PortFeatures `json:"peer"`
	CurrSpeed  uint32       `json:"curr_speed"` // kbit/s
	MaxSpeed   uint32       `json:"max_speed"`  // kbit/s
}

func (p *Port) append(b []byte) ([]byte, error) {
	b = appendZeros(be.AppendUint32(b, uint32(p.PortNo)), 4)
	b = appendZeros(append(b, p.HwAddr[:]...), 2)
	b, err := appendText(b, p.Name, portNameLen, "port.name")
	b = be.AppendUint32(b, uint32(p.Config))
	b = be.AppendUint32(b, uint32(p.State))
	b = be.AppendUint32(b, uint32(p.Curr))
	b = be.AppendUint32(b, uint32(p.Advertised))
	b = be.AppendUint32(b, uint32(p.Supported))
	b = be.AppendUint32(b, uint32(p.Peer))
	b = be.AppendUint32(b, p.CurrSpeed)
	return be.AppendUint32(b, p.MaxSpeed), err
}

func (p *Port) decode(c *cursor) {
	p.PortNo = PortNo(c.u32("port_no"))
	c.pad(4)
	copy(p.HwAddr[:], c.take("hw_addr", 6))
	c.pad(2)
	p.Name = c.text("name", portNameLen)
	p.Config = PortConfig(c.u32("config"))
	p.State = PortState(c.u32("state"))
	p.Curr = PortFeatures(c.u32("curr"))
	p.Advertised = PortFeatures(c.u32("advertised"))
	p.Supported = PortFeatures(c.u32("supported"))
	p.Peer = PortFeatures(c.u32("peer"))
	p.CurrSpeed = c.u32("curr_speed")
	p.MaxSpeed = c.u32("max_speed")
}

// text reads a string that is padded with NUL to n bytes. It ignores bytes after the first NUL.
func (c *cursor) text(field string, n int) string {
	b, _, _ := bytes.Cut(c.take(field, n), []byte{0})
	return string(b)
}

func appendText(b []byte, s string, n int, field string) ([]byte, error) {
	if len(s) > n {
		return b, &EncodeError{Message: "text", Field: field, Err: ErrTooLong, Value: int64(len(s))}
	}
	b = append(b, s...)
	for range n - len(s) {
		b = append(b, 0)
	}
	return b, nil
}

// PortReason is the event of a port (ofp_port_reason, specification 7.4.3).
type PortReason uint8

// The reasons.
const (
	PortAdd PortReason = iota
	PortDelete
	PortModify
)

var portReasons = [...]string{"ADD", "DELETE", "MODIFY"}

// String returns the specification's name.
func (r PortReason) String() string { return nameOf(portReasons[:], uint64(r)) }

// MarshalJSON returns the name as a string, or the number.
func (r PortReason) MarshalJSON() ([]byte, error) { return nameJSON(r.String()), nil }

// PortStatus reports that a port was added, removed or changed (specification 7.4.3).
type PortStatus struct {
	Reason PortReason `json:"reason"`
	Desc   Port       `json:"desc"`
}

// MessageType returns TypePortStatus.
func (*PortStatus) MessageType() Type { return TypePortStatus }

// AppendBody appends reason and port.
func (m *PortStatus) AppendBody(b []byte) ([]byte, error) {
	return m.Desc.append(appendZeros(append(b, byte(m.Reason)), 7))
}

// DecodeBody reads reason and port.
func (m *PortStatus) DecodeBody(b []byte) error {
	c := newCursor(TypePortStatus, b)
	m.Reason = PortReason(c.u8("reason"))
	c.pad(7)
	m.Desc.decode(&c)
	return c.done()
}

func (m *PortStatus) String() string { return text(m) }
