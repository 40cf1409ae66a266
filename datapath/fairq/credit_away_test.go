package fairq_test

import (
	"errors"
	"testing"
	"time"

	"weir/datapath/fairq"
	"weir/datapath/testnet"
)

// Connections send more than credit_fits allows while the program is not attached. Without a heartbeat nothing limits them afterwards,
// although their servers had promises. With heartbeats they get promises again as soon as both ends have sent.
func TestFairQCredits_AfterTheProgramWasAway(t *testing.T) {
	const away = 5 << 20
	pin := testnet.Mount(t, "bpf") + "/weir"
	b := &creditBed{rwndPath: newRwndPath(t, testnet.PathOptions{PortBps: 50e6})}
	law := creditLaw()
	attach := func(lease time.Duration) {
		t.Helper()
		f, err := fairq.Attach([]fairq.Port{{PortRef: b.Port, Law: law}, {PortRef: b.In, Law: law}}, fairq.Config{Credit: fairq.CreditPaces, Pin: pin, Lease: lease})
		if err != nil {
			t.Fatal(err)
		}
		b.f = f
	}
	attach(time.Hour)
	defer func() {
		if err := b.f.Close(); err != nil {
			t.Error(err)
		}
	}()
	l := b.Listen(t, testnet.ReceiverIPv4)
	for range 6 { // a segment of each is more than BDP and target
		b.conns = append(b.conns, b.Dial(t, l))
	}
	b.ask(t)
	b.ask(t)
	if err := errors.Join(b.f.Detach(), b.f.Leave()); err != nil {
		t.Fatal(err)
	}
	for _, c := range b.conns {
		testnet.Send(t, c.Server, c.Client, away)
	}
	const lease = 500 * time.Millisecond
	attach(lease)
	<-time.After(2 * lease)
	for _, c := range b.conns {
		testnet.Send(t, c.Server, c.Client, 100_000)
		if own, w := testnet.ReadTCPInfo(t, c.Client).Rcv_wnd, testnet.ReadTCPInfo(t, c.Server).Snd_wnd; w != own {
			t.Errorf("without a heartbeat %v sends to a window of %d, its receiver announces %d", c.Server.LocalAddr(), w, own)
		}
	}
	if err := errors.Join(b.f.Detach(), b.f.Leave()); err != nil {
		t.Fatal(err)
	}
	attach(time.Hour)
	for range 4 { // sweeps
		if err := b.f.Heartbeat(); err != nil {
			t.Fatal(err)
		}
	}
	b.ask(t)
	before := b.state(t)
	b.ask(t)
	if now := b.state(t); now.Promises < before.Promises+uint64(len(b.conns)) || now.Parked == before.Parked {
		t.Errorf("%d requests: %d promises, %d packets parked", len(b.conns), now.Promises-before.Promises, now.Parked-before.Parked)
	}
}
