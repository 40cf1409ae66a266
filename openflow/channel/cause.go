package channel

import (
	"errors"
	"fmt"

	"weir/openflow"
)

// Cause is why a connection ended, or was not made.
type Cause uint8

// The causes.
const (
	CausePeerClosed  Cause = iota // the peer closed, or the network failed
	CauseClosed                   // Close was called
	CauseShutdown                 // the server ends
	CauseTLS                      // a certificate, or another error of TLS
	CauseVersion                  // the peer does not speak OpenFlow 1.3
	CauseHandshake                // the handshake was not finished in time, or went wrong
	CauseNotAdmitted              // Config.Admit refused
	CauseDuplicate                // another switch with this datapath id is connected and answers
	CauseReplaced                 // another switch with this datapath id connected, and this one did not answer
	CauseTooMany                  // connections in all, of one address, or half-open
	CauseMalformed                // bytes that are no messages, or messages that are too long
	CauseSlowMessage              // a message was begun and not finished
	CauseSilent                   // nothing came after an echo request
	CauseSlowReader               // the peer does not read what is sent
	CauseStale                    // another controller has a higher generation id
	CauseRoleLost                 // the switch reports that this controller is no longer MASTER
	CauseRoleForged               // the switch confirmed another role or id than requested
	causes
)

var causeNames = [causes]string{
	"peer_closed", "closed", "shutdown", "tls", "version", "handshake", "not_admitted", "duplicate", "replaced",
	"too_many", "malformed", "slow_message", "silent", "slow_reader", "stale", "role_lost", "role_forged",
}

// String returns a name for metric labels.
func (c Cause) String() string {
	if c < causes {
		return causeNames[c]
	}
	return "unknown"
}

// CloseError is why a connection ended or was not made. All later calls on the connection return it.
type CloseError struct {
	Cause Cause
	Err   error // the details, for people
}

func (e *CloseError) Error() string {
	return fmt.Sprintf("OpenFlow connection ended (%s): %v", e.Cause, e.Err)
}

func (e *CloseError) Unwrap() error { return e.Err }

func closed(cause Cause, format string, args ...any) *CloseError {
	return &CloseError{Cause: cause, Err: fmt.Errorf(format, args...)}
}

// Errors after which the connection continues.
var (
	// ErrNotMaster is for a message that could change the switch, before MASTER was confirmed.
	ErrNotMaster = errors.New("this controller is not confirmed as MASTER of the switch")
	// ErrQueueFull is for a message that found no room: the switch reads more slowly than messages are sent.
	ErrQueueFull = errors.New("the queue to the switch is full")
	// ErrOutstanding is for a question while too many others have no answer.
	ErrOutstanding = errors.New("too many questions to the switch have no answer")
	// ErrMessage is for a message that only the connection itself may send.
	ErrMessage = errors.New("only the connection may send this message")
	// ErrReplySize is for an answer of too many parts or bytes.
	ErrReplySize = errors.New("the switch's answer is too long")
)

// RemoteError is an error message with which the switch answered.
type RemoteError struct {
	XID     uint32 // of the message that was refused
	Message *openflow.ErrorMessage
}

func (e *RemoteError) Error() string {
	return fmt.Sprintf("the switch refused message %#x: %s", e.XID, clip(e.Message.String(), textBytes))
}

// UnexpectedReplyError is for an answer of another kind than was asked for.
type UnexpectedReplyError struct{ Want, Got openflow.Type }

func (e *UnexpectedReplyError) Error() string {
	return fmt.Sprintf("the switch answered with %s instead of %s", e.Got, e.Want)
}

// textBytes limits a peer's text in an error.
const textBytes = 200

// clip shortens a peer's text.
func clip(s string, most int) string {
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}
