package telemetry_test

import (
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cilium/ebpf"

	"weir/datapath/internal/frames"
	"weir/datapath/telemetry"
	"weir/datapath/testnet"
	"weir/internal/testseed"
	"weir/law"
)

// Four threads send packets while readings happen at random moments. Every packet is in exactly one reading with everything
// that was counted of it: packets, bytes, marks and their VMs, SYNs and their pairs. Within a reading the counts belong to the
// same packets. A packet is rarely in the middle of the program when a half is read: TestHalf_WaitsForItsLastPacket checks that
// a reading waits for it.
func TestTelemetry_EachPacketIsInOneReading(t *testing.T) {
	const senders, least, burst = 4, 400, 50
	const enough = 100 // readings: the senders continue until then, however fast the machine is
	seed := testseed.Seed(t)
	p := testnet.NewPath(t, testnet.PathOptions{PortBps: 50e6, Limit: 1 << 20, NoIPv6: true})
	tel := attachTo(t, telemetry.Config{Signals: allSignals}, telemetry.Port{PortRef: p.Port})
	program := tel.Program(0)
	source := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 9, 0, byte(i)}) }
	for i := range senders {
		if err := tel.SetSource(source(i), law.VM(i+1)); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	var running, readings atomic.Int32
	running.Store(senders)
	var sent [senders]uint64 // SYNs of each
	errs := make(chan error, senders)
	for i := range senders {
		wg.Add(1)
		go func() {
			defer wg.Done()
			defer running.Add(-1)
			for n := 0; n < least || readings.Load() < enough; n++ {
				s := frames.Segment{}
				s.From, s.To, s.TOS, s.Flags = source(i), netip.AddrFrom4([4]byte{11, byte(i), byte(n >> 8), byte(n)}), 3, frames.SYN
				s.FromPort, s.ToPort = uint16(1000+n), 80
				in := s.Append(nil)
				// One packet for each call: a signal ends a call with Repeat after some of them, and the library then repeats them all.
				for range burst {
					if _, err := program.Run(&ebpf.RunOptions{Data: in, Context: context(len(in), 0)}); err != nil {
						errs <- err
						return
					}
				}
				sent[i]++
			}
		}()
	}
	r := rand.New(rand.NewPCG(seed, 1))
	var sum total
	var reading telemetry.Reading
	spin := uint64(0)
	for running.Load() > 0 {
		for range r.IntN(2000) {
			spin++
		}
		read(t, tel, &reading)
		readings.Add(1)
		one := &reading.Telemetry.Ports[0]
		if one.Marks.Packets != one.Packets || one.Bytes != one.Packets*54 {
			t.Errorf("reading %d is torn: %+v", readings.Load(), one)
		}
		sum.add(&reading, 0)
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		t.Fatal(err)
	}
	// The half that counts now, and one that was late.
	for range 3 {
		read(t, tel, &reading)
		sum.add(&reading, 0)
	}
	syns := uint64(0)
	for i, n := range sent {
		syns += n
		if got := sum.byVM[law.VM(i+1)]; got != n*burst {
			t.Errorf("%d marks of VM %d, want %d", got, i+1, n*burst)
		}
	}
	packets := syns * burst
	if sum.Packets != packets || sum.Marks.Packets != packets || sum.Bytes != packets*54 || sum.SYN != syns {
		t.Errorf("%d packets, %d marks, %d bytes, %d SYN in %d readings, want %d packets and %d SYN", sum.Packets, sum.Marks.Packets, sum.Bytes, sum.SYN, readings.Load(), packets, syns)
	}
	if sum.opened+sum.rest != syns || sum.Marks.Unknown+sum.Marks.Rest != 0 {
		t.Errorf("%d SYNs of pairs and %d more, want %d: %+v", sum.opened, sum.rest, syns, sum.Marks)
	}
	t.Logf("%d packets in %d readings, %d late", packets, readings.Load(), tel.Late())
}

// A port that sends nothing more still reports how its backlog drains, down to 0; then it is quiet. The slower the test reads, the
// slower the port is made.
func TestTelemetry_QuietPortDrains(t *testing.T) {
	const enough = 5 // levels of the backlog
	p := testnet.NewPath(t, testnet.PathOptions{PortBps: 2e6, Limit: 1 << 20, NoIPv6: true})
	tel := attachTo(t, telemetry.Config{}, telemetry.Port{PortRef: p.Port})
	udp := p.NewUDP(t, testnet.ReceiverIPv4, 0)
	seen := 0
	for bps := uint64(2e6); seen < enough && bps > testnet.SlowBps; bps /= 2 {
		testnet.Shape(t, p.Port, bps, 1<<20, 2*1514)
		seen = levels(t, tel, udp)
	}
	if seen < enough {
		t.Errorf("only %d levels of the backlog were seen", seen)
	}
	var reading telemetry.Reading
	testnet.Until(t, "the port is quiet", func() bool {
		read(t, tel, &reading)
		return reading.Telemetry.Ports[0].Quiet()
	})
	if len(reading.Arrivals.Ports[0].Pairs) != 0 || reading.Arrivals.Ports[0].Counts.SYN != 0 {
		t.Errorf("arrivals at a quiet port: %+v", reading.Arrivals.Ports[0])
	}
}

// levels sends packets, and returns how many levels of the backlog are reported until it is 0.
func levels(t *testing.T, tel *telemetry.Telemetry, udp *testnet.UDP) int {
	t.Helper()
	udp.Send(t, 30, 1000)
	var reading telemetry.Reading
	seen, at := uint64(0), map[uint64]bool{}
	testnet.Until(t, "all packets are offered", func() bool {
		read(t, tel, &reading)
		seen += reading.Telemetry.Ports[0].Packets
		return seen >= 30
	})
	testnet.Until(t, "the queue is empty", func() bool {
		read(t, tel, &reading)
		one := &reading.Telemetry.Ports[0]
		at[one.BacklogBytes] = true
		return one.BacklogBytes == 0
	})
	return len(at)
}

// A reading allocates nothing.
func TestTelemetry_ReadDoesNotAllocate(t *testing.T) {
	p := testnet.NewPath(t, testnet.PathOptions{PortBps: 50e6, Limit: 1 << 20})
	tel := attachTo(t, telemetry.Config{Signals: allSignals}, telemetry.Port{PortRef: p.Port})
	var reading telemetry.Reading
	read(t, tel, &reading)
	p.Transfer(t, testnet.ReceiverIPv4, "reno", 5, 20_000)
	if n := testing.AllocsPerRun(100, func() { read(t, tel, &reading) }); n != 0 {
		t.Errorf("%g allocations a reading", n)
	}
}
