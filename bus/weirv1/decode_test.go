package weirv1

import (
	"bytes"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"weir/law"
)

func origin() *Origin { return &Origin{Incarnation: 7, Sequence: 1, StampNs: 1e9} }

func controller() *Controller { return &Controller{Name: "c1", Run: 9} }

func report() *Telemetry {
	return &Telemetry{Origin: origin(), Switch: 3, IntervalNs: 5e6, Ports: []*PortReport{{
		Port: 1, BacklogBytes: 3000, PeakBytes: 9000, OfferedBytes: 1e6, DroppedPackets: 2, MarkedPackets: 5,
		Sources: []*SourceMarks{{Vm: 4, MarkedPackets: 3}, {Vm: 5, MarkedPackets: 2}},
	}}}
}

func flow() *Flow {
	return NewFlow(law.Flow{Src: netip.MustParseAddrPort("10.0.0.1:5000"), Dst: netip.MustParseAddrPort("10.0.0.2:80"), Proto: 6})
}

func grant() *Grant {
	return &Grant{Owner: 2, Kind: GrantKind_GRANT_KIND_WINDOW, Vm: 4, Peer: []byte{10, 0, 0, 2}, Flow: flow(), Value: 2920, LeaseNs: 5e8, Cause: 3}
}

func events() *Events {
	return &Events{
		Origin: origin(), Host: 8, Arrivals: []*Arrivals{{Port: 1, Syn: 2, Pairs: []*NewPair{{Source: []byte{10, 0, 0, 1}, Destination: []byte{10, 0, 0, 2}, Kinds: 1}}}},
		Drops: []*Drop{{Port: 1, Flow: flow()}}, Deadlines: []*Deadline{{Flow: flow(), SizeBytes: 1e5, WithinNs: 1e7, Value: 3, Number: 9}},
		Flows: []*FlowReport{{Port: 1, Flow: flow(), SentBytes: 1e5, Began: true}},
		State: &AgentState{Version: "1", Terms: []*SeenTerm{{Bucket: 2, Term: 5, Controller: controller()}}, Grants: []*LiveGrant{{Grant: grant(), Bucket: 2, Term: 5}},
			Plan:    &PlanState{Serial: 9, Problem: "too much", Ports: []*PortState{{Port: 1, Law: "fairq", Off: true, Reason: "no queue"}}},
			Refused: []*RefusedGrant{{Vm: 4, Owner: 7, Reason: "no_rate"}}, HostPlan: &PlanState{Serial: 8, Problem: "no uplink"}},
		Inventory: &Inventory{Serial: 1, Parts: 1, Hypervisor: &Hypervisor{Rate: 1e10, Labels: map[string]string{"rack": "1"}}, Guests: []*Guest{{
			Vm: 4, Name: "web", Port: "vnet0", Addresses: []*Range{NewRange(netip.MustParsePrefix("10.0.0.1/32"))}, Labels: map[string]string{"tier": "front"},
		}}},
	}
}

func command() *Command {
	return &Command{Bucket: 2, Term: 5, Controller: controller(), Sequence: 1, Incarnation: 7, EchoNs: 1e9, Grants: []*Grant{grant()}, Plan: plan(), HostPlan: hostPlan()}
}

func hostPlan() *HostPlan {
	return &HostPlan{Serial: 3, Guests: []*GuestShare{{Vm: 4, Rate: 1e8, Weight: 3, Excess: Excess_EXCESS_DROP}, {Vm: 5, Weight: 1}}}
}

func plan() *PortPlan {
	p := &PortPlan{
		Settings: []*LawSetting{{Law: "fairq", Params: []byte(`{"updates":10}`), Percent: 100}, {Law: "ecn", Params: []byte("{}"), Percent: 10}},
		Ports:    []*PlannedPort{{Port: 1, Settings: []uint32{0, 1}}, {Port: 2}},
	}
	if err := p.Number(); err != nil {
		panic(err)
	}
	return p
}

func heartbeat() *Heartbeat {
	return &Heartbeat{Controller: controller(), Sequence: 4, Held: []*HeldBucket{{Bucket: 2, Term: 5}}}
}

