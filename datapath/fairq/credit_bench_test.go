package fairq_test

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"weir/datapath/fairq"
	"weir/datapath/internal/bpftest"
	"weir/datapath/internal/fairqtest"
	"weir/datapath/park"
	"weir/datapath/testnet"
)

// creditRow is a packet, and what it finds.
type creditRow struct {
	name  string
	in    []byte
	grant uint64                              // of port 1
	find  func(c *fairqtest.FairQConnection)  // nil: as lawBench.begin leaves it
	took  func(s, was *creditBenchState) bool // whether packets took this row's path, with credits
	parks func(s, was *creditBenchState) bool // the same while it waits; nil: it never waits
}

type creditBenchState struct{ charged, promises, parked uint64 }

// creditBench is a benchmark of the switch program with and without promises and credits.
type creditBench struct {
	*lawBench
	at *park.Park
}

func newCreditBench(b *testing.B) *creditBench {
	b.Helper()
	n := testnet.NewNamespace(b)
	at, err := park.Open(n.Enter, park.Options{Owner: "benchmark", LimitBytes: 1 << 20, LimitPackets: 1000})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := at.Close(); err != nil {
			b.Error(err)
		}
	})
	for id := range uint32(2) {
		if err := at.SetPort(id, 1, 1e9, park.Bursts{}); err != nil { // nothing ever leaves by it: a test run does not carry out redirects
			b.Fatal(err)
		}
	}
	return &creditBench{lawBench: newBenchWith(b, at.Maps()), at: at}
}

// benchKey is the flow table's key of the benchmark's connection.
func benchKey() fairqtest.FairQFlowKey {
	left, right := benchLeft.Addr().As4(), benchRight.Addr().As4()
	port := func(a netip.AddrPort) uint64 { return uint64(a.Port()>>8 | a.Port()<<8) }
	return fairqtest.FairQFlowKey{Word: [2]uint64{
		uint64(binary.LittleEndian.Uint32(left[:])) | uint64(binary.LittleEndian.Uint32(right[:]))<<32,
		port(benchLeft) | port(benchRight)<<16,
	}}
}

// puts sets what the row's packets find. on: promises and credits; flows: of each port; aheadNs: of its clock.
func (f *creditBench) puts(b *testing.B, r *creditRow, on bool, flows, aheadNs uint32) {
	b.Helper()
	f.begin(b, r.grant)
	key := benchKey()
	var at fairqtest.FairQNearPlace
	place, _ := fairq.PlaceOf(key.Word, f.Near.MaxEntries())
	puts := []error{f.Near.Lookup(place, &at)}
	c := at.C
	c.Acks[0].Sent, c.Acks[1].Sent = 2000, 2000
	c.End[0].First, c.End[1].First = 1999, 1000
	if r.find != nil {
		r.find(&c)
	}
	puts = append(puts, f.put(key, c), f.AgainKey.Set(key), f.AgainConnection.Set(c), f.AgainAheadNs.Set(aheadNs))
	queue := uint32(0)
	if aheadNs > 0 {
		queue = aheadNs - 13_000 // a segment's time before the clock
	}
	puts = append(puts, f.AgainQueueNs.Set(queue))
	for id := range uint32(2) {
		var config fairqtest.FairQPortConfig
		var port fairqtest.FairQPort
		var credit fairqtest.FairQPortCredit
		puts = append(puts, f.Configs.Lookup(id, &config), f.Ports.Lookup(id, &port))
		config.Law.TickNs, config.Law.PeriodNs = 4e9, 4e9 // no tick counts the flows meanwhile
		port.Law.Flows = flows
		if on {
			config.Credit, credit.Config.Mode = 3, 3
		}
		credit.Config.ByteNsQ20, credit.Config.CapacityBytes, credit.Config.TargetBytes = 8<<20, 25_000, 25_000
		credit.Config.FirstBytes, credit.Config.WaitNs, credit.Config.HoldBytes, credit.Config.LineBytes = 14_600, 100e6, 4<<20, 24
		puts = append(puts, f.Configs.Put(id, config), f.Ports.Put(id, port), f.Credits.Put(id, credit))
	}
	for _, err := range puts {
		if err != nil {
			b.Fatal(err)
		}
	}
}

