package tcp

// TraceEvent is the kind of change that an observer sees.
type TraceEvent uint8

// The kinds of change.
const (
	TraceAck      TraceEvent = iota // an ACK was processed: cwnd, ssthresh, RTT may be new
	TraceState                      // State is new
	TraceRecovery                   // Recovery is new
	TraceTimeout                    // a timer fired
	TraceProbe                      // a tail loss probe
)

func (t TraceEvent) String() string {
	return [...]string{"ack", "state", "recovery", "timeout", "probe"}[t]
}

// OnTrace sets f to observe every endpoint's changes; nil ends it. f must not change anything.
func (s *Stack) OnTrace(f func(e *Endpoint, what TraceEvent)) { s.trace = f }

func (e *Endpoint) observe(what TraceEvent) {
	if f := e.stack.trace; f != nil {
		f(e, what)
	}
}

// Recovery returns the state of loss recovery.
func (e *Endpoint) Recovery() Recovery { return e.recovery }

// InFlight returns the number of segments in flight.
func (e *Endpoint) InFlight() uint32 { return e.inFlight() }