func pairMarks() *PairMarks {
	return &PairMarks{Origin: origin(), Pairs: []*MarkedPair{{Source: []byte{10, 0, 0, 1}, Vm: 9, Packets: 12}, {Source: []byte{10, 0, 0, 2}, Vm: 9, Packets: 1}}}
}

// row is a change that a decoder must refuse, with a part of its error.
type row struct {
	name   string
	m      message
	change func()
	want   string
}

func rows() []row {
	t, e, c, h := report, events, command, heartbeat
	var out []row
	tel := func(name, want string, f func(*Telemetry)) {
		m := t()
		out = append(out, row{name, m, func() { f(m) }, want})
	}
	evt := func(name, want string, f func(*Events)) {
		m := e()
		out = append(out, row{name, m, func() { f(m) }, want})
	}
	cmd := func(name, want string, f func(*Command)) {
		m := c()
		out = append(out, row{name, m, func() { f(m) }, want})
	}
	ctl := func(name, want string, f func(*Heartbeat)) {
		m := h()
		out = append(out, row{name, m, func() { f(m) }, want})
	}

	tel("no origin", "no origin", func(m *Telemetry) { m.Origin = nil })
	tel("incarnation 0", "no incarnation", func(m *Telemetry) { m.Origin.Incarnation = 0 })
	tel("stamp", "a stamp", func(m *Telemetry) { m.Origin.StampNs = 1 << 63 })
	tel("interval", "an interval", func(m *Telemetry) { m.IntervalNs = 0 })
	tel("ports", "1025 ports", func(m *Telemetry) {
		for i := range uint32(MaxPorts) {
			m.Ports = append(m.Ports, &PortReport{Port: i + 2})
		}
	})
	tel("port twice", "port 1 twice", func(m *Telemetry) { m.Ports = append(m.Ports, m.Ports[0]) })
	tel("sources", "more than 8192 sources", func(m *Telemetry) {
		for i := range uint32(MaxSources) {
			m.Ports[0].Sources = append(m.Ports[0].Sources, &SourceMarks{Vm: i + 10})
		}
	})
	tel("marks of sources", "more marks than", func(m *Telemetry) { m.Ports[0].Sources[0].MarkedPackets = 4 })
	tel("overflow of marks", "more marks than", func(m *Telemetry) { m.Ports[0].Sources[1].MarkedPackets = 1<<64 - 1 })
	tel("unknown marks", "more marks than", func(m *Telemetry) { m.Ports[0].UnknownMarks = 1 })
	tel("source twice", "twice", func(m *Telemetry) { m.Ports[0].Sources[1].Vm = 4 })
	tel("source 0", "no VM", func(m *Telemetry) { m.Ports[0].Sources[1].Vm = 0 })
	tel("counter", "a counter of", func(m *Telemetry) { m.Ports[0].BacklogBytes = 1 << 62 })

	evt("neither", "either a switch or a host", func(m *Events) { m.Host = 0 })
	evt("both", "either a switch or a host", func(m *Events) { m.Switch = 1 })
	evt("65 pairs", "65 new pairs", func(m *Events) {
		for range MaxPairs {
			m.Arrivals[0].Pairs = append(m.Arrivals[0].Pairs, m.Arrivals[0].Pairs[0])
		}
	})
	evt("no peer", "of 0 bytes", func(m *Events) { m.Arrivals[0].Pairs[0].Source = nil })
	evt("peer", "of 5 bytes", func(m *Events) { m.Arrivals[0].Pairs[0].Source = make([]byte, 5) })
	evt("4in6", "in 16 bytes", func(m *Events) {
		b := netip.MustParseAddr("::ffff:10.0.0.1").As16()
		m.Arrivals[0].Pairs[0].Source = b[:]
	})
	evt("unspecified", "the address 0.0.0.0", func(m *Events) { m.Arrivals[0].Pairs[0].Source = make([]byte, 4) })
	evt("kinds", "of the kinds 0x80", func(m *Events) { m.Arrivals[0].Pairs[0].Kinds = 1 << 7 })
	evt("families", "a pair of IPv4 and IPv6", func(m *Events) { m.Arrivals[0].Pairs[0].Source = netip.MustParseAddr("2001:db8::1").AsSlice() })
	evt("inventory without serial", "part 0 of 1 of inventory 0", func(m *Events) { m.Inventory.Serial = 0 })
	evt("part", "part 1 of 1", func(m *Events) { m.Inventory.Part = 1 })
	evt("parts", "of 65", func(m *Events) { m.Inventory.Parts = 65 })
	evt("a host with ports", "a host with ports", func(m *Events) { m.Inventory.Ports = []*SwitchPort{{Port: 1}} })
	evt("VM twice", "VM 4 twice", func(m *Events) { m.Inventory.Guests = append(m.Inventory.Guests, m.Inventory.Guests[0]) })
	evt("VM 0", "the number 0", func(m *Events) { m.Inventory.Guests[0].Vm = 0 })
	evt("range", "a range of 33 bits", func(m *Events) { m.Inventory.Guests[0].Addresses[0].Bits = 33 })
	evt("17 ranges", "17 ranges", func(m *Events) {
		for range MaxRanges {
			m.Inventory.Guests[0].Addresses = append(m.Inventory.Guests[0].Addresses, m.Inventory.Guests[0].Addresses[0])
		}
	})
	evt("name", "of printable UTF-8", func(m *Events) { m.Inventory.Guests[0].Name = "\x1b[2J" })
	evt("long label", "of 64 bytes", func(m *Events) { m.Inventory.Guests[0].Labels["tier"] = strings.Repeat("x", 64) })
	evt("label without key", "without a key", func(m *Events) { m.Inventory.Guests[0].Labels[""] = "x" })
	evt("drop", "without its flow", func(m *Events) { m.Drops[0].Flow = nil })
	evt("deadline", "size or time", func(m *Events) { m.Deadlines[0].WithinNs = 1 << 63 })
	evt("a deadline of no flow", "without its flow", func(m *Events) { m.Deadlines[0].Flow = nil })
	evt("a deadline of half a flow", "both ends", func(m *Events) { m.Deadlines[0].Flow.SourcePort = 0 })
	evt("a deadline of UDP", "both ends", func(m *Events) { m.Deadlines[0].Flow.Protocol = 17 })
	evt("value", "a value above 100", func(m *Events) { m.Deadlines[0].Value = 101 })
	evt("a report of no flow", "without its flow", func(m *Events) { m.Flows[0].Flow = nil })
	evt("a report of half a flow", "both ends", func(m *Events) { m.Flows[0].Flow.Destination = nil; m.Flows[0].Flow.DestinationPort = 0 })
	evt("bytes of a flow", "a counter of", func(m *Events) { m.Flows[0].SentBytes = 1 << 63 })
	evt("513 flows", "513 flows", func(m *Events) {
		for range MaxFlows {
			m.Flows = append(m.Flows, m.Flows[0])
		}
	})
	evt("257 drops", "257 drops", func(m *Events) {
		for range MaxDrops {
			m.Drops = append(m.Drops, m.Drops[0])
		}
	})
	evt("257 deadlines", "257 deadlines", func(m *Events) {
		for range MaxDeadlines {
			m.Deadlines = append(m.Deadlines, m.Deadlines[0])
		}
	})
	evt("version", "a version", func(m *Events) { m.State.Version = strings.Repeat("x", 129) })
	evt("bucket twice", "bucket 2 twice", func(m *Events) { m.State.Terms = append(m.State.Terms, m.State.Terms[0]) })
	evt("term 0", "term 0", func(m *Events) { m.State.Terms[0].Term = 0 })
	evt("term that overflows", "term 18446744073709551615", func(m *Events) { m.State.Terms[0].Term = 1<<64 - 1 })
	evt("live grant", "a live grant", func(m *Events) { m.State.Grants[0].Grant = nil })

	evt("rate of the uplink", "an uplink of", func(m *Events) { m.Inventory.Hypervisor.Rate = MaxRate + 1 })
	evt("address of the uplink", "0102 is no address of a device", func(m *Events) { m.Inventory.Hypervisor.Frames = []byte{1, 2} })
	evt("group address of the uplink", "is no address of a device", func(m *Events) { m.Inventory.Hypervisor.Frames = []byte{1, 2, 3, 4, 5, 6} })
	evt("switch of a host", "no agent's name", func(m *Events) { m.Inventory.Hypervisor.Switches = []string{"tor1", "a.b"} })
	evt("17 switches of a host", "17 switches", func(m *Events) { m.Inventory.Hypervisor.Switches = make([]string, MaxSwitches+1) })
	evt("label of a host", "of printable UTF-8", func(m *Events) { m.Inventory.Hypervisor.Labels["rack"] = "\x1b[2J" })
	evt("a host with laws", "a host with ports", func(m *Events) { m.Inventory.Laws = []string{"fairq"} })
	evt("257 ports with problems", "257 ports with problems", func(m *Events) {
		for range MaxStates {
			m.State.Plan.Ports = append(m.State.Plan.Ports, m.State.Plan.Ports[0])
		}
	})
	evt("state of no law", "the state of no law", func(m *Events) { m.State.Plan.Ports[0].Law = "" })
	evt("reason", "a reason of", func(m *Events) { m.State.Plan.Ports[0].Reason = "\x1b[2J" })
	evt("problem", "a reason of", func(m *Events) { m.State.Plan.Problem = strings.Repeat("x", MaxReason+1) })
	evt("65 refused grants", "65 refused grants", func(m *Events) {
		for range MaxRefused {
			m.State.Refused = append(m.State.Refused, m.State.Refused[0])
		}
	})
	evt("owner of a refused grant", "owner 256", func(m *Events) { m.State.Refused[0].Owner = 256 })

	cmd("plan without number", "without a serial number", func(m *Command) { m.Plan.Serial = 0 })
	cmd("host plan without number", "without a serial number", func(m *Command) { m.HostPlan.Serial = 0 })
	cmd("4098 VMs of a plan", "4098 VMs of a plan", func(m *Command) {
		for i := range uint32(MaxGuests) {
			m.HostPlan.Guests = append(m.HostPlan.Guests, &GuestShare{Vm: i + 9})
		}
	})
	cmd("planned VM twice", "VM 5 without a number, or twice", func(m *Command) { m.HostPlan.Guests[0].Vm = 5 })
	cmd("planned VM 0", "VM 0 without a number", func(m *Command) { m.HostPlan.Guests[0].Vm = 0 })
	cmd("rate of a plan", "VM 4: 100000000000001 bit/s", func(m *Command) { m.HostPlan.Guests[0].Rate = MaxRate + 1 })
	cmd("excess of a plan", "VM 4: excess 3", func(m *Command) { m.HostPlan.Guests[0].Excess = 3 })
	cmd("weight of a plan", "a weight of 1048577", func(m *Command) { m.HostPlan.Guests[0].Weight = MaxWeight + 1 })
	evt("problem of a host plan", "a reason of 8 bytes", func(m *Events) { m.State.HostPlan.Problem = "no\x1buplink"[:8] })
	cmd("65 settings", "65 settings", func(m *Command) {
		for len(m.Plan.Settings) <= MaxSettings {
			m.Plan.Settings = append(m.Plan.Settings, m.Plan.Settings[0])
		}
	})
	cmd("1026 ports of a plan", "1026 ports of a plan", func(m *Command) {
		for i := range uint32(MaxPorts) {
			m.Plan.Ports = append(m.Plan.Ports, &PlannedPort{Port: i + 9})
		}
	})
	cmd("planned port twice", "port 1 twice", func(m *Command) { m.Plan.Ports[1].Port = 1 })
	cmd("no such setting", "has setting 2 of 2", func(m *Command) { m.Plan.Ports[0].Settings[1] = 2 })
	cmd("law twice", "the law fairq twice", func(m *Command) { m.Plan.Ports[0].Settings[1] = 0 })
	cmd("9 laws of a port", "9 laws of a port", func(m *Command) { m.Plan.Ports[0].Settings = make([]uint32, MaxPortLaws+1) })
	cmd("law of a plan", "not the name of a law", func(m *Command) { m.Plan.Settings[0].Law = "fair.q" })
	cmd("percent", "101 % of the flows", func(m *Command) { m.Plan.Settings[0].Percent = 101 })
	cmd("params", "that are not JSON", func(m *Command) { m.Plan.Settings[0].Params = []byte("{") })
	cmd("long params", "that are not JSON, or above", func(m *Command) {
		m.Plan.Settings[0].Params = []byte(`"` + strings.Repeat("x", MaxParams) + `"`)
	})

	cmd("bucket", "bucket 1024", func(m *Command) { m.Bucket = 1024 })
	cmd("controller", "no controller", func(m *Command) { m.Controller = nil })
	cmd("controller's name", "valid name", func(m *Command) { m.Controller.Name = "a.b" })
	cmd("controller's run", "without a run", func(m *Command) { m.Controller.Run = 0 })
	cmd("sequence", "sequence number", func(m *Command) { m.Sequence = 0 })
	cmd("echo", "an echo", func(m *Command) { m.EchoNs = 1 << 63 })
	cmd("1025 grants", "1025 grants", func(m *Command) {
		for range MaxGrants {
			m.Grants = append(m.Grants, &Grant{Kind: GrantKind_GRANT_KIND_PAUSE})
		}
	})
	cmd("owner", "owner 256", func(m *Command) { m.Grants[0].Owner = 256 })
	cmd("no kind", "unknown kind 0", func(m *Command) { m.Grants[0].Kind = 0 })
	cmd("kind", "unknown kind 5", func(m *Command) { m.Grants[0].Kind = 5 })
	cmd("marks", "value is", func(m *Command) { m.Grants[0].Kind, m.Grants[0].Value = GrantKind_GRANT_KIND_MARKS, 1<<40+1 })
	cmd("window", "value is", func(m *Command) { m.Grants[0].Value = MaxWindow + 1 })
	cmd("window 0", "use a pause", func(m *Command) { m.Grants[0].Value = 0 })
	cmd("pause with a value", "value is 2920", func(m *Command) { m.Grants[0].Kind = GrantKind_GRANT_KIND_PAUSE })
	cmd("lease", "a lease of", func(m *Command) { m.Grants[0].LeaseNs = uint64(MaxLease) + 1 })
	cmd("peer", "peer: an address of 3", func(m *Command) { m.Grants[0].Peer = make([]byte, 3) })
	cmd("port", "ports 65536", func(m *Command) { m.Grants[0].Flow.SourcePort = 65536 })
	cmd("protocol", "protocol 256", func(m *Command) { m.Grants[0].Flow.Protocol = 256 })
	cmd("families", "between IPv4 and IPv6", func(m *Command) { a := netip.MustParseAddr("fe80::1").As16(); m.Grants[0].Flow.Source = a[:] })
	cmd("empty flow", "an empty flow", func(m *Command) { m.Grants[0].Flow = &Flow{} })
	cmd("port without address", "no address", func(m *Command) { m.Grants[0].Flow.Source = nil })

	ctl("bucket", "bucket 1024", func(m *Heartbeat) { m.Held[0].Bucket = 1024 })
	ctl("bucket twice", "bucket 2 twice", func(m *Heartbeat) { m.Held = append(m.Held, m.Held[0]) })
	ctl("controller", "no controller", func(m *Heartbeat) { m.Controller = nil })
	return append(out, marksRows()...)
}

