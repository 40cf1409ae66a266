package fairq

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"weir/agent/switchd"
	"weir/config"
	"weir/datapath/attach"
	kernel "weir/datapath/fairq"
	"weir/datapath/fairq/edge"
	"weir/law"
	fairqlaw "weir/law/fairq"
)

// allKeys are FairQ's keys of all ports together.
type allKeys struct {
	Count      string   `json:"count,omitempty" jsonschema:"enum=opening,enum=active,enum=handshake" jsonschema_description:"which flows count. active: flows that sent data recently. opening: the same, and open handshakes reduce the window of new connections. handshake: connections that were opened and not closed, as in the paper (default: opening)"`
	Scale      string   `json:"scale,omitempty" jsonschema:"enum=learn,enum=shim,enum=unify" jsonschema_description:"source of a flow's window scale. learn: its SYNs. shim: also a shim at the hosts. unify: every SYN is rewritten to announce the same scale (default: learn)"`
	UnifyShift int      `json:"unify_shift,omitempty" jsonschema:"minimum=0,maximum=14" jsonschema_description:"window scale that SYNs announce with scale: unify, 0 to 14 (default: 7)"`
	Flows      int      `json:"flows,omitempty" jsonschema:"minimum=1024,maximum=1048576" jsonschema_description:"size of the flow table in connections, about 600 B of kernel memory each; more connections pass unmanaged (default: 65536)"`
	Shrink     string   `json:"shrink,omitempty" jsonschema:"enum=allow,enum=avoid" jsonschema_description:"whether the right edge of a window may move left (default: allow)"`
	Signed     string   `json:"signed,omitempty" jsonschema:"enum=pass,enum=limit,enum=drop" jsonschema_description:"segments that both ends sign (TCP-MD5, TCP-AO). pass: leave them unchanged. limit: drop data beyond the port's window. drop: drop them all (default: pass)"`
	VLANs      string   `json:"vlans,omitempty" jsonschema:"enum=separate,enum=ignore" jsonschema_description:"VLAN tags. separate: equal addresses in two VLANs are two connections. ignore: for a bridge with tagged and untagged ports, whose connections have a tag in one direction only; tenants must not have the same addresses (default: separate)"`
	Promises   string   `json:"promises,omitempty" jsonschema:"enum=off,enum=on" jsonschema_description:"whether SYN-ACKs and requests promise a first flight that the port has room for (default: off, and on with credits)"`
	Credits    string   `json:"credits,omitempty" jsonschema:"enum=off,enum=on" jsonschema_description:"whether requests and acknowledgements wait while a segment of each flow exceeds BDP and target; it implies promises (default: off)"`
	Edge       *edgeKey `json:"edge,omitempty" jsonschema_description:"edge mode: some ACKs advertise the window to Weir's edge at the senders, which writes it into all ACKs (default: off)"`
}

type edgeKey struct {
	Interval law.Duration `json:"interval,omitempty" jsonschema_description:"how often the window of a flow is advertised, 1ms to 10s (default: 10ms)"`
	Change   float64      `json:"change,omitempty" jsonschema:"minimum=0.00390625,maximum=1" jsonschema_description:"a change of the window by more than this fraction is advertised at once, 1/256 to 1 (default: 0.125)"`
	Lease    law.Duration `json:"lease,omitempty" jsonschema_description:"how long the edge keeps a window: at least two intervals, up to 60s (default: 1s)"`
}

// portKeys are FairQ's keys of one port.
type portKeys struct {
	TargetFraction float64      `json:"target_fraction,omitempty" jsonschema:"exclusiveMinimum=0,exclusiveMaximum=1" jsonschema_description:"target queue as a fraction of the buffer (alpha; default: 0.2)"`
	Interval       law.Duration `json:"interval,omitempty" jsonschema_description:"sampling interval of the queue (T), 10us to 1s (default: 50us)"`
	Updates        int          `json:"updates,omitempty" jsonschema:"minimum=1,maximum=100000" jsonschema_description:"samples per window update (M; default: 10)"`
	Gain           string       `json:"gain,omitempty" jsonschema:"enum=paper,enum=code" jsonschema_description:"gain of the controller: of the paper, or of the authors' code, which is target/MSS times larger (default: paper)"`
	MinWindow      law.Bytes    `json:"min_window,omitempty" jsonschema_description:"smallest window of a flow; 0B: one segment and a byte (default: 0B)"`
	LongestWait    law.Duration `json:"longest_wait,omitempty" jsonschema_description:"with credits: the longest time that a packet waits for its credit, 1ms to 1s. Half of the guests' least retransmission timeout (default: 100ms)"`
	HoldRequests   string       `json:"hold_requests,omitempty" jsonschema:"enum=off,enum=on" jsonschema_description:"with credits: whether requests wait while the buffer has no room for the answers that late servers still owe (default: on)"`
	RepairLosses   string       `json:"repair_losses,omitempty" jsonschema:"enum=off,enum=on" jsonschema_description:"with credits: whether segments that the buffer has no room for wait in the parking, and are sent later in order (default: on)"`
	Paths          int          `json:"paths,omitempty" jsonschema:"minimum=1,maximum=1024" jsonschema_description:"number of equal paths (ECMP) of which the port is one. A flow whose data takes another switch is limited to the port's window divided by it; with 1 it passes (default: 1)"`
}

