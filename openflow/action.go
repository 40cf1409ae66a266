package openflow

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// ActionType is the kind of an action (ofp_action_type, specification 7.2.5).
type ActionType uint16

// The actions of OpenFlow 1.3.
const (
	ActionTypeOutput       ActionType = 0
	ActionTypeCopyTTLOut   ActionType = 11
	ActionTypeCopyTTLIn    ActionType = 12
	ActionTypeSetMPLSTTL   ActionType = 15
	ActionTypeDecMPLSTTL   ActionType = 16
	ActionTypePushVLAN     ActionType = 17
	ActionTypePopVLAN      ActionType = 18
	ActionTypePushMPLS     ActionType = 19
	ActionTypePopMPLS      ActionType = 20
	ActionTypeSetQueue     ActionType = 21
	ActionTypeGroup        ActionType = 22
	ActionTypeSetNwTTL     ActionType = 23
	ActionTypeDecNwTTL     ActionType = 24
	ActionTypeSetField     ActionType = 25
	ActionTypePushPBB      ActionType = 26
	ActionTypePopPBB       ActionType = 27
	ActionTypeExperimenter ActionType = 0xffff
)

var actionNames = [...]string{
	0: "output", 11: "copy_ttl_out", 12: "copy_ttl_in", 15: "set_mpls_ttl", 16: "dec_mpls_ttl", 17: "push_vlan",
	18: "pop_vlan", 19: "push_mpls", 20: "pop_mpls", 21: "set_queue", 22: "group", 23: "set_nw_ttl", 24: "dec_nw_ttl",
	25: "set_field", 26: "push_pbb", 27: "pop_pbb",
}

// String returns the specification's name in lower case.
func (t ActionType) String() string {
	if t == ActionTypeExperimenter {
		return "experimenter"
	}
	return nameOf(actionNames[:], uint64(t))
}

// MarshalJSON returns the name as a string, or the number.
func (t ActionType) MarshalJSON() ([]byte, error) { return nameJSON(t.String()), nil }

// Action changes or sends a packet: one of the structs named Action... of this package.
type Action interface {
	ActionType() ActionType
	String() string
	append(b []byte) ([]byte, error)
}

// Actions are carried out in their order.
type Actions []Action

// ActionOutput sends the packet out of a port.
type ActionOutput struct {
	Port   PortNo `json:"port"`
	MaxLen uint16 `json:"max_len"` // bytes that go to PortController; NoMaxLen: all
}

// ActionGroup passes the packet to a group.
type ActionGroup struct {
	GroupID GroupID `json:"group_id"`
}

// ActionSetQueue chooses the queue of the port that the packet leaves by.
type ActionSetQueue struct {
	QueueID uint32 `json:"queue_id"`
}

// ActionSetTTL sets the TTL of the IP header, or of the outermost MPLS label.
type ActionSetTTL struct {
	MPLS bool  `json:"mpls"`
	TTL  uint8 `json:"ttl"`
}

// ActionPush adds an outermost tag or label: VLAN, MPLS or PBB.
type ActionPush struct {
	Type      ActionType `json:"-"` // ActionTypePushVLAN, ActionTypePushMPLS or ActionTypePushPBB
	EtherType uint16     `json:"ethertype"`
}

// ActionPopMPLS removes the outermost label.
type ActionPopMPLS struct {
	EtherType uint16 `json:"ethertype"` // of the payload below the label
}

// ActionPlain is an action without parameters: ActionTypeCopyTTLOut, CopyTTLIn, DecMPLSTTL, DecNwTTL, PopVLAN, PopPBB.
type ActionPlain struct {
	Type ActionType `json:"-"`
}

// ActionSetField writes a field of the packet. OpenFlow 1.3 has no mask here; Open vSwitch accepts one.
type ActionSetField struct {
	Field Field `json:"field"`
}

// ActionExperimenter is an experimenter's own action, as it was received.
type ActionExperimenter struct {
	Experimenter uint32   `json:"experimenter"`
	Data         HexBytes `json:"data"` // filled up with zeros to whole 8 bytes when written, less 8
}

// ActionType returns ActionTypeOutput.
func (ActionOutput) ActionType() ActionType { return ActionTypeOutput }

// ActionType returns ActionTypeGroup.
func (ActionGroup) ActionType() ActionType { return ActionTypeGroup }

// ActionType returns ActionTypeSetQueue.
func (ActionSetQueue) ActionType() ActionType { return ActionTypeSetQueue }

// ActionType returns ActionTypeSetMPLSTTL or ActionTypeSetNwTTL.
func (a ActionSetTTL) ActionType() ActionType {
	if a.MPLS {
		return ActionTypeSetMPLSTTL
	}
	return ActionTypeSetNwTTL
}

// ActionType returns the type of push.
func (a ActionPush) ActionType() ActionType { return a.Type }

// ActionType returns ActionTypePopMPLS.
func (ActionPopMPLS) ActionType() ActionType { return ActionTypePopMPLS }

// ActionType returns the type of the action.
func (a ActionPlain) ActionType() ActionType { return a.Type }

// ActionType returns ActionTypeSetField.
func (ActionSetField) ActionType() ActionType { return ActionTypeSetField }

// ActionType returns ActionTypeExperimenter.
func (ActionExperimenter) ActionType() ActionType { return ActionTypeExperimenter }

func (a ActionOutput) String() string {
	if a.Port == PortController && a.MaxLen != NoMaxLen {
		return fmt.Sprintf("output:CONTROLLER:%d", a.MaxLen)
	}
	return "output:" + a.Port.String()
}

func (a ActionGroup) String() string    { return "group:" + a.GroupID.String() }
func (a ActionSetQueue) String() string { return fmt.Sprintf("set_queue:%d", a.QueueID) }
func (a ActionSetTTL) String() string   { return fmt.Sprintf("%s:%d", a.ActionType(), a.TTL) }
func (a ActionPush) String() string     { return fmt.Sprintf("%s:%#x", a.Type, a.EtherType) }
func (a ActionPopMPLS) String() string  { return fmt.Sprintf("pop_mpls:%#x", a.EtherType) }
func (a ActionPlain) String() string    { return a.Type.String() }
func (a ActionSetField) String() string { return "set_field:" + a.Field.String() }
func (a ActionExperimenter) String() string {
	return fmt.Sprintf("experimenter:%#x:%s", a.Experimenter, a.Data)
}

// String returns the actions, with commas; "drop" for none.
func (as Actions) String() string {
	if len(as) == 0 {
		return "drop"
	}
	parts := make([]string, len(as))
	for i, a := range as {
		parts[i] = a.String()
	}
	return strings.Join(parts, ",")
}

// MarshalJSON returns an array of objects, each with its type and its parameters.
func (as Actions) MarshalJSON() ([]byte, error) {
	return typedList(as, func(a Action) string { return a.ActionType().String() })
}

// typedList writes a JSON array of objects, each of which has its type as the first member.
func typedList[T any](list []T, typ func(T) string) ([]byte, error) {
	out := []byte{'['}
	for i, x := range list {
		if i > 0 {
			out = append(out, ',')
		}
		b, err := json.Marshal(x)
		if err != nil {
			return nil, fmt.Errorf("write %s as JSON: %w", typ(x), err)
		}
		out = append(out, `{"type":`...)
		out = append(out, nameJSON(typ(x))...)
		if b = bytes.TrimPrefix(b, []byte("{")); len(b) > 1 {
			out = append(out, ',')
		}
		out = append(out, b...)
	}
	return append(out, ']'), nil
}
