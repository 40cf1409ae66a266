package telemetry_test

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cilium/ebpf"

	"weir/datapath/internal/frames"
	"weir/datapath/telemetry"
	"weir/datapath/testnet"
)

// Ports are added and removed while readings run and another port sends: no packet of that port is lost or counted twice. A port
// that takes the place of a removed one begins with nothing.
func TestTelemetry_AddAndRemove(t *testing.T) {
	const rounds, burst = 12, 200
	p := testnet.NewPath(t, testnet.PathOptions{PortBps: 50e6, Limit: 1 << 20, NoIPv6: true})
	testnet.Shape(t, p.In, 50e6, 1<<20, 10_000)
	tel := attachTo(t, telemetry.Config{Signals: allSignals, Room: 2}, telemetry.Port{PortRef: p.Port, N: 1})
	program := tel.Program(0)
	send := func(program *ebpf.Program) {
		t.Helper()
		s := frames.Segment{}
		s.From, s.To, s.TOS, s.Flags, s.FromPort, s.ToPort = netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("11.0.0.1"), 3, frames.SYN, 1, 2
		in := s.Append(nil)
		for range burst { // not Repeat: a signal would end the call, and the library would then repeat them all
			if _, err := program.Run(&ebpf.RunOptions{Data: in, Context: context(len(in), 0)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	var reading telemetry.Reading
	var first, second uint64 // packets of ports 1 and 2
	take := func() {
		read(t, tel, &reading)
		for i := range reading.Telemetry.Ports {
			if one := &reading.Telemetry.Ports[i]; one.N == 1 {
				first += one.Packets
			} else {
				second += one.Packets
			}
		}
	}
	end := make(chan struct{})
	var readings sync.WaitGroup
	readings.Go(func() {
		for {
			select {
			case <-end:
				return
			default:
				take()
			}
		}
	})
	other := telemetry.Port{PortRef: p.In, N: 2}
	for range rounds {
		send(program)
		if err := tel.Add(other); err != nil {
			t.Fatal(err)
		}
		send(program)
		if n := testnet.AttachedTo(t, p.In); n != 1 {
			t.Fatalf("%d programs at the added port", n)
		}
		send(tel.Program(1))
		if err := tel.Remove(2); err != nil {
			t.Fatal(err)
		}
		if n := testnet.AttachedTo(t, p.In); n != 0 {
			t.Fatalf("%d programs at the removed port", n)
		}
	}
	close(end)
	readings.Wait()
	take()
	take()
	if first != 2*rounds*burst {
		t.Errorf("port 1: %d packets, want %d", first, 2*rounds*burst)
	}
	if second > rounds*burst || second == 0 { // the last reading before a removal misses some
		t.Errorf("port 2: %d packets of %d", second, rounds*burst)
	}
	add := func() {
		t.Helper()
		if err := tel.Add(other); err != nil {
			t.Fatal(err)
		}
	}
	add()
	send(tel.Program(1)) // never read
	if err := tel.Remove(2); err != nil {
		t.Fatal(err)
	}
	add()
	before := second
	take()
	if second != before {
		t.Errorf("the port that was added again begins with %d packets of the one before", second-before)
	}
	send(tel.Program(1))
	take()
	if second != before+burst {
		t.Errorf("%d packets of the port that was added again, want %d", second-before, burst)
	}
	if err := tel.Add(telemetry.Port{PortRef: p.In, N: 3}); !errors.Is(err, telemetry.ErrFull) {
		t.Errorf("a third port: %v", err)
	}
	if err := tel.Remove(2); err != nil {
		t.Fatal(err)
	}
	if err := tel.Add(telemetry.Port{PortRef: p.In, N: 1}); err == nil || !strings.Contains(err.Error(), "another port has the number 1") {
		t.Errorf("the same number: %v", err)
	}
	if err := tel.Remove(7); err == nil || !strings.Contains(err.Error(), "there is no port 7") {
		t.Errorf("an unknown number: %v", err)
	}
}

// The first of two ports is removed: the other one is still read. When the first is added again, each port has its own packets.
func TestTelemetry_FirstPortRemoved(t *testing.T) {
	p := testnet.NewPath(t, testnet.PathOptions{PortBps: 50e6, Limit: 1 << 20, NoIPv6: true})
	testnet.Shape(t, p.In, 50e6, 1<<20, 10_000)
	first, second := telemetry.Port{PortRef: p.Port, N: 1}, telemetry.Port{PortRef: p.In, N: 2}
	tel := attachTo(t, telemetry.Config{Signals: allSignals, Room: 2}, first, second)
	s := frames.Segment{}
	s.From, s.To, s.TOS, s.Flags, s.FromPort, s.ToPort = netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("11.0.0.1"), 3, frames.SYN, 1, 2
	in := s.Append(nil)
	send := func(place, packets int) {
		t.Helper()
		for range packets {
			if _, err := tel.Program(place).Run(&ebpf.RunOptions{Data: in, Context: context(len(in), 0)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	var reading telemetry.Reading
	check := func(what string, want ...uint64) {
		t.Helper()
		read(t, tel, &reading)
		var got []uint64
		for i := range reading.Telemetry.Ports {
			got = append(got, reading.Telemetry.Ports[i].Packets)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %d packets, want %d", what, got, want)
		}
	}
	send(0, 3)
	send(1, 5)
	check("both", 3, 5)
	if err := tel.Remove(1); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		send(0, 7)
		check("without the first", 7)
	}
	if err := tel.Add(first); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		send(0, 2)
		send(1, 4)
		check("the first one again, now behind the second", 2, 4)
	}
	if n := tel.Late(); n != 0 {
		t.Errorf("%d readings waited", n)
	}
}