// Values of the keys promises, credits, hold_requests and repair_losses.
const (
	off = "off"
	on  = "on"
)

const (
	edgeChange = 1.0 / 8
	edgeLease  = time.Second

	leastTick    = 10 * time.Microsecond
	longestRound = time.Second // of an interval, and of a window update
)

// Facts returns FairQ's keys and flags, and what its programs need. T = 50 us, M = 10 and alpha = 0.2 are the paper's
// (docs/spec 1.1).
func (Law) Facts() *switchd.Facts {
	spec := fairqlaw.Spec()
	return &switchd.Facts{
		Spec: &spec, Title: "FairQ",
		All:       &allKeys{Count: fairqlaw.DefaultCount, Scale: "learn", UnifyShift: 7, Flows: kernel.DefaultFlows, Shrink: "allow", Signed: "pass", VLANs: "separate", Promises: off, Credits: off},
		Port:      &portKeys{TargetFraction: 0.2, Interval: law.Duration(50 * time.Microsecond), Updates: 10, Gain: "paper", LongestWait: fairqlaw.DefaultWait, HoldRequests: on, RepairLosses: on, Paths: 1},
		MovedAll:  []string{"count", "scale", "unify_shift", "flows", "shrink", "signed", "edge"},
		MovedPort: []string{"target_fraction", "interval", "updates", "gain", "min_window", "paths"},
		Flags:     flags(),
		Needs:     []attach.Needs{kernel.Needs(), edge.Needs()},
	}
}

// flags returns the flags of `weir switch`.
func flags() []switchd.Flag {
	return []switchd.Flag{
		{Name: "target-fraction", Key: "defaults.fairq.target_fraction", Default: "0.2", Number: true, Observe: true, Help: "target queue, as a fraction of the buffer (alpha)"},
		{Name: "interval", Key: "defaults.fairq.interval", Default: "50us", Help: "sampling interval of the queues (T)"},
		{Name: "updates", Key: "defaults.fairq.updates", Default: "10", Number: true, Help: "samples per window update (M)"},
		{Name: "gain", Key: "defaults.fairq.gain", Default: "paper", Help: "gain of the controller: paper, or code (of the authors' program)"},
		{Name: "count", Key: "fairq.count", Default: fairqlaw.DefaultCount, Observe: true, Help: "flows that count: active (sent data recently), opening (the same, and open handshakes reduce new windows), or handshake (opened, not closed)"},
		{Name: "shrink", Key: "fairq.shrink", Default: "allow", Help: "whether the right edge of a window may move left: allow or avoid"},
		{Name: "signed", Key: "fairq.signed", Default: "pass", Help: "segments that both ends sign (TCP-MD5, TCP-AO): pass, limit (drop data beyond the window) or drop"},
		{Name: "vlans", Key: "fairq.vlans", Default: "separate", Observe: true, Help: "VLAN tags: separate (equal addresses in two VLANs are two connections) or ignore (for bridges with tagged and untagged ports)"},
		{Name: "promises", Key: "fairq.promises", Default: off, Help: "whether SYN-ACKs and requests promise a first flight that the port has room for: on or off"},
		{Name: "credits", Key: "fairq.credits", Default: off, Help: "whether requests and acknowledgements wait while a segment of each flow exceeds BDP and target: on (with promises) or off"},
		{Name: "scale", Key: "fairq.scale", Default: "learn", Help: "source of window scales: learn, shim or unify"},
	}
}

// Check checks what a schema cannot express.
func (Law) Check(c *config.Checker, at []string, keys any) {
	switch k := keys.(type) {
	case *allKeys:
		k.check(c, at)
	case *portKeys:
		k.check(c, at)
	}
}

func (k *allKeys) check(c *config.Checker, at []string) {
	in := below(at)
	if c.Given(in("unify_shift")...) && k.Scale != "unify" {
		c.Fail(in("unify_shift"), "it has no effect with scale: "+k.Scale, "leave it out, or set scale: unify")
	}
	k.checkCredits(c, in)
	e := k.edge()
	switch {
	case k.Edge == nil:
	case c.Given(in("edge", "interval")...) && k.Edge.Interval == 0:
		c.Fail(in("edge", "interval"), "0 is out of range", "1ms to 10s; for no edge mode, leave edge out")
	case c.Given(in("edge", "lease")...) && k.Edge.Lease == 0:
		c.Fail(in("edge", "lease"), "0 is out of range", "at least twice the interval, up to 60s; for no edge mode, leave edge out")
	case e.Interval < time.Millisecond || e.Interval > 10*time.Second:
		c.Fail(in("edge", "interval"), fmt.Sprintf("%s is out of range", k.Edge.Interval), "1ms to 10s")
	case e.Lease < 2*e.Interval || e.Lease > time.Minute:
		c.Fail(in("edge", "lease"), fmt.Sprintf("%v is out of range", e.Lease), "at least twice the interval, up to 60s")
	case k.Scale == "shim":
		c.Fail(in("edge"), "edge mode and scale: shim use the same bit of ACKs", "scale: learn")
	default:
		*k.Edge = edgeKey{law.Duration(e.Interval), e.Change, law.Duration(e.Lease)} // fill in the defaults
	}
}

