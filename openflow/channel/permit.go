package channel

import (
	"encoding/binary"
	"fmt"

	"weir/openflow"
)

const (
	multipartHead = 8 // bytes: type, flags, padding
	multipartMore = 1 // OFPMPF_REQ_MORE, OFPMPF_REPLY_MORE
)

// permitted returns an error if a caller may not send this encoded message now. Only a confirmed MASTER may send messages that
// could change the switch or its forwarding. permitted reads the encoded bytes. A message counts as a change unless it is
// known to be harmless.
func permitted(msg []byte, master bool) error {
	t := openflow.Type(msg[1])
	switch t {
	case openflow.TypeHello:
		return fmt.Errorf("%w: %s is part of the handshake", ErrMessage, t)
	case openflow.TypeMultipartRequest:
		if binary.BigEndian.Uint16(msg[openflow.HeaderLen+2:])&multipartMore != 0 {
			return fmt.Errorf("%w: a %s of several messages", ErrMessage, t)
		}
	case openflow.TypeRoleRequest:
		return fmt.Errorf("%w: ask for a role with SetRole", ErrMessage)
	}
	if master || harmless(t, msg[openflow.HeaderLen:]) {
		return nil
	}
	return fmt.Errorf("%s: %w", t, ErrNotMaster)
}

func harmless(t openflow.Type, body []byte) bool {
	switch t {
	case openflow.TypeEchoRequest, openflow.TypeEchoReply, openflow.TypeError, openflow.TypeFeaturesRequest,
		openflow.TypeGetConfigRequest, openflow.TypeBarrierRequest, openflow.TypeQueueGetConfigRequest,
		openflow.TypeGetAsyncRequest, openflow.TypeSetAsync: // SetAsync is of this connection alone
		return true
	case openflow.TypeMultipartRequest:
		return len(body) >= multipartHead && readsOnly(openflow.MultipartType(binary.BigEndian.Uint16(body)), body[multipartHead:])
	}
	return false
}

// readsOnly reports whether a multipart request changes nothing. Table features with a body do (specification 7.3.5.5), and an
// experimenter's may.
func readsOnly(kind openflow.MultipartType, body []byte) bool {
	return kind != openflow.MultipartExperimenter && (kind != openflow.MultipartTableFeatures || len(body) == 0)
}
