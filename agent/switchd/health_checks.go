package switchd

import (
	"fmt"
	"strings"
	"time"

	"weir/datapath/reading"
)

const (
	// staleBeats is how many beats in a row may be late. The lease is longer: windows are still held.
	staleHeartbeats = 3
	// fewPackets is how many packets between two readings tell nothing: the readings of the counters are
	// not of the same instant.
	fewPackets = 100
	// oneSidedShare of the flows, in percent, is more than losses make of them: 1 of 70 and fewer with 5000
	// drops a second.
	oneSidedShare = 10
	// tunnelShare of the packets, in percent, is more than a port's keepalives and routing have.
	tunnelShare = 10
)

// ---- a part is missing ----

// lookDetached: the link is there without a device, and the device is there all the same.
func lookDetached(v *view) (reason, remedy string) {
	if v.k.HasDevice || !v.namesake.known || v.namesake.ifindex != v.k.Ifindex {
		return "", ""
	}
	remedy = "start weir switch again"
	if v.process.here {
		remedy = "weir switch attaches it again within a second; find out who detaches it"
	}
	return "its program was detached by somebody else", remedy
}

func lookNoDevice(v *view) (reason, remedy string) {
	switch {
	case v.k.HasDevice || v.namesake.known && v.namesake.ifindex == v.k.Ifindex:
		return "", ""
	case v.namesake.known:
		reason = fmt.Sprintf("its device is gone, and %s is not on the new one with its name (ifindex %d)", v.law, v.namesake.ifindex)
		if kind := v.namesake.shaper.Kind; v.namesake.shaper.Rate == 0 {
			return reason + fmt.Sprintf(": its queue discipline is %q", kind), shaperRemedy(v.k.Port)
		}
		return reason, "weir switch attaches to it at once; if none runs, start it"
	}
	return "its device is gone", "bring it back: weir switch attaches to it at once; or leave it out of weir switch's ports"
}

func lookEnding(v *view) (reason, remedy string) {
	if !v.sw.Releasing {
		return "", ""
	}
	return "weir switch is ending", ""
}

// lookReleased: nobody beats, and nobody is there who could.
func lookReleased(v *view) (reason, remedy string) {
	if v.sw.Releasing || v.sw.Alive() || v.process.here {
		return "", ""
	}
	return fmt.Sprintf("no weir switch: the last beat was %v ago, windows are let go", v.sw.BeatAge.Round(100*time.Millisecond)),
		"start weir switch again: it goes on with the same flows; or remove what is left with weir switch --purge"
}

// lookDown: no fault, and no packet.
func lookDown(v *view) (reason, remedy string) {
	switch {
	case !v.device.known:
		return "", ""
	case !v.device.up:
		return "the port is down (ip link set dev " + v.k.Port + " up)", "" // somebody took it down
	case !v.device.carrier:
		return "the port has no carrier", "look at its cable and at the other end"
	}
	return "", ""
}

// letGo says whether windows of this port alone are let go.
func (v *view) leavesPort() bool { return v.k.Releasing && v.sw.Alive() }

func lookLeaving(v *view) (reason, remedy string) {
	if !v.leavesPort() || v.k.NoQueue != nil || v.device.known && !v.device.shaper.hasRateAndBuffer() {
		return "", ""
	}
	return "weir switch is leaving this port", ""
}

// lookRolledBack: weir switch said why it holds nothing here any more.
func lookRolledBack(v *view) (reason, remedy string) {
	if v.k.Hold == reading.HoldAll || v.note == "" {
		return "", ""
	}
	return v.note, "see what weir observe says of the port; weir switch reload, or a restart, tries again"
}

// lookObserved: no fault. Nothing is held because nothing is to be.
func lookObserved(v *view) (reason, remedy string) {
	if v.k.Hold != reading.HoldNone || v.note != "" {
		return "", ""
	}
	reason = "observed only, as configured: none of its flows is held"
	if v.recent != nil && v.recent.rewritten > 0 {
		reason += "; acknowledgements that leave here are rewritten for flows of other ports"
	}
	return reason, ""
}

// ---- all parts are there ----

