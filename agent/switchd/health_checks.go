package switchd

import (
	"fmt"
	"strings"
	"time"

	"weir/datapath/reading"
)

const (
	// staleHeartbeats is how many heartbeats in a row may be late. The lease is longer: windows are still limited.
	staleHeartbeats = 3
	// fewPackets is the number of packets up to which two readings show nothing, because the counters of a reading are
	// not read at the same instant.
	fewPackets = 100
	// oneSidedShare, in percent of the flows, is more than losses can cause: at 5000 drops/s they make 1 flow in 70
	// one-sided.
	oneSidedShare = 10
	// tunnelShare, in percent of the packets, is more than keepalives and routing of a port.
	tunnelShare = 10
)

// ---- a part is missing ----

// lookDetached: the link has no device, although the device exists.
func lookDetached(v *view) (reason, remedy string) {
	if v.k.HasDevice || !v.namesake.known || v.namesake.ifindex != v.k.Ifindex {
		return "", ""
	}
	remedy = "start weir switch again"
	if v.process.here {
		remedy = "weir switch attaches it again within a second; find out which process detaches it"
	}
	return "its program was detached by somebody else", remedy
}

func lookNoDevice(v *view) (reason, remedy string) {
	switch {
	case v.k.HasDevice || v.namesake.known && v.namesake.ifindex == v.k.Ifindex:
		return "", ""
	case v.namesake.known:
		reason = fmt.Sprintf("its device is gone, and %s is not attached to the new device with its name (ifindex %d)", v.law, v.namesake.ifindex)
		if kind := v.namesake.shaper.Kind; v.namesake.shaper.Rate == 0 {
			return reason + fmt.Sprintf(": its queue discipline is %q", kind), shaperRemedy(v.k.Port)
		}
		return reason, "weir switch attaches to it at once; if none runs, start it"
	}
	return "its device is gone", "create it again: weir switch attaches to it at once; or remove it from the configured ports"
}

func lookEnding(v *view) (reason, remedy string) {
	if !v.sw.Releasing {
		return "", ""
	}
	return "weir switch is ending", ""
}

// lookReleased: there are no heartbeats, and no process that could send them.
func lookReleased(v *view) (reason, remedy string) {
	if v.sw.Releasing || v.sw.Alive() || v.process.here {
		return "", ""
	}
	return fmt.Sprintf("no weir switch is running: the last heartbeat was %v ago, windows are not limited", v.sw.HeartbeatAge.Round(100*time.Millisecond)),
		"start weir switch again: it continues with the same flows; or remove what it left with weir switch --purge"
}

// lookDown: the port sends nothing, which is no fault.
func lookDown(v *view) (reason, remedy string) {
	switch {
	case !v.device.known:
		return "", ""
	case !v.device.up:
		return "the port is down (ip link set dev " + v.k.Port + " up)", "" // set by an administrator
	case !v.device.carrier:
		return "the port has no carrier", "check its cable and the other end"
	}
	return "", ""
}

// leavesPort reports whether the windows of this port alone are being released.
func (v *view) leavesPort() bool { return v.k.Releasing && v.sw.Alive() }

func lookLeaving(v *view) (reason, remedy string) {
	if !v.leavesPort() || v.k.NoQueue != nil || v.device.known && !v.device.shaper.hasRateAndBuffer() {
		return "", ""
	}
	return "weir switch is leaving this port", ""
}

// lookRolledBack: weir switch noted why it limits nothing here.
func lookRolledBack(v *view) (reason, remedy string) {
	if v.k.Mode == reading.EnforceAll || v.k.Note == "" {
		return "", ""
	}
	return v.k.Note, "look at the port with weir observe; weir switch reload, or a restart, tries again"
}

// lookObserved: nothing is limited because the configuration says so, which is no fault.
func lookObserved(v *view) (reason, remedy string) {
	if v.k.Mode != reading.EnforceNone || v.k.Note != "" {
		return "", ""
	}
	reason = "observed only, as configured: none of its flows is limited"
	if v.recent != nil && v.recent.rewritten > 0 {
		reason += "; acknowledgements that leave here are rewritten for flows of other ports"
	}
	return reason, ""
}

