package fairq

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"weir/datapath/internal/frames"
	"weir/internal/testseed"
)

// Flags of make fuzz-datapath.
var (
	mutateFrames = flag.Uint64("frames", 200_000, "mutated frames to send through the switch program")
	mutateSeed   = flag.Uint64("seed", 0, "seed of the mutated frames; 0: another each time")
)

const (
	scaleUnify   = 2 // of flows.h
	tcxDrop      = 2 // verdict of a tcx program
	mutateBatch  = 4096
	mutateRounds = 40 // switches of different configurations that the frames are sent through
)

// MutationSeed returns the seed of a test that mutates frames.
func MutationSeed(tb testing.TB) uint64 {
	tb.Helper()
	seed := *mutateSeed
	if seed == 0 {
		return testseed.Seed(tb)
	}
	return seed
}

// TestFairQMutated sends mutated frames of many connections through switches of every configuration. The
// verdict of each frame is NEXT, or DROP for a signed one if the switch drops these. Only a window in an
// acknowledgement gets smaller, with its checksum, whose error stays the same. Every frame is counted by its
// kind, every path of the program is taken, no table exceeds its size, and the counters add up.
func TestFairQMutated(t *testing.T) {
	m := &mutation{seed: MutationSeed(t)}
	begin := time.Now()
	rounds := max(6, min(mutateRounds, *mutateFrames/50_000))
	for i := range rounds {
		round := m.newRound(t, i)
		for m.sent < *mutateFrames*(i+1)/rounds {
			round.batch(t)
		}
		round.finish(t)
		if t.Failed() {
			t.Fatalf("seed %d, round %d: %+v", m.seed, i, round.config)
		}
		if i%4 == 3 {
			t.Logf("%d frames after %.0f s", m.sent, time.Since(begin).Seconds())
		}
	}
	m.report(t, time.Since(begin))
}

// mutation is the sum of all rounds.
type mutation struct {
	seed    uint64
	sent    uint64
	total   fairqPortCounts // in packets on the wire: a GSO packet counts its segments
	refused uint64          // by BPF_PROG_TEST_RUN: too short for it
	wrong   uint64          // rewritten, with a checksum that was wrong before
	kinds   [5]uint64
	flows   int // the most that a table had
	pending int
}

// round is a switch of one configuration, and its senders: one worker, or two on the same connections at once.
type round struct {
	*frameSwitch
	*mutation
	config  frameConfig
	workers []*mutant
	ports   int
}

func (m *mutation) newRound(t *testing.T, i uint64) *round {
	t.Helper()
	r := rand.New(rand.NewPCG(m.seed, i))
	c := frameConfig{
		count: uint8(r.IntN(2)), scale: uint8(r.IntN(3)), unifyShift: uint8(r.IntN(15)), shrink: uint8(r.IntN(2)),
		flows: []uint32{64, 1000, 65536}[(i+i/3)%3], pending: []uint32{256, 4096}[r.IntN(2)],
	}
	if i%3 == 0 { // every few rounds, not by chance: a short run must take each path too
		// A third of Traffic's connections over IPv4, most of those over IPv6.
		for _, p := range []string{"10.0.0.0/24", "fd00::/120"} {
			c.scope = append(c.scope, scopeKey(netip.MustParsePrefix(p)))
		}
	}
	c.law = fairqPortConfig{FlowsMax: max(40, c.flows/uint32(1+r.IntN(4))), EpochNs: 1 << (21 + r.IntN(7))}
	c.law.Mode, c.law.LimitedBuckets, c.law.PipeBytes = uint32([]Mode{EnforceAll, EnforceAll, EnforcePart, EnforceNone}[i%4]), r.Uint32N(Buckets), 1<<r.IntN(20)
	c.law.Paths, c.law.Divisor = 2, uint16(1+i%2)
	c.signed = Signed(i % 3)
	if i%5 == 1 {
		c.scale, c.edge = 0, EdgeMode{Interval: time.Millisecond, Lease: 50 * time.Millisecond}
	}
	l := &c.law.Law
	l.TargetBytes, l.TickNs, l.PeriodNs, l.MssMaxBytes = 25000, 1e6, 1e7, 1460
	l.CapBytes = 1 << (8 + r.IntN(14))
	rd := &round{mutation: m, config: c, ports: 2 + r.IntN(2)}
	rd.frameSwitch = newFrameSwitch(t, c, rd.ports)
	rd.forgetAfter(t, []uint32{2, 6, 1 << 20}[r.IntN(3)])
	if r.IntN(2) == 0 {
		rd.armTimers(t)
	}
	for w := range uint64(1 + r.IntN(2)) {
		r := rand.New(rand.NewPCG(m.seed, i<<8|w+1))
		rd.workers = append(rd.workers, &mutant{
			r: r, traffic: frames.NewTraffic(r, 16<<r.IntN(7)), out: make([]byte, 4096), ports: rd.ports,
			rules: frames.Rules{Unify: c.scale == scaleUnify, Edge: c.edge.Interval > 0}, observes: c.law.Mode == uint32(EnforceNone), drops: c.signed != SignedPass,
		})
	}
	return rd
}

