package tcp

// TraceEvent is why an observer is told.
type TraceEvent uint8

// What happened.
const (
	TraceAck      TraceEvent = iota // an ACK was worked on: cwnd, ssthresh, RTT may be new
	TraceState                      // State is new
	TraceRecovery                   // Recovery is new
	TraceTimeout                    // a timer fired
	TraceProbe                      // a tail loss probe
)

func (t TraceEvent) String() string {
	return [...]string{"ack", "state", "recovery", "timeout", "probe"}[t]
}

// OnTrace lets f see every endpoint's changes; nil ends it. f must not change anything.
func (s *Stack) OnTrace(f func(e *Endpoint, what TraceEvent)) { s.trace = f }

func (e *Endpoint) observe(what TraceEvent) {
	if f := e.stack.trace; f != nil {
		f(e, what)
	}
}

// Recovery is the state of loss recovery.
func (e *Endpoint) Recovery() Recovery { return e.recovery }

// InFlight is how many segments are in flight.
func (e *Endpoint) InFlight() uint32 { return e.inFlight() }
