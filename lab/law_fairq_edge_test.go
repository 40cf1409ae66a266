package lab

import (
	"net"
	"slices"
	"strings"
	"testing"

	"weir/datapath/testnet"
	"weir/law/fairq"
)

// The edge is at the last port before each guest, also behind a hypervisor, and never between switches.
func TestEdgeStandsBeforeTheGuests(t *testing.T) {
	for hypervisors, want := range map[bool]string{
		false: "switch1->receiver1, switch1->sender1, switch2->receiver2, switch2->sender2",
		true:  "receiver1.hv->receiver1, receiver2.hv->receiver2, sender1.hv->sender1, sender2.hv->sender2",
	} {
		p, err := newPlan(chain(2, hypervisors).config())
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range (&Lab{plan: p}).edgePorts() {
			got = append(got, e.Name)
		}
		slices.Sort(got)
		if strings.Join(got, ", ") != want {
			t.Errorf("hypervisors %t: the edge is at %s, want %s", hypervisors, strings.Join(got, ", "), want)
		}
	}
}

// With edge: true over several switches a sender is limited to the smallest grant of the switches. Most
// acknowledgements cross the middle switch unchanged, and no guest sees a flag. After detaching, the state is as
// before.
func TestFairQInEdgeMode(t *testing.T) {
	t.Parallel()
	for _, hypervisors := range []bool{false, true} {
		g := chain(3, hypervisors)
		l := up(t, map[bool]string{false: "edge", true: "edgehv"}[hypervisors], g.config())
		r := shimRun(g, "learn")
		params := r.Params["fairq"].(fairq.Params)
		// With such a long interval a busy machine does not change which acknowledgements advertise.
		params.Edge, params.EdgeInterval, params.MaxWindow = true, 500e6, 20_000
		r.Params["fairq"] = params
		middle := testnet.NewTap(t, portOf(t, l, "switch2->switch3"))
		edges := [2]string{"sender1->switch1", "receiver3->switch3"}
		if hypervisors {
			edges = [2]string{"sender1->sender1.hv", "receiver3->receiver3.hv"}
		}
		guest := testnet.NewTap(t, portOf(t, l, edges[0]))
		var ownTaps [2]*testnet.Tap
		for i, edge := range edges {
			ownTaps[i] = testnet.NewTap(t, portOf(t, l, edge))
		}
		stop, err := l.Enforce(t.Context(), r, testWorks)
		if err != nil {
			t.Fatal(err)
		}
		err = dial(l, "sender1", "receiver3", 0, func(client, server *net.TCPConn) error {
			for i, ends := range [][2]*net.TCPConn{{client, server}, {server, client}} {
				windows, err := sendLimited(t, ownTaps[i], ends[0], ends[1], 500_000)
				if err != nil {
					return err
				}
				// Rounded up to the unit of the receiver's window scale.
				most := uint32(20_000 + 1<<testnet.ReadTCPInfo(t, ends[0]).PeerScale)
				if w := slices.Max(windows); w > most {
					t.Errorf("hypervisors %t: a window of %d, want %d at most", hypervisors, w, most)
				}
			}
			flagged, plain := 0, 0
			middle.Each(t, func(s *testnet.Segment) {
				if s.Flags&testnet.ACK == 0 || s.Flags&testnet.SYN != 0 || s.From != testnet.AddrPort(client.LocalAddr()) {
					return
				}
				if s.Reserved != 0 {
					flagged++
				} else {
					plain++
				}
			})
			if flagged == 0 || plain <= flagged {
				t.Errorf("hypervisors %t: between the switches %d acknowledgements advertise a window and %d do not", hypervisors, flagged, plain)
			}
			came := 0
			guest.Each(t, func(s *testnet.Segment) {
				if s.Out {
					return
				}
				came++
				if s.Reserved != 0 {
					t.Errorf("hypervisors %t: a segment came to the guest with reserved bits %d", hypervisors, s.Reserved)
				}
			})
			if came < 2*500_000/20_000 { // at least one for each window, or its acknowledgement
				t.Errorf("hypervisors %t: only %d segments came to the guest", hypervisors, came)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		err = dial(l, "sender1", "receiver3", 0, func(client, server *net.TCPConn) error {
			err := both(client, server, 500_000)
			if w := testnet.ReadTCPInfo(t, client).Snd_wnd; w <= 20_000+1<<14 {
				t.Errorf("hypervisors %t: afterwards a window of %d", hypervisors, w)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}