func lookStale(v *view) (reason, remedy string) {
	if v.sw.Releasing || v.sw.BeatAge < staleHeartbeats*reading.HeartbeatInterval || !v.sw.Alive() && !v.process.here {
		return "", ""
	}
	who := "weir switch"
	if v.process.here {
		who = fmt.Sprintf("process %d", v.process.pid)
	}
	reason = fmt.Sprintf("%s has not beaten for %v", who, v.sw.BeatAge.Round(100*time.Millisecond))
	if v.process.stopped() {
		reason += ": it is stopped"
	}
	if v.sw.Alive() {
		return reason + fmt.Sprintf("; windows are let go after %v", v.sw.Lease), "see whether it lives and what keeps it"
	}
	if v.process.stopped() {
		return reason + ", windows are let go", fmt.Sprintf("kill -CONT %d, or end it and start weir switch again", v.process.pid)
	}
	return reason + ", windows are let go", "see what keeps it (its log, the machine's load), or end it and start weir switch again"
}

func shaperRemedy(port string) string {
	return fmt.Sprintf("tc qdisc replace dev %s root tbf rate RATE burst BURST limit BUFFER (or htb)", port)
}

func lookNoQueue(v *view) (reason, remedy string) {
	if v.k.NoQueue == nil {
		return "", ""
	}
	reason = fmt.Sprintf("its queue discipline is %q, which keeps no backlog of its own", v.k.NoQueue.Kind)
	if v.leavesPort() {
		reason += ": windows are let go"
	}
	return reason, shaperRemedy(v.k.Port)
}

// tells says whether a port can be managed by what its queue discipline tells.
func (s *shaper) hasRateAndBuffer() bool { return s.Rate > 0 && s.Buffer > 0 }

func lookUnknownRate(v *view) (reason, remedy string) {
	if !v.leavesPort() || v.k.NoQueue != nil || !v.device.known || v.device.shaper.hasRateAndBuffer() {
		return "", ""
	}
	return fmt.Sprintf("its queue discipline is %q, which does not tell rate and buffer of the port: windows are let go", v.device.shaper.Kind),
		shaperRemedy(v.k.Port) + ", or give weir switch its rate and buffer"
}

// lookNotReached: packets enter the port's queue that the law's program did not see.
func lookNotReached(v *view) (reason, remedy string) {
	c := v.recent
	if c == nil || !c.queue.known || !v.k.HasDevice {
		return "", ""
	}
	entered := c.queue.entered
	switch {
	case c.seen == 0 && entered > fewPackets/10:
		reason = fmt.Sprintf("%s is not reached: none of the last %d packets of the port", v.law, entered)
	case entered > fewPackets && 2*c.seen < entered:
		reason = fmt.Sprintf("%s is reached by %d of the last %d packets of the port only", v.law, c.seen, entered)
	default:
		return "", ""
	}
	remedy = fmt.Sprintf("see what takes packets at its egress: weir doctor %s; nft list ruleset", v.k.Port)
	if len(v.k.Before) > 0 {
		reason += "; a program that runs before it ends the chain: " + strings.Join(v.k.Before, ", ")
		remedy = v.beforeRemedy()
	}
	return reason, remedy
}

func (v *view) beforeRemedy() string {
	return fmt.Sprintf("attach it behind %s, or detach it (weir doctor %s); weir switch does not move programs of others", v.law, v.k.Port)
}

func lookNotFirst(v *view) (reason, remedy string) {
	if len(v.k.Before) == 0 {
		return "", ""
	}
	return "run before " + v.law + ", and may keep packets from it: " + strings.Join(v.k.Before, ", "), v.beforeRemedy()
}

// lookBypassed: the device sends more than its queue hands it: XDP and AF_XDP, sockets that go past the
// queue, a chip that forwards. The device may count a large packet once: never more than the queue.
func lookBypassed(v *view) (reason, remedy string) {
	c := v.recent
	if c == nil || !c.queue.known || c.deviceSent < fewPackets || c.deviceSent < 2*c.queue.sent {
		return "", ""
	}
	return fmt.Sprintf("the device sent %d packets, and %d of them came through its queue: the rest goes past it and %s", c.deviceSent, c.queue.sent, v.law),
		"see what sends past it: XDP redirection, AF_XDP, a flow table or a chip that forwards (ip -s link, nft list flowtables)"
}

func lookOnChip(v *view) (reason, remedy string) {
	if !v.device.onChip {
		return "", ""
	}
	return "a switch chip forwards between this port and others: the kernel sees only what the chip hands up",
		fmt.Sprintf("have the kernel forward (bridge link set dev %s hwmode ..., devlink), or use %s where the kernel forwards", v.k.Port, v.law)
}

