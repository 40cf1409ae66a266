package result

import (
	"testing"
	"time"
)

// The causes of a group's timeouts are known if they are known for every flow; otherwise they are absent, not 0.
// The lab does not know them.
func TestGroup_CausesOfTimeouts(t *testing.T) {
	flow := func(group string, port int, timeouts int, c Causes) Flow {
		return Flow{Group: group, Key: tcpKey(1, port), End: ms, Done: true, Timeouts: timeouts, Causes: c}
	}
	raw := &Raw{Duration: time.Second, Ports: watched, Flows: []Flow{
		flow("sim", 1, 4, Causes{true, 1, 2}), flow("sim", 2, 0, Causes{Known: true}), flow("sim", 3, 3, Causes{true, 3, 0}),
		{Group: "sim", Key: udpKey(1, 4), End: ms, Done: true},
		flow("half", 5, 1, Causes{true, 1, 0}), flow("half", 6, 1, Causes{}),
		flow("lab", 7, 2, Causes{}),
		{Group: "udp", Key: udpKey(1, 8), End: ms, Done: true, Causes: Causes{Known: true}},
	}}
	r := Build(Info{World: "sim", Scheme: "x"}, raw)
	point(t, r, map[string]any{
		"sim.timeouts": 7, "sim.timeouts_floss": 4, "sim.timeouts_lack": 2, // and one in a handshake
		"half.timeouts": 2, "half.timeouts_floss": nil, "half.timeouts_lack": nil,
		"lab.timeouts": 2, "lab.timeouts_floss": nil, "lab.timeouts_lack": nil,
		"udp.timeouts_floss": nil, "udp.timeouts_lack": nil,
	})
	if d := r.Detail.Flows[0]; d.FLoss == nil || *d.FLoss != 1 || *d.LAck != 2 {
		t.Errorf("of the first flow: %v, %v", d.FLoss, d.LAck)
	}
	if d := r.Detail.Flows[6]; d.FLoss != nil || d.LAck != nil {
		t.Errorf("of the lab's flow: %v, %v", d.FLoss, d.LAck)
	}
}

// Segments out of order are known if they are known for every TCP flow. Those of a persistent connection add up.
func TestGroup_OutOfOrder(t *testing.T) {
	flow := func(group string, port int, o OutOfOrder) Flow {
		return Flow{Group: group, Key: tcpKey(1, port), End: ms, Done: true, OutOfOrder: o}
	}
	raw := &Raw{Duration: time.Second, Ports: watched, Flows: []Flow{
		flow("known", 1, OutOfOrder{true, 3}), flow("known", 2, OutOfOrder{true, 4}), {Group: "known", Key: udpKey(1, 3), End: ms, Done: true},
		flow("none", 4, OutOfOrder{Known: true}),
		flow("half", 5, OutOfOrder{true, 1}), flow("half", 6, OutOfOrder{}),
		{Group: "udp", Key: udpKey(1, 7), End: ms, Done: true, OutOfOrder: OutOfOrder{Known: true}},
	}}
	point(t, Build(Info{World: "sim", Scheme: "x"}, raw), map[string]any{
		"known.out_of_order": 7, "none.out_of_order": 0, "half.out_of_order": nil, "udp.out_of_order": nil,
	})
}

// The run's own share of payload overrides the world's; the one asked for overrides both.
func TestBuild_PayloadShare(t *testing.T) {
	for _, c := range []struct {
		world     string
		info, raw float64
		want      float64
	}{
		{"lab", 0, 0, 1448.0 / 1514},
		{"sim", 0, 0, 1448.0 / 1538},
		{"sim", 0, 1460.0 / 1538, 1460.0 / 1538},
		{"lab", 0.5, 0.6, 0.5},
	} {
		r := Build(Info{World: c.world, Scheme: "x", PayloadShare: c.info}, &Raw{Duration: time.Second, PayloadShare: c.raw})
		if r.PayloadShare != c.want {
			t.Errorf("%+v: %v", c, r.PayloadShare)
		}
	}
}
