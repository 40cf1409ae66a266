package switchd

import "weir/datapath/reading"

// Finding is one thing that is not as it should be with a port, or that is worth knowing.
type Finding struct {
	Word   string `json:"word"`             // for programs; the words of checks
	State  State  `json:"state"`            // the most that the port can be with it; enforced: a warning
	Reason string `json:"reason"`           // for people
	Remedy string `json:"remedy,omitempty"` // what to do about it
}

// Asked says that a finding is what the configuration asks for, or what somebody did on purpose: nothing is to be
// done about it.
func (f *Finding) Asked() bool {
	return f.Word == wordObserved || f.Word == wordPart || f.Word == wordDown && f.Remedy == ""
}

// view is all that a check may look at.
type view struct {
	law      string // its title
	k        *reading.Pinned
	sw       *reading.Switch
	process  process
	device   portDevice // of the port; not known: it is in another namespace, or gone
	namesake portDevice // that has the port's name now
	recent   *change    // since the reading before; nil: there was none
	note     string     // what weir switch says of why flows are not held
}

// check looks for one thing. It says why the port is not what it should be, or "", and what to do.
type check struct {
	word  string
	state State
	look  func(v *view) (reason, remedy string)
}

// Words that the code asks for.
const (
	wordDown     = "down"
	wordObserved = "observed"
	wordPart     = "part"
	wordStopped  = "stopped"
	wordLayout   = "other-layout"
)

// checks are in the order of what counts most: what leaves least of the law first.
var checks = []check{
	{"detached", Off, lookDetached},
	{"no-device", Off, lookNoDevice},
	{"ending", Off, lookEnding},
	{"released", Off, lookReleased},
	{wordDown, Off, lookDown},
	{"leaving", Off, lookLeaving},
	{"rolled-back", Off, lookRolledBack},
	{wordObserved, Off, lookObserved},
	{"stale-heartbeat", Degraded, lookStale},
	{"no-queue", Degraded, lookNoQueue},
	{"unknown-rate", Degraded, lookUnknownRate},
	{"not-reached", Degraded, lookNotReached},
	{"not-first", Degraded, lookNotFirst},
	{"bypassed", Degraded, lookBypassed},
	{"on-chip", Degraded, lookOnChip},
	{"hidden-segments", Degraded, lookHiddenSegments},
	{"one-sided", Degraded, lookOneSided},
	{"tunnels", Degraded, lookTunnels},
	{"table-full", Degraded, lookTableFull},
	{wordPart, Enforced, lookPart},
	{"was-full", Enforced, lookWasFull},
	{"data-elsewhere", Enforced, lookDataElsewhere},
	{"hw-tc-offload", Enforced, lookHardware},
	{"elsewhere", Enforced, lookElsewhere},
}

// findings are what the checks say, in their order.
func (v *view) findings() (out []Finding) {
	for _, c := range checks {
		if reason, remedy := c.look(v); reason != "" {
			out = append(out, Finding{c.word, c.state, reason, remedy})
		}
	}
	return out
}