func lookHiddenSegments(v *view) (reason, remedy string) {
	if !v.device.features[featureFraglist] {
		return "", ""
	}
	return featureFraglist + " is on: of TCP segments that GRO chains, only the first one's window is rewritten where they leave",
		fmt.Sprintf("ethtool -K %s %s off", v.k.Port, featureFraglist)
}

// lookOneSided: data leaves here whose acknowledgements do not. A connection of which that is so from the
// beginning is not among the flows that count.
func lookOneSided(v *view) (reason, remedy string) {
	n := v.k.OneSidedData
	if v.recent != nil {
		n = min(n, v.recent.oneSidedData)
	}
	if !isShare(n, uint64(v.k.Flows)) {
		return "", ""
	}
	reason = fmt.Sprintf("the data of %d flows leaves here, and no acknowledgement of it passes a governed port", n)
	remedy = "name every port that traffic passes, also those that acknowledgements leave by"
	if len(v.sw.Ports) > 1 {
		remedy += "; where they return by another switch, put " + v.law + " on both, or use edge mode"
	}
	return reason, remedy
}

// isShare says whether so many flows are more than what losses make of a few among these: a sender that
// waits for its timer is heard one way only, too.
func isShare(n uint32, flows uint64) bool {
	return n > 0 && (n > 1 || flows == 0) && 100*uint64(n) >= oneSidedShare*flows
}

func lookTunnels(v *view) (reason, remedy string) {
	c := v.recent
	if c == nil || c.seen < fewPackets || 100*c.tunnel < tunnelShare*c.seen {
		return "", ""
	}
	return fmt.Sprintf("%d %% of its packets are in tunnels, or encrypted: TCP in them is not seen", 100*c.tunnel/c.seen),
		"put " + v.law + " where the tunnels end, on the ports behind them"
}

const tableRemedy = "raise flows in the file (and start with --renew), narrow --scope to the flows that matter, or name fewer ports"

func lookTableFull(v *view) (reason, remedy string) {
	if v.recent == nil || v.recent.tableFull == 0 {
		return "", ""
	}
	return fmt.Sprintf("the flow table is full: %d connections find no room in it and pass unmanaged (%d of this port are in it)", v.recent.tableFull, v.k.Connections), tableRemedy
}

// ---- worth knowing ----

func lookPart(v *view) (reason, remedy string) {
	if v.k.Hold != reading.HoldPart || v.note != "" {
		return "", ""
	}
	return fmt.Sprintf("%.3g %% of its flows are held, as asked: the others are free", 100*float64(v.k.HoldShare)/reading.Lots), ""
}

// lookDataElsewhere: which switch, or which port, their queue is at is not known here.
func lookDataElsewhere(v *view) (reason, remedy string) {
	n, flows := v.k.OneSidedAcks, uint64(0)
	if v.recent != nil {
		n = min(n, v.recent.oneSidedAcks)
	}
	for i := range v.sw.Ports {
		flows += uint64(v.sw.Ports[i].Flows) // the data may leave by any port
	}
	if !isShare(n, flows) {
		return "", ""
	}
	return fmt.Sprintf("acknowledgements of %d flows leave here whose data passes no governed port", n),
		"name every port that traffic passes; data that takes another switch is for " + v.law + " on that one"
}

func lookWasFull(v *view) (reason, remedy string) {
	if v.k.TableFull == 0 || v.recent != nil && v.recent.tableFull > 0 {
		return "", ""
	}
	return fmt.Sprintf("connections that found no room in the flow table, and passed unmanaged: %d", v.k.TableFull), tableRemedy
}

func lookHardware(v *view) (reason, remedy string) {
	if !v.device.features[featureHardware] {
		return "", ""
	}
	return featureHardware + " is on: what tc or netfilter have the device forward is not seen", fmt.Sprintf("ethtool -K %s %s off, unless nothing is offloaded", v.k.Port, featureHardware)
}

func lookElsewhere(v *view) (reason, remedy string) {
	if v.k.Local {
		return "", ""
	}
	return "it is in another network namespace: its queue, its offloads and other programs are not looked at", "run weir status in that namespace (ip netns exec, nsenter -n)"
}