// checkCredits checks promises and credits, and fills in the promises that credits imply.
func (k *allKeys) checkCredits(c *config.Checker, in func(...string) []string) {
	key := k.credit()
	switch {
	case k.Credits == on && c.Given(in("promises")...) && k.Promises == off:
		c.Fail(in("promises"), "credits: on needs promises", "leave promises out, or set credits: off")
	case key != "" && k.Edge != nil:
		c.Fail(in(key), key+" and edge mode do not work together", "leave edge out, or set "+key+": off")
	case k.Credits == on:
		k.Promises = on
	}
}

// credit returns the key, of promises and credits, that is on; "": neither.
func (k *allKeys) credit() string {
	switch {
	case k.Credits == on:
		return "credits"
	case k.Promises == on:
		return "promises"
	}
	return ""
}

// NeedsAllFlows returns promises or credits if one of them is on: both follow the queue, which a part of the flows does
// not determine.
func (Law) NeedsAllFlows(keys any) (key string) { return keys.(*allKeys).credit() }

func (k *portKeys) check(c *config.Checker, at []string) {
	in := below(at)
	given := func(key string) bool { return c.Given(in(key)...) }
	if d := k.Interval.Std(); given("interval") && (d < leastTick || d > longestRound) {
		c.Fail(in("interval"), fmt.Sprintf("%s is out of range", k.Interval), "10us to 1s")
	} else if round := d * time.Duration(k.Updates); (given("interval") || given("updates")) && round > longestRound {
		key := "updates"
		if !given(key) {
			key = "interval"
		}
		c.Fail(in(key), fmt.Sprintf("%d samples, one every %s, take longer than a second", k.Updates, k.Interval), "updates x interval of at most 1s")
	}
	if d := k.LongestWait.Std(); given("longest_wait") && (d < time.Millisecond || d > time.Second) {
		c.Fail(in("longest_wait"), fmt.Sprintf("%s is out of range", k.LongestWait), "1ms to 1s")
	}
	if given("min_window") && k.MinWindow > math.MaxInt32 {
		c.Fail(in("min_window"), fmt.Sprintf("%s is out of range", k.MinWindow), "at most 2.14GB")
	}
}

func below(at []string) func(...string) []string {
	return func(keys ...string) []string { return slices.Concat(at, keys) }
}

// String describes the edge mode, for a reload.
func (k *edgeKey) String() string {
	e := (&allKeys{Edge: k}).edge()
	if e.Interval == 0 {
		return "off"
	}
	return fmt.Sprintf("every %v, at %.3g, for %v", e.Interval, e.Change, e.Lease)
}

// edge returns the edge mode of the file.
func (k *allKeys) edge() kernel.EdgeMode {
	if k.Edge == nil {
		return kernel.EdgeMode{}
	}
	return kernel.EdgeMode{
		Interval: cmp.Or(k.Edge.Interval.Std(), kernel.EdgeInterval),
		Change:   cmp.Or(k.Edge.Change, edgeChange), Lease: cmp.Or(k.Edge.Lease.Std(), edgeLease),
	}
}

// mode maps the words of a choice to values.
type mode[T any] map[string]T

func (m mode[T]) parse(what, word string) (v T, err error) {
	v, ok := m[word]
	if !ok {
		return v, fmt.Errorf("%s %q is not known: use %s", what, word, strings.Join(slices.Sorted(maps.Keys(m)), " or "))
	}
	return v, nil
}

var (
	counts  = mode[kernel.Count]{"active": kernel.CountActive, "opening": kernel.CountOpening, "handshake": kernel.CountHandshake}
	scales  = mode[kernel.Scale]{"learn": kernel.ScaleLearn, "shim": kernel.ScaleShim, "unify": kernel.ScaleUnify}
	shrinks = mode[kernel.Shrink]{"allow": kernel.ShrinkAllow, "avoid": kernel.ShrinkAvoid}
	signeds = mode[kernel.Signed]{"pass": kernel.SignedPass, "limit": kernel.SignedLimit, "drop": kernel.SignedDrop}
	vlans   = mode[bool]{"separate": false, "ignore": true}
	gains   = mode[kernel.Gain]{"paper": kernel.GainPaper, "code": kernel.GainOVS}
)
