package fairq_test

import (
	"testing"

	"weir/datapath/fairq"
	"weir/datapath/internal/frames"
	"weir/datapath/testnet"
)

// A request passes for a second time after its answer was acknowledged, as one does that its client sent again because the answer was
// late. It opens nothing, and the next request gets its promise.
func TestFairQCredits_RequestComesAgain(t *testing.T) {
	b := newCreditBed(t, 1, fairq.Config{})
	b.ask(t)
	testnet.Until(t, "the answer is acknowledged", func() bool { return testnet.ReadTCPInfo(t, b.conns[0].Server).Unacked == 0 })
	f, at, c := newForgers(t, b.rwndPath), b.positions(t), b.conns[0]
	client, server := testnet.AddrPort(c.Client.LocalAddr()), testnet.AddrPort(c.Server.LocalAddr())
	again := &frames.Segment{
		Link: f.link[0], IP: frames.IP{From: client.Addr(), To: server.Addr()}, FromPort: client.Port(), ToPort: server.Port(),
		Seq: at[client] - 1, Ack: at[server], Window: 1000, Flags: frames.PSH | frames.ACK, Payload: []byte("q"),
	}
	before, data := b.state(t), func() uint64 { out, in := statsOfBoth(t, b.f); return out.Seen + in.Seen }
	seen := data()
	f.raw[0].Send(t, again.Bytes())
	testnet.Until(t, "the request has come again", func() bool { return data() > seen })
	after := b.state(t)
	if after.Promises != before.Promises {
		t.Errorf("%d promises for a request that came again, want none", after.Promises-before.Promises)
	}
	b.ask(t)
	if now := b.state(t); now.Promises != after.Promises+1 {
		t.Errorf("%d promises for the request after it, want 1", now.Promises-after.Promises)
	}
}