func marksRows() (out []row) {
	mrk := func(name, want string, f func(*PairMarks)) {
		m := pairMarks()
		out = append(out, row{name, m, func() { f(m) }, want})
	}
	mrk("no origin of marks", "no origin", func(m *PairMarks) { m.Origin = nil })
	mrk("no sequence of marks", "without a sequence number", func(m *PairMarks) { m.Origin.Sequence = 0 })
	mrk("no pair", "of no pair", func(m *PairMarks) { m.Pairs = nil })
	mrk("1025 pairs", "1025 pairs", func(m *PairMarks) {
		for len(m.Pairs) <= MaxMarkedPairs {
			m.Pairs = append(m.Pairs, m.Pairs[0])
		}
	})
	mrk("source of marks", "of 3 bytes", func(m *PairMarks) { m.Pairs[0].Source = make([]byte, 3) })
	mrk("receiver 0", "marks of VM 0", func(m *PairMarks) { m.Pairs[0].Vm = 0 })
	mrk("no marks", "0 marks", func(m *PairMarks) { m.Pairs[0].Packets = 0 })
	mrk("too many marks", "4294967297 marks", func(m *PairMarks) { m.Pairs[0].Packets = 1<<32 + 1 })
	return out
}

func decodeAs(m message, b []byte) (message, error) {
	switch m.(type) {
	case *Telemetry:
		return new(TelemetryDecoder).Decode(b)
	case *Events:
		return DecodeEvents(b)
	case *Command:
		return DecodeCommand(b)
	case *PairMarks:
		return DecodePairMarks(b)
	}
	return DecodeHeartbeat(b)
}

