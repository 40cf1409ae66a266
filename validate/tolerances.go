package main

// tolerances are the compared figures of each experiment. They were written before the first comparison, from the
// accepted differences and from the project's limits against Linux (goodput 5 %, mean queue 20 %, drops and
// timeouts a factor of 1.5, median completion 30 %). They are not changed to make a figure pass: a figure outside
// is explained from traces. If the simulator is wrong it is fixed; otherwise the figure is in known.go with its
// cause and its own bound.
//
// Accepted differences in all experiments:
//
//   - A bare ACK takes 43 of our bytes on ns-3's line and 84 on ours: at 100 Mbit/s 3 us a hop, of a round trip of 1
//     or 2 ms.
//   - Events at the same nanosecond have another order. Drop-tail with equal rates and equal segments amplifies that:
//     the phase determines the flow that loses. Seeds differ in their starts only, by less than a round trip.
//   - ns-3 resets a retransmission timeout to its base at the first new acknowledgement; RFC 6298 does so with the
//     first new measurement of the round trip. Second and third timeouts of a flow are further apart in the simulator.
//   - ns-3 has no TCP small queues: data beyond the line's BDP waits in the sender's NIC, whose queue loses
//     nothing in both.
//   - After a lost SYN ns-3's timeout is 1 s, RFC 6298 (5.7) has 3 s for the timeouts after it.
//
// Accepted differences of reno and dctcp, which are Linux's in the simulator:
//
//   - The timeout is SRTT + max(4 RTTVAR, 200 ms) in Linux, max(SRTT + 4 RTTVAR, 200 ms) in ns-3: longer by a round
//     trip.
//   - RACK, TLP, F-RTO and undo exist only in Linux. A lost retransmission or a lost tail costs ns-3 a timeout and
//     Linux mostly none. They are compared in experiments with few losses.
//   - Linux acknowledges the first 16 segments of a connection each, ns-3 the first and then every second. Both
//     windows grow by what is acknowledged.
//   - ns-3's DCTCP counts bytes and alpha is a float; Linux counts segments in 1/1024.
var tolerances = map[string][]check{
	"long":   long,
	"incast": checksOfBursts(false),
	"marked": checksOfBursts(true),
	"mixed":  mixed,
}

var (
	marking   = []string{"reno_ecn", "dctcp"}
	lossy     = []string{"newreno", "sack", "reno"}
	onlyDCTCP = []string{"dctcp"}
	noDCTCP   = []string{"newreno", "sack"}
	// halfOrLess are the schemes in which at most half of the mice wait for a timeout.
	halfOrLess = []string{"sack", "dctcp"}
)

var long = []check{
	{metric: "loaded.flows.throughput_mbps", kind: median, factor: 1.03,
		why: "the link is full in both: a full segment takes the same time on it"},
	{metric: "loaded.bottleneck.queue_bytes.mean", kind: median, factor: 1.20,
		why: "the phase determines whether four flows lose together or in turn, which moves the mean between 3/4 of the buffer and nearly all of it"},
	{metric: "loaded.bottleneck.drops", kind: total, factor: 1.5, slack: 20, schemes: lossy,
		why: "one for each halving, and these depend on the same phase; 20 are 4 a run"},
	{metric: "loaded.bottleneck.drops", kind: total, factor: 1, slack: 0, schemes: marking,
		why: "K and the buffer are far apart: after the first second nothing is lost"},
	{metric: "loaded.bottleneck.marks", kind: total, factor: 1.5, schemes: marking,
		why: "marks depend on how far the windows overshoot K in the round trip before the mark arrives"},
	{metric: "flows.timeouts", kind: total, factor: 1.5, slack: 20,
		why: "few, most of them after the overshoot of slow start; 20 are one for each flow and seed"},
	{metric: "loaded.flows.jain", kind: median, factor: 1.05,
		why: "equal flows share equally over 18 s, with differences by phase"},
}

