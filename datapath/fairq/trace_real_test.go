//go:build cgo

package fairq_test

import (
	"context"
	"flag"
	"strings"
	"testing"
	"time"

	"weir/datapath/fairq"
	"weir/datapath/fairq/lawtrace"
	"weir/datapath/testnet"
)

// tracedLaw is a law in operation: target and pace of the lab's incast.
func tracedLaw() fairq.Law {
	return fairq.Law{
		TargetBytes: 62_500, BufferBytes: 125_000, Tick: 500 * time.Microsecond, Period: 5 * time.Millisecond, CapBytes: 80_000,
		Active: 100 * time.Millisecond,
	}
}

// traced runs the law on an incast, long flows and flows that come and go, until it was called for so many
// acknowledgements at least. Then flows are released. It returns the trace, which has no fewer calls than the
// program's own counters.
func traced(t *testing.T, law fairq.Law, c fairq.Config, acks uint64) *lawtrace.Trace {
	t.Helper()
	return tracedThrough(t, law, c, acks, nil)
}

// tracedThrough does so with a configuration for each round of flows, in turn; nil: no change.
func tracedThrough(t *testing.T, law fairq.Law, c fairq.Config, acks uint64, rounds []func(f *fairq.Attachment, port string) error) *lawtrace.Trace {
	t.Helper()
	const bps, limit = 100e6, 125_000
	p := testnet.NewPath(t, testnet.PathOptions{PortBps: bps, Limit: limit, GSO: true, ChecksumOffload: true})
	testnet.Shape(t, p.In, bps, limit, 3028)
	recorder, err := lawtrace.New()
	if err != nil {
		t.Fatalf("%+v", err)
	}
	c.Trace, c.Lease = recorder, time.Hour
	f, err := fairq.Attach([]fairq.Port{{PortRef: p.Port, Law: law}, {PortRef: p.In, Law: law}}, c)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	streams, l := p.NewStreams(t, testnet.ReceiverIPv4, 4), p.Listen(t, testnet.ReceiverIPv4)
	for round, counted := 0, uint64(0); counted < acks || round < 2*len(rounds); round++ {
		if len(rounds) > 0 {
			for _, port := range []string{p.Port.Name, p.In.Name} {
				if err := rounds[round%len(rounds)](f, port); err != nil {
					t.Fatal(err)
				}
			}
		}
		for range 4 { // one flow more, and one less
			short := p.Dial(t, l)
			testnet.Send(t, short.Client, short.Server, 11_500)
			short.Close()
		}
		streams.Progress(t, 50_000)
		if counted, _, err = asked(f); err != nil {
			t.Fatal(err)
		}
	}
	release, cancel := context.WithTimeout(context.Background(), testnet.Patience)
	defer cancel()
	if err := f.Release(release); err != nil {
		t.Fatal(err)
	}
	streams.Stop()
	counted, samples, err := asked(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	trace, err := recorder.Stop()
	if err != nil {
		t.Fatal(err)
	}
	r, err := trace.Replay()
	if err != nil {
		t.Fatal(err)
	}
	turns := callsOf(r, "fairq_flows")
	if r.Packets < counted || turns < samples {
		t.Errorf("the trace has %d acknowledgements and %d turns, the program counted %d and %d samples", r.Packets, turns, counted, samples)
	}
	return trace
}

// callsOf returns how often a function of the law was called.
func callsOf(r *lawtrace.Report, what string) (n uint64) {
	for _, c := range r.Calls {
		if c.What == what {
			n = c.N
		}
	}
	return n
}

// asked returns for how many acknowledgements the law was called at all ports, and how often their queues were
// sampled.
func asked(f *fairq.Attachment) (acks, samples uint64, err error) {
	ports, err := f.Stats()
	for i := range ports {
		acks += ports[i].Rewritten + ports[i].Smaller + ports[i].Free
		samples += ports[i].Samples + ports[i].SamplesByPacket
	}
	return acks, samples, err
}

// agreed replays a trace and fails unless kernel and native core agree.
func agreed(t *testing.T, trace *lawtrace.Trace) *lawtrace.Report {
	t.Helper()
	r, err := trace.Replay()
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := r.Print(&out); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + out.String())
	if r.Differences != 0 || r.Acks == 0 {
		t.Errorf("%d differences in %d answers", r.Differences, r.Compared)
	}
	return r
}

