package report

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"time"

	"weir/cmd/weir/laws"
	"weir/experiment/result"
)

// kind describes the behaviour of a synthetic scheme.
type kind struct {
	scheme       string
	low, high    float64 // bytes between which the sawtooth of the queue moves
	tooth        time.Duration
	lossy        bool
	marks        bool
	params       map[string]any
	goodputNoise float64
}

var kinds = []kind{
	{scheme: "droptail", low: 55e3, high: 125e3, tooth: 400 * time.Millisecond, lossy: true, goodputNoise: 0.35},
	{
		scheme: "ecn", low: 8e3, high: 42e3, tooth: 60 * time.Millisecond, marks: true, goodputNoise: 0.12,
		params: map[string]any{"ecn": map[string]any{"threshold": "25KB", "not_ect": "pass"}},
	},
}

const (
	senders    = 16
	synthRate  = 200e6
	synthSpan  = 20 * time.Second
	synthBurst = 170
)

// synthetic returns a run of the incast experiment that looks like a real one: a sawtooth queue, mice that wait
// for it and, when lossy, for retransmission timers.
func synthetic(k kind, cc string, seed int64) *result.Run {
	rng := rand.New(rand.NewPCG(uint64(seed), uint64(len(cc)+len(k.scheme))))
	raw := &result.Raw{RTT: 214 * time.Microsecond, Duration: synthSpan, Bin: 10 * time.Millisecond}
	port := result.Port{Name: "switch->receiver1", Labels: []string{"bottleneck"}, RateBps: synthRate, Buffer: 125000}
	queue := saw(k, rng, &port)
	raw.Ports = []result.Port{port}
	elephants(raw, k, rng)
	mice(raw, k, rng, queue)
	axes := map[string]string{}
	if cc != "" {
		axes["guest_cc"] = cc
	}
	return result.Build(result.Info{
		World: "lab", Seed: seed, Scale: 1, Scheme: k.scheme, Laws: []string{k.scheme}, GuestCC: cc, Params: k.params,
		Axes: axes, Series: 10 * time.Millisecond, Windows: map[string][2]time.Duration{"loaded": {2 * time.Second, 19 * time.Second}},
	}, raw)
}

// saw fills in the samples of the port, and returns the queue as a function of time.
func saw(k kind, rng *rand.Rand, port *result.Port) func(time.Duration) float64 {
	const step = 500 * time.Microsecond
	var levels []float64
	level, length := k.low, k.tooth
	marks, sent := uint64(0), uint64(0)
	began := time.Duration(0)
	for t := time.Duration(0); t < synthSpan; t += step {
		if level >= k.high || t-began > length {
			level = k.low + rng.Float64()*0.2*(k.high-k.low)
			began, length = t, time.Duration((0.7+0.6*rng.Float64())*float64(k.tooth))
		}
		level += (k.high - k.low) * float64(step) / float64(length)
		seen := max(0, min(125e3, level+rng.NormFloat64()*3e3))
		if since := t % (100 * time.Millisecond); t > 2*time.Second && since < 3*time.Millisecond {
			seen = min(125e3, seen+60e3)
		}
		if k.marks && seen > 25e3 {
			marks += 2
		}
		sent += uint64(synthRate / 8 * step.Seconds() * 0.995)
		levels = append(levels, seen)
		port.Samples = append(port.Samples, result.Sample{
			At: t, Step: step, Count: 1, Backlog: int64(seen), Marks: marks, Sent: sent,
		})
	}
	return func(t time.Duration) float64 { return levels[min(int(t/step), len(levels)-1)] }
}

func key(src, port int) result.Key {
	return result.Key{
		Proto: 6,
		Src:   netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 1, byte(src)}), uint16(port)),
		Dst:   netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 1, 100}), 9000),
	}
}

func elephants(raw *result.Raw, k kind, rng *rand.Rand) {
	shares := make([]float64, senders)
	sum := 0.0
	for i := range shares {
		shares[i] = math.Exp(rng.NormFloat64() * k.goodputNoise)
		sum += shares[i]
	}
	for i, share := range shares {
		f := result.Flow{
			Group: "elephants", Item: "elephants", Src: fmt.Sprintf("sender%d", i+1), Dst: "receiver1", Mouse: i,
			Key: key(i+1, 40000+i), End: synthSpan, Done: true, Endless: true,
		}
		for bin := range int32(synthSpan / raw.Bin) {
			n := int32(share / sum * synthRate / 8 * 0.94 * raw.Bin.Seconds() * max(0, 1+0.3*rng.NormFloat64()))
			f.Delivered = append(f.Delivered, result.Delivery{Bin: bin, Bytes: n})
			f.Bytes += int64(n)
		}
		if k.lossy {
			f.Timeouts = rng.IntN(3)
			for range 60 + rng.IntN(40) {
				raw.Drops = append(raw.Drops, result.Drop{At: time.Duration(rng.Int64N(int64(synthSpan))), Port: "switch->receiver1", Key: f.Key, Bytes: 1514, Reason: "tail"})
			}
		}
		raw.Flows = append(raw.Flows, f)
	}
}