// bursts have no other traffic: those that overflow the buffer (incast), and those without loss (marked). The same
// figures are compared for both, each with its own tolerances.
var bursts = []struct {
	metric         string
	kind           kind
	incast, marked tolerance
}{
	{"mice.unfinished", total,
		tolerance{1, 0, "all finish long before the end"},
		tolerance{1, 0, "all finish long before the end"}},
	{"mice.goodput_mbps.p50", median,
		tolerance{1.3, 0, "size over completion time: as the median completion time"},
		tolerance{1.2, 0, "size over completion time: as the median completion time"}},
	{"bottleneck.queue_bytes.mean", median,
		tolerance{1.25, 0, "over the whole run, when the queue is mostly empty: retransmissions wait less than the burst, and the busy time is shorter, so a little more than 20 %"},
		tolerance{1.25, 0, "the first windows are the same; how fast they shrink depends on how many ACKs come before the first with ECE"}},
	{"bottleneck.drops", total,
		tolerance{1.5, 20, "the first overflow is the same in both, by arithmetic; those of the recoveries, which collide, are not"},
		tolerance{1, 20, "the buffer holds twice eight first windows; 20 are 4 a run of 400 flows"}},
	{"bottleneck.marks", total,
		tolerance{},
		tolerance{1.5, 0, "the first 60 of each burst follow from arithmetic; then as the queue"}},
	{"mice.timeouts", total,
		tolerance{1.5, 20, "as the drops, and depending on how soon the timeout is reset after a recovery"},
		tolerance{1, 20, "nothing is lost"}},
	{"mice.flows_with_timeout", total,
		tolerance{1.25, 20, "lower than timeouts: only the first of a flow counts"},
		tolerance{}},
	{"mice.fct_ms.p50", median,
		tolerance{1.3, 0, "a whole timeout of 200 ms or none: the same in both if most flows have one"},
		tolerance{1.2, 0, "without timeouts it depends on how eight flows share 43 ms of a full link"}},
	{"mice.fct_ms.p99", median,
		tolerance{2, 0, "flows with several timeouts: one more or less doubles it"},
		tolerance{1.2, 0, "the last of a burst, which ends when all its bytes have been sent"}},
	{"mice.fct_ms", shape,
		tolerance{1.3, 0.10, "one flow in ten may have one timeout more or less"},
		tolerance{1.2, 0.10, "the order of the flows differs, but not how many have finished at a given time"}},
}

// tolerance is the allowed difference of a figure (check), and the accepted cause; without a cause the figure is
// not compared.
type tolerance struct {
	factor, slack float64
	why           string
}

// checksOfBursts returns the checks of one column of bursts.
func checksOfBursts(marked bool) []check {
	var out []check
	for i := range bursts {
		b := &bursts[i]
		t := b.incast
		if marked {
			t = b.marked
		}
		if t.why != "" {
			out = append(out, check{metric: b.metric, kind: b.kind, factor: t.factor, slack: t.slack, why: t.why})
		}
	}
	return out
}

var mixed = []check{
	{metric: "loaded.elephants.throughput_mbps", kind: median, factor: 1.05,
		why: "the link is full except during timeouts of the long flows"},
	{metric: "loaded.bottleneck.queue_bytes.mean", kind: median, factor: 1.20,
		why: "phase, as with long flows alone"},
	{metric: "loaded.bottleneck.drops", kind: total, factor: 1.5, slack: 20, schemes: noDCTCP,
		why: "phase, as with long flows alone"},
	{metric: "loaded.bottleneck.drops", kind: total, factor: 1.5, slack: 100, schemes: onlyDCTCP,
		why: "a burst of 16 packets finds about 20 of 82 packets queued and fits, except the first after slow start; 100 are 20 a run"},
	{metric: "mice.unfinished", kind: total, factor: 1, slack: 5,
		why: "the last bursts are four seconds before the end, which a SYN-ACK lost twice exceeds"},
	{metric: "mice.timeouts", kind: total, factor: 1.5, slack: 50,
		why: "the phase of the sawtooth determines whether the eighth segment of a mouse is lost"},
	{metric: "mice.flows_with_timeout", kind: total, factor: 1.5, slack: 50,
		why: "as timeouts"},
	{metric: "elephants.timeouts", kind: total, factor: 1.5, slack: 20,
		why: "few; 20 are one for each flow and seed"},
	{metric: "mice.goodput_mbps.p50", kind: median, factor: 1.3, schemes: halfOrLess,
		why: "size over completion time: as the median completion time"},
	{metric: "mice.fct_ms.p50", kind: median, factor: 1.3, schemes: halfOrLess,
		why: "mostly the wait in the queue of the long flows"},
	{metric: "mice.fct_ms.p50", kind: median, schemes: []string{"newreno"},
		why: "only shown: about half of the mice wait for a timeout, so that ns-3's own seeds gave 21 and 216 ms"},
	{metric: "mice.fct_ms.p99", kind: median,
		why: "only shown: 200 ms or 1 s, depending on whether a SYN-ACK in a hundred is lost. With dctcp it is compared, below"},
	{metric: "mice.fct_ms.p99", kind: median, factor: 1.5, schemes: onlyDCTCP,
		why: "two round trips and the wait in a queue near K"},
	{metric: "mice.fct_ms", kind: shape, factor: 1.3, slack: 0.10,
		why: "one mouse in ten may have one timeout more or less"},
}