// Under real TCP the native law agrees with the law in the kernel, to the bit, in each of its forms.
func TestDifferential(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		acks   uint64
		change func(*fairq.Law, *fairq.Config)
	}{
		{"as it is by default", 6000, func(*fairq.Law, *fairq.Config) {}},
		{"open handshakes", 4000, func(_ *fairq.Law, c *fairq.Config) { c.Count = fairq.CountOpening }},
		{"gain ovs, edges that do not shrink", 2000, func(l *fairq.Law, c *fairq.Config) {
			l.Gain, c.Shrink = fairq.GainOVS, fairq.ShrinkAvoid
		}},
		{"FairSwitch, a floor of its own", 2000, func(l *fairq.Law, _ *fairq.Config) {
			l.Variant, l.FloorBytes = fairq.FairSwitch, 3000
		}},
		{"register, slow start as printed, one scale", 2000, func(l *fairq.Law, c *fairq.Config) {
			l.SlowStart, c.Count, c.Scale, c.UnifyShift = fairq.SlowStartPerFlow, fairq.CountHandshake, fairq.ScaleUnify, 5
		}},
		{"edge mode", 4000, func(_ *fairq.Law, c *fairq.Config) { c.Edge.Interval = fairq.EdgeInterval }},
		{"limited in part", 2000, func(l *fairq.Law, _ *fairq.Config) {
			l.Mode, l.LimitedBuckets, l.PipeBytes = fairq.EnforcePart, fairq.Buckets/2, 5000
		}},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			law, config := tracedLaw(), fairq.Config{}
			c.change(&law, &config)
			r := agreed(t, traced(t, law, config, c.acks))
			if opens := callsOf(r, "fairq_opening_q8"); (opens > 0) != (config.Count == fairq.CountOpening) {
				t.Errorf("the window of %d SYN-ACKs was asked for", opens)
			}
			long := config.Shrink == fairq.ShrinkAvoid || config.Scale == fairq.ScaleUnify
			if fits := callsOf(r, "  of them: the program did not look at the floor"); (fits == 0) != long {
				t.Errorf("the floor of %d ACKs was not looked at", fits)
			}
		})
	}
}

// through returns the modes of an operator's changes of a port: each begins with the release of flows that
// another limited.
func through(law fairq.Law) []func(f *fairq.Attachment, port string) error {
	configure := func(mode fairq.Mode, share uint32) func(f *fairq.Attachment, port string) error {
		return func(f *fairq.Attachment, port string) error {
			l := law
			l.Mode, l.LimitedBuckets, l.PipeBytes = mode, share, 250_000 // more than the law grants: it is eased to
			return f.Configure(port, l)
		}
	}
	return []func(f *fairq.Attachment, port string) error{
		configure(fairq.EnforceAll, 0), configure(fairq.EnforcePart, fairq.Buckets/2), configure(fairq.EnforcePart, fairq.Buckets/4),
		configure(fairq.EnforceNone, 0), configure(fairq.EnforceAll, 0), (*fairq.Attachment).ReleasePort,
	}
}

var releaseAnswers = flag.Uint64("release-answers", 200, "TestDifferential_Release: least number of answers about released and limited flows")

// The native core decides the grant of each port, and the flows that it limits, as the kernel does. Traffic
// continues while flows are limited in part, not at all, all again, and are released.
func TestDifferential_Release(t *testing.T) {
	t.Parallel()
	var all lawtrace.Report
	for released := uint64(0); released < *releaseAnswers; {
		trace := tracedThrough(t, tracedLaw(), fairq.Config{}, 2000+min(*releaseAnswers, 40_000), through(tracedLaw()))
		r := agreed(t, trace)
		for _, what := range []string{"turns that released windows, of all flows", "port_limited: turns of a port of whose flows a part is limited, or was",
			"ACKs of flows that were being released", "  of them: of an unlimited flow, nothing written"} {
			n := callsOf(r, what)
			if released += n; n == 0 {
				t.Errorf("there are no %s", what)
			}
		}
		all.Add(r)
		if t.Failed() {
			return
		}
	}
	var out strings.Builder
	if err := all.Print(&out); err != nil {
		t.Fatal(err)
	}
	t.Log("all together\n" + out.String())
}
