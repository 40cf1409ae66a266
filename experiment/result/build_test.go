package result

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"weir/law"
)

const ms = time.Millisecond

func tcpKey(host, port int) Key {
	return Key{6, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 1, byte(host)}), uint16(port)), netip.MustParseAddrPort("10.0.1.100:80")}
}

func udpKey(host, port int) Key {
	k := tcpKey(host, port)
	k.Proto = udp
	return k
}

func split(path string) []string { return strings.Split(path, ".") }

// cmpEmpty treats no list and an empty one as equal.
var cmpEmpty = cmpopts.EquateEmpty()

func TestAttribute(t *testing.T) {
	a, b := tcpKey(1, 1), tcpKey(1, 2)
	flows := []Flow{
		{Key: a, Start: 50 * ms}, {Key: a, Start: 10 * ms}, // the key is reused, and flows are in any order
		{Key: b, Start: 0}, {Key: b.Reverse(), Start: 20 * ms}, // the other end connects
		{Key: udpKey(1, 1), Start: 0},
	}
	tests := []struct {
		name string
		drop Drop
		want int
	}{
		{"before any flow with the key", Drop{At: 9 * ms, Key: a}, -1},
		{"the instant it starts", Drop{At: 10 * ms, Key: a}, 1},
		{"long after, before the next", Drop{At: 49 * ms, Key: a}, 1},
		{"the next with the key", Drop{At: time.Second, Key: a}, 0},
		{"an ACK", Drop{At: 49 * ms, Key: a.Reverse()}, 1},
		{"either direction, the latest", Drop{At: 30 * ms, Key: b}, 3},
		{"either direction, the earlier", Drop{At: 10 * ms, Key: b.Reverse()}, 2},
		{"UDP has its own keys", Drop{At: 60 * ms, Key: udpKey(1, 1)}, 4},
		{"nobody's", Drop{At: 60 * ms, Key: tcpKey(7, 7)}, -1},
		{"neither TCP nor UDP", Drop{At: 60 * ms}, -1},
	}
	for _, tt := range tests {
		if got := attribute(flows, []Drop{tt.drop})[0]; got != tt.want {
			t.Errorf("%s: flow %d, want %d", tt.name, got, tt.want)
		}
	}
}

func TestAttribute_AgainstScan(t *testing.T) {
	key := rapid.Custom(func(t *rapid.T) Key {
		k := tcpKey(rapid.IntRange(1, 3).Draw(t, "host"), 80)
		if rapid.Bool().Draw(t, "reverse") {
			k = k.Reverse()
		}
		return k
	})
	rapid.Check(t, func(t *rapid.T) {
		var flows []Flow
		for i := range rapid.IntRange(0, 12).Draw(t, "flows") { // starts differ, so that the latest is one flow
			flows = append(flows, Flow{Key: key.Draw(t, "key"), Start: time.Duration(rapid.IntRange(0, 9).Draw(t, "start")*100 + i)})
		}
		var drops []Drop
		for range rapid.IntRange(0, 12).Draw(t, "drops") {
			drops = append(drops, Drop{Key: key.Draw(t, "key"), At: time.Duration(rapid.IntRange(0, 1000).Draw(t, "at"))})
		}
		for i, got := range attribute(flows, drops) {
			want := -1
			for j := range flows {
				same := flows[j].Key == drops[i].Key || flows[j].Key == drops[i].Key.Reverse()
				if same && flows[j].Start <= drops[i].At && (want < 0 || flows[j].Start > flows[want].Start) {
					want = j
				}
			}
			if got != want {
				t.Fatalf("drop %d: flow %d, want %d", i, got, want)
			}
		}
	})
}

