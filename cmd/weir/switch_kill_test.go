package main

import (
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"weir/datapath/fairq"
	"weir/datapath/testnet"
)

// kill -9 under load: no connection breaks, the kernel program releases the windows by itself, and the next start takes
// over program, timers and tables.
func TestSwitch_Killed(t *testing.T) {
	parallel(t)
	m := newMachine(t)
	if *soak { // the effect of the queue on streams without Weir
		streams := m.NewStreams(t, testnet.ReceiverIPv4, 8)
		for range 10 {
			streams.Progress(t, 3_000_000)
		}
		t.Logf("without Weir, over 240 MB: longest stall of a stream %v", streams.LongestGap().Round(time.Millisecond))
		streams.Stop()
	}
	p := m.switchUp("weir")
	streams := m.NewStreams(t, testnet.ReceiverIPv4, 8) // started after it, so that their window scale is known
	m.until(p, "windows are limited", m.limited)
	was := m.read()
	ticks := m.watchTicks("out0")
	undisturbed := ticks.undisturbed(streams)
	var stall, release, gap, released time.Duration
	for n := range rounds(3, 20) {
		// Killed, and not started again: released.
		streams.Mark()
		killed := time.Now()
		p.kill()
		testnet.Until(t, "windows are released", m.released)
		release = max(release, time.Since(killed))
		streams.Progress(t, 1)
		ticks.mark()
		p = m.switchUp("weir")
		m.until(p, "windows are limited again", m.limited)
		longest, _ := ticks.since()
		released = max(released, longest)
		streams.Progress(t, 100_000)

		// Killed, and started again at once: limited all the time.
		ticks.mark()
		p.kill()
		p = m.switchUp("weir")
		m.until(p, "windows are limited again", m.limited)
		streams.Progress(t, 100_000)
		longest, seen := ticks.since()
		gap = max(gap, longest)
		if seen == 0 {
			t.Errorf("round %d: the timer did not run", n)
		}
		t.Logf("round %d: %d ticks, longest gap %v; longest stall %v", n, seen, longest.Round(10*time.Microsecond), streams.LongestGap().Round(time.Millisecond))
		stall = max(stall, streams.LongestGap())
	}
	now := m.read()
	for i := range now.Ports {
		is, first := &now.Ports[i], portOf(was, now.Ports[i].Port)
		if is.LinkID != first.LinkID || is.ProgramID == first.ProgramID {
			t.Errorf("%s: link %d became %d, program %d became %d", is.Port, first.LinkID, is.LinkID, first.ProgramID, is.ProgramID)
		}
		if is.Opened != first.Opened {
			t.Errorf("%s: %d connections entered, then %d: the table was lost", is.Port, first.Opened, is.Opened)
		}
	}
	limit(t, "stall of a stream", stall, 300*time.Millisecond)
	limit(t, "windows released after kill -9", release, 1500*time.Millisecond)
	limit(t, "gap between ticks, killed and taken over", gap, undisturbed+5*time.Millisecond)
	t.Logf("gap between ticks with windows released (a tick every 20 ms), then taken over: worst %v", released)
}

// The same without a connection: no timer runs, and nothing is left.
func TestSwitch_KilledWithoutTraffic(t *testing.T) {
	parallel(t)
	m := newMachine(t)
	chains := m.chains()
	m.switchUp("weir").kill()
	testnet.Until(t, "status says that nobody lives", func() bool { return !m.read().Alive() })
	before := m.read()
	p := m.switchUp("weir")
	if s := m.read(); portOf(s, "out0").LinkID != portOf(before, "out0").LinkID {
		t.Errorf("not taken over: %+v", s)
	}
	p.kill()
	objects := m.objects()
	if code := m.start("weir", "switch", "--purge").wait(); code != 0 {
		t.Errorf("purge ends with %d", code)
	}
	m.goneWithoutTrace(objects, chains)
}

