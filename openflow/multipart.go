package openflow

// MultipartType is the content of a multipart message (ofp_multipart_type, specification 7.3.5).
type MultipartType uint16

// The kinds of multipart messages.
const (
	MultipartDesc MultipartType = iota
	MultipartFlow
	MultipartAggregate
	MultipartTable
	MultipartPortStats
	MultipartQueue
	MultipartGroup
	MultipartGroupDesc
	MultipartGroupFeatures
	MultipartMeter
	MultipartMeterConfig
	MultipartMeterFeatures
	MultipartTableFeatures
	MultipartPortDesc
	MultipartExperimenter MultipartType = 0xffff
)

var multipartNames = [...]string{
	"DESC", "FLOW", "AGGREGATE", "TABLE", "PORT_STATS", "QUEUE", "GROUP", "GROUP_DESC", "GROUP_FEATURES", "METER",
	"METER_CONFIG", "METER_FEATURES", "TABLE_FEATURES", "PORT_DESC",
}

// String returns the specification's name.
func (t MultipartType) String() string {
	if t == MultipartExperimenter {
		return "EXPERIMENTER"
	}
	return nameOf(multipartNames[:], uint64(t))
}

// MarshalJSON returns the name as a string, or the number.
func (t MultipartType) MarshalJSON() ([]byte, error) { return nameJSON(t.String()), nil }

const (
	multipartHeadLen = 8
	multipartMore    = 1 // OFPMPF_REQ_MORE, OFPMPF_REPLY_MORE
)

// MultipartRequest asks a switch for data that may not fit into one message (specification 7.3.5).
type MultipartRequest struct {
	Type MultipartType `json:"type"`
	More bool          `json:"more"` // the request continues in the next message with the same transaction id
	Body MultipartBody `json:"body"` // nil: the request has no body
}

// MultipartReply answers a MultipartRequest, in one or more messages with the same transaction id.
type MultipartReply struct {
	Type MultipartType `json:"type"`
	More bool          `json:"more"` // the reply continues in the next message
	Body MultipartBody `json:"body"`
}

// MultipartBody is the body of a multipart message: the types of this package whose names end in StatsRequest, ConfigRequest or
// Reply. TableFeatures and MultipartExperiment occur in both directions.
type MultipartBody interface {
	// MultipartType returns the type of message that has this body.
	MultipartType() MultipartType
	append(b []byte, reply bool) ([]byte, error)
}

// MessageType returns TypeMultipartRequest.
func (*MultipartRequest) MessageType() Type { return TypeMultipartRequest }

// AppendBody appends head and body.
func (m *MultipartRequest) AppendBody(b []byte) ([]byte, error) {
	return appendMultipart(b, m.Type, m.More, m.Body, false)
}

// DecodeBody reads head and body.
func (m *MultipartRequest) DecodeBody(b []byte) error {
	c := newCursor(TypeMultipartRequest, b)
	m.Type, m.More = c.multipartHead()
	m.Body = c.requestBody(m.Type)
	return c.done()
}

func (m *MultipartRequest) String() string { return text(m) }

// MessageType returns TypeMultipartReply.
func (*MultipartReply) MessageType() Type { return TypeMultipartReply }

// AppendBody appends head and body.
func (m *MultipartReply) AppendBody(b []byte) ([]byte, error) {
	return appendMultipart(b, m.Type, m.More, m.Body, true)
}

// DecodeBody reads head and body.
func (m *MultipartReply) DecodeBody(b []byte) error {
	c := newCursor(TypeMultipartReply, b)
	m.Type, m.More = c.multipartHead()
	m.Body = c.replyBody(m.Type, m.Body)
	return c.done()
}

func (m *MultipartReply) String() string { return text(m) }

func (c *cursor) multipartHead() (MultipartType, bool) {
	t := MultipartType(c.u16("multipart.type"))
	flags := c.u16("multipart.flags")
	c.pad(4)
	return t, flags&multipartMore != 0
}

func appendMultipart(b []byte, t MultipartType, more bool, body MultipartBody, reply bool) ([]byte, error) {
	flags := uint16(0)
	if more {
		flags = multipartMore
	}
	b = be.AppendUint16(b, uint16(t))
	b = be.AppendUint16(b, flags)
	b = appendZeros(b, 4)
	if body == nil {
		if needsBody(t, reply) {
			return b, multipartError(t)
		}
		return b, nil
	}
	if body.MultipartType() != t {
		return b, multipartError(t)
	}
	return body.append(b, reply)
}

