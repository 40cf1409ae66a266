package experiment

import "weir/law"

// The configuration fields of the laws. Symbols of the papers stand in the comments; defaults are
// those of the papers, and where a paper and its code differ, the comment says which was taken. A
// field tagged above:"0" cannot be 0.

// DropTailParams configures droptail: nothing, the buffer is the network's.
type DropTailParams struct{}

// MarkParams configures red and ecn: an instantaneous threshold on the queue. red drops what is
// above it; ecn marks ECT packets and treats the others as NotECT says.
type MarkParams struct {
	Threshold law.Limit `json:"threshold" above:"0" jsonschema:"required" jsonschema_description:"mark or drop above this backlog (K)"`
	NotECT    string    `json:"not_ect" jsonschema:"enum=pass,enum=drop" jsonschema_description:"ecn: what happens to Not-ECT packets above the threshold"`
}

// StaticParams configures static: a fixed rate for every sending host (G1s).
type StaticParams struct {
	Rate  law.Rate     `json:"rate" above:"0" jsonschema:"required" jsonschema_description:"limit of every sender"`
	Depth law.Duration `json:"depth" above:"0" jsonschema_description:"depth of the bucket in time at that rate"`
}

// ACDCParams configures acdc (AC/DC TCP, SIGCOMM 2016): the switches mark as ecn does, and virtual switches at the hosts
// enforce DCTCP's window through the receive window.
type ACDCParams struct {
	Threshold law.Limit    `json:"threshold" above:"0" jsonschema:"required" jsonschema_description:"switches mark above this backlog (K)"`
	Gain      float64      `json:"gain" jsonschema:"exclusiveMinimum=0,maximum=1" jsonschema_description:"weight of the newest marked fraction (g, 1/16)"`
	MinWindow law.Bytes    `json:"min_window" jsonschema_description:"least window; 0B: the flow's own MSS, and a byte"`
	Timeout   law.Duration `json:"timeout" above:"0" jsonschema_description:"data without any ACK for so long is taken for lost"`
	Police    bool         `json:"police" jsonschema_description:"data beyond every window that was granted is dropped at its sender"`
}

// SICCParams configures sicc: the controller and its hypervisor part, SPEC 1.4 and 1.5.
type SICCParams struct {
	Interval      law.Duration `json:"interval" above:"0" jsonschema_description:"monitoring interval (T, T_i)"`
	OffFraction   float64      `json:"off_fraction" jsonschema:"minimum=0,maximum=1" jsonschema_description:"incast ends at or below this fraction of the buffer (alpha1)"`
	OnFraction    float64      `json:"on_fraction" jsonschema:"exclusiveMinimum=0,maximum=4" jsonschema_description:"incast begins when the predicted queue reaches this fraction of the buffer (alpha2)"`
	MouseDuration law.Duration `json:"mouse_duration" above:"0" jsonschema_description:"mean mouse duration (DM): incast ends after it"`
	MinHold       law.Duration `json:"min_hold" jsonschema_description:"incast lasts at least this long"`
	OffRule       string       `json:"off_rule" jsonschema:"enum=or,enum=and" jsonschema_description:"SI-3: DM elapsed or queue low (prose, code), or both (as printed)"`
	QueueWeight   float64      `json:"queue_weight" jsonschema:"exclusiveMinimum=0,maximum=1" jsonschema_description:"weight of the newest queue in its mean (3/4)"`
	InitialWindow int          `json:"initial_window" jsonschema:"minimum=1,maximum=1000" jsonschema_description:"segments a new flow is expected to send at once (TCP_ICWND)"`
	Lease         law.Duration `json:"lease" above:"0" jsonschema_description:"SH-5: a clamp that is not renewed ends after it"`
	Model         string       `json:"model" jsonschema:"enum=controller,enum=queue" jsonschema_description:"the paper's controller, or the queue discipline of its ns-2 plots"`
}

// newSICC: T = 1 ms and alpha1 = 0.20 are the paper's, alpha2 = 1.00 the Journal's; DM = 15 ms and
// the hold of 4 ms are the published code's, as is an initial window of 10 (SPEC 1.4).
func newSICC() *SICCParams {
	return &SICCParams{
		Interval: 1e6, OffFraction: 0.2, OnFraction: 1, MouseDuration: 15e6, MinHold: 4e6, OffRule: "or",
		QueueWeight: 0.75, InitialWindow: 10, Lease: 1e9, Model: "controller",
	}
}