// ---- all parts are there ----

func lookStale(v *view) (reason, remedy string) {
	if v.sw.Releasing || v.sw.HeartbeatAge < staleHeartbeats*reading.HeartbeatInterval || !v.sw.Alive() && !v.process.here {
		return "", ""
	}
	who := "weir switch"
	if v.process.here {
		who = fmt.Sprintf("process %d", v.process.pid)
	}
	reason = fmt.Sprintf("%s has sent no heartbeat for %v", who, v.sw.HeartbeatAge.Round(100*time.Millisecond))
	if v.process.stopped() {
		reason += ": it is stopped"
	}
	if v.sw.Alive() {
		return reason + fmt.Sprintf("; windows are released after %v", v.sw.Lease), "find out whether it runs and what delays it"
	}
	if v.process.stopped() {
		return reason + ", windows are not limited", fmt.Sprintf("kill -CONT %d, or end it and start weir switch again", v.process.pid)
	}
	return reason + ", windows are not limited", "find out what delays it (its log, the machine's load), or end it and start weir switch again"
}

func shaperRemedy(port string) string {
	return fmt.Sprintf("tc qdisc replace dev %s root tbf rate RATE burst BURST limit BUFFER (or htb)", port)
}

func lookNoQueue(v *view) (reason, remedy string) {
	if v.k.NoQueue == nil {
		return "", ""
	}
	reason = fmt.Sprintf("its queue discipline is %q, which has no backlog of its own", v.k.NoQueue.Kind)
	if v.leavesPort() {
		reason += ": windows are not limited"
	}
	return reason, shaperRemedy(v.k.Port)
}

// hasRateAndBuffer reports whether the queue discipline alone is enough to manage the port.
func (s *shaper) hasRateAndBuffer() bool { return s.Rate > 0 && s.Buffer > 0 }

func lookUnknownRate(v *view) (reason, remedy string) {
	if !v.leavesPort() || v.k.NoQueue != nil || !v.device.known || v.device.shaper.hasRateAndBuffer() {
		return "", ""
	}
	return fmt.Sprintf("its queue discipline is %q, which reports no rate and buffer: windows are not limited", v.device.shaper.Kind),
		shaperRemedy(v.k.Port) + ", or configure its rate and buffer for weir switch"
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
		reason = fmt.Sprintf("%s is not reached: it saw none of the last %d packets of the port", v.law, entered)
	case entered > fewPackets && 2*c.seen < entered:
		reason = fmt.Sprintf("%s is not reached: it saw only %d of the last %d packets of the port", v.law, c.seen, entered)
	default:
		return "", ""
	}
	remedy = fmt.Sprintf("find what takes packets at its egress: weir doctor %s; nft list ruleset", v.k.Port)
	if len(v.k.Before) > 0 {
		reason += "; a program that runs before it ends the chain: " + strings.Join(v.k.Before, ", ")
		remedy = v.beforeRemedy()
	}
	return reason, remedy
}

func (v *view) beforeRemedy() string {
	return fmt.Sprintf("attach that program behind %s, or detach it (see weir doctor %s); weir switch does not move other programs", v.law, v.k.Port)
}

func lookNotFirst(v *view) (reason, remedy string) {
	if len(v.k.Before) == 0 {
		return "", ""
	}
	return "these programs run before " + v.law + ", and may keep packets from it: " + strings.Join(v.k.Before, ", "), v.beforeRemedy()
}

// lookBypassed: the device sends more packets than came through its queue: XDP, AF_XDP, a chip that forwards. The
// device may count a GSO packet once, so it never counts more packets than the queue.
func lookBypassed(v *view) (reason, remedy string) {
	c := v.recent
	if c == nil || !c.queue.known || c.deviceSent < fewPackets || c.deviceSent < 2*c.queue.sent {
		return "", ""
	}
	return fmt.Sprintf("the device sent %d packets, and %d of them came through its queue: the others bypass it and %s", c.deviceSent, c.queue.sent, v.law),
		"find what sends past it: XDP redirection, AF_XDP, a flow table or a chip that forwards (ip -s link, nft list flowtables)"
}

