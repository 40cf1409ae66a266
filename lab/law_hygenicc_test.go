package lab

import (
	"context"
	"errors"
	"testing"
	"time"

	"weir/agent/agentd"
	"weir/datapath/testnet"
	"weir/law/hygenicc"
)

// Without a controller's law, too, TCP has its share next to UDP: the receiver's host counts the marks of each pair, and returns them to
// the hosts that sent. When that host's agent is killed, no mark comes back, and the limits of the senders end.
func TestHyGenICC_TCPHasItsShare(t *testing.T) {
	name := hygenicc.Spec().Name
	p := *hygenicc.Default()
	p.Interval, p.Period, p.Timeout, p.MinRate, p.Increase, p.Decrease = 5e6, 5e6, 20e6, 200e3, 20e3, 100e3
	l, stop := sharedLink(t, name, p)
	err := tcpBesideUDP(t, l, func() error {
		testnet.Until(t, "the sender of UDP is limited", func() bool { return limits(t, l, "sender2") == 1 })
		c := l.laws[0].Attached.(*controlled)
		agent := c.agents[agentName(l.plan.byName["receiver1"].ports[0].peer)]
		if err := agent.Kill(); err != nil {
			return err
		}
		<-agent.ended
		killed := time.Now()
		testnet.Until(t, "the limits of both senders have ended", func() bool {
			return limits(t, l, "sender1")+limits(t, l, "sender2") == 0
		})
		t.Logf("the limits ended within %v", time.Since(killed))
		return nil
	})
	if err := errors.Join(err, stop()); err != nil {
		t.Fatal(err)
	}
}

// limits returns how many rates the agent of a guest's host enforces.
func limits(t *testing.T, l *Lab, guest string) int {
	t.Helper()
	return statusOf(t, l, guest).Host.Live
}

// statusOf returns the status of the agent of a guest's host.
func statusOf(t testing.TB, l *Lab, guest string) *agentd.Status {
	t.Helper()
	host := l.plan.byName[guest].ports[0].peer
	ctx, cancel := context.WithTimeout(t.Context(), testnet.Patience)
	defer cancel()
	s, err := agentd.ReadStatus(ctx, agentName(host), func(f func() error) error { return l.Enter(host.name, f) })
	if err != nil {
		t.Fatalf("%s: %v", guest, err)
	}
	return s
}
