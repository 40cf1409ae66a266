package netstack

import (
	"fmt"
	"reflect"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
)

// sender is the part of a connection's send state that determines whether it can continue by itself.
type sender struct {
	unfinished bool          // data, or a FIN, is not acknowledged
	armed      bool          // a timer runs that will send something
	window     int           // congestion window, segments
	rto        time.Duration // retransmission timeout
	idle       time.Duration // since it last sent anything
}

// stuck reports that the connection has something to send and will never send it by itself.
//
// netstack has two defects that lead to this. Its cubic rounds the congestion window down to whole segments, so it may
// become 0 after several timeouts. The other is in its loss recovery, with any algorithm. At the end of a recovery,
// netstack subtracts segments from its count of outstanding ones (SetPipe left them out as lost) and subtracts them again
// when they are acknowledged. The count can so reach 0 while data is in flight. postXmit then starts no retransmission
// timer after the tail loss probe. If the network drops one of the last segments, and the probe (or RACK finds no loss in
// its answer), no timer is left. An answer to the probe may still be under way, so the connection counts as stuck only
// after one RTO without a packet.
func (s sender) stuck() bool {
	return s.unfinished && (s.window == 0 || !s.armed && s.idle > s.rto)
}

// timerArmed is netstack's timerStateEnabled.
const timerArmed = 2

// senderOf reads the state of ep's sender at the time now; all zero if ep is not connected. netstack exports
// nothing about its timers, so the fields are read by name. The error means that this version of netstack has
// other fields.
func senderOf(ep tcpip.Endpoint, now tcpip.MonotonicTime) (s sender, err error) {
	e, ok := ep.(*tcp.Endpoint)
	if !ok {
		return sender{}, fmt.Errorf("read the state of a %T: not a TCP endpoint", ep)
	}
	e.LockUser()
	defer e.UnlockUser()
	switch e.EndpointState() {
	case tcp.StateEstablished, tcp.StateCloseWait, tcp.StateFinWait1, tcp.StateClosing, tcp.StateLastAck:
	default:
		return sender{}, nil
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("read the state of netstack's sender: this version has other fields: %v", r)
		}
	}()
	snd := reflect.ValueOf(e).Elem().FieldByName("snd").Elem()
	state := snd.FieldByName("TCPSenderState")
	for _, timer := range []string{"resendTimer", "reorderTimer", "probeTimer"} {
		s.armed = s.armed || snd.FieldByName(timer).FieldByName("state").Int() == timerArmed
	}
	s.unfinished = state.FieldByName("SndUna").Uint() != state.FieldByName("SndNxt").Uint() || !snd.FieldByName("writeNext").IsNil()
	s.window = int(state.FieldByName("SndCwnd").Int())
	s.rto = time.Duration(state.FieldByName("RTO").Int())
	s.idle = time.Duration(reflect.ValueOf(now).Field(0).Int() - state.FieldByName("LastSendTime").Field(0).Int())
	return s, nil
}