// batch makes every worker send frames, and then checks the counters and the sizes of the tables.
func (r *round) batch(t *testing.T) {
	t.Helper()
	var wg sync.WaitGroup
	for _, w := range r.workers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			w.err = w.send(r.frameSwitch)
		}()
	}
	if len(r.workers) > 1 { // the sweep meets packets of connections that it removes
		r.sweep(t)
	}
	wg.Wait()
	r.sweep(t)
	var kinds [5]uint64
	for _, w := range r.workers {
		if w.err != nil {
			t.Fatalf("seed %d, %+v: %v", r.seed, r.config, w.err)
		}
		for k, n := range w.kinds {
			kinds[k] += n
			r.kinds[k] += n
		}
		r.sent += uint64(len(w.sent))
		r.refused += w.refused
		r.wrong += w.wrong
	}
	var counted fairqPortCounts
	for port := range r.ports {
		c := r.counted(t, port)
		counted.add(&c, 1)
	}
	r.total.add(&counted, 1)
	if err := agree(&counted, kinds); err != nil {
		t.Errorf("%v", err)
		for _, w := range r.workers {
			w.blame(t, r.frameSwitch)
		}
	}
	r.checkLimits(t)
}

// agree returns an error unless frames were counted by their kinds.
func agree(c *fairqPortCounts, kinds [5]uint64) error {
	tcp := c.NoAck + c.Rewritten + c.Smaller + c.Unknown + c.Ungoverned + c.Free + c.Signed + c.OutOfScope + c.Unwritable + c.LeftToEdge + c.Dropped
	got := [5]uint64{frames.KindTCP: tcp, frames.KindOther: c.NotTcp, frames.KindTunnel: c.Tunnel, frames.KindFragment: c.Fragment, frames.KindShort: c.Short}
	sum := uint64(0)
	for _, n := range kinds {
		sum += n
	}
	if got != kinds || c.Seen != sum {
		return fmt.Errorf("frames were (TCP, other, tunnel, fragment, short) %v, %d together; counted as %v, %d", kinds, sum, got, c.Seen)
	}
	return nil
}

// report prints how often each path was taken, and fails for those hardly taken.
func (m *mutation) report(t *testing.T, took time.Duration) {
	t.Helper()
	t.Logf("seed %d: %d frames in %.1f s, and %d too short for BPF_PROG_TEST_RUN; %d rewritten that had a wrong checksum; tables held up to %d flows, %d pending",
		m.seed, m.sent, took.Seconds(), m.refused, m.wrong, m.flows, m.pending)
	t.Logf("they were %d packets on the wire (a GSO packet is many), by path:", m.total.Seen)
	v := reflect.ValueOf(m.total)
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		if v.Field(i).Kind() != reflect.Uint64 {
			continue
		}
		n := v.Field(i).Uint()
		t.Logf("%-12s %9d  %6.3f %%", strings.ToLower(name), n, 100*float64(n)/float64(m.total.Seen))
		// Unwritable does not occur: the kernel has memory. The others depend on the generator.
		if n*4000 < m.total.Seen && name != "Unwritable" {
			t.Errorf("only %d of %d packets took the path %s: the generator misses it", n, m.total.Seen, name)
		}
	}
}

// mutant sends mutated frames.
type mutant struct {
	r        *rand.Rand
	traffic  *frames.Traffic
	ports    int
	rules    frames.Rules
	observes bool // nothing must change
	drops    bool // signed segments may be dropped
	out      []byte
	arena    []byte // what was sent in this batch
	sent     []sent
	kinds    [5]uint64
	refused  uint64
	wrong    uint64
	err      error
}

// sent is one frame of a batch.
type sent struct {
	frame    []byte
	segments uint32
	port     int
	flags    uint32
	ingress  uint32 // the device that it came in by; 0: none
}

