package openflow

import (
	"fmt"
	"strconv"
)

// The types of errors (ofp_error_type, specification 7.5.4).
const (
	ErrorHelloFailed         ErrorType = 0
	ErrorBadRequest          ErrorType = 1
	ErrorBadAction           ErrorType = 2
	ErrorBadInstruction      ErrorType = 3
	ErrorBadMatch            ErrorType = 4
	ErrorFlowModFailed       ErrorType = 5
	ErrorGroupModFailed      ErrorType = 6
	ErrorPortModFailed       ErrorType = 7
	ErrorTableModFailed      ErrorType = 8
	ErrorQueueOpFailed       ErrorType = 9
	ErrorSwitchConfigFailed  ErrorType = 10
	ErrorRoleRequestFailed   ErrorType = 11
	ErrorMeterModFailed      ErrorType = 12
	ErrorTableFeaturesFailed ErrorType = 13
	ErrorExperimenter        ErrorType = 0xffff // the code is the experimenter's; data begins with the experimenter's number
)

// The codes that a controller or switch of this module sends or checks.
const (
	CodeHelloIncompatible uint16 = 0 // of ErrorHelloFailed
	CodeBadVersion        uint16 = 0 // of ErrorBadRequest, as the next eight
	CodeBadType           uint16 = 1
	CodeBadMultipart      uint16 = 2
	CodeBadExperimenter   uint16 = 3
	CodeEPerm             uint16 = 5
	CodeBadLen            uint16 = 6
	CodeIsSlave           uint16 = 10
	CodeMultipartOverflow uint16 = 13
	CodeRoleStale         uint16 = 0 // of ErrorRoleRequestFailed
)

var errorTypes = [...]string{
	"HELLO_FAILED", "BAD_REQUEST", "BAD_ACTION", "BAD_INSTRUCTION", "BAD_MATCH", "FLOW_MOD_FAILED", "GROUP_MOD_FAILED",
	"PORT_MOD_FAILED", "TABLE_MOD_FAILED", "QUEUE_OP_FAILED", "SWITCH_CONFIG_FAILED", "ROLE_REQUEST_FAILED",
	"METER_MOD_FAILED", "TABLE_FEATURES_FAILED",
}

var errorCodes = [...][]string{
	{"INCOMPATIBLE", "EPERM"},
	{
		"BAD_VERSION", "BAD_TYPE", "BAD_MULTIPART", "BAD_EXPERIMENTER", "BAD_EXP_TYPE", "EPERM", "BAD_LEN",
		"BUFFER_EMPTY", "BUFFER_UNKNOWN", "BAD_TABLE_ID", "IS_SLAVE", "BAD_PORT", "BAD_PACKET", "MULTIPART_BUFFER_OVERFLOW",
	},
	{
		"BAD_TYPE", "BAD_LEN", "BAD_EXPERIMENTER", "BAD_EXP_TYPE", "BAD_OUT_PORT", "BAD_ARGUMENT", "EPERM", "TOO_MANY",
		"BAD_QUEUE", "BAD_OUT_GROUP", "MATCH_INCONSISTENT", "UNSUPPORTED_ORDER", "BAD_TAG", "BAD_SET_TYPE", "BAD_SET_LEN",
		"BAD_SET_ARGUMENT",
	},
	{
		"UNKNOWN_INST", "UNSUP_INST", "BAD_TABLE_ID", "UNSUP_METADATA", "UNSUP_METADATA_MASK", "BAD_EXPERIMENTER",
		"BAD_EXP_TYPE", "BAD_LEN", "EPERM",
	},
	{
		"BAD_TYPE", "BAD_LEN", "BAD_TAG", "BAD_DL_ADDR_MASK", "BAD_NW_ADDR_MASK", "BAD_WILDCARDS", "BAD_FIELD",
		"BAD_VALUE", "BAD_MASK", "BAD_PREREQ", "DUP_FIELD", "EPERM",
	},
	{"UNKNOWN", "TABLE_FULL", "BAD_TABLE_ID", "OVERLAP", "EPERM", "BAD_TIMEOUT", "BAD_COMMAND", "BAD_FLAGS"},
	{
		"GROUP_EXISTS", "INVALID_GROUP", "WEIGHT_UNSUPPORTED", "OUT_OF_GROUPS", "OUT_OF_BUCKETS",
		"CHAINING_UNSUPPORTED", "WATCH_UNSUPPORTED", "LOOP", "UNKNOWN_GROUP", "CHAINED_GROUP", "BAD_TYPE", "BAD_COMMAND",
		"BAD_BUCKET", "BAD_WATCH", "EPERM",
	},
	{"BAD_PORT", "BAD_HW_ADDR", "BAD_CONFIG", "BAD_ADVERTISE", "EPERM"},
	{"BAD_TABLE", "BAD_CONFIG", "EPERM"},
	{"BAD_PORT", "BAD_QUEUE", "EPERM"},
	{"BAD_FLAGS", "BAD_LEN", "EPERM"},
	{"STALE", "UNSUP", "BAD_ROLE"},
	{
		"UNKNOWN", "METER_EXISTS", "INVALID_METER", "UNKNOWN_METER", "BAD_COMMAND", "BAD_FLAGS", "BAD_RATE", "BAD_BURST",
		"BAD_BAND", "BAD_BAND_VALUE", "OUT_OF_METERS", "OUT_OF_BANDS",
	},
	{"BAD_TABLE", "BAD_METADATA", "BAD_TYPE", "BAD_LEN", "BAD_ARGUMENT", "EPERM"},
}

// String returns the specification's name.
func (t ErrorType) String() string {
	if t == ErrorExperimenter {
		return "EXPERIMENTER"
	}
	return nameOf(errorTypes[:], uint64(t))
}

// MarshalJSON returns the name as a string, or the number.
func (t ErrorType) MarshalJSON() ([]byte, error) { return nameJSON(t.String()), nil }

// CodeName returns the specification's name of the code, which depends on the type.
func (m *ErrorMessage) CodeName() string {
	if int(m.ErrorType) < len(errorCodes) {
		return nameOf(errorCodes[m.ErrorType], uint64(m.Code))
	}
	return strconv.Itoa(int(m.Code))
}

// String returns type and code by name and number, and the refused message.
func (m *ErrorMessage) String() string {
	s := fmt.Sprintf("ERROR type=%s code=%s (%d/%d)", m.ErrorType, m.CodeName(), m.ErrorType, m.Code)
	switch m.ErrorType {
	case ErrorHelloFailed: // its data is text
		return s + fmt.Sprintf(" data=%q", []byte(m.Data))
	case ErrorExperimenter:
		return s + " data=" + m.Data.String()
	}
	if h, err := ParseHeader(m.Data); err == nil {
		s += fmt.Sprintf(" refused=%s xid=%#x", h.Type, h.XID)
	}
	return s + " data=" + m.Data.String()
}

// Error makes the error message a Go error, with the cause and the refused message.
func (m *ErrorMessage) Error() string { return "the peer refused: " + m.String() }
