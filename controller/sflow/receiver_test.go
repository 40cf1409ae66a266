package sflow

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"weir/law"
	"weir/law/telemetry"
)

var (
	sender = netip.MustParseAddr("192.0.2.11")
	a, b   = netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	six    = netip.MustParseAddr("2001:db8::1")
)

func words(w ...uint32) (out []byte) {
	for _, n := range w {
		out = binary.BigEndian.AppendUint32(out, n)
	}
	return out
}

// opaque is data with its length, padded.
func opaque(data []byte) []byte {
	out := append(words(uint32(len(data))), data...)
	for len(out)%4 != 0 {
		out = append(out, 0)
	}
	return out
}

func join(parts ...[]byte) (out []byte) {
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

// frame is the begin of a packet from a VM with this ECN field.
func frame(from netip.Addr, ecn byte, tags int) []byte {
	f := make([]byte, 12)
	for range tags {
		f = append(f, 0x81, 0, 0, 5)
	}
	if from.Is4() {
		f = append(f, 8, 0, 0x45, ecn, 0, 40, 0, 0, 0, 0, 64, 17, 0, 0)
		return append(append(f, from.AsSlice()...), 10, 9, 9, 9, 0, 1, 0, 2, 0, 20, 0, 0)
	}
	f = append(f, 0x86, 0xdd, 0x60, ecn<<4, 0, 0, 0, 8, 17, 64)
	return append(append(f, from.AsSlice()...), make([]byte, 24)...)
}

// flow is a sample of a packet.
func flow(rate, in, out uint32, header []byte, expanded bool) []byte {
	record := join(words(rawHeader), opaque(join(words(headerEthernet, 1500, 4), opaque(header))))
	if expanded {
		return join(words(flowSampleExpanded), opaque(join(words(1, 0, in, rate, 1000, 0, 0, in, 0, out, 1), record)))
	}
	return join(words(flowSample), opaque(join(words(1, in, rate, 1000, 0, in, out, 1), record)))
}

// counted is a sample of an interface's counters.
func counted(index uint32, bytes uint64, packets, drops uint32, expanded bool) []byte {
	body := join(words(index, 6), make([]byte, 8), words(1, 3), make([]byte, 8+6*4), binary.BigEndian.AppendUint64(nil, bytes), words(packets, 0, 0, drops, 0, 0))
	record := join(words(interfaceCounters), opaque(body))
	if expanded {
		return join(words(counterSampleExpanded), opaque(join(words(1, 0, index, 1), record)))
	}
	return join(words(counterSample), opaque(join(words(1, index, 1), record)))
}

func datagramOf(sequence, uptimeMs uint32, samples ...[]byte) []byte {
	return join(words(version5, addressIPv4), sender.AsSlice(), words(0, sequence, uptimeMs, uint32(len(samples))), join(samples...))
}

func vmAt(at netip.Addr) law.VM {
	return map[netip.Addr]law.VM{a: 1, b: 2, six: 1}[at]
}

func readings(r *Receiver) (out []telemetry.Telemetry) {
	r.Readings(time.Second, vmAt, func(e *telemetry.Telemetry) { out = append(out, *e) })
	return out
}

// Samples with CE are the marks of their VM times the sampling rate, by the interface that they came in by. Packets with another ECN
// field, by another interface, or that are not IP, are no marks. Counters give what was sent and dropped since the last ones.
func TestReceiver(t *testing.T) {
	const ce, ect = 3, 2
	for _, expanded := range []bool{false, true} {
		r := New([]Switch{{Address: sender, Number: 5, Ports: []uint32{1, 2}}, {Address: a, Number: 6}}, nil)
		r.Take(netip.AddrFrom16(sender.As16()), datagramOf(1, 10,
			flow(100, 1, 9, frame(a, ce, 0), expanded), flow(100, 1, 9, frame(b, ce, 1), expanded), flow(50, 1, 9, frame(a, ce, 2), expanded),
			flow(100, 1, 9, frame(a, ect, 0), expanded), flow(100, 2, 9, frame(six, ce, 0), expanded), flow(100, 2, 9, frame(sender, ce, 0), expanded),
			flow(100, 3, 9, frame(a, ce, 0), expanded), flow(100, 1, 9, frame(a, ce, 3), expanded), flow(100, 1, 9, []byte{1}, expanded), flow(0, 1, 9, frame(a, ce, 0), expanded),
			counted(9, 1<<40, 1<<32-10, 7, expanded), join(words(77), opaque([]byte("other"))), // of an unknown format
		))
		r.Take(sender, datagramOf(2, 20, counted(9, 1<<40+15000, 0, 9, expanded)))
		port := func(n uint32, p telemetry.Port) telemetry.Port { p.N = n; return p }
		want := []telemetry.Telemetry{{At: 5, T: time.Second, Ports: []telemetry.Port{
			port(1, telemetry.Port{Marks: telemetry.Marks{Packets: 250, ByVM: []telemetry.VMMarks{{VM: 1, Packets: 150}, {VM: 2, Packets: 100}}}}),
			port(2, telemetry.Port{Marks: telemetry.Marks{Packets: 200, ByVM: []telemetry.VMMarks{{VM: 1, Packets: 100}}, Unknown: 100}}),
			port(9, telemetry.Port{Packets: 12, Bytes: 15000, SentBytes: 15000, Drops: 2}),
		}}}
		if diff := cmp.Diff(want, readings(r), cmpopts.IgnoreUnexported(telemetry.Port{}, telemetry.Marks{}, telemetry.VMMarks{})); diff != "" {
			t.Errorf("expanded %v: %s", expanded, diff)
		}
		if got := readings(r); got != nil {
			t.Errorf("read twice: %+v", got)
		}
		c := r.Counts()
		if c.Datagrams != 2 || c.Samples != 10 || c.Marked != 5 || c.Counters != 2 || c.Refused["rate"] != 1 || len(c.Refused) != 1 {
			t.Errorf("expanded %v: %+v", expanded, c)
		}
	}
}

// Datagrams of others, sent again, late, cut short or of another version have no effect and are counted. Lost ones are counted, and a
// switch that begins anew is heard.
func TestReceiver_Refuses(t *testing.T) {
	r := New([]Switch{{Address: sender, Number: 5}}, nil)
	whole := datagramOf(1, 5000, flow(1, 1, 2, frame(a, 3, 0), false))
	r.Take(sender, whole)
	for i, row := range []struct {
		from   netip.Addr
		b      []byte
		reason string
	}{
		{a, whole, "sender"}, {sender, whole, "old"}, {sender, datagramOf(0, 5000), "old"}, {sender, append(words(4), whole[4:]...), "malformed"},
		{sender, append(words(version5, 3), whole[8:]...), "malformed"}, {sender, datagramOf(5, 5010), ""}, {sender, datagramOf(4, 5005), "old"}, {sender, datagramOf(1, 100), ""},
		{sender, nil, "malformed"}, {sender, append(datagramOf(2, 110)[:24], words(1)...), "malformed"},
	} {
		before := r.Counts()
		r.Take(row.from, row.b)
		after := r.Counts()
		if row.reason == "" && (after.Datagrams != before.Datagrams+1 || len(after.Refused) != len(before.Refused)) || row.reason != "" && after.Refused[row.reason] != before.Refused[row.reason]+1 {
			t.Errorf("row %d: %+v after %+v", i, after, before)
		}
	}
	if lost := r.Counts().Lost; lost != 3 {
		t.Errorf("%d were lost, want 3", lost)
	}
	for n := range len(whole) {
		cut := New([]Switch{{Address: sender, Number: 5}}, nil)
		if cut.Take(sender, whole[:n]); cut.Counts().Refused["malformed"] != 1 {
			t.Errorf("the first %d bytes are taken", n)
		}
	}
}

// Tables are bounded: interfaces, sub-agents, and addresses of an interface.
func TestReceiver_Bounded(t *testing.T) {
	r := New([]Switch{{Address: sender, Number: 5}}, nil)
	for n := range uint32(maxPorts + 10) {
		d := datagramOf(n+1, n, flow(1, n, 2, frame(a, 3, 0), false))
		r.Take(sender, d)
	}
	for n := range uint32(100) {
		from := netip.AddrFrom4([4]byte{10, 1, 0, byte(n)})
		r.Take(sender, datagramOf(10_000+n, 10_000, flow(1, 1, 2, frame(from, 3, 0), false)))
	}
	for n := range uint32(maxSubAgents + 3) {
		d := datagramOf(1, 1)
		binary.BigEndian.PutUint32(d[12:], n)
		r.Take(sender, d)
	}
	c := r.Counts()
	if c.Refused["ports"] != 10 || c.Refused["subagents"] != 3 {
		t.Errorf("%+v", c)
	}
	e := readings(r)
	if len(e) != 1 || len(e[0].Ports) != maxPorts {
		t.Fatalf("%d readings", len(e))
	}
	if m := e[0].Ports[1].Marks; m.Packets != 101 || m.Rest != 101-maxSources || m.Unknown != maxSources-1 {
		t.Errorf("%+v", m)
	}
}

// gopacket reads the same from a datagram. Its decoder makes a packet of each header and an object of each record; ours reads in place.
func TestDecode_AsGopacket(t *testing.T) {
	f := frame(a, 3, 0)
	d := datagramOf(7, 8, flow(100, 1, 9, f, false), counted(8, 1<<40, 12, 3, false))
	p, ok := gopacket.NewPacket(d, layers.LayerTypeSFlow, gopacket.Default).Layer(layers.LayerTypeSFlow).(*layers.SFlowDatagram)
	if !ok || len(p.FlowSamples) != 1 || len(p.CounterSamples) != 1 {
		t.Fatalf("%+v", p)
	}
	if len(p.FlowSamples[0].Records) != 1 || len(p.CounterSamples[0].Records) != 1 {
		t.Fatalf("%+v", p)
	}
	got := &seen{}
	if err := decode(d, got); err != nil {
		t.Fatal(err)
	}
	s, raw := p.FlowSamples[0], p.FlowSamples[0].Records[0].(layers.SFlowRawPacketFlowRecord)
	c := p.CounterSamples[0].Records[0].(layers.SFlowGenericInterfaceCounters)
	want := seen{
		datagram{p.SubAgentID, p.SequenceNumber, p.AgentUptime},
		packet{s.SamplingRate, s.InputInterface, s.OutputInterface, raw.Header.Data()[:len(f)]},
		counters{c.IfIndex, c.IfOutOctets, c.IfOutUcastPkts, c.IfOutMulticastPkts, c.IfOutBroadcastPkts, c.IfOutDiscards},
	}
	if diff := cmp.Diff(want, *got, cmp.AllowUnexported(seen{}, datagram{}, packet{}, counters{})); diff != "" {
		t.Error(diff)
	}
}

type seen struct {
	D datagram
	P packet
	C counters
}

func (s *seen) begin(d *datagram) bool { s.D = *d; return true }
func (s *seen) packet(p *packet)       { s.P = *p }
func (s *seen) counters(c *counters)   { s.C = *c }

// No datagram makes the receiver panic, or its marks more than its samples can have.
func FuzzTake(f *testing.F) {
	for _, expanded := range []bool{false, true} {
		f.Add(datagramOf(1, 1, flow(100, 1, 9, frame(a, 3, 1), expanded), counted(9, 1, 2, 3, expanded), flow(1, 1, 1, frame(six, 3, 0), expanded)))
	}
	f.Fuzz(func(t *testing.T, d []byte) {
		r := New([]Switch{{Address: sender, Number: 5}}, nil)
		r.Take(sender, d)
		c := r.Counts()
		marks := uint64(0)
		for _, e := range readings(r) {
			for i := range e.Ports {
				m := &e.Ports[i].Marks
				of := m.Unknown + m.Rest
				for _, v := range m.ByVM {
					of += v.Packets
				}
				if of != m.Packets {
					t.Errorf("%+v", m)
				}
				marks += m.Packets
			}
		}
		if marks > c.Marked*maxRate || c.Samples+c.Counters > uint64(len(d)) {
			t.Errorf("%d marks, %+v", marks, c)
		}
	})
}
