package openflow

func appendActionHead(b []byte, t ActionType, length uint16) []byte {
	b = be.AppendUint16(b, uint16(t))
	return be.AppendUint16(b, length)
}

func (a ActionOutput) append(b []byte) ([]byte, error) {
	b = appendActionHead(b, ActionTypeOutput, 16)
	b = be.AppendUint32(b, uint32(a.Port))
	b = be.AppendUint16(b, a.MaxLen)
	return appendZeros(b, 6), nil
}

func (a ActionGroup) append(b []byte) ([]byte, error) {
	return be.AppendUint32(appendActionHead(b, ActionTypeGroup, 8), uint32(a.GroupID)), nil
}

func (a ActionSetQueue) append(b []byte) ([]byte, error) {
	return be.AppendUint32(appendActionHead(b, ActionTypeSetQueue, 8), a.QueueID), nil
}

func (a ActionSetTTL) append(b []byte) ([]byte, error) {
	return append(appendActionHead(b, a.ActionType(), 8), a.TTL, 0, 0, 0), nil
}

func (a ActionPush) append(b []byte) ([]byte, error) {
	switch a.Type {
	case ActionTypePushVLAN, ActionTypePushMPLS, ActionTypePushPBB:
		return append(be.AppendUint16(appendActionHead(b, a.Type, 8), a.EtherType), 0, 0), nil
	}
	return b, &EncodeError{Message: "action", Field: "type", Err: ErrUnknown, Value: int64(a.Type)}
}

func (a ActionPopMPLS) append(b []byte) ([]byte, error) {
	return append(be.AppendUint16(appendActionHead(b, ActionTypePopMPLS, 8), a.EtherType), 0, 0), nil
}

func (a ActionPlain) append(b []byte) ([]byte, error) {
	switch a.Type {
	case ActionTypeCopyTTLOut, ActionTypeCopyTTLIn, ActionTypeDecMPLSTTL, ActionTypePopVLAN, ActionTypeDecNwTTL, ActionTypePopPBB:
		return appendZeros(appendActionHead(b, a.Type, 8), 4), nil
	}
	return b, &EncodeError{Message: "action", Field: "type", Err: ErrUnknown, Value: int64(a.Type)}
}

func (a ActionSetField) append(b []byte) ([]byte, error) {
	start := len(b)
	n := (4 + a.Field.wireLen() + 7) &^ 7
	b = a.Field.append(appendActionHead(b, ActionTypeSetField, uint16(n)))
	return appendPad(b, start), nil
}

func (a ActionExperimenter) append(b []byte) ([]byte, error) {
	start := len(b)
	b = be.AppendUint32(appendActionHead(b, ActionTypeExperimenter, 0), a.Experimenter)
	b = appendPad(append(b, a.Data...), start)
	return putLength(b, start, start+2, "action experimenter")
}

func (as Actions) append(b []byte) ([]byte, error) {
	var err error
	for _, a := range as {
		if b, err = a.append(b); err != nil {
			return b, err
		}
	}
	return b, nil
}

// actions reads the rest as actions.
func (c *cursor) actions(as Actions) Actions {
	as = as[:0]
	for c.more() {
		if a := c.action(); a != nil {
			as = append(as, a)
		}
	}
	return as
}

func (c *cursor) action() Action {
	at := c.at()
	typ, e := c.element("action", 8, 8)
	if c.err != nil {
		return nil
	}
	a := e.actionBody(ActionType(typ), at)
	c.join(&e)
	return a
}

// fixed checks that an action has the length of its type.
func (c *cursor) fixed(at, length int) {
	if n := c.end - at; n != length {
		c.fail("action.length", at+2, ErrLength, n)
	}
}

// actionBody reads the part after an action's length. at is the offset of the action.
func (c *cursor) actionBody(typ ActionType, at int) Action {
	switch typ {
	case ActionTypeOutput:
		c.fixed(at, 16)
		return ActionOutput{Port: PortNo(c.u32("output.port")), MaxLen: c.u16("output.max_len")}
	case ActionTypeSetField:
		var f Field
		c.field(&f)
		if len(c.b) > 7 { // more than padding
			c.fail("set_field.length", at+2, ErrLength, c.end-at)
		}
		return ActionSetField{Field: f}
	case ActionTypeExperimenter:
		return ActionExperimenter{Experimenter: c.u32("action.experimenter"), Data: c.rest()}
	}
	c.fixed(at, 8)
	switch typ {
	case ActionTypeGroup:
		return ActionGroup{GroupID: GroupID(c.u32("group.group_id"))}
	case ActionTypeSetQueue:
		return ActionSetQueue{QueueID: c.u32("set_queue.queue_id")}
	case ActionTypeSetMPLSTTL, ActionTypeSetNwTTL:
		return ActionSetTTL{MPLS: typ == ActionTypeSetMPLSTTL, TTL: c.u8("ttl")}
	case ActionTypePushVLAN, ActionTypePushMPLS, ActionTypePushPBB:
		return ActionPush{Type: typ, EtherType: c.u16("push.ethertype")}
	case ActionTypePopMPLS:
		return ActionPopMPLS{EtherType: c.u16("pop_mpls.ethertype")}
	case ActionTypeCopyTTLOut, ActionTypeCopyTTLIn, ActionTypeDecMPLSTTL, ActionTypePopVLAN, ActionTypeDecNwTTL, ActionTypePopPBB:
		return ActionPlain{Type: typ}
	}
	c.fail("action.type", at, ErrUnknown, int(typ))
	return nil
}
