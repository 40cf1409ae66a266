package sim

import (
	"fmt"

	"weir/experiment"
	"weir/sim/event"
	"weir/sim/tcp"
)

// tcpConfig returns the TCP of a profile of guests. reno, cubic, dctcp and d2tcp follow Linux (tcp.Default); newreno
// and sack follow their RFCs alone. The file's settings replace these. The default of rto_min is 200 ms (RFC 6298 2.4:
// 1 s). Delayed ACK stays at Linux's 40 ms under any time scale, as in the lab. With Linux's TCP it is less if an RTO
// would come earlier; with newreno and sack it is not.
func tcpConfig(g *experiment.Guests) (*tcp.Config, error) {
	if err := checkGuests(g); err != nil {
		return nil, err
	}
	c := tcp.Default(g.CC)
	c.InitialWindow = uint32(*g.InitialWindow)
	c.RTOMin, c.InitialRTO = event.Time(*g.RTOMin), event.Time(*g.InitialRTO)
	c.RTOMax = max(c.RTOMax, c.RTOMin, c.InitialRTO)
	c.FallbackRTO = min(max(c.FallbackRTO, c.InitialRTO), c.RTOMax)
	if c.TLP {
		c.WorstDelayedACK = c.RTOMin // tcp_schedule_loss_probe waits tcp_rto_min for a lone segment's ACK
	}
	c.ECN = *g.ECN
	if !c.ECN {
		c.ECTOnSYN, c.ECTAlways = false, false
	}
	switch g.CC {
	case "newreno", "sack": // their names decide about SACK
	default:
		c.DelayedACK = delayedACK(c)
		c.SACK = *g.SACK
		if !c.SACK { // Linux disables these then
			c.RACK, c.TLP, c.DSACK = false, false, false
		}
	}
	if !*g.DelayedACK {
		c.DelayedACK, c.QuickACKs = 0, 0
	}
	if err := c.Check(); err != nil {
		return nil, err
	}
	return c, nil
}

// delayedACK returns how long Linux delays an ACK at most: a jiffy less than the least RTO (tcp_delack_max, since 6.7;
// CONFIG_HZ=250 as in the lab). Otherwise the ACK of a lone segment would meet its retransmission.
func delayedACK(c *tcp.Config) event.Time {
	const jiffy = 4 * event.Millisecond
	least := (c.RTOMin + jiffy - 1) / jiffy
	return min(c.DelayedACK, (max(least, 2)-1)*jiffy)
}

// checkGuests returns an error for a setting of a profile that the simulator lacks.
func checkGuests(g *experiment.Guests) error {
	switch g.CC {
	case "reno", "newreno", "sack", "cubic", "dctcp", "d2tcp":
	default:
		return fmt.Errorf("guests.cc %s: the simulator does not have it; use reno, newreno, sack, cubic, dctcp or d2tcp, or the lab", g.CC)
	}
	for _, stack := range []string{g.Stack, g.ToStack} {
		if stack != "linux" && stack != "" {
			return fmt.Errorf("guests.stack %s: the simulator's TCP is Linux's; other stacks run in the lab", stack)
		}
	}
	return nil
}
