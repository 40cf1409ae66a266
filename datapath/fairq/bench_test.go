package fairq_test

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"weir/datapath/fairq"
	"weir/datapath/internal/bpftest"
	"weir/datapath/internal/fairqtest"
)

// The benchmark's one connection: `left` is behind port 0, `right` behind port 1.
var (
	benchLeft  = netip.MustParseAddrPort("10.0.0.1:40000")
	benchRight = netip.MustParseAddrPort("10.0.0.2:80")
)

const benchWindow = 60000 // the window field of its acknowledgements

// benchFrame builds an Ethernet frame with an IPv4 TCP segment and a correct checksum.
func benchFrame(from, to netip.AddrPort, flags byte, options []byte, payload int) []byte {
	tcp := make([]byte, 20+len(options)+payload)
	binary.BigEndian.PutUint16(tcp[0:], from.Port())
	binary.BigEndian.PutUint16(tcp[2:], to.Port())
	binary.BigEndian.PutUint32(tcp[4:], 1000)
	binary.BigEndian.PutUint32(tcp[8:], 2000)
	tcp[12] = byte(20+len(options)) / 4 << 4
	tcp[13] = flags
	binary.BigEndian.PutUint16(tcp[14:], benchWindow)
	copy(tcp[20:], options)
	ip := make([]byte, 20)
	ip[0], ip[8], ip[9] = 0x45, 64, 6
	binary.BigEndian.PutUint16(ip[2:], uint16(20+len(tcp)))
	copy(ip[12:], from.Addr().AsSlice())
	copy(ip[16:], to.Addr().AsSlice())
	sum := uint32(6 + len(tcp))
	for i := 12; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	for i := 0; i+1 < len(tcp); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(tcp[i:]))
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	binary.BigEndian.PutUint16(tcp[16:], ^uint16(sum))
	eth := append(make([]byte, 12), 0x08, 0x00)
	return append(append(eth, ip...), tcp...)
}

func benchUDP() []byte {
	f := benchFrame(benchLeft, benchRight, 0, nil, 100)
	f[14+9] = 17
	return f
}

var benchTimestamps = []byte{1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 1}

type lawBench struct{ fairqtest.FairQObjects }

func newBench(b *testing.B) *lawBench { return newBenchWith(b, nil) }

// newBenchWith is newBench with maps of others.
func newBenchWith(b *testing.B, maps map[string]*ebpf.Map) *lawBench {
	b.Helper()
	spec, err := fairqtest.LoadFairQ()
	if err != nil {
		b.Fatal(err)
	}
	for name, value := range map[string]any{
		fairqtest.FairQVarPortId: uint32(0), fairqtest.FairQVarTcpAt: uint32(34), fairqtest.FairQVarWideWindow: uint16(benchWindow),
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			b.Fatal(err)
		}
	}
	f := &lawBench{}
	if err := spec.LoadAndAssign(&f.FairQObjects, &ebpf.CollectionOptions{MapReplacements: maps}); err != nil {
		b.Fatalf("load: %+v", err)
	}
	b.Cleanup(func() { _ = f.Close() })
	return f
}

// begin puts the connection into the table. Its data to the left leaves by port 0, to the right by port 1; the
// ports grant this many bytes.
func (f *lawBench) begin(b *testing.B, grant uint64) {
	b.Helper()
	key := benchKey()
	var c fairqtest.FairQConnection
	for i := range c.End {
		c.End[i].Flags = 1 | 2 | 4
		c.End[i].Mss = 1460
		c.End[i].Port = uint16(2 - i)
	}
	c.End[1].Slot = 1 << 48
	c.Owner = 1
	c.Flags = 16 // both SYNs were seen, and not signed
	var config fairqtest.FairQPortConfig
	config.Law.TargetBytes, config.Law.TickNs, config.Law.PeriodNs = 25000, 1e9, 1e9
	config.EpochNs, config.FlowsMax = 1e9, 1000
	puts := []error{
		f.put(key, c), f.Controls.Put(uint32(0), fairqtest.FairQControl{LeaseNs: 1 << 62}),
		f.Configs.Put(uint32(0), config), f.Configs.Put(uint32(1), config),
		f.Ports.Put(uint32(0), fairqtest.FairQPort{Running: 1}), f.Ports.Put(uint32(1), fairqtest.FairQPort{Running: 1, GrantQ8: grant << 8}),
		f.Lookups.Put(fairqtest.FairQLookupKey{Ifindex: 1}, uint64(1)), f.LongLookups.Put(fairqtest.FairQFlowKey{Word: [2]uint64{1}}, uint64(1)),
	}
	for _, err := range puts {
		if err != nil {
			b.Fatal(err)
		}
	}
}