// Each row is accepted before its change and refused after it, by the decoder and by Encode.
func TestDecode_Refuses(t *testing.T) {
	for _, r := range rows() {
		b, err := Encode(r.m)
		if err != nil {
			t.Fatalf("%s: before the change: %v", r.name, err)
		}
		got, err := decodeAs(r.m, b)
		if err != nil || !proto.Equal(got, r.m) {
			t.Fatalf("%s: before the change: %v, %v", r.name, got, err)
		}
		r.change()
		if _, err := Encode(r.m); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), r.want) {
			t.Errorf("%s: encoded with error %v, want %q", r.name, err, r.want)
		}
		if b, err = proto.Marshal(r.m); err != nil {
			t.Fatal(err)
		}
		if len(b) > MaxMessage {
			r.want = "bytes, want at most"
		}
		if _, err := decodeAs(r.m, b); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), r.want) {
			t.Errorf("%s: decoded with error %v, want %q", r.name, err, r.want)
		}
	}
}

func TestDecode_RefusesLongMessages(t *testing.T) {
	b, err := proto.Marshal(report())
	if err != nil {
		t.Fatal(err)
	}
	b = append(b, 0xfa, 0x01) // field 31, unknown, of some bytes
	filler := MaxMessage - len(b) - 3
	b = append(b, byte(filler&0x7f|0x80), byte(filler>>7&0x7f|0x80), byte(filler>>14))
	b = append(b, make([]byte, filler)...)
	got, err := new(TelemetryDecoder).Decode(b)
	if err != nil || !proto.Equal(got, report()) {
		t.Fatalf("%d bytes: %v", len(b), err)
	}
	if _, err := new(TelemetryDecoder).Decode(append(b, 0)); !errors.Is(err, ErrMalformed) {
		t.Errorf("%d bytes: %v", len(b)+1, err)
	}
}