// The payload in windows and in steps is the sum over every instant.
func TestBytes_AgainstEveryInstant(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(low, high int, what string) time.Duration {
			return time.Duration(rapid.IntRange(low, high).Draw(t, what))
		}
		b := &builder{Info: Info{Scale: 1, Series: draw(1, 9, "step")}, raw: &Raw{Bin: draw(1, 7, "bin")}}
		b.flows = map[string][]int{}
		for i := range rapid.IntRange(1, 4).Draw(t, "flows") {
			f := Flow{Start: draw(0, 30, "start")}
			f.End = f.Start + draw(1, 30, "length")
			for bin := int32(f.Start / b.raw.Bin); time.Duration(bin)*b.raw.Bin < f.End; bin++ {
				if n := rapid.Int32Range(0, 50).Draw(t, "bytes"); n > 0 {
					f.Delivered = append(f.Delivered, Delivery{bin, n})
					f.Bytes += int64(n)
				}
			}
			b.raw.Flows = append(b.raw.Flows, f)
			b.flows["g"] = append(b.flows["g"], i)
		}
		perInstant := make([]float64, 100)
		for _, f := range b.raw.Flows {
			for _, d := range f.Delivered {
				var active []time.Duration
				for i := time.Duration(d.Bin) * b.raw.Bin; i < time.Duration(d.Bin+1)*b.raw.Bin; i++ {
					if i >= f.Start && i < f.End {
						active = append(active, i)
					}
				}
				for _, i := range active {
					perInstant[i] += float64(d.Bytes) / float64(len(active))
				}
			}
		}
		sum := func(from, to time.Duration) (n float64) {
			for i := from; i < to; i++ {
				n += perInstant[i]
			}
			return n
		}
		s := span{from: draw(0, 40, "from")}
		s.to = s.from + draw(1, 40, "width")
		got := 0.0
		for i := range b.raw.Flows {
			got += b.bytesIn(&b.raw.Flows[i], s)
		}
		if want := sum(s.from, s.to); !cmp.Equal(got, want, near) {
			t.Fatalf("%v bytes in [%d, %d), want %v", got, s.from, s.to, want)
		}
		var want []float64
		for at := s.from; at+b.Series <= s.to; at += b.Series {
			want = append(want, b.mbps(sum(at, at+b.Series), b.Series))
		}
		if rates := b.rates("g", s); !cmp.Equal(rates, want, near, cmpEmpty) {
			t.Fatalf("rates %v, want %v", rates, want)
		}
	})
}

// A run with 130,000 flows, and as many drops and samples, takes about a second, not minutes.
func TestBuild_LargeRun(t *testing.T) {
	const n = 130_000
	raw := &Raw{Duration: n * ms, Bin: 10 * ms, Ports: []Port{{Name: "p", Labels: []string{"b"}, RateBps: 1e9}}}
	for i := range n {
		at := time.Duration(i) * ms
		k := tcpKey(i%200, 1+i%60000)
		raw.Flows = append(raw.Flows, Flow{Group: "g", Key: k, Mouse: i % 1000, Epoch: i / 1000, Start: at, End: at + ms, Done: true, Bytes: 10, Delivered: []Delivery{{int32(i / 10), 10}}})
		raw.Drops = append(raw.Drops, Drop{At: at, Port: "p", Key: k})
		raw.Ports[0].Samples = append(raw.Ports[0].Samples, Sample{At: at, Step: ms, Count: 1, Backlog: int64(i % 100), Sent: uint64(i)})
	}
	began := time.Now()
	r := Build(Info{World: "lab", Scheme: "x", Windows: map[string][2]time.Duration{"w": {0, n * ms / 2}}}, raw)
	t.Logf("%v", time.Since(began))
	point(t, r, map[string]any{"g.drops": n, "g.fct_ms.n": n, "w.g.drops": n / 2, "b.queue_bytes.n": n, "g.by_mouse.drops.min": 130})
}

func TestParams(t *testing.T) {
	type config struct {
		Interval law.Duration   `json:"interval"`
		Cap      *law.Rate      `json:"cap"`
		Deep     map[string]any `json:"deep"`
		Limit    law.Limit      `json:"threshold"`
		Share    float64        `json:"share"`
	}
	info := Info{
		World: "lab", Scheme: "x", Scale: 5, Laws: []string{"b", "a"}, Axes: map[string]string{"load": "0.5"},
		Params: map[string]any{
			"a": config{law.Duration(5 * ms), new(law.Rate(40e6)), map[string]any{"t": law.Duration(10 * ms)}, law.Limit{N: 25000}, 0.5},
			"b": map[string]any{"threshold": "9KB", "share": 0.5},
		},
	}
	got := Build(info, &Raw{}).Params
	want := map[string]any{
		"interval": "1ms", "cap": "200Mbit", "deep": map[string]any{"t": "2ms"}, "threshold": "9KB", "a.threshold": "25KB", "share": 0.5, "load": "0.5",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if c := info.Params["a"].(config); c.Interval != law.Duration(5*ms) || *c.Cap != 40e6 {
		t.Errorf("the caller's configuration was changed: %+v", c)
	}
}
