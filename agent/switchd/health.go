package switchd

import "weir/datapath/reading"

// Finding is one fault of a port, or one fact worth knowing.
type Finding struct {
	Word   string `json:"word"`             // name of the finding, for programs
	State  State  `json:"state"`            // best state of the port with this finding; enforced: a warning
	Reason string `json:"reason"`           // the finding in words; may change
	Remedy string `json:"remedy,omitempty"` // what to do; may change
}

// Asked reports whether the configuration, or somebody's action, causes the finding on purpose: nothing must be done.
func (f *Finding) Asked() bool {
	return f.Word == wordObserved || f.Word == wordPart || f.Word == wordDown && f.Remedy == ""
}

// view is everything that a check reads.
type view struct {
	law      string // its title
	k        *reading.Pinned
	sw       *reading.Switch
	process  process
	device   portDevice // of the port; not known if it is in another namespace or gone
	namesake portDevice // the device that has the port's name now
	recent   *change    // since the previous reading; nil: there was none
}

// check looks for one thing. look returns why the port is not as it should be, or "", and what to do.
type check struct {
	word  string
	state State
	look  func(v *view) (reason, remedy string)
	means string // meaning of the word, for the table in docs/tables/status.md
}

// Words that the code uses.
const (
	wordDown     = "down"
	wordObserved = "observed"
	wordPart     = "part"
	wordStopped  = "stopped"
	wordLayout   = "other-layout"
)

// checks in the order of their weight, worst first.
var checks = []check{
	{"detached", Off, lookDetached,
		"the BPF link has no device any more, and the device exists. `weir switch` attaches again within a second"},
	{"no-device", Off, lookNoDevice,
		"the device was deleted, or made again with a queue that cannot be managed. A port that was given by name stays listed; a port found by a pattern is removed"},
	{"ending", Off, lookEnding,
		"`weir switch` is ending"},
	{"released", Off, lookReleased,
		"no process holds the lock on the pins, and no heartbeat came for a second. Windows are not limited"},
	{wordDown, Off, lookDown,
		"no fault: the port was set down. A port without carrier also has this word, with a remedy"},
	{"leaving", Off, lookLeaving,
		"`weir switch` is leaving this port"},
	{"rolled-back", Off, lookRolledBack,
		"a rollback rule stopped enforcement; the reason is the rule and its figures"},
	{wordObserved, Off, lookObserved,
		"no fault: the configuration limits no flow of this port"},
	{"stale-heartbeat", Degraded, lookStale,
		"three heartbeats are missing (750 ms), and the process holds the lock or windows are still limited. After a second without a heartbeat they are not limited"},
	{"no-queue", Degraded, lookNoQueue,
		"the root queue discipline was replaced by one without a backlog (`mq`, `pfifo_fast`, none). Flows are learnt and not limited; enforcement starts again with a `tbf` or `htb`"},
	{"unknown-rate", Degraded, lookUnknownRate,
		"the root queue discipline was replaced by one that reports no rate or buffer (`fq_codel`). Flows are learnt and not limited"},
	{"not-reached", Degraded, lookNotReached,
		"the law's program counted none, or less than half, of the packets that entered the port's queue. Usually another program runs first and ends the chain"},
	{"not-first", Degraded, lookNotFirst,
		"other programs run before the law's. They may still let all packets pass"},
	{"bypassed", Degraded, lookBypassed,
		"the device sent at least twice as many packets as its queue handed to it: XDP, AF_XDP, or a chip or flow table that forwards"},
	{"on-chip", Degraded, lookOnChip,
		"the port belongs to a switch chip, which forwards without the kernel"},
	{"hidden-segments", Degraded, lookHiddenSegments,
		"`rx-gro-list` is on. GRO chains whole TCP segments (Linux 6.10 and later), and only the first header of a chain is rewritten. TSO, GSO, GRO and checksum offload hide nothing"},
	{"one-sided", Degraded, lookOneSided,
		"for a tenth of the flows or more, data leaves here and no acknowledgement passed a managed port for a second. A port is not configured, or the acknowledgements take another switch. One such flow among others is no finding"},
	{"tunnels", Degraded, lookTunnels,
		"at least a tenth of the packets are tunnelled or encrypted: their TCP is not seen"},
	{"no-parking", Degraded, lookNoParking,
		"the port has credits or repairs losses, and the parking device, its program or its queue is missing. Packets that should wait pass. A running `weir switch` makes it again within a second"},
	{"full-parking", Degraded, lookFullParking,
		"the port has credits or repairs losses, and no more packets may wait. Later ones pass"},
	{"table-full", Degraded, lookTableFull,
		"new connections find no room in the flow table now"},
	{"unrepaired", Enforced, lookUnrepaired,
		"losses are repaired at the port, and segments were dropped since the previous reading: as many bytes waited as `park` allows"},
	{"unordered", Enforced, lookUnordered,
		"the port has credits or repairs losses, and RPS is off at the parking device, so packets of a flow may change places"},
	{wordPart, Enforced, lookPart,
		"a percentage of the flows is limited, as configured"},
	{"was-full", Enforced, lookWasFull,
		"the flow table was full once"},
	{"data-elsewhere", Enforced, lookDataElsewhere,
		"acknowledgements leave here whose data passes no managed port"},
	{"hw-tc-offload", Enforced, lookHardware,
		"the device may be configured to forward by itself"},
	{"elsewhere", Enforced, lookElsewhere,
		"the port is in another network namespace: its queue, offloads and other programs are not read"},
}

// findings returns the results of the checks, in their order.
func (v *view) findings() (out []Finding) {
	for _, c := range checks {
		if reason, remedy := c.look(v); reason != "" {
			out = append(out, Finding{c.word, c.state, reason, remedy})
		}
	}
	return out
}