// The largest useful messages fit: a switch of 48 ports with 128 sources each, and a full list of grants by flow.
func TestEncode_LargestFit(t *testing.T) {
	m := &Telemetry{Origin: &Origin{Incarnation: 1 << 63, Sequence: 1 << 60, StampNs: 1 << 60}, Switch: 1 << 63, IntervalNs: 5e6}
	for p := range uint32(48) {
		r := &PortReport{Port: p, BacklogBytes: 1 << 30, PeakBytes: 1 << 30, OfferedBytes: 1 << 60, DroppedPackets: 1 << 50, MarkedPackets: 1 << 60}
		for v := range uint32(128) {
			r.Sources = append(r.Sources, &SourceMarks{Vm: 1<<31 + v, MarkedPackets: 1 << 40})
		}
		m.Ports = append(m.Ports, r)
	}
	b, err := Encode(m)
	if err != nil {
		t.Error(err)
	}
	t.Logf("telemetry: %d bytes", len(b))
	c := command()
	for len(c.Grants) < MaxGrants {
		g := grant()
		six := netip.MustParseAddr("2001:db8::ffff:1").As16()
		g.Peer, g.Flow.Source, g.Flow.Destination, g.Cause = six[:], six[:], six[:], 1<<63
		c.Grants = append(c.Grants, g)
	}
	if b, err = Encode(c); err != nil {
		t.Error(err)
	}
	t.Logf("grants: %d bytes", len(b))
	c.Grants = nil
	for i := range uint32(MaxPorts - 2) {
		c.Plan.Ports = append(c.Plan.Ports, &PlannedPort{Port: 1<<31 + i, Settings: []uint32{0, 1}})
	}
	for len(c.Plan.Settings) < 20 {
		c.Plan.Settings = append(c.Plan.Settings, &LawSetting{Law: "fairq", Params: []byte(`"` + strings.Repeat("x", MaxParams-2) + `"`), Percent: 100})
	}
	if b, err = Encode(c); err != nil {
		t.Error(err)
	}
	t.Logf("plan: %d bytes", len(b))
}

