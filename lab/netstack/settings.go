package netstack

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
)

// Settings are a guest's TCP settings, named as in an experiment's `guests`.
type Settings struct {
	CC            string // reno or cubic
	ECN           bool
	InitialWindow int           // segments
	RTOMin        time.Duration // minimum retransmission timeout
	InitialRTO    time.Duration // of the first SYN
	DelayedACK    bool
	SACK          bool
}

// Defaults returns netstack's own settings.
func Defaults() Settings {
	return Settings{
		CC: algorithms()[0], InitialWindow: tcp.InitialCwnd, RTOMin: tcp.MinRTO, InitialRTO: tcp.InitialRTO, SACK: true,
	}
}

// Refused is a setting that netstack does not support.
type Refused struct{ Key, Value, Reason string }

// algorithms returns the algorithms that netstack has; the first replaces others, as in a Linux guest.
func algorithms() []string { return []string{"reno", "cubic"} }

// Unmet lists the settings of s that netstack does not support.
func (s Settings) Unmet() []Refused {
	var list []Refused
	add := func(key, value, reason string) { list = append(list, Refused{key, value, reason}) }
	if !slices.Contains(algorithms(), s.CC) {
		add("cc", s.CC, "netstack has reno and cubic; "+algorithms()[0]+" is used")
	}
	if s.ECN {
		add("ecn", "true", "netstack has no ECN: it neither requests nor accepts it")
	}
	if s.InitialWindow != tcp.InitialCwnd {
		add("initial_window", strconv.Itoa(s.InitialWindow), fmt.Sprintf("netstack always starts with %d segments", tcp.InitialCwnd))
	}
	if s.InitialRTO != tcp.InitialRTO {
		add("initial_rto", s.InitialRTO.String(), fmt.Sprintf("netstack always starts with %v", tcp.InitialRTO))
	}
	if s.DelayedACK {
		add("delayed_ack", "true", "netstack delays no ACK: it sends one for all segments that it processes together")
	}
	return list
}

// apply sets the supported settings. Buffers tune themselves, up to the size of the Linux guests'. The receive
// buffer starts with netstack's own default size: netstack charges 0.6 KB for each segment, and a smaller buffer
// would drop segments when many small ones arrive at once.
func (s Settings) apply(st *stack.Stack) error {
	cc := s.CC
	if !slices.Contains(algorithms(), cc) {
		cc = algorithms()[0]
	}
	var (
		algorithm = tcpip.CongestionControlOption(cc)
		sack      = tcpip.TCPSACKEnabled(s.SACK)
		receive   = tcpip.TCPReceiveBufferSizeRangeOption{Min: 4096, Default: tcp.DefaultReceiveBufferSize, Max: 6291456}
		send      = tcpip.TCPSendBufferSizeRangeOption{Min: 4096, Default: 16384, Max: 4194304}
		tuning    = tcpip.TCPModerateReceiveBufferOption(true)
		noNagle   = tcpip.TCPDelayEnabled(false)
		wait      = tcpip.TCPTimeWaitTimeoutOption(timeWait)
		rtoMin    = tcpip.TCPMinRTOOption(s.RTOMin)
	)
	options := []tcpip.SettableTransportProtocolOption{&algorithm, &sack, &receive, &send, &tuning, &noNagle, &wait}
	if s.RTOMin > 0 {
		options = append(options, &rtoMin)
	}
	for _, o := range options {
		if err := st.SetTransportProtocolOption(tcp.ProtocolNumber, o); err != nil {
			return fmt.Errorf("set %T to %v: %w", o, o, goError(err))
		}
	}
	return nil
}
