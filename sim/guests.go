package sim

import (
	"fmt"

	"weir/experiment"
	"weir/sim/event"
	"weir/sim/tcp"
)

// tcpConfig is the TCP of a profile of guests: reno, cubic, dctcp and d2tcp as Linux behaves (tcp.Default),
// newreno and sack by their RFCs alone, but for what the file says of them: rto_min is 200 ms where it says nothing (RFC 6298
// 2.4: 1 s). Delayed ACK stays at Linux's 40 ms under any time scale, as in the lab; Linux's is less where RTOs would come
// before, that of newreno and sack is not.
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
	case "newreno", "sack": // whether there is SACK is what their names say
	default:
		c.DelayedACK = delayedACK(c)
		c.SACK = *g.SACK
		if !c.SACK { // Linux does without these then
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

// delayedACK is how long Linux delays an ACK at most: less than the least RTO by a jiffy (tcp_delack_max, since 6.7; CONFIG_HZ=250
// as in the lab), or the ACK of a lone segment would meet its retransmission.
func delayedACK(c *tcp.Config) event.Time {
	const jiffy = 4 * event.Millisecond
	least := (c.RTOMin + jiffy - 1) / jiffy
	return min(c.DelayedACK, (max(least, 2)-1)*jiffy)
}

// checkGuests tells what of a profile the simulator has not.
func checkGuests(g *experiment.Guests) error {
	switch g.CC {
	case "reno", "newreno", "sack", "cubic", "dctcp", "d2tcp":
	default:
		return fmt.Errorf("guests.cc %s: the simulator has reno, newreno, sack, cubic, dctcp and d2tcp", g.CC)
	}
	for _, stack := range []string{g.Stack, g.ToStack} {
		if stack != "linux" && stack != "" {
			return fmt.Errorf("guests.stack %s: the simulator's TCP is Linux's; other stacks run in the lab", stack)
		}
	}
	return nil
}
