package channel

import (
	"fmt"
	"testing"

	"weir/openflow"
)

// tally counts messages that arrived as they were meant, by kind.
type tally map[string]int

func (n tally) count(m openflow.Message) { n[kindOf(m)]++ }

// kindOf returns a message's type, with the kind of a multipart and the type of a group.
func kindOf(m openflow.Message) string {
	switch m := m.(type) {
	case *openflow.MultipartRequest:
		return "MULTIPART_REQUEST " + m.Type.String()
	case *openflow.MultipartReply:
		return "MULTIPART_REPLY " + m.Type.String()
	case *openflow.GroupMod:
		return "GROUP_MOD " + m.Type.String()
	}
	return m.MessageType().String()
}

// every fails unless each kind of message that this side may send was counted; it logs the table.
func (n tally) every(t *testing.T, controller bool) {
	t.Helper()
	side, total := "switch", 0
	if controller {
		side = "controller"
	}
	table := ""
	for _, kind := range kindsOf(controller) {
		total += n[kind]
		table += fmt.Sprintf(", %s %d", kind, n[kind])
		if n[kind] == 0 {
			t.Errorf("no %s of the %s came", kind, side)
		}
	}
	t.Logf("%d messages of the %s%s", total, side, table)
}

// kindsOf lists all that one side says.
func kindsOf(controller bool) []string {
	var kinds []string
	for typ := openflow.TypeHello; typ <= openflow.TypeMeterMod; typ++ {
		if says(typ, controller) {
			kinds = append(kinds, kindsOfType(typ)...)
		}
	}
	return kinds
}

func kindsOfType(typ openflow.Type) []string {
	var kinds []string
	switch typ {
	case openflow.TypeMultipartRequest, openflow.TypeMultipartReply:
		for kind := openflow.MultipartDesc; kind <= openflow.MultipartPortDesc; kind++ {
			kinds = append(kinds, typ.String()+" "+kind.String())
		}
		return append(kinds, typ.String()+" "+openflow.MultipartExperimenter.String())
	case openflow.TypeGroupMod:
		for group := openflow.GroupTypeAll; group <= openflow.GroupTypeFF; group++ {
			kinds = append(kinds, typ.String()+" "+group.String())
		}
		return kinds
	}
	return []string{typ.String()}
}

// says returns the side that sends messages of a type.
func says(typ openflow.Type, controller bool) bool {
	switch typ {
	case openflow.TypeHello, openflow.TypeError, openflow.TypeEchoRequest, openflow.TypeEchoReply, openflow.TypeExperimenter:
		return true
	case openflow.TypeFeaturesReply, openflow.TypeGetConfigReply, openflow.TypePacketIn, openflow.TypeFlowRemoved,
		openflow.TypePortStatus, openflow.TypeMultipartReply, openflow.TypeBarrierReply, openflow.TypeQueueGetConfigReply,
		openflow.TypeRoleReply, openflow.TypeGetAsyncReply:
		return !controller
	}
	return controller
}
