package telemetry_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"weir/datapath/attach"
	"weir/datapath/internal/bpftest"
	"weir/datapath/internal/frames"
	"weir/datapath/internal/telemetrytest"
	"weir/datapath/telemetry"
	"weir/datapath/testnet"
)

// BenchmarkTelemetry times the program with BPF_PROG_TEST_RUN, in ns/packet above an empty program, and in hash lookups of the
// same run.
func BenchmarkTelemetry(b *testing.B) {
	p := newProgram(b)
	if err := p.Lookups.Put(telemetrytest.TelemetryLookupKey{Ifindex: 1}, uint64(1)); err != nil {
		b.Fatal(err)
	}
	if err := p.Sources.Put(keyOf("10.0.0.1"), uint32(5)); err != nil {
		b.Fatal(err)
	}
	arp := append([]byte{0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 2, 0x08, 0x06}, make([]byte, 46)...)
	data := segmentOf("10.0.0.1", "10.0.0.2", 0, frames.ACK, 1, 1, 1000)
	for _, r := range []struct {
		name string
		in   []byte
	}{
		{"not IP", arp},
		{"ACK", segmentOf("10.0.0.1", "10.0.0.2", 0, frames.ACK, 1, 1, 0)},
		{"data", data},
		{"data with CE", segmentOf("10.0.0.1", "10.0.0.2", 3, frames.ACK, 1, 1, 1000)},
		{"data, IPv6", segmentOf("fd00::1", "fd00::2", 0, frames.ACK, 1, 1, 1000)},
		{"RST", segmentOf("10.0.0.1", "10.0.0.3", 0, frames.RST, 1, 1, 0)},
	} {
		b.Run(r.name, func(b *testing.B) {
			unit := bpftest.Bench{Empty: p.Empty, Lookup: p.HashLookup}
			unit.Report(b, ebpf.RunOptions{Data: r.in}, p.WeirTelemetry, p.Empty, 1)
		})
	}
}

// BenchmarkTelemetry_Read times one reading of 48 ports, and its ratio to reading one element of a map by the system call
// ("elements") in the same run. At 5 ms, %cpu is its part of one processor.
func BenchmarkTelemetry_Read(b *testing.B) {
	n := testnet.NewNamespace(b)
	var ports []telemetry.Port
	n.Must(b, func() error {
		for i := range 48 {
			name := fmt.Sprintf("p%d", i)
			veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name + "x"}
			if err := netlink.LinkAdd(veth); err != nil {
				return err
			}
			l, err := netlink.LinkByName(name)
			if err != nil {
				return err
			}
			ports = append(ports, telemetry.Port{PortRef: attach.PortRef{Name: name, Ifindex: l.Attrs().Index, Enter: n.Enter}})
		}
		return nil
	})
	for _, p := range ports {
		testnet.Shape(b, p.PortRef, 1e9, 1<<20, 3028)
	}
	tel := attachTo(b, telemetry.Config{Signals: allSignals}, ports...)
	program := newProgram(b)
	key, value := keyOf("10.0.0.1"), uint32(5)
	if err := program.Sources.Put(key, value); err != nil {
		b.Fatal(err)
	}
	const lookups = 20_000
	began := time.Now()
	for range lookups {
		if err := program.Sources.Lookup(key, &value); err != nil {
			b.Fatal(err)
		}
	}
	element := time.Since(began).Nanoseconds() / lookups
	b.Run("quiet", func(b *testing.B) {
		var reading telemetry.Reading
		for b.Loop() {
			read(b, tel, &reading)
		}
		ns := float64(b.Elapsed().Nanoseconds()) / float64(b.N)
		b.ReportMetric(ns/float64(element), "elements")
		b.ReportMetric(ns/5e6*100, "%cpu")
	})
}
