package soak

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/bus/weirv1"
	"weir/datapath/testnet"
	"weir/deadline"
	"weir/law"
)

// BenchmarkEffect measures how long it takes until packets show what a law has decided. A whole controller carries the bus, and a whole
// agent enforces. Packets are captured, so neither of them measures itself.
//
//	law=gcc  from a switch's report with marks to the first packet of the VM at the uplink with the spacing of the lower rate
//	law=sed  from a program's call that declares a deadline to the first ACK at the VM with the window that the deadline needs
func BenchmarkEffect(b *testing.B) {
	b.Run("law=gcc", benchmarkRate)
	b.Run("law=sed", benchmarkDeadline)
}

// benchmarkRate lowers the rate of a VM from 100 to 20 Mbit/s with each report: that is SDN-GCC's gain of 0.8.
func benchmarkRate(b *testing.B) {
	w := newWorld(b, worldOptions{messages: "bus", single: true, laws: "gcc: {}", uplink: ", rate: 100Mbit", host: "  laws: {gcc: {}}\n"})
	testnet.Until(b, "the agent has its VM", func() bool { return strings.Contains(w.controls[0].status(), "VMs:1") })
	wire := &spacing{b: b, tap: testnet.NewTap(b, w.Far)}
	w.Path(0).NewStreams(b, testnet.PeerIPv4(0), 4)
	r := w.startReporter()
	var took []time.Duration
	look := time.NewTicker(2 * time.Millisecond) // the kernel stamps packets, so this rate has no effect on the figures
	defer look.Stop()
	change := func() bool {
		wire.until(look.C, 5*time.Second, wire.fast)
		at, found := r.marks(1000), time.Time{}
		seen := wire.until(look.C, 500*time.Millisecond, func() bool { found = wire.slows(at); return !found.IsZero() })
		if seen {
			took = append(took, found.Sub(at))
		}
		return seen
	}
	testnet.Until(b, "a report is answered", change)
	took = nil
	changes := 0
	for ; len(took) < b.N; changes++ {
		if changes > b.N+b.N/9+2 { // a benchmark first runs with one change, and that one may be missed
			b.Fatalf("of %d changes only %d were seen", changes, len(took))
		}
		change()
	}
	testnet.ReportTimes(b, took, "to-packet")
	b.ReportMetric(float64(changes-len(took)), "not-seen")
	b.ReportMetric(0, "ns/op")
}

// spacing is when data packets passed.
type spacing struct {
	b   *testing.B
	tap *testnet.Tap
	at  []time.Time // the last ones
}

// At 20 Mbit/s a packet takes 606 µs, and at 100 Mbit/s 121 µs. A gap that is longer than the geometric mean of both belongs to the slow rate.
const (
	middleGap = 271 * time.Microsecond
	fastGap   = 150 * time.Microsecond
	inARow    = 8 // gaps that show a rate
	mostSlow  = 6 // of inARow
)

// until looks at packets until a condition holds, and reports whether it did.
func (s *spacing) until(look <-chan time.Time, limit time.Duration, condition func() bool) bool {
	s.b.Helper()
	for end := time.Now().Add(limit); time.Now().Before(end); <-look {
		if n := len(s.at); n > 1000 {
			s.at = s.at[n-500:]
		}
		s.tap.Each(s.b, func(p *testnet.Segment) {
			if !p.Out && p.Payload > 1000 {
				s.at = append(s.at, p.At)
			}
		})
		if condition() {
			return true
		}
	}
	return false
}

// fast reports whether the last 200 packets came at the fast rate.
func (s *spacing) fast() bool {
	n := len(s.at)
	return n > 200 && s.at[n-1].Sub(s.at[n-201]) < 200*fastGap && time.Since(s.at[n-1]) < 20*time.Millisecond
}

// slows returns the first packet after a time that came with the slow rate's gap, if most of the gaps that follow are such; zero: there is none yet.
func (s *spacing) slows(since time.Time) time.Time {
	gap := func(i int) bool { return s.at[i].Sub(s.at[i-1]) > middleGap }
	for i := 1; i+inARow <= len(s.at); i++ {
		if !s.at[i].After(since) || !gap(i) {
			continue
		}
		slow := 0
		for j := i; j < i+inARow; j++ {
			if gap(j) {
				slow++
			}
		}
		if slow >= mostSlow {
			return s.at[i]
		}
	}
	return time.Time{}
}

// Messages of benchmarkDeadline: within their time they need 20 and 40 segments a round trip, about.
var messages = []uint64{18e6, 36e6}

