package main

import (
	"maps"
	"strings"
)

// keysOfLaws has, for each parameter of each law of this build, the evidence of its effect.
var keysOfLaws = map[string][]keyCase{
	"params of deeptail.more":      {{set: "schemes.droptail.params.more=500KB", with: "schemes.droptail.laws=[deeptail]"}},
	"params of sed.threshold":      {{set: "schemes.droptail.params.threshold=9KB", with: keysSED + "  schemes.droptail.params.recover=2KB"}},
	"params of sed.recover":        {{see: inTest, says: "../../law/sed/law_test.go TestPort_Hysteresis"}},
	"params of sed.base_window":    {{see: inTest, says: "../../law/sed/law_test.go TestSE5_BaseWindowsExceedTheTotal"}},
	"params of sed.period":         {{see: inTest, says: "../../law/sed/law_test.go TestSE8_Periodically"}},
	"params of sed.pause":          {{see: inTest, says: "../../sim/laws/host_flow_test.go TestHosts_PauseHoldsACKs"}},
	"params of sed.hold":           {{see: inTest, says: "../../sim/laws/host_flow_test.go TestHosts_PauseHoldsACKs"}},
	"params of sed.overhead":       {{see: inTest, says: "../../law/sed/law_test.go TestSE9_Units"}},
	"params of sed.round_trip":     {{see: inTest, says: "../../law/sed/model_test.go TestSE14_RoundTripThroughTheQueue"}},
	"params of sed.shortage":       {{see: inTest, says: "../../law/sed/model_test.go TestAllocate_NoneOfTheRestIsMissed"}},
	"params of sed.overload":       {{see: inTest, says: "../../law/sed/model_test.go TestAllocate_Overload"}},
	"params of sed.spare":          {{see: inTest, says: "../../law/sed/law_test.go TestSE3_Spare"}},
	"params of sed.first":          {{see: inTest, says: "../../law/sed/law_test.go TestFirst"}},
	"params of sed.initial_window": {{see: inTest, says: "../../law/sed/law_test.go TestFirst"}},
	"params of sed.lease":          {{see: inTest, says: "../../law/sed/law_test.go TestLease"}},
	"params of sed.rtt":            {{see: inTest, says: "../../law/sed/law_test.go TestSE9_Units"}},
	"params of sed.margin":         {{see: inTest, says: "../../law/sed/law_test.go TestMargin"}},
	"params of rsed.repair":        {{see: inTest, says: "../../sim/sed_test.go TestRSED_RepairsWithoutTimeouts"}},
	"params of rsed.park":          {{see: inTest, says: "../../sim/laws/lossrepair_test.go TestLossRepair_Limits"}},
	"params of lossrepair.park":    {{see: inTest, says: "../../datapath/repair/frames_test.go TestFrames"}},
	"params of red.threshold":      {{set: "schemes.droptail.params.threshold=9KB", with: "schemes.droptail.laws=[red]  schemes.droptail.params={threshold: 15KB}"}},
	"params of red.not_ect":        {{see: isRefused, says: "params.not_ect: red drops every packet above the threshold", set: "schemes.droptail.params.not_ect=pass", with: "schemes.droptail.laws=[red]  schemes.droptail.params={threshold: 15KB}"}},
	"params of ecn.threshold":      {{set: "schemes.droptail.params.threshold=9KB", with: keysMarking}},
	"params of ecn.not_ect":        {{set: "schemes.droptail.params.not_ect=drop", with: keysMarking}},

	"params of static.rate":  {{set: "schemes.droptail.params.rate=5Mbit", with: keysStatic}},
	"params of static.depth": {{set: "schemes.droptail.params.depth=5ms", with: keysStatic}},

	"params of acdc.threshold":  {{set: "schemes.droptail.params.threshold=9KB", with: keysACDC}},
	"params of acdc.gain":       {{set: "schemes.droptail.params.gain=0.5", with: keysACDC}},
	"params of acdc.min_window": {{set: "schemes.droptail.params.min_window=9KB", with: keysACDC}},
	"params of acdc.timeout":    {{set: "schemes.droptail.params.timeout=1ms", with: keysACDC}},
	"params of acdc.police":     {{see: inTest, says: "../../sim/laws/acdc_test.go TestACDC_Police"}}, // the simulator's guests keep to their windows

	"params of fairq.interval":           {{set: "schemes.droptail.params.interval=200us", with: keysFairQ}},
	"params of fairq.updates":            {{set: "schemes.droptail.params.updates=3", with: keysFairQ}},
	"params of fairq.target_fraction":    {{set: "schemes.droptail.params.target_fraction=0.5", with: keysFairQ}},
	"params of fairq.gain":               {{set: "schemes.droptail.params.gain=code", with: keysFairQ}},
	"params of fairq.aggregate":          {{set: "schemes.droptail.params.aggregate=false", with: keysFairQ}},
	"params of fairq.start":              {{set: "schemes.droptail.params.start=target", with: keysFairQ}},
	"params of fairq.count":              {{set: "schemes.droptail.params.count=handshake", with: keysFairQ}},
	"params of fairq.min_window":         {{set: "schemes.droptail.params.min_window=9KB", with: keysFairQ}},
	"params of fairq.max_window":         {{set: "schemes.droptail.params.max_window=3KB", with: keysFairQ}},
	"params of fairq.idle":               {{set: "schemes.droptail.params.idle=5ms", with: keysFairQ + "  schemes.droptail.params.count=handshake  traffic=[{name: mice, from: sender*, to: receiver1, pattern: burst, size: 60KB, every: 60ms, connection: persistent}]"}},
	"params of fairq.scale":              {{set: "schemes.droptail.params.scale=unify", with: keysFairQ}},
	"params of fairq.unify_shift":        {{set: "schemes.droptail.params.unify_shift=12", with: keysFairQ + "  schemes.droptail.params.scale=unify"}},
	"params of fairq.shrink":             {{set: "schemes.droptail.params.shrink=avoid", with: keysFairQ}},
	"params of fairq.edge":               {{set: "schemes.droptail.params.edge=true", with: keysFairQ}},
	"params of fairq.edge_interval":      {{set: "schemes.droptail.params.edge_interval=50ms", with: keysFairQ + "  schemes.droptail.params.edge=true"}},
	"params of fairq.paths":              {{set: "schemes.droptail.params.paths=2", with: keysFairQ, topology: keysLeafSpine}},
	"params of fairq.undivided":          {{set: "schemes.droptail.params.undivided=true", with: keysFairQ + "  schemes.droptail.params.paths=2", topology: keysLeafSpine}},
	"params of fairq.promises":           {{set: "schemes.droptail.params.promises=true", with: keysFairQ}},
	"params of fairq.credits":            {{see: inTest, says: "../../sim/fairq_credit_test.go TestFairQ_CreditsInAnIncast"}},      // it takes hundreds of flows
	"params of fairq.longest_wait":       {{see: inTest, says: "../../sim/fairq_credit_test.go TestFairQ_CreditsInAHeavyIncast"}},  // it takes hundreds of flows
	"params of fairq.hold_requests":      {{see: inTest, says: "../../sim/fairq_credit_test.go TestFairQ_CreditsWithLateServers"}}, // it takes hundreds of flows
	"params of fairq.repair_losses":      {{see: inTest, says: "../../sim/fairq_repair_test.go TestFairQ_CreditsRepairLosses"}},    // it takes hundreds of flows
	"params of sicc.interval":            {{set: "schemes.droptail.params.interval=50ms", with: keysSICC}},
	"params of sicc.on_fraction":         {{set: "schemes.droptail.params.on_fraction=4", with: keysSICC}},
	"params of sicc.model":               {{see: isRefused, says: "model: queue is a law of its own", set: "schemes.droptail.params.model=queue", with: keysSICC}},
	"params of sicc.off_rule":            {{see: inTest, says: "../../law/sicc/law_test.go TestSI3_OffRules"}},
	"params of sicc.mouse_duration":      {{see: inTest, says: "../../law/sicc/law_test.go TestSI3_OffRules"}},
	"params of sicc.min_hold":            {{see: inTest, says: "../../law/sicc/law_test.go TestIncast"}},
	"params of sicc.off_fraction":        {{see: inTest, says: "../../law/sicc/law_test.go TestSI7_QueueEnds"}},
	"params of sicc.queue_weight":        {{see: inTest, says: "../../law/sicc/law_test.go TestSI1_MeanFollowsTheQueue"}},
	"params of sicc.initial_window":      {{see: inTest, says: "../../law/sicc/law_test.go TestSI5_Bytes"}},
	"params of sicc.lease":               {{see: inTest, says: "../../law/sicc/law_test.go TestSI4_OncePerIncast"}},
	"params of sicc.arrivals":            {{see: inTest, says: "../../law/sicc/law_test.go TestArrivals_Active"}},
	"params of siccns2.interval":         {{set: "schemes.droptail.params.interval=50ms", with: keysNS2}},
	"params of siccns2.on_fraction":      {{set: "schemes.droptail.params.on_fraction=4", with: keysNS2}},
	"params of siccns2.off_fraction":     {{set: "schemes.droptail.params.off_fraction=0", with: keysNS2}},
	"params of siccns2.initial_window":   {{set: "schemes.droptail.params.initial_window=1000", with: keysNS2 + "  schemes.droptail.params.on_fraction=1"}},
	"params of siccns2.ack_threshold":    {{set: "schemes.droptail.params.ack_threshold=0.5", with: keysNS2}},
	"params of siccns2.divwin":           {{set: "schemes.droptail.params.divwin=true", with: keysNS2}},
	"params of siccns2.syn_ack":          {{see: inTest, says: "../../sim/laws/siccns2_test.go TestNS6_SYNACK"}},
	"params of siccns2.incast_only":      {{set: "schemes.droptail.params.incast_only=false", with: keysNS2}},
	"params of siccns2.persist":          {{see: inTest, says: "../../sim/laws/siccns2_test.go TestNS4_Persist"}},
	"params of fairq.fairswitch":         {{set: "schemes.droptail.params.fairswitch=true", with: keysFairQ}},
	"params of fairqctl.target_fraction": {{set: "schemes.droptail.params.target_fraction=0.5", with: keysFairQCtl}},
	"params of fairqctl.rate":            {{see: inTest, says: "../../law/fairqctl/law_test.go TestCapacity"}},
	"params of fairqctl.buffer":          {{see: inTest, says: "../../law/fairqctl/law_test.go TestCapacity"}},
	"params of fairqctl.rtt":             {{set: "schemes.droptail.params.rtt=5ms", with: keysFairQCtl}},
	"params of fairqctl.mss":             {{set: "schemes.droptail.params.mss=9KB", with: keysFairQCtl}},
	"params of fairqctl.update":          {{set: "schemes.droptail.params.update=100ms", with: keysFairQCtl}},
	"params of fairqctl.lease":           {{see: inTest, says: "../../law/fairqctl/law_test.go TestLease"}},
	"params of fairqctl.idle":            {{set: "schemes.droptail.params.idle=50ms", with: keysFairQCtl}},
	"params of gcc.interval":             {{set: "schemes.droptail.params.interval=20ms", with: keysGCC}},
	"params of gcc.variant":              {{set: "schemes.droptail.params.variant=code", with: keysGCC}},
	"params of gcc.divide":               {{see: inTest, says: "../../law/gcc/law_test.go TestDivide"}},
	"params of gcc.clear":                {{see: inTest, says: "../../sim/laws/gcc_test.go TestGCC_ClearsNotNegotiated"}},
	"params of gcc.gain":                 {{set: "schemes.droptail.params.gain=0.1", with: keysGCC}},
	"params of gcc.min_rate":             {{see: inTest, says: "../../law/gcc/host_test.go TestHost_WeightsAndGuarantees"}},
	"params of gcc.period":               {{see: inTest, says: "../../law/gcc/host_test.go TestHost_Paper"}},
	"params of gcc.timeout":              {{see: inTest, says: "../../law/gcc/host_test.go TestHost_Paper"}},
	"params of gcc.inactivity":           {{see: inTest, says: "../../law/gcc/law_test.go TestSources_Expire"}},
	"params of gcc.increase":             {{see: inTest, says: "../../law/gcc/host_test.go TestHost_Paper"}},
	"params of gcc.decrease":             {{see: inTest, says: "../../law/gcc/host_test.go TestHost_Code"}},
	"params of gcc.fast_after":           {{see: inTest, says: "../../law/gcc/host_test.go TestHost_Paper"}},
	"params of gcc.fast_increase":        {{see: inTest, says: "../../law/gcc/host_test.go TestHost_Paper"}},
	"params of gcc.excess":               {{set: "schemes.droptail.params.excess=drop", with: keysGCC}},
	"params of gcc.delay":                {{set: "schemes.droptail.params.delay=100ms", with: keysGCC + "  schemes.droptail.params.gain=0.2"}},
	"params of gcc.depth":                {{see: isRefused, says: "params.depth: hosts' limiters have a bucket of 10 ms", set: "schemes.droptail.params.depth=5ms", with: keysGCC}},
	"params of hygenicc.excess":          {{set: "schemes.droptail.params.excess=drop", with: keysHyGenICC}},
	"params of hygenicc.interval":        {{set: "schemes.droptail.params.interval=20ms", with: keysHyGenICC}},
	"params of hygenicc.feedback":        {{set: "schemes.droptail.params.feedback=evil_bit", with: keysHyGenICC}},
	"params of hygenicc.variant":         {{set: "schemes.droptail.params.variant=proportional", with: keysHyGenICC}},
	"params of hygenicc.gain":            {{set: "schemes.droptail.params.gain=0.5", with: keysHyGenICC + "  schemes.droptail.params.variant=proportional"}},
	"params of hygenicc.fast_after":      {{see: inTest, says: "../../law/hygenicc/host_test.go TestHost_Proportional"}},
	"params of hygenicc.fast_increase":   {{see: inTest, says: "../../law/hygenicc/host_test.go TestHost_Proportional"}},
	"params of hygenicc.decrease":        {{set: "schemes.droptail.params.decrease=1Mbit", with: keysHyGenICC}},
	"params of hygenicc.increase":        {{set: "schemes.droptail.params.increase=1kbit", with: keysHyGenICC}},
	"params of hygenicc.timeout":         {{set: "schemes.droptail.params.timeout=20ms", with: keysHyGenICC}},
	"params of hygenicc.period":          {{set: "schemes.droptail.params.period=5ms", with: keysHyGenICC}},
	"params of hygenicc.min_rate":        {{see: inTest, says: "../../law/hygenicc/host_test.go TestHost_Messages"}},
	"params of hygenicc.inactivity":      {{see: inTest, says: "../../law/hygenicc/host_test.go TestHost_Model"}},
	"params of hygenicc.depth":           {{see: isRefused, says: "params.depth: hosts' limiters have a bucket of 10 ms", set: "schemes.droptail.params.depth=5ms", with: keysHyGenICC}},
	"params of sicc.source_share":        {{see: inTest, says: "../../law/sicc/share_test.go TestShare_Windows"}},
}