func lookOnChip(v *view) (reason, remedy string) {
	if !v.device.onChip {
		return "", ""
	}
	return "a switch chip forwards between this port and others: the kernel sees only packets that the chip passes to it",
		fmt.Sprintf("have the kernel forward (bridge link set dev %s hwmode ..., devlink), or use %s where the kernel forwards", v.k.Port, v.law)
}

func lookHiddenSegments(v *view) (reason, remedy string) {
	if !v.device.features[featureFraglist] {
		return "", ""
	}
	return featureFraglist + " is on: of TCP segments that GRO chains, only the window of the first is rewritten",
		fmt.Sprintf("ethtool -K %s %s off", v.k.Port, featureFraglist)
}

// lookOneSided: data leaves here whose acknowledgements do not. Connections that were one-sided from the beginning do
// not count as active flows.
func lookOneSided(v *view) (reason, remedy string) {
	n := v.k.OneSidedData
	if v.recent != nil {
		n = min(n, v.recent.oneSidedData)
	}
	if !isShare(n, uint64(v.k.Flows)) {
		return "", ""
	}
	reason = fmt.Sprintf("the data of %d flows leaves here, and its acknowledgements pass no managed port", n)
	remedy = "configure every port that traffic passes, also those that acknowledgements leave by"
	if len(v.sw.Ports) > 1 {
		remedy += "; where they return by another switch, put " + v.law + " on both, or use edge mode"
	}
	return reason, remedy
}

// isShare reports whether n one-sided flows are too many for losses to explain: a sender that waits for its timer is
// one-sided, too.
func isShare(n uint32, flows uint64) bool {
	return n > 0 && (n > 1 || flows == 0) && 100*uint64(n) >= oneSidedShare*flows
}

func lookTunnels(v *view) (reason, remedy string) {
	c := v.recent
	if c == nil || c.seen < fewPackets || 100*c.tunnel < tunnelShare*c.seen {
		return "", ""
	}
	return fmt.Sprintf("%d %% of its packets are in tunnels or encrypted: their TCP is not visible", 100*c.tunnel/c.seen),
		"put " + v.law + " where the tunnels end, on the ports behind them"
}

const tableRemedy = "raise flows in the file (and start with --renew), narrow --scope to the flows that matter, or configure fewer ports"

func lookTableFull(v *view) (reason, remedy string) {
	if v.recent == nil || v.recent.tableFull == 0 {
		return "", ""
	}
	return fmt.Sprintf("the flow table is full: %d new connections pass unmanaged (%d of this port are in the table)", v.recent.tableFull, v.k.Connections), tableRemedy
}

// ---- worth knowing ----

func lookPart(v *view) (reason, remedy string) {
	if v.k.Mode != reading.EnforcePart || v.k.Note != "" {
		return "", ""
	}
	return fmt.Sprintf("%.3g %% of its flows are limited, as configured: the others are not", 100*float64(v.k.LimitedBuckets)/reading.Buckets), ""
}

// lookDataElsewhere: the queue of these flows is at another switch or port, which is not known here.
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
	return fmt.Sprintf("acknowledgements of %d flows leave here whose data passes no managed port", n),
		"configure every port that traffic passes; for data that takes another switch, run " + v.law + " on that one"
}

func lookWasFull(v *view) (reason, remedy string) {
	if v.k.TableFull == 0 || v.recent != nil && v.recent.tableFull > 0 {
		return "", ""
	}
	return fmt.Sprintf("the flow table was full: %d connections passed unmanaged", v.k.TableFull), tableRemedy
}

func lookHardware(v *view) (reason, remedy string) {
	if !v.device.features[featureHardware] {
		return "", ""
	}
	return featureHardware + " is on: packets that the device forwards for tc or netfilter are not seen", fmt.Sprintf("ethtool -K %s %s off, unless nothing is offloaded", v.k.Port, featureHardware)
}

func lookElsewhere(v *view) (reason, remedy string) {
	if v.k.Local {
		return "", ""
	}
	return "it is in another network namespace: its queue, offloads and other programs are not checked", "run weir status in that namespace (ip netns exec, nsenter -n)"
}
