package openflow

// Type is the type of a message (ofp_type, specification 7.1.1).
type Type uint8

// The messages of OpenFlow 1.3.
const (
	TypeHello Type = iota
	TypeError
	TypeEchoRequest
	TypeEchoReply
	TypeExperimenter
	TypeFeaturesRequest
	TypeFeaturesReply
	TypeGetConfigRequest
	TypeGetConfigReply
	TypeSetConfig
	TypePacketIn
	TypeFlowRemoved
	TypePortStatus
	TypePacketOut
	TypeFlowMod
	TypeGroupMod
	TypePortMod
	TypeTableMod
	TypeMultipartRequest
	TypeMultipartReply
	TypeBarrierRequest
	TypeBarrierReply
	TypeQueueGetConfigRequest
	TypeQueueGetConfigReply
	TypeRoleRequest
	TypeRoleReply
	TypeGetAsyncRequest
	TypeGetAsyncReply
	TypeSetAsync
	TypeMeterMod
)

var typeNames = [...]string{
	"HELLO", "ERROR", "ECHO_REQUEST", "ECHO_REPLY", "EXPERIMENTER", "FEATURES_REQUEST", "FEATURES_REPLY",
	"GET_CONFIG_REQUEST", "GET_CONFIG_REPLY", "SET_CONFIG", "PACKET_IN", "FLOW_REMOVED", "PORT_STATUS", "PACKET_OUT",
	"FLOW_MOD", "GROUP_MOD", "PORT_MOD", "TABLE_MOD", "MULTIPART_REQUEST", "MULTIPART_REPLY", "BARRIER_REQUEST",
	"BARRIER_REPLY", "QUEUE_GET_CONFIG_REQUEST", "QUEUE_GET_CONFIG_REPLY", "ROLE_REQUEST", "ROLE_REPLY",
	"GET_ASYNC_REQUEST", "GET_ASYNC_REPLY", "SET_ASYNC", "METER_MOD",
}

// String returns the specification's name, such as PACKET_IN; a number for a type without a name.
func (t Type) String() string { return nameOf(typeNames[:], uint64(t)) }

// MarshalJSON returns the name as a string, or the number.
func (t Type) MarshalJSON() ([]byte, error) { return nameJSON(t.String()), nil }

// New returns an empty message of that type; nil for a type that OpenFlow 1.3 does not have.
func New(t Type) Message {
	switch t {
	case TypeHello:
		return new(Hello)
	case TypeError:
		return new(ErrorMessage)
	case TypeEchoRequest:
		return new(EchoRequest)
	case TypeEchoReply:
		return new(EchoReply)
	case TypeExperimenter:
		return new(Experimenter)
	case TypeFeaturesRequest:
		return new(FeaturesRequest)
	case TypeFeaturesReply:
		return new(FeaturesReply)
	case TypeGetConfigRequest:
		return new(GetConfigRequest)
	case TypeGetConfigReply:
		return new(GetConfigReply)
	case TypeSetConfig:
		return new(SetConfig)
	case TypePacketIn:
		return new(PacketIn)
	case TypeFlowRemoved:
		return new(FlowRemoved)
	case TypePortStatus:
		return new(PortStatus)
	case TypePacketOut:
		return new(PacketOut)
	case TypeFlowMod:
		return new(FlowMod)
	case TypeGroupMod:
		return new(GroupMod)
	case TypePortMod:
		return new(PortMod)
	case TypeTableMod:
		return new(TableMod)
	case TypeMultipartRequest:
		return new(MultipartRequest)
	case TypeMultipartReply:
		return new(MultipartReply)
	case TypeBarrierRequest:
		return new(BarrierRequest)
	case TypeBarrierReply:
		return new(BarrierReply)
	case TypeQueueGetConfigRequest:
		return new(QueueGetConfigRequest)
	case TypeQueueGetConfigReply:
		return new(QueueGetConfigReply)
	case TypeRoleRequest:
		return new(RoleRequest)
	case TypeRoleReply:
		return new(RoleReply)
	case TypeGetAsyncRequest:
		return new(GetAsyncRequest)
	case TypeGetAsyncReply:
		return new(GetAsyncReply)
	case TypeSetAsync:
		return new(SetAsync)
	case TypeMeterMod:
		return new(MeterMod)
	}
	return nil
}
