package lab

import (
	"net"
	"net/netip"
	"slices"
	"testing"

	"weir/datapath/testnet"
	"weir/law/fairq"
)

// Flows are hashed over two spines. Routers hash data and acknowledgements separately, Open vSwitches together.
// The leaf next to the senders limits every flow to the window of the uplink that its data leaves by, whichever
// uplink its acknowledgements arrive at.
func TestFairQOnEqualPaths(t *testing.T) {
	t.Parallel()
	const flows = 24
	t.Run("bridge", func(t *testing.T) {
		g := leafSpine(2, 1, false)
		if n := fairQOnEqualPaths(t, up(t, "equalpaths", g.config()), g, flows); n == 0 || n == flows {
			t.Errorf("the acknowledgements of %d of %d flows come by another uplink than their data left by: this test shows nothing", n, flows)
		}
	})
	t.Run("ovs", func(t *testing.T) {
		g := leafSpine(2, 1, false)
		if n := fairQOnEqualPaths(t, upControlled(t, "equalpaths", g), g, flows); n != 0 {
			t.Errorf("the acknowledgements of %d of %d flows come by another uplink than their data left by", n, flows)
		}
	})
}

// fairQOnEqualPaths returns how many flows' acknowledgements used another uplink than their data.
func fairQOnEqualPaths(t *testing.T, l *Lab, g *graphBuilder, flows int) (crossed int) {
	t.Helper()
	const window = 20_000
	taps := map[string]*testnet.Tap{}
	for _, name := range []string{"leaf1->spine1", "leaf1->spine2"} {
		taps[name] = testnet.NewTap(t, portOf(t, l, name))
	}
	r := shimRun(g, "learn")
	params := r.Params["fairq"].(fairq.Params)
	params.MaxWindow = window
	r.Params["fairq"], r.At = params, []string{"leaf1"}
	stop, err := l.Enforce(t.Context(), r, testWorks)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}()
	from, to := l.plan.guests()[0].name, l.plan.guests()[1].name
	guest := testnet.NewTap(t, portOf(t, l, from+"->leaf1"))
	for i := range flows {
		err := dial(l, from, to, 0, func(client, server *net.TCPConn) error {
			windows, err := sendLimited(t, guest, client, server, 200_000)
			if err != nil {
				return err
			}
			// Rounded up to the unit of the receiver's window scale.
			most := uint32(window + 1<<testnet.ReadTCPInfo(t, client).PeerScale)
			if w := slices.Max(windows); w > most {
				t.Errorf("flow %d has a window of %d, want %d at most", i, w, most)
			}
			data, acks := pathsOf(t, taps, testnet.AddrPort(client.LocalAddr()))
			if data != acks {
				crossed++
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return crossed
}

// pathsOf returns the ports where a client's data last left, and where its acknowledgements last arrived.
func pathsOf(t *testing.T, taps map[string]*testnet.Tap, client netip.AddrPort) (data, acks string) {
	t.Helper()
	for name, tap := range taps {
		tap.Each(t, func(s *testnet.Segment) {
			if s.Out && s.From == client && s.Payload > 0 {
				data = name
			}
			if !s.Out && s.To == client {
				acks = name
			}
		})
	}
	return data, acks
}
