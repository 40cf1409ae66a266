package flows_test

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"weir/datapath/attach"
	"weir/datapath/flows"
	"weir/datapath/testnet"
)

func attached(t *testing.T, ports ...flows.Port) *flows.Flows {
	t.Helper()
	f, err := flows.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, p := range ports {
		if err := f.Add(p); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// seen sums up the readings of a flow.
type seen struct {
	began, ended, readings int
	sent                   uint64
}

func read(t *testing.T, f *flows.Flows, into map[netip.AddrPort]*seen) {
	t.Helper()
	changes, err := f.Read(time.Duration(attach.MonotonicNs()), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range changes {
		one := into[c.Flow.Src]
		if one == nil {
			one = &seen{}
			into[c.Flow.Src] = one
		}
		if c.Began {
			one.began++
		}
		if c.Ended {
			one.ended++
		}
		if c.Sent > 0 {
			if c.Sent < one.sent {
				t.Errorf("%v goes back from %d to %d bytes", c.Flow, one.sent, c.Sent)
			}
			one.sent = c.Sent
			one.readings++
		}
		if !c.Usable() || c.Port != 7 {
			t.Errorf("%+v", c)
		}
	}
}

// 20 connections overflow a port, which is read meanwhile. Each flow begins and ends once, and its bytes are those of its program:
// retransmissions do not count.
func TestRead_Connections(t *testing.T) {
	const size = 200_000
	for name, ip := range map[string]net.IP{"IPv4": testnet.ReceiverIPv4, "IPv6": testnet.ReceiverIPv6} {
		t.Run(name, func(t *testing.T) {
			p := testnet.NewPath(t, testnet.PathOptions{PortBps: 100e6, Limit: 60_000, GSO: true, ChecksumOffload: true})
			before, err := p.Port.QueueWithBacklog()
			if err != nil {
				t.Fatal(err)
			}
			f := attached(t, flows.Port{PortRef: p.Port, N: 7})
			all, done := map[netip.AddrPort]*seen{}, make(chan struct{})
			go func() {
				defer close(done)
				p.Transfer(t, ip, "reno", 20, size)
			}()
			for running := true; running; {
				select {
				case <-done:
					running = false
				default:
				}
				read(t, f, all)
			}
			testnet.Until(t, "all flows have ended", func() bool {
				read(t, f, all)
				ended := 0
				for _, one := range all {
					ended += one.ended
				}
				return ended == 20
			})
			after, err := p.Port.QueueWithBacklog()
			if err != nil {
				t.Fatal(err)
			}
			if drops := after.Since(before).Drops; drops == 0 {
				t.Error("no drops: the test shows nothing about data that is sent again")
			}
			for from, one := range all {
				if one.began != 1 || one.ended != 1 || one.sent != size || one.readings == 0 {
					t.Errorf("%v: %+v", from, one)
				}
			}
			if len(all) != 20 {
				t.Errorf("%d flows", len(all))
			}
		})
	}
}

// Each reading has what was sent so far. A port that is removed is not read any more; its number is free then.
func TestRemove(t *testing.T) {
	p := testnet.NewPath(t, testnet.PathOptions{PortBps: 100e6, Limit: 60_000, NoIPv6: true})
	f := attached(t, flows.Port{PortRef: p.Port, N: 7})
	if err := f.Add(flows.Port{PortRef: p.In, N: 7}); err == nil {
		t.Error("two ports have the same number")
	}
	l := p.Listen(t, testnet.ReceiverIPv4)
	c := p.Dial(t, l)
	all := map[netip.AddrPort]*seen{}
	testnet.Send(t, c.Client, c.Server, 3000)
	from := testnet.AddrPort(c.Client.LocalAddr())
	if read(t, f, all); len(all) != 1 || all[from].sent != 3000 {
		t.Errorf("%v", all)
	}
	testnet.Send(t, c.Client, c.Server, 2000)
	if read(t, f, all); all[from].sent != 5000 || all[from].readings != 2 || all[from].began != 1 {
		t.Errorf("a second reading: %+v", all[from])
	}
	if err := f.Remove(7); err != nil {
		t.Fatal(err)
	}
	if err := f.Remove(7); err == nil {
		t.Error("removed twice")
	}
	testnet.Send(t, c.Client, c.Server, 3000)
	clear(all)
	if read(t, f, all); len(all) != 0 || testnet.AttachedTo(t, p.Port) != 0 {
		t.Errorf("%v", all)
	}
	if err := f.Add(flows.Port{PortRef: p.Port, N: 7}); err != nil {
		t.Fatal(err)
	}
	testnet.Send(t, c.Client, c.Server, 3000)
	if read(t, f, all); len(all) != 1 || all[testnet.AddrPort(c.Client.LocalAddr())].sent != 3000 {
		t.Errorf("%v", all)
	}
}