func (w *mutant) send(s *frameSwitch) error {
	w.arena, w.sent, w.kinds, w.refused, w.wrong = w.arena[:0], w.sent[:0], [5]uint64{}, 0, 0
	for range mutateBatch {
		next := w.traffic.Next()
		f := sent{segments: 1, flags: testRunChecksumComplete * uint32(w.r.IntN(2))}
		if next.LeftToRight {
			f.port = 1
		}
		if w.r.IntN(50) == 0 { // traffic that takes another path
			f.port = w.r.IntN(w.ports)
		}
		if w.r.IntN(100) == 0 {
			f.segments = 1 + w.r.Uint32N(45)
		}
		if w.r.IntN(2) == 0 { // all test ports have this one's number: data would leave by port 0
			f.ingress = 1
		}
		in := frames.Mutate(w.r, next.Data)
		if testRunRefuses(in) {
			w.refused++
			continue
		}
		at := len(w.arena)
		w.arena = append(w.arena, in...)
		f.frame = w.arena[at:]
		w.sent = append(w.sent, f)
		if err := w.one(s, &f); err != nil {
			return err
		}
		w.kinds[frames.Parse(f.frame).Kind] += uint64(f.segments)
	}
	return nil
}

// one sends a frame and checks the frame that comes out.
func (w *mutant) one(s *frameSwitch, f *sent) error {
	o := ebpf.RunOptions{Data: f.frame, DataOut: w.out[:len(f.frame)], Flags: f.flags}
	if f.segments > 1 {
		o.Context = skbContext(f.segments, uint32(len(f.frame)))
	} else if f.ingress > 0 {
		skb := make([]byte, 192)
		binary.NativeEndian.PutUint32(skb[36:], f.ingress)
		o.Context = skb
	}
	verdict, err := s.programs[f.port].Run(&o)
	if err == nil && w.drops && !w.observes && verdict == tcxDrop && optionSigns(f.frame) {
		verdict = ^uint32(0) // any is allowed
	}
	if err == nil && int32(verdict) != -1 {
		err = fmt.Errorf("the program returned %d", int32(verdict))
	}
	rewritten := false
	if err == nil {
		rewritten, err = w.rules.Check(f.frame, o.DataOut)
	}
	if rewritten && w.observes {
		err = errors.New("a port that observes has changed it")
	}
	if err != nil {
		return fmt.Errorf("out of port %d, flags %d: %w:\n in  %x\n out %x", f.port, f.flags, err, f.frame, o.DataOut)
	}
	if rewritten {
		if v := frames.Parse(f.frame); v.ChecksumError() != 0 {
			w.wrong++
		}
	}
	return nil
}

// optionSigns reports whether a frame has an option that signs it.
func optionSigns(frame []byte) bool {
	v := frames.Parse(frame)
	return v.Kind == frames.KindTCP && frames.Signed(v.Options())
}

// blame sends the frames of a batch again, one by one, to find those that are counted wrongly.
func (w *mutant) blame(t *testing.T, s *frameSwitch) {
	t.Helper()
	for _, f := range w.sent {
		s.counted(t, f.port)
		if err := w.one(s, &f); err != nil {
			t.Fatal(err)
		}
		c := s.counted(t, f.port)
		var kinds [5]uint64
		kinds[frames.Parse(f.frame).Kind] = uint64(f.segments)
		if err := agree(&c, kinds); err != nil {
			t.Fatalf("%v: %x", err, f.frame)
		}
	}
}

// FuzzFairQ is for Go's own fuzzing: go test -run '^$' -fuzz FuzzFairQ ./datapath/fairq
func FuzzFairQ(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 2))
	traffic := frames.NewTraffic(r, 16)
	for range 64 {
		f.Add(bytes.Clone(traffic.Next().Data), uint8(r.Uint32()))
	}
	s := newFrameSwitch(f, frameConfig{flows: 1000, pending: 256}, 2)
	w := &mutant{out: make([]byte, 4096)}
	for range 500 {
		next := traffic.Next()
		one := &sent{frame: next.Data, segments: 1}
		if next.LeftToRight {
			one.port = 1
		}
		if err := w.one(s, one); err != nil {
			f.Fatal(err)
		}
	}
	s.setGrant(f, 0, 4000)
	s.setGrant(f, 1, 4000)
	f.Fuzz(func(t *testing.T, in []byte, how uint8) {
		// Frames are as long as BPF_PROG_TEST_RUN allows; TestFairQVeth_Mutated sends other lengths too.
		for in = in[:min(len(in), testRunLongest)]; testRunRefuses(in); {
			in = append(in[:len(in):len(in)], 0)
		}
		one := &sent{frame: in, segments: 1, port: int(how & 1), flags: uint32(how & testRunChecksumComplete)}
		if err := w.one(s, one); err != nil {
			t.Fatal(err)
		}
	})
}