const messageTime = 10 * time.Second

func benchmarkDeadline(b *testing.B) {
	dir, err := os.MkdirTemp("", "dl") // short, because a socket's path is limited
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	w := newWorld(b, worldOptions{messages: "bus", laws: "sed: {rtt: 10ms}", host: "  deadlines: {sockets: " + filepath.Join(dir, "d") + "}\n"})
	watch := newWatch(w)
	testnet.Until(b, "the agent has its VM", func() bool { return strings.Contains(w.controls[0].status(), "VMs:1") })
	streams := w.Path(0).NewStreams(b, testnet.PeerIPv4(0), 2)
	p := &publishing{Ports: 1, Rate: uplinkBps, Every: time.Millisecond}
	for i := range 2 {
		c := streams.Pair(i).Client
		p.Flows = append(p.Flows, law.Flow{Src: testnet.AddrPort(c.LocalAddr()), Dst: testnet.AddrPort(c.RemoteAddr()), Proto: 6})
	}
	w.startSwitch("busy", p)
	client := deadline.New(filepath.Join(dir, "d", "1", "deadline.sock"))
	defer client.Close()
	declare := func(bytes uint64) time.Time {
		at := time.Now()
		if _, err := client.DeclareConn(b.Context(), streams.Pair(0).Client, messageTime, bytes); err != nil {
			b.Fatal(err)
		}
		return at
	}
	o := &windowOf{w: watch, to: p.Flows[0]}
	var windows []int
	for _, bytes := range messages {
		declare(bytes)
		<-time.After(300 * time.Millisecond)
		o.first(time.Now(), 0)
		windows = append(windows, o.last)
	}
	if windows[1] < windows[0]*3/2 {
		b.Fatalf("windows of the two messages are %d", windows)
	}
	var took, answered []time.Duration
	random := rand.New(rand.NewPCG(1, 2))
	look := time.NewTicker(2 * time.Millisecond) // the kernel stamps ACKs, so this rate has no effect on the figures
	defer look.Stop()
	for i := range b.N {
		<-time.After(5*time.Millisecond + time.Duration(random.Int64N(10e6))) // declarations come at any time of the period
		at := declare(messages[i%2])
		answered = append(answered, time.Since(at))
		for end := at.Add(900 * time.Millisecond); time.Now().Before(end); <-look.C {
			if found := o.first(at, windows[i%2]); !found.IsZero() {
				took = append(took, found.Sub(at))
				break
			}
		}
	}
	if len(took) == 0 || len(took) < b.N*9/10 {
		b.Fatalf("of %d declarations only %d were seen", b.N, len(took))
	}
	testnet.ReportTimes(b, took, "to-ACK")
	testnet.ReportTimes(b, answered, "to-answer")
	b.ReportMetric(float64(b.N-len(took)), "not-seen")
	b.ReportMetric(0, "ns/op")
}

// windowOf follows the windows that one flow's ACKs carry.
type windowOf struct {
	w    *watch
	to   law.Flow
	last int // window
}

// first returns when the first ACK after a time had a window within a tenth of this one.
func (o *windowOf) first(since time.Time, window int) (at time.Time) {
	o.w.windows(func(s *testnet.Segment, got int) {
		if s.To != o.to.Src || s.From != o.to.Dst {
			return
		}
		o.last = got
		if at.IsZero() && s.At.After(since) && got*10 > window*9 && got*10 < window*11 {
			at = s.At
		}
	})
	return at
}

// runBusy is the process of a switch whose port 1 is congested all the time, and reports how far its flows have come each Every.
func runBusy(ctx context.Context, config string) error {
	p, a, err := newSwitch(ctx, config)
	if err != nil {
		return err
	}
	go a.lives(ctx)
	e := &weirv1.Events{Switch: a.number}
	for _, f := range p.Flows {
		e.Flows = append(e.Flows, &weirv1.FlowReport{Port: 1, Flow: weirv1.NewFlow(f), Began: true})
	}
	every := time.NewTicker(p.Every)
	defer every.Stop()
	for {
		if err := a.SendEvents(e); err != nil {
			return err
		}
		if _, err := a.report(p); err != nil {
			return err
		}
		for _, f := range e.Flows {
			f.Began = false
			f.SentBytes += p.Rate / 8 / uint64(len(e.Flows)) * uint64(p.Every) / 1e9
		}
		select {
		case <-ctx.Done():
			return nil
		case <-every.C:
		}
	}
}
