package openflow

// ErrorMessage reports that a message was refused (OFPT_ERROR, specification 7.5.4).
type ErrorMessage struct {
	ErrorType ErrorType `json:"type"`
	Code      uint16    `json:"code"`
	Data      HexBytes  `json:"data"` // for most types the refused message, at least its first 64 bytes
}

// ErrorType is an error message's type. The meaning of its code depends on it (ofp_error_type).
type ErrorType uint16

// MessageType returns TypeError.
func (*ErrorMessage) MessageType() Type { return TypeError }

// AppendBody appends type, code and data.
func (m *ErrorMessage) AppendBody(b []byte) ([]byte, error) {
	b = be.AppendUint16(b, uint16(m.ErrorType))
	b = be.AppendUint16(b, m.Code)
	return append(b, m.Data...), nil
}

// DecodeBody reads type, code and data.
func (m *ErrorMessage) DecodeBody(b []byte) error {
	c := newCursor(TypeError, b)
	m.ErrorType = ErrorType(c.u16("type"))
	m.Code = c.u16("code")
	m.Data = c.rest()
	return c.err
}