// needsBody reports whether a kind needs a body: requests for a named item, and replies that are no list.
func needsBody(t MultipartType, reply bool) bool {
	switch t {
	case MultipartDesc, MultipartGroupFeatures, MultipartMeterFeatures:
		return reply
	case MultipartFlow, MultipartPortStats, MultipartQueue, MultipartGroup, MultipartMeter, MultipartMeterConfig:
		return !reply
	case MultipartTable, MultipartGroupDesc, MultipartTableFeatures, MultipartPortDesc:
		return false
	}
	return true
}

// multipartError is the error for a body that is missing, of another kind, or of the other direction.
func multipartError(t MultipartType) error {
	return &EncodeError{Message: "MULTIPART", Field: "body", Err: ErrValue, Value: int64(t)}
}

// onlyRequest refuses a request's body in a reply.
func onlyRequest(t MultipartType, reply bool) error {
	if reply {
		return multipartError(t)
	}
	return nil
}

// onlyReply refuses a reply's body in a request.
func onlyReply(t MultipartType, reply bool) error { return onlyRequest(t, !reply) }

func (c *cursor) requestBody(t MultipartType) MultipartBody {
	if c.err != nil {
		return nil
	}
	switch t {
	case MultipartDesc, MultipartTable, MultipartGroupDesc, MultipartGroupFeatures, MultipartMeterFeatures, MultipartPortDesc:
		return nil
	case MultipartFlow:
		return c.flowStatsRequest()
	case MultipartAggregate:
		return AggregateStatsRequest(c.flowStatsRequest())
	case MultipartPortStats:
		r := PortStatsRequest{PortNo: PortNo(c.u32("port_no"))}
		c.pad(4)
		return r
	case MultipartQueue:
		return QueueStatsRequest{PortNo: PortNo(c.u32("port_no")), QueueID: c.u32("queue_id")}
	case MultipartGroup:
		r := GroupStatsRequest{GroupID: GroupID(c.u32("group_id"))}
		c.pad(4)
		return r
	case MultipartMeter:
		r := MeterStatsRequest{MeterID: MeterID(c.u32("meter_id"))}
		c.pad(4)
		return r
	case MultipartMeterConfig:
		r := MeterConfigRequest{MeterID: MeterID(c.u32("meter_id"))}
		c.pad(4)
		return r
	}
	return c.eitherBody(t)
}

// replyBody reads a reply's body, into old where that is possible.
func (c *cursor) replyBody(t MultipartType, old MultipartBody) MultipartBody {
	if c.err != nil {
		return nil
	}
	switch t {
	case MultipartDesc:
		return c.desc()
	case MultipartFlow:
		return c.flowStats()
	case MultipartAggregate:
		r := AggregateStatsReply{PacketCount: c.u64("packet_count"), ByteCount: c.u64("byte_count"), FlowCount: c.u32("flow_count")}
		c.pad(4)
		return r
	case MultipartTable:
		return c.tableStats()
	case MultipartPortStats:
		return c.portStats(old)
	case MultipartQueue:
		return c.queueStats()
	case MultipartGroup:
		return c.groupStats()
	case MultipartGroupDesc:
		return c.groupDesc()
	case MultipartGroupFeatures:
		return c.groupFeatures()
	case MultipartMeter:
		return c.meterStats()
	case MultipartMeterConfig:
		return c.meterConfig()
	case MultipartMeterFeatures:
		return c.meterFeatures()
	case MultipartPortDesc:
		return c.portDesc()
	}
	return c.eitherBody(t)
}

// eitherBody reads a body that is the same in both directions.
func (c *cursor) eitherBody(t MultipartType) MultipartBody {
	switch t {
	case MultipartTableFeatures:
		return c.tableFeatures()
	case MultipartExperimenter:
		return MultipartExperiment{Experimenter: c.u32("experimenter"), ExpType: c.u32("exp_type"), Data: c.rest()}
	}
	c.fail("multipart.type", HeaderLen, ErrUnknown, int(t))
	return nil
}

// MultipartExperiment is an experimenter's own multipart message, as it was received.
type MultipartExperiment struct {
	Experimenter uint32   `json:"experimenter"`
	ExpType      uint32   `json:"exp_type"`
	Data         HexBytes `json:"data"`
}

// MultipartType returns MultipartExperimenter.
func (MultipartExperiment) MultipartType() MultipartType { return MultipartExperimenter }

func (m MultipartExperiment) append(b []byte, _ bool) ([]byte, error) {
	b = be.AppendUint32(b, m.Experimenter)
	b = be.AppendUint32(b, m.ExpType)
	return append(b, m.Data...), nil
}