func mice(raw *result.Raw, k kind, rng *rand.Rand, queue func(time.Duration) float64) {
	for epoch := range synthBurst {
		for i := range senders {
			start := 2*time.Second + time.Duration(epoch)*100*time.Millisecond + time.Duration(rng.IntN(600))*time.Microsecond
			wait := time.Duration(2 * queue(start) * 8 / synthRate * 1e9)
			fct := 600*time.Microsecond + wait + time.Duration(rng.ExpFloat64()*float64(wait)/3)
			f := result.Flow{
				Group: "mice", Item: "mice", Src: fmt.Sprintf("sender%d", i+1), Dst: "receiver1", Mouse: i, Epoch: epoch,
				Key: key(i+1, 10000+epoch*senders+i), Start: start, Done: true, Bytes: 11500,
			}
			if k.lossy && rng.Float64() < 0.35 {
				f.Timeouts = 1
				fct += 200 * time.Millisecond
				if rng.Float64() < 0.06 {
					f.Timeouts, fct = 2, fct+400*time.Millisecond
				}
				for range 1 + rng.IntN(4) {
					raw.Drops = append(raw.Drops, result.Drop{At: start + fct/3, Port: "switch->receiver1", Key: f.Key, Bytes: 1514, Reason: "tail"})
				}
			}
			f.End = start + fct
			if f.End > synthSpan {
				f.Done, f.End, f.Bytes = false, synthSpan, 4344
			}
			f.Delivered = []result.Delivery{{Bin: int32(f.End / raw.Bin), Bytes: int32(f.Bytes)}}
			raw.Flows = append(raw.Flows, f)
		}
	}
}

// syntheticDocument is the incast experiment with two schemes, two values of an axis and three seeds.
func syntheticDocument() *result.Document {
	doc := &result.Document{Laws: laws.All().Specs(),
		Experiment: "incast", Weir: "v0.1.0", Host: result.Host{Kernel: "6.18.5", CPUs: 2},
		File: []byte(`{"id":"incast","paper":"own: FairQ's burst over long flows (002, section IV), on one bottleneck",` +
			`"notes":["mice: one burst is 16 x 11.5 KB"],"duration":"20s"}`),
		Skipped: []result.Skip{{Scheme: "fairq", World: "lab", Reason: "this build has no law fairq in the lab"}},
	}
	for _, cc := range []string{"cubic", "reno"} {
		for _, k := range kinds {
			for seed := int64(1); seed <= 3; seed++ {
				r := synthetic(k, cc, seed)
				r.Unmet = append(r.Unmet, result.OldUnmet("network.rtt: asked for 200us, measured 214us: the lab cannot set delay"))
				doc.Runs = append(doc.Runs, r)
			}
		}
		doc.Claims = append(doc.Claims, result.Claim{
			Claim: "droptail.mice.fct_ms.p99 / ecn.mice.fct_ms.p99 >= 10", World: "lab", For: map[string]string{"guest_cc": cc},
			Seeds: []int64{1, 2, 3}, Left: result.PerSeed{13.2, 14.1, 12.7}, Right: result.PerSeed{10, 10, 10}, Holds: new(true),
		}, result.Claim{
			Claim: "ecn.bottleneck.queue_bytes.mean <= 0.1 * droptail.bottleneck.queue_bytes.mean", World: "lab", For: map[string]string{"guest_cc": cc},
			Seeds: []int64{1, 2, 3}, Left: result.PerSeed{25100, 24800, 25300}, Right: result.PerSeed{9100, 9000, 9050}, Holds: new(false),
		})
	}
	doc.Claims = append(doc.Claims, result.Claim{
		Claim: "fairq.bottleneck.drops <= 0.05 * droptail.bottleneck.drops", World: "lab", For: map[string]string{},
		Undecided: true, Why: "fairq was not asked for",
	})
	return doc
}