// Killed at any moment of its start, it leaves a state that the next start can continue and a purge can remove.
func TestSwitch_KilledWhileStarting(t *testing.T) {
	parallel(t)
	m := newMachine(t)
	chains := m.chains()
	began := time.Now()
	p := m.switchUp("weir", "--purge")
	whole, all := time.Since(began), len(m.pins())
	p.signal(syscall.SIGTERM)
	p.wait()
	rnd := rand.New(rand.NewPCG(4, 20))
	reached := map[int]int{}
	for n := range rounds(6, 20) {
		p := m.start("weir", "switch", "out0", "in0")
		if n%2 == 0 { // the random moment is the purpose of the test
			time.Sleep(time.Duration(rnd.Int64N(int64(whole))))
		} else { // pins are made in a tenth of that time
			wanted := 1 + rnd.IntN(all)
			m.until(p, "so much is pinned", func() bool { return len(m.pins()) >= wanted })
		}
		p.kill()
		objects := m.objects()
		reached[len(m.pins())]++
		if n/2%2 == 0 {
			p = m.switchUp("weir", "--purge")
			objects = m.objects()
			p.signal(syscall.SIGTERM)
			if code := p.wait(); code != 0 {
				t.Errorf("round %d: ended with %d", n, code)
			}
		} else if code := m.start("weir", "switch", "--purge").wait(); code != 0 {
			t.Errorf("round %d: purge ends with %d", n, code)
		}
		m.goneWithoutTrace(objects, chains)
	}
	t.Logf("killed when so many of %d paths were pinned (times): %v", all, reached)
}

// SIGTERM removes what Weir attached, and only that, and stops the timers. The tables stay for the next start, except
// with --purge.
func TestSwitch_Terminated(t *testing.T) {
	parallel(t)
	m := newMachine(t)
	others := m.attachOthers()
	chains := m.chains()
	streams := m.NewStreams(t, testnet.ReceiverIPv4, 4)
	p := m.switchUp("weir")
	m.until(p, "windows are limited", m.limited)
	objects := m.objects()
	if len(objects.programs) < len(ports) {
		t.Fatalf("the programs of two ports are %v", objects.programs)
	}
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		t.Errorf("ended with %d:\n%s", code, p.log)
	}
	if now := m.chains(); !slices.Equal(now, chains) {
		t.Errorf("programs and queues of the ports:\n%s", difference(chains, now))
	}
	if s := m.read(); s == nil || len(s.Ports) != 0 || s.Alive() {
		t.Errorf("after SIGTERM: %+v", s)
	}
	if n := len(m.pins()); n != 3+tables {
		t.Errorf("pins after SIGTERM: %v", m.pins())
	}
	testnet.Until(t, "the programs are freed", func() bool { return len(m.objects().programs) == 0 })
	m.timersStand(streams)

	// The next start knows the streams. This one ends and leaves nothing.
	p = m.switchUp("weir", "--purge")
	m.until(p, "windows are limited", m.limited)
	if s := m.read(); portOf(s, "out0").Opened+portOf(s, "in0").Opened > 5 {
		t.Errorf("the flow table was lost: %+v", s)
	}
	objects = m.objects()
	p.signal(syscall.SIGINT)
	if code := p.wait(); code != 0 {
		t.Errorf("ended with %d:\n%s", code, p.log)
	}
	m.goneWithoutTrace(objects, chains)
	for _, prog := range others {
		if runs := runsOf(t, prog); runs == 0 {
			t.Error("a program of somebody else does not run")
		}
	}
	streams.Progress(t, 100_000)
}

// timersStand checks that no timer ticks during traffic that would start one.
func (m *machine) timersStand(streams *testnet.Streams) {
	m.t.Helper()
	var v *fairq.View
	m.Switch.Must(m.t, func() (err error) {
		v, err = fairq.Open(pinDir)
		return err
	})
	defer v.Close()
	count := func() (ticks uint64) {
		for id := range uint32(4) {
			s, err := v.Stats(id)
			if err != nil {
				m.t.Fatal(err)
			}
			ticks += s.Samples + s.SamplesByPacket
		}
		return ticks
	}
	before := count()
	streams.Progress(m.t, 500_000)
	if now := count(); now != before || now == 0 {
		m.t.Errorf("%d ticks after SIGTERM, %d before", now, before)
	}
}

// attachOthers attaches a foreign program at both ends of the chain of the data's port.
func (m *machine) attachOthers() (programs []*ebpf.Program) {
	m.t.Helper()
	stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { _ = stats.Close() })
	for _, anchor := range []link.Anchor{link.Head(), link.Tail()} {
		p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
			Name: "others", Type: ebpf.SchedCLS, License: "Dual BSD/GPL",
			Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()}, // TCX_NEXT
		})
		if err != nil {
			m.t.Fatal(err)
		}
		var l link.Link
		m.Switch.Must(m.t, func() (err error) {
			l, err = link.AttachTCX(link.TCXOptions{Interface: m.Port.Ifindex, Program: p, Attach: ebpf.AttachTCXEgress, Anchor: anchor})
			return err
		})
		m.t.Cleanup(func() { _, _ = l.Close(), p.Close() })
		programs = append(programs, p)
	}
	return programs
}

func runsOf(t *testing.T, p *ebpf.Program) uint64 {
	t.Helper()
	s, err := p.Stats()
	if err != nil {
		t.Fatal(err)
	}
	return s.RunCount
}
