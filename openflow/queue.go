package openflow

// QueueProperty is one property of a queue (ofp_queue_prop_header, specification 7.2.2).
type QueueProperty struct {
	Property     QueuePropertyType `json:"property"`
	Rate         uint16            `json:"rate,omitempty"`         // of the rates: in 1/1000 of the port's; above 1000: none
	Experimenter uint32            `json:"experimenter,omitempty"` // of QueueExperimenter, as Data
	Data         HexBytes          `json:"data,omitempty"`
}

// QueuePropertyType is the kind of a property (ofp_queue_properties).
type QueuePropertyType uint16

// The properties.
const (
	QueueMinRate      QueuePropertyType = 1
	QueueMaxRate      QueuePropertyType = 2
	QueueExperimenter QueuePropertyType = 0xffff
)

var queueProperties = [...]string{"", "MIN_RATE", "MAX_RATE"}

// String returns the specification's name.
func (t QueuePropertyType) String() string {
	if t == QueueExperimenter {
		return "EXPERIMENTER"
	}
	return nameOf(queueProperties[:], uint64(t))
}

// MarshalJSON returns the name as a string, or the number.
func (t QueuePropertyType) MarshalJSON() ([]byte, error) { return nameJSON(t.String()), nil }

// PacketQueue describes a queue of a port (ofp_packet_queue, specification 7.2.2).
type PacketQueue struct {
	QueueID    uint32          `json:"queue_id"`
	Port       PortNo          `json:"port"`
	Properties []QueueProperty `json:"properties"`
}

// QueueGetConfigRequest asks for the queues of a port, or of all with PortAny (specification 7.3.6).
type QueueGetConfigRequest struct {
	Port PortNo `json:"port"`
}

// QueueGetConfigReply lists the queues.
type QueueGetConfigReply struct {
	Port   PortNo        `json:"port"`
	Queues []PacketQueue `json:"queues"`
}

// MessageType returns TypeQueueGetConfigRequest.
func (*QueueGetConfigRequest) MessageType() Type { return TypeQueueGetConfigRequest }

// AppendBody appends the port.
func (m *QueueGetConfigRequest) AppendBody(b []byte) ([]byte, error) {
	return appendZeros(be.AppendUint32(b, uint32(m.Port)), 4), nil
}

// DecodeBody reads the port.
func (m *QueueGetConfigRequest) DecodeBody(b []byte) error {
	c := newCursor(TypeQueueGetConfigRequest, b)
	m.Port = PortNo(c.u32("port"))
	c.pad(4)
	return c.done()
}

func (m *QueueGetConfigRequest) String() string { return text(m) }

// MessageType returns TypeQueueGetConfigReply.
func (*QueueGetConfigReply) MessageType() Type { return TypeQueueGetConfigReply }

// AppendBody appends all queues.
func (m *QueueGetConfigReply) AppendBody(b []byte) ([]byte, error) {
	b = appendZeros(be.AppendUint32(b, uint32(m.Port)), 4)
	for i := range m.Queues {
		q := &m.Queues[i]
		start := len(b)
		b = be.AppendUint32(b, q.QueueID)
		b = be.AppendUint32(b, uint32(q.Port))
		b = appendZeros(b, 8)
		for j := range q.Properties {
			var err error
			if b, err = q.Properties[j].append(b); err != nil {
				return b, err
			}
		}
		var err error
		if b, err = putLength(b, start, start+8, "queue"); err != nil {
			return b, err
		}
	}
	return b, nil
}

// DecodeBody reads all queues.
func (m *QueueGetConfigReply) DecodeBody(b []byte) error {
	c := newCursor(TypeQueueGetConfigReply, b)
	m.Port = PortNo(c.u32("port"))
	c.pad(4)
	m.Queues = m.Queues[:0]
	for c.more() {
		at := c.at()
		if len(c.b) < 16 {
			c.short("queue")
			break
		}
		n := int(be.Uint16(c.b[8:]))
		if n < 16 || n%8 != 0 {
			c.fail("queue.len", at+8, ErrLength, n)
			break
		}
		e := c.sub("queue.len", n)
		q := PacketQueue{QueueID: e.u32("queue.queue_id"), Port: PortNo(e.u32("queue.port"))}
		e.pad(8)
		for e.more() {
			q.Properties = append(q.Properties, e.queueProperty())
		}
		c.join(&e)
		m.Queues = append(m.Queues, q)
	}
	return c.err
}

func (m *QueueGetConfigReply) String() string { return text(m) }

func (p *QueueProperty) append(b []byte) ([]byte, error) {
	start := len(b)
	b = be.AppendUint16(b, uint16(p.Property))
	b = appendZeros(b, 6)
	switch p.Property {
	case QueueMinRate, QueueMaxRate:
		b = appendZeros(be.AppendUint16(b, p.Rate), 6)
	case QueueExperimenter:
		b = appendZeros(be.AppendUint32(b, p.Experimenter), 4)
		b = appendPad(append(b, p.Data...), start)
	default:
		return b, &EncodeError{Message: "queue", Field: "property", Err: ErrUnknown, Value: int64(p.Property)}
	}
	return putLength(b, start, start+2, "queue property")
}

func (c *cursor) queueProperty() QueueProperty {
	at := c.at()
	typ, e := c.element("queue.property", 16, 8)
	if c.err != nil {
		return QueueProperty{}
	}
	e.pad(4)
	p := QueueProperty{Property: QueuePropertyType(typ)}
	switch p.Property {
	case QueueMinRate, QueueMaxRate:
		p.Rate = e.u16("queue.property.rate")
		e.pad(6)
	case QueueExperimenter:
		p.Experimenter = e.u32("queue.property.experimenter")
		e.pad(4)
		p.Data = e.rest()
	default:
		e.fail("queue.property.property", at, ErrUnknown, int(typ))
	}
	if e.more() {
		e.fail("queue.property.len", at+2, ErrLength, e.end-at)
	}
	c.join(&e)
	return p
}