func (f *creditBench) state(b *testing.B) *creditBenchState {
	b.Helper()
	var sum creditBenchState
	for id := range uint32(2) {
		var credit fairqtest.FairQPortCredit
		if err := f.Credits.Lookup(id, &credit); err != nil {
			b.Fatal(err)
		}
		sum.charged += credit.State.ChargedNs
		sum.promises += credit.State.Promises
		sum.parked += credit.State.Parked
	}
	return &sum
}

// creditRows are the packets of BenchmarkFairQCredits.
func creditRows() []creditRow {
	const ack, psh, syn = 0x10, 0x18, 0x02
	anyPath := func(_, _ *creditBenchState) bool { return true }
	charged := func(s, was *creditBenchState) bool { return s.charged > was.charged && s.parked == was.parked }
	promised := func(s, was *creditBenchState) bool { return s.promises > was.promises && s.parked == was.parked }
	parked := func(s, was *creditBenchState) bool { return s.parked > was.parked }
	data := benchFrame(benchRight, benchLeft, psh, benchTimestamps, 1000)
	answer := benchFrame(benchRight, benchLeft, ack, benchTimestamps, 0)
	request := benchFrame(benchLeft, benchRight, psh, benchTimestamps, 100)
	synAck := benchFrame(benchRight, benchLeft, syn|ack, []byte{2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 0, 0, 0, 0, 0, 1, 3, 3, 7}, 0)
	releases := func(c *fairqtest.FairQConnection) { c.Acks[1].Una = 2000 - 1460 }
	return []creditRow{
		{"other traffic", benchUDP(), 0, nil, anyPath, nil},
		{"data", data, 0, nil, anyPath, nil},
		{"data to an end that keeps its promise", data, 0, func(c *fairqtest.FairQConnection) { c.End[0].Promise = 14600 }, anyPath, nil},
		{"ACK of a known flow that is small enough", answer, 1 << 20, nil, anyPath, nil},
		{"ACK rewritten, releases nothing", answer, 4000, nil, anyPath, nil},
		{"ACK rewritten, releases a segment", answer, 4000, releases, charged, parked},
		{"request", request, 0, func(c *fairqtest.FairQConnection) { c.Turn = 2 | 4 }, promised, parked},
		{"SYN-ACK", synAck, 0, nil, promised, parked},
	}
}

// BenchmarkFairQCredits times paths of the switch program with promises and credits. Off: the program without them. Idle: there is
// room, and the port does not pace. Pacing: each ACK needs a credit, but nothing waits. Waiting: the packet is parked. A test run
// does not carry out the redirect, and its packet is padded only once: the part "padding and trimming" is in addition.
func BenchmarkFairQCredits(b *testing.B) {
	f := newCreditBench(b)
	b.Run("part: padding and trimming", func(b *testing.B) {
		f.report(b, f.PadAndTrim, f.Empty, creditRows()[4].in)
	})
	for _, r := range creditRows() {
		for _, m := range []struct {
			name    string
			program *ebpf.Program
			on      bool
			flows   uint32
			aheadNs uint32
		}{
			{"off", f.AgainOff, false, 1, 0},
			{"idle", f.AgainCredit, true, 1, 0},
			{"pacing", f.AgainCredit, true, 1000, 0},
			{"waiting", f.AgainCredit, true, 1000, 30_000_000},
		} {
			if m.aheadNs > 0 && r.parks == nil {
				continue
			}
			b.Run(r.name+"/"+m.name, func(b *testing.B) {
				f.puts(b, &r, m.on, m.flows, m.aheadNs)
				was := f.state(b)
				f.report(b, m.program, f.AgainOnly, r.in)
				now := f.state(b)
				switch {
				case m.aheadNs > 0 && !r.parks(now, was), m.flows > 1 && m.aheadNs == 0 && !r.took(now, was), !m.on && *now != *was:
					b.Fatalf("the packets did not take this path: %+v, then %+v", was, now)
				}
			})
		}
	}
}

// report reports the time of a program in addition to another one.
func (f *lawBench) report(b *testing.B, program, above *ebpf.Program, in []byte) {
	b.Helper()
	unit := bpftest.Bench{Empty: f.Empty, Lookup: f.HashLookup}
	unit.Report(b, ebpf.RunOptions{Data: in}, program, above, 1)
}