// put puts a connection into its place.
func (f *lawBench) put(key fairqtest.FairQFlowKey, c fairqtest.FairQConnection) error {
	place, holder := fairq.PlaceOf(key.Word, f.Near.MaxEntries())
	return f.Near.Put(place, fairqtest.FairQNearPlace{C: c, Key: key, Holder: holder})
}

// move moves the connection to the hash table, and gives its place to another one.
func (f *lawBench) move(b *testing.B) {
	b.Helper()
	var at fairqtest.FairQNearPlace
	place, _ := fairq.PlaceOf(benchKey().Word, f.Near.MaxEntries())
	err := f.Near.Lookup(place, &at)
	c := at.C
	at.Key.Word[1], at.Holder = at.Key.Word[1]+1, at.Holder+4
	if err = errors.Join(err, f.Near.Put(place, at), f.Flows.Put(benchKey(), c)); err != nil {
		b.Fatal(err)
	}
}

// observe makes port 1 limit no flow, and calculate that it would grant so many bytes.
func (f *lawBench) observe(b *testing.B, would uint64) {
	b.Helper()
	p := fairqtest.FairQPort{Running: 1, Spared: 1 << 16, ReleaseFrom: 1 << 16, Mode: 2, EquilibriumQ8: would << 8}
	if err := f.Ports.Put(uint32(1), p); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkFairQ times each path of the switch program with BPF_PROG_TEST_RUN, in ns/packet above an empty
// program. It also gives the time in hash lookups of a 16-byte key ("lookups"), timed in the same run. Compare
// machines by lookups, not by ns.
func BenchmarkFairQ(b *testing.B) {
	f := newBench(b)
	const ack, syn, psh = 0x10, 0x02, 0x18
	data := benchFrame(benchRight, benchLeft, psh, benchTimestamps, 1000)
	pure := benchFrame(benchLeft, benchRight, ack, nil, 0)
	// An acknowledgement from the right end leaves by port 0; the data that it answers leaves by port 1.
	answer := benchFrame(benchRight, benchLeft, ack, benchTimestamps, 0)
	open := benchFrame(netip.MustParseAddrPort("10.0.0.9:5"), benchLeft, syn, []byte{2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 0, 0, 0, 0, 0, 1, 3, 3, 7}, 0)
	rows := []struct {
		name    string
		program *ebpf.Program
		above   *ebpf.Program // the program whose time is subtracted
		in      []byte
		grant   uint64
		spares  bool                                    // the port limits no flow
		counter func(*fairqtest.FairQPortCounts) uint64 // increased by each packet
	}{
		{"part: reading the clock", f.Clock, f.Empty, data, 0, false, nil},
		{"part: the parser", f.Parse, f.Empty, data, 0, false, nil},
		{"part: one lookup with the flow table's key", f.LongLookup, f.Empty, data, 0, false, nil},
		{"other traffic", f.WeirFairq, f.Empty, benchUDP(), 0, false, func(c *fairqtest.FairQPortCounts) uint64 { return c.NotTcp }},
		{"data", f.WeirFairq, f.Empty, data, 0, false, func(c *fairqtest.FairQPortCounts) uint64 { return c.Data }},
		{"data of a flow whose place is taken", f.WeirFairq, f.Empty, data, 0, false, func(c *fairqtest.FairQPortCounts) uint64 { return c.Data }},
		{"ACK of a known flow that nothing governs", f.WeirFairq, f.Empty, pure, 0, false, func(c *fairqtest.FairQPortCounts) uint64 { return c.Ungoverned }},
		{"ACK of a known flow that is small enough", f.WeirFairq, f.Empty, answer, 1 << 20, false, func(c *fairqtest.FairQPortCounts) uint64 { return c.Smaller }},
		{"ACK rewritten", f.RewriteAndUndo, f.Undo, answer, 4000, false, func(c *fairqtest.FairQPortCounts) uint64 { return c.Rewritten }},
		{"ACK of a flow that is observed and would be rewritten", f.WeirFairq, f.Empty, answer, 4000, true, func(c *fairqtest.FairQPortCounts) uint64 { return c.Free }},
		{"SYN", f.NewSyn, f.RenumberOnly, open, 0, false, func(c *fairqtest.FairQPortCounts) uint64 { return c.NoAck }},
		{"SYN sent again", f.WeirFairq, f.Empty, open, 0, false, func(c *fairqtest.FairQPortCounts) uint64 { return c.NoAck }},
	}
	for _, r := range rows {
		b.Run(r.name, func(b *testing.B) {
			f.begin(b, r.grant)
			if strings.HasSuffix(r.name, "place is taken") {
				f.move(b)
			}
			if r.spares {
				f.observe(b, r.grant)
			}
			t := bpftest.Times(b, ebpf.RunOptions{Data: r.in}, f.Empty, f.HashLookup, f.LongLookup, r.program, r.above)
			cost := t[3] - t[4]
			if r.counter != nil && f.counted(b, r.counter) == 0 {
				b.Fatal("the packets did not take this path")
			}
			bpftest.Cost(b, cost, t[1]-t[0])
			b.ReportMetric(cost/(t[2]-t[0]), "flow-lookups")
		})
	}
}

// counted sums a counter of port 0 over the CPUs and resets all counters to 0.
func (f *lawBench) counted(b *testing.B, counter func(*fairqtest.FairQPortCounts) uint64) (sum uint64) {
	b.Helper()
	var cpus []fairqtest.FairQPortCounts
	if err := f.Counts.Lookup(uint32(0), &cpus); err != nil {
		b.Fatal(err)
	}
	for i := range cpus {
		sum += counter(&cpus[i])
	}
	if err := f.Counts.Put(uint32(0), make([]fairqtest.FairQPortCounts, len(cpus))); err != nil {
		b.Fatal(err)
	}
	return sum
}

// BenchmarkFairQSweep times the sweep of each heartbeat, in ns for each connection of a table of 65536, all of
// them active, and in total.
func BenchmarkFairQSweep(b *testing.B) {
	const connections = 1 << 16
	f := newBench(b)
	f.begin(b, 4000)
	var c fairqtest.FairQConnection
	for i := range c.End {
		c.End[i].Flags, c.End[i].Port, c.End[i].Slot = 1|2|4, uint16(2-i), uint64(2-i)<<48
	}
	c.Owner = 1
	for i := range uint32(connections - 1) {
		key := fairqtest.FairQFlowKey{Word: [2]uint64{uint64(i), 1}}
		if err := f.Flows.Put(key, c); err != nil {
			b.Fatal(err)
		}
	}
	if err := f.Controls.Put(uint32(0), fairqtest.FairQControl{LeaseNs: 1 << 62, IdleSweeps: 1 << 30}); err != nil {
		b.Fatal(err)
	}
	best := time.Hour
	for range 20 {
		begin := time.Now()
		if _, err := f.WeirFairqSweep.Run(&ebpf.RunOptions{Context: make([]byte, 20)}); err != nil {
			b.Fatal(err)
		}
		best = min(best, time.Since(begin))
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(best.Nanoseconds())/connections, "ns/connection")
	b.ReportMetric(float64(best.Microseconds())/1000, "ms/sweep")
}

// BenchmarkFairQSuperPacket times data of a GSO packet of 45 segments, of 64 KB. Every such packet also checks whether the
// timer is late, because 16 segments have passed since the last check.
func BenchmarkFairQSuperPacket(b *testing.B) {
	const segments, psh = 45, 0x18
	f := newBench(b)
	f.begin(b, 0)
	data := benchFrame(benchRight, benchLeft, psh, benchTimestamps, 1000)
	unit := bpftest.Bench{Empty: f.Empty, Lookup: f.HashLookup}
	unit.Report(b, ebpf.RunOptions{Data: data, Context: bpftest.GSO(segments)}, f.WeirFairq, f.Empty, 1)
	if n := f.counted(b, func(c *fairqtest.FairQPortCounts) uint64 { return c.Data }); n == 0 || n%segments != 0 {
		b.Fatalf("%d segments of data were counted", n)
	}
}
