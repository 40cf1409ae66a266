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

// permitted says whether a caller may send this encoded message now: all that could change the switch, or what it
// forwards, is for a confirmed MASTER only. It looks at the very bytes that would be sent; what is not known to be
// harmless counts as a change.
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

// readsOnly says whether a multipart request only asks: table features with a body are set (specification 7.3.5.5), and
// what an experimenter's does is not known.
func readsOnly(kind openflow.MultipartType, body []byte) bool {
	return kind != openflow.MultipartExperimenter && (kind != openflow.MultipartTableFeatures || len(body) == 0)
}