// A grant of a law survives the way there and back.
func TestGrant_ThereAndBack(t *testing.T) {
	addr := rapid.Custom(func(t *rapid.T) netip.Addr {
		if rapid.Bool().Draw(t, "six") {
			return netip.AddrFrom16([16]byte(append([]byte{0x20}, rapid.SliceOfN(rapid.Byte(), 15, 15).Draw(t, "address")...)))
		}
		return netip.AddrFrom4([4]byte(append([]byte{10}, rapid.SliceOfN(rapid.Byte(), 3, 3).Draw(t, "address")...)))
	})
	rapid.Check(t, func(t *rapid.T) {
		g := law.Grant{
			Owner: law.Owner(rapid.Byte().Draw(t, "owner")), Kind: law.Kind(rapid.IntRange(0, 2).Draw(t, "kind")),
			Lease: time.Duration(rapid.Int64Range(0, int64(MaxLease)).Draw(t, "lease")), Cause: rapid.Uint64().Draw(t, "cause"),
		}
		if g.Kind != law.PauseGrant {
			g.Value = rapid.Uint64Range(1, MaxWindow).Draw(t, "value")
		}
		if rapid.Bool().Draw(t, "pair") {
			g.Key.Pair = law.Pair{VM: law.VM(rapid.Uint32().Draw(t, "vm")), Peer: addr.Draw(t, "peer")}
		}
		if rapid.Bool().Draw(t, "flow") {
			a := addr.Draw(t, "src")
			b := addr.Filter(func(b netip.Addr) bool { return b.Is4() == a.Is4() }).Draw(t, "dst")
			g.Key.Flow = law.Flow{Src: netip.AddrPortFrom(a, rapid.Uint16().Draw(t, "sport")), Dst: netip.AddrPortFrom(b, rapid.Uint16().Draw(t, "dport")), Proto: 6}
		}
		c := command()
		c.Grants = []*Grant{NewGrant(g)}
		b, err := Encode(c)
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeCommand(b)
		if err != nil || got.GetGrants()[0].Law() != g {
			t.Fatalf("%v, %v, want %v", got, err, g)
		}
	})
}

