package sim

import (
	"testing"

	"weir/experiment/result"
	"weir/sim/network"
)

// The segments that arrive distinguish timeouts: none of four segments arrives, or the second one does. A lost SYN is
// neither.
func TestTimeouts_HaveTheirCauses(t *testing.T) {
	for _, c := range []struct {
		name  string
		lost  func(data int, syn bool) bool // of the packets that the sender sends, by their order
		want  result.Causes
		early int64 // segments that arrive before their predecessors
	}{
		{"nothing lost", func(int, bool) bool { return false }, result.Causes{Known: true}, 0},
		{"the whole window", func(data int, _ bool) bool { return data >= 1 && data <= 4 }, result.Causes{Known: true, FLoss: 1}, 0},
		{"all but the second", func(data int, _ bool) bool { return data == 1 || data == 3 || data == 4 }, result.Causes{Known: true, LAck: 1}, 1},
		{"the SYN", func(_ int, syn bool) bool { return syn }, result.Causes{Known: true}, 0},
	} {
		for _, connection := range []string{"new", "persistent"} {
			r := planned(t, baseWith("{name: f, from: sender1, to: receiver1, pattern: burst, size: 5840B, start: 200ms, connection: "+connection+"}"), "guests.cc=newreno")[0]
			s, err := build(r)
			if err != nil {
				t.Fatal(err)
			}
			data, syns := 0, 0
			s.net.Loss(func(p *network.Port, pk *network.Packet) bool {
				if p.Node != pk.Src() || pk.Flags()&network.RST != 0 || s.net.Name(pk.Src()) != "sender1" {
					return false
				}
				if pk.Payload() > 0 {
					data++
				}
				if pk.Flags()&network.SYN != 0 {
					syns++
				}
				return c.lost(data*min(int(pk.Payload()), 1), pk.Flags()&network.SYN != 0 && syns == 1)
			})
			s.begin()
			s.run(t.Context(), quiet{})
			f := s.raw(false).Flows[0]
			want := int(c.want.FLoss + c.want.LAck)
			if c.name == "the SYN" { // it is retransmitted after 1 s
				want = 1
			}
			if !f.Done || f.Causes != c.want || f.Timeouts != want || f.OutOfOrder != (result.OutOfOrder{Known: true, Segments: c.early}) {
				t.Errorf("%s lost, %s connection: %+v with %d timeouts and %+v, want %+v with %d and %d", c.name, connection, f.Causes, f.Timeouts, f.OutOfOrder, c.want, want, c.early)
			}
		}
	}
}

// A full frame has room for 1448 bytes if the guests' TCP has timestamps, otherwise for 1460, and for 1472 of UDP.
func TestPayloadShare(t *testing.T) {
	for _, c := range []struct {
		cc, traffic string
		bytes       float64
	}{
		{"cubic", `{name: f, from: "sender*", to: receiver1, pattern: bulk}`, 1448},
		{"newreno", `{name: f, from: "sender*", to: receiver1, pattern: bulk}`, 1460},
		{"cubic", `{name: f, from: sender1, to: receiver1, proto: udp, pattern: bulk}`, 1472},
	} {
		raw := carriedOut(t, baseWith(c.traffic), "guests.cc="+c.cc, "duration=5s")
		if raw.PayloadShare != c.bytes/1538 {
			t.Errorf("%s: a share of %v", c.cc, raw.PayloadShare)
		}
		// A full link carries that share.
		last := int64(0)
		for _, f := range raw.Flows {
			for _, d := range f.Delivered {
				if d.Bin >= 100 {
					last += int64(d.Bytes)
				}
			}
		}
		share := float64(last) * 8 / 4 / 100e6
		within(t, c.cc+": share of the link", share, 0.997*raw.PayloadShare, 1.002*raw.PayloadShare)
	}
}