const (
	keysStatic    = "schemes.droptail.laws=[static]  schemes.droptail.params={rate: 10Mbit}"
	keysSED       = "schemes.droptail.laws=[sed]"
	keysACDC      = "schemes.droptail.laws=[acdc]  schemes.droptail.params={threshold: 15KB}"
	keysSICC      = "schemes.droptail.laws=[sicc]  schemes.droptail.params={on_fraction: 0.01}"
	keysGCC       = "schemes.droptail.laws=[gcc, ecn]  schemes.droptail.params={threshold: 15KB}"
	keysGuarantee = keysGCC + "  topology.hypervisors=true  topology.vms=2  guarantees=[{vms: sender1.vm1, rate: 10Mbit, weight: 3}]"
	keysHyGenICC  = "schemes.droptail.laws=[hygenicc, ecn]  schemes.droptail.params={threshold: 15KB}"
	keysNS2       = "schemes.droptail.laws=[siccns2]  schemes.droptail.params={on_fraction: 0.1, off_fraction: 0.05}"
	keysFairQ     = "schemes.droptail.laws=[fairq]"
	keysFairQCtl  = "schemes.droptail.laws=[fairqctl]"
)

// casesOfLaws are keysOfLaws, with those of sed for rsed, too: it has all of sed's parameters.
func casesOfLaws() map[string][]keyCase {
	all := maps.Clone(keysOfLaws)
	for key, list := range keysOfLaws {
		if of, is := strings.CutPrefix(key, "params of sed."); is {
			for _, c := range list {
				c.with = strings.Replace(c.with, "laws=[sed]", "laws=[rsed]", 1)
				all["params of rsed."+of] = append(all["params of rsed."+of], c)
			}
		}
	}
	return all
}