// LimiterParams are common to the laws that limit a VM's rate, SPEC 1.6 and 1.9.
type LimiterParams struct {
	MinRate    law.Rate     `json:"min_rate" above:"0" jsonschema_description:"a VM always gets this (Min_Rate)"`
	Period     law.Duration `json:"period" above:"0" jsonschema_description:"timer of the limiter"`
	Depth      law.Duration `json:"depth" above:"0" jsonschema_description:"depth of the bucket in time at the VM's rate"`
	Timeout    law.Duration `json:"timeout" above:"0" jsonschema_description:"silence before the rate rises (Cong_Timeout)"`
	Inactivity law.Duration `json:"inactivity" above:"0" jsonschema_description:"a VM without traffic frees its share after it"`
	Increase   law.Rate     `json:"increase" jsonschema_description:"added to the rate each period without congestion"`
	Decrease   law.Rate     `json:"decrease" jsonschema_description:"taken from the rate for each mark"`
}

// GCCParams configures gcc (SDN-GCC), SPEC 1.6 to 1.8.
type GCCParams struct {
	LimiterParams
	Interval law.Duration `json:"interval" above:"0" jsonschema_description:"the controller reads marks this often (T_i)"`
	Variant  string       `json:"variant" jsonschema:"enum=paper,enum=ovs" jsonschema_description:"Algorithm 1 (AIAD), or the law of the Open vSwitch listings (SPEC 1.8)"`
	Clear    bool         `json:"clear" jsonschema_description:"GS-7: CE is cleared before delivery"`
}

// newGCC: T_i = 5 ms is the paper's; period, depth, timeout, Min_Rate and 5 Mbit/s a mark are the
// published code's. The increase is fitted to Fig. 2d (1.3 Mbit/s per ms, SPEC GS-5): the paper
// does not define scale().
func newGCC() *GCCParams {
	return &GCCParams{
		LimiterParams: LimiterParams{
			MinRate: 10e6, Period: 250e3, Depth: 25e6, Timeout: 2e6, Inactivity: 1e9, Increase: 325e3, Decrease: 5e6,
		},
		Interval: 5e6, Variant: "paper", Clear: true,
	}
}

// HyGenICCParams configures hygenicc, SPEC 1.9.
type HyGenICCParams struct {
	LimiterParams
	Interval law.Duration `json:"interval" above:"0" jsonschema_description:"rate-update timeout"`
	Feedback string       `json:"feedback" jsonschema:"enum=evil_bit,enum=message" jsonschema_description:"marks go back on the reserved IP flag, or counted in a packet of their own"`
}

// newHyGenICC: 500 us (5 RTT) is paper 000's; the rest is the published code's.
func newHyGenICC() *HyGenICCParams {
	return &HyGenICCParams{
		LimiterParams: LimiterParams{
			MinRate: 10e6, Period: 500e3, Depth: 25e6, Timeout: 2e6, Inactivity: 1e9, Increase: 1e6, Decrease: 5e6,
		},
		Interval: 500e3, Feedback: "message",
	}
}

// SEDParams configures sed, SPEC 1.10.
type SEDParams struct {
	Threshold  law.Limit    `json:"threshold" above:"0" jsonschema_description:"a port is congested at this queue (K)"`
	Recover    law.Limit    `json:"recover" jsonschema_description:"and no longer so below this one"`
	BaseWindow law.Bytes    `json:"base_window" above:"0" jsonschema_description:"window of a flow without deadline (base_win)"`
	Period     law.Duration `json:"period" jsonschema_description:"SE-8: windows are allocated again this often; 0s: on events only, as printed"`
	Pause      string       `json:"pause" jsonschema:"enum=hold,enum=floor,enum=zero" jsonschema_description:"SE-6: a flow without a share has its ACKs held, gets 1 MSS, or a zero window"`
	Overhead   bool         `json:"overhead" jsonschema_description:"SE-8: shares count headers, serialisation and one RTT"`
}

// newSED: K = 30 of 100 packets and base_win = 1 MSS are the paper's; the recover mark is lost with
// its first pages, K/2 is SPEC's proposal, as are period and pause.
func newSED() *SEDParams {
	return &SEDParams{
		Threshold: law.Limit{N: 30, Packets: true}, Recover: law.Limit{N: 15, Packets: true},
		BaseWindow: 1460, Period: 1e6, Pause: "hold", Overhead: true,
	}
}

// RSEDParams configures rsed, SPEC 1.11: SED that repairs drops.
type RSEDParams struct {
	SEDParams
	Repair string `json:"repair" jsonschema:"enum=dupacks,enum=reinject" jsonschema_description:"three duplicate ACKs (the paper), or the packet sent again (real stacks with SACK)"`
}