// A kind that the bus does not know is not sent.
func TestEncode_RefusesUnknownKinds(t *testing.T) {
	c := command()
	c.Grants = []*Grant{NewGrant(law.Grant{Kind: 77, Value: 1})}
	if _, err := Encode(c); !errors.Is(err, ErrMalformed) {
		t.Error(err)
	}
}

func TestValidName(t *testing.T) {
	for name, want := range map[string]bool{
		"a": true, "rack1-sw2": true, "0": true, strings.Repeat("a", 63): true, strings.Repeat("a", 64): false, "": false, "-a": false,
		"a.b": false, "*": false, ">": false, "A": false, "ä": false, "a b": false, "a/b": false,
	} {
		if ValidName(name) != want {
			t.Errorf("%q: %v", name, !want)
		}
	}
}

// fuzz checks that an accepted message is one that Encode accepts, with the same meaning after the way there and back.
func fuzz(f *testing.F, seed message) {
	for _, r := range rows() {
		if b, err := proto.Marshal(r.m); err == nil {
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeAs(seed, b)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatalf("another error: %v", err)
			}
			return
		}
		again, err := Encode(m)
		if err != nil && len(b) < MaxMessage/2 {
			t.Fatalf("accepted, and not encoded: %v", err)
		}
		if back, err := decodeAs(seed, again); err == nil && !proto.Equal(m, back) {
			t.Fatalf("%v became %v", m, back)
		}
		if c, ok := m.(*Command); ok {
			for _, g := range c.GetGrants() {
				if back := NewGrant(g.Law()); !sameGrant(back, g) {
					t.Fatalf("%v became %v", g, back)
				}
			}
		}
	})
}

func sameGrant(a, b *Grant) bool {
	x, errA := proto.MarshalOptions{Deterministic: true}.Marshal(a)
	y, errB := proto.MarshalOptions{Deterministic: true}.Marshal(b)
	return errA == nil && errB == nil && bytes.Equal(x, y)
}

func FuzzTelemetry(f *testing.F) { fuzz(f, report()) }
func FuzzEvents(f *testing.F)    { fuzz(f, events()) }
func FuzzCommand(f *testing.F)   { fuzz(f, command()) }
func FuzzHeartbeat(f *testing.F) { fuzz(f, heartbeat()) }
func FuzzPairMarks(f *testing.F) { fuzz(f, pairMarks()) }
