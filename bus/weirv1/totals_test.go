package weirv1

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"weir/law"
	"weir/law/telemetry"
)

// counted is the sum of events at a port.
type counted struct {
	Packets, Bytes, Sent, Drops, Marks, Unknown, Rest uint64
	ByVM                                              map[law.VM]uint64
	Began                                             telemetry.Counts
	Further                                           uint64
}

type sums map[uint32]*counted

func (s sums) at(n uint32) *counted {
	if s[n] == nil {
		s[n] = &counted{ByVM: map[law.VM]uint64{}}
	}
	return s[n]
}

func (s sums) add(e *telemetry.Telemetry) {
	for _, p := range e.Ports {
		c := s.at(p.N)
		c.Packets += p.Packets
		c.Bytes += p.Bytes
		c.Sent += p.SentBytes
		c.Drops += p.Drops
		c.Marks += p.Marks.Packets
		c.Unknown += p.Marks.Unknown
		c.Rest += p.Marks.Rest
		for _, v := range p.Marks.ByVM {
			c.ByVM[v.VM] += v.Packets
		}
	}
}

func (s sums) arrivals(e *telemetry.Arrivals) {
	for _, p := range e.Ports {
		c := s.at(p.N)
		for i, n := range []uint64{p.Counts.SYN, p.Counts.SYNACK, p.Counts.FIN, p.Counts.RST, p.Counts.Resume, p.Counts.Found, p.Counts.Request} {
			c.Began.Add(1<<i, n)
		}
		c.Further += p.Rest
	}
}

func drawPort(t *rapid.T, n uint32) telemetry.Port {
	few := rapid.Uint64Range(0, 5)
	if rapid.Bool().Draw(t, "quiet") {
		return telemetry.Port{N: n}
	}
	p := telemetry.Port{
		N: n, BacklogBytes: few.Draw(t, "backlog"), PeakBytes: few.Draw(t, "peak"), Packets: few.Draw(t, "packets"), Bytes: few.Draw(t, "bytes"),
		SentBytes: few.Draw(t, "sent"), Drops: few.Draw(t, "drops"),
	}
	for vm := law.VM(1); vm < 4; vm++ {
		if m := few.Draw(t, "marks"); m > 0 {
			p.Marks.ByVM = append(p.Marks.ByVM, telemetry.VMMarks{VM: vm, Packets: m})
			p.Marks.Packets += m
		}
	}
	p.Marks.Unknown, p.Marks.Rest = few.Draw(t, "unknown"), few.Draw(t, "rest")
	p.Marks.Packets += p.Marks.Unknown + p.Marks.Rest
	return p
}

func drawArrivals(t *rapid.T, n uint32) telemetry.PortArrivals {
	few := rapid.Uint64Range(0, 3)
	if rapid.Bool().Draw(t, "none") {
		return telemetry.PortArrivals{N: n}
	}
	return telemetry.PortArrivals{
		N: n, Counts: telemetry.Counts{
			SYN: few.Draw(t, "syn"), SYNACK: few.Draw(t, "synack"), FIN: few.Draw(t, "fin"), RST: few.Draw(t, "rst"),
			Resume: few.Draw(t, "resume"), Found: few.Draw(t, "found"), Request: few.Draw(t, "request"),
		}, Rest: few.Draw(t, "further"),
	}
}

// Messages are lost, late or duplicated: a controller counts each packet once, at the latest when a message with all
// totals has come, and each arrival at the latest with the next one.
func TestTotals_LostMessagesLoseNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		totals, differences, decoder := NewTotals(), &Differences{}, &TelemetryDecoder{}
		want, got := sums{}, sums{}
		var sequences [2]uint64
		send := func(encode func(o *Origin) ([]byte, error), which, step int, lose bool, take func(b []byte)) {
			sequences[which]++
			b, err := encode(&Origin{Incarnation: 9, Sequence: sequences[which], StampNs: uint64(step) * 1e6})
			if err != nil {
				t.Fatal(err)
			}
			if lose && sequences[which] > 1 { // without the first message, what was counted before it is not known
				return
			}
			take(b)
			take(b) // the second is late
		}
		steps := rapid.IntRange(1, 30).Draw(t, "steps")
		for step := 1; step <= steps+wholeEvery; step++ {
			e := &telemetry.Telemetry{At: 3, T: time.Millisecond}
			a := &telemetry.Arrivals{At: 3, T: time.Millisecond}
			for n := uint32(1); n <= 3; n++ {
				p, begun := telemetry.Port{N: n}, telemetry.PortArrivals{N: n}
				if step <= steps {
					p, begun = drawPort(t, n), drawArrivals(t, n)
				} else {
					begun.Counts.SYN = 1 // so that there is a message
				}
				e.Ports, a.Ports = append(e.Ports, p), append(a.Ports, begun)
			}
			want.add(e)
			want.arrivals(a)
			lose := step <= steps && rapid.Bool().Draw(t, "lost")
			if m := totals.Telemetry(e); m != nil {
				send(func(o *Origin) ([]byte, error) { m.Origin = o; return Encode(m) }, 0, step, lose, func(b []byte) {
					m, err := decoder.Decode(b)
					if err != nil {
						t.Fatal(err)
					}
					if e := differences.Telemetry(m); e != nil {
						got.add(e)
					}
				})
			}
			if m := totals.Arrivals(a); m != nil {
				send(func(o *Origin) ([]byte, error) { m.Origin = o; return Encode(m) }, 1, step, lose, func(b []byte) {
					m, err := DecodeEvents(b)
					if err != nil {
						t.Fatal(err)
					}
					if e := differences.Arrivals(m); e != nil {
						got.arrivals(e)
					}
				})
			}
		}
		for n, c := range got {
			if d := cmp.Diff(want.at(n), c); d != "" {
				t.Fatalf("port %d: sent, received:\n%s", n, d)
			}
		}
		for n, c := range want {
			if got[n] == nil && c.Packets+c.Began.SYN > 0 {
				t.Fatalf("port %d is missing", n)
			}
		}
	})
}

// A port that is quiet is left out after its second quiet message.
func TestTotals_LeavesOutWhatIsQuiet(t *testing.T) {
	totals := NewTotals()
	busy := telemetry.Port{N: 1, Packets: 1, Marks: telemetry.Marks{Packets: 2, ByVM: []telemetry.VMMarks{{VM: 7, Packets: 2}}}}
	var listed []int
	for _, p := range []telemetry.Port{{N: 1}, busy, {N: 1}, {N: 1}, {N: 1}} {
		m := totals.Telemetry(&telemetry.Telemetry{At: 1, T: 1, Ports: []telemetry.Port{p}})
		listed = append(listed, len(m.GetPorts()))
	}
	if d := cmp.Diff([]int{0, 1, 1, 0, 0}, listed); d != "" {
		t.Error(d)
	}
}

// A controller that comes later knows no earlier totals: it must not take them for packets of one interval. The same holds for
// a restarted agent, whose totals begin anew.
func TestDifferences_BeginAnew(t *testing.T) {
	message := func(incarnation, sequence, packets uint64) *Telemetry {
		return &Telemetry{Origin: &Origin{Incarnation: incarnation, Sequence: sequence, StampNs: sequence * 1e6}, IntervalNs: 5e6,
			Ports: []*PortReport{{Port: 1, OfferedPackets: packets, BacklogBytes: 10}}}
	}
	d := &Differences{}
	for i, step := range []struct {
		m       *Telemetry
		packets uint64
		since   time.Duration
	}{
		{message(1, 50, 1000), 0, 5 * time.Millisecond},
		{message(1, 53, 1010), 10, 3 * time.Millisecond},
		{message(2, 1, 4), 4, 5 * time.Millisecond},
		{message(2, 2, 5), 1, time.Millisecond},
	} {
		e := d.Telemetry(step.m)
		if e == nil || e.Ports[0].Packets != step.packets || e.T != step.since || e.Ports[0].BacklogBytes != 10 {
			t.Errorf("message %d: %+v, want %d packets in %v", i, e, step.packets, step.since)
		}
	}
	if e := d.Telemetry(message(2, 2, 5)); e != nil {
		t.Errorf("a message that came twice: %+v", e)
	}
}

// GC-1: marks are the new total minus the old one. As printed, old minus new, they are none until the totals begin anew, and then some
// that nobody made.
func TestGC1_NewMinusOld(t *testing.T) {
	d, old := &Differences{}, int64(0)
	for i, row := range []struct{ total, ours, printed int64 }{{8, 8, 0}, {16, 8, 0}, {16, 0, 0}, {20, 4, 0}, {3, 3, 17}} {
		e := d.Telemetry(&Telemetry{Origin: &Origin{Incarnation: 1, Sequence: uint64(i + 1)}, IntervalNs: 5e6,
			Ports: []*PortReport{{Port: 1, MarkedPackets: uint64(row.total)}}})
		if got := e.Ports[0].Marks.Packets; got != uint64(row.ours) {
			t.Errorf("%d after %d: %d marks, want %d", row.total, old, got, row.ours)
		}
		if printed := max(0, old-row.total); printed != row.printed {
			t.Errorf("%d after %d: printed %d marks, want %d", row.total, old, printed, row.printed)
		}
		old = row.total
	}
}

// A guest can send from addresses that no message may have: such pairs are counted and not listed.
func TestTotals_AddressesOfAGuest(t *testing.T) {
	good := telemetry.Pair{Source: netip.MustParseAddr("10.0.0.1"), Destination: netip.MustParseAddr("10.0.0.2"), Kinds: telemetry.SYN}
	pairs := []telemetry.Pair{good}
	for _, a := range []string{"0.0.0.0", "::", "::ffff:10.0.0.1"} {
		bad := good
		bad.Source = netip.MustParseAddr(a)
		pairs = append(pairs, bad)
	}
	m := NewTotals().Arrivals(&telemetry.Arrivals{At: 1, Ports: []telemetry.PortArrivals{{N: 1, Counts: telemetry.Counts{SYN: 4}, Pairs: pairs}}})
	m.Origin = origin()
	if _, err := Encode(m); err != nil || len(m.GetArrivals()[0].GetPairs()) != 1 || m.GetArrivals()[0].GetFurther() != 3 {
		t.Errorf("%v: %v", m, err)
	}
}

// An inventory of any size within the limits comes as parts, and is whole again in any order of them.
func TestInventory_Parts(t *testing.T) {
	var guests []*Guest
	for i := range uint32(MaxGuests) {
		guests = append(guests, &Guest{Vm: i + 1, Name: "a-virtual-machine", Addresses: []*Range{NewRange(netip.MustParsePrefix("10.0.0.0/8"))},
			Labels: map[string]string{"tenant": "one", "tier": "front"}})
	}
	parts, err := (&Inventory{Serial: 3, Guests: guests}).Split()
	if err != nil || len(parts) < 2 {
		t.Fatalf("%d parts: %v", len(parts), err)
	}
	var p Parts
	for _, old := range parts[1:] { // an inventory whose first part is lost
		if whole, err := p.Add(&Inventory{Serial: 2, Part: old.Part, Parts: old.Parts}); whole != nil || err != nil {
			t.Fatalf("an inventory without its first part: %v, %v", whole, err)
		}
	}
	for i := len(parts) - 1; i >= 0; i-- {
		b, err := Encode(&Events{Origin: origin(), Host: 1, Inventory: parts[i]})
		if err != nil {
			t.Fatal(err)
		}
		m, err := DecodeEvents(b)
		if err != nil {
			t.Fatal(err)
		}
		whole, err := p.Add(m.GetInventory())
		switch {
		case err != nil:
			t.Fatal(err)
		case (whole != nil) != (i == 0):
			t.Fatalf("part %d: whole %v", i, whole != nil)
		case whole != nil && len(whole.GetGuests()) != MaxGuests:
			t.Errorf("%d VMs", len(whole.GetGuests()))
		}
	}
	if _, err := (&Inventory{Serial: 1, Guests: append(guests, guests[0])}).Split(); err == nil {
		t.Error("more VMs than the most")
	}
	twice := &Inventory{Serial: 5, Part: 0, Parts: 2, Guests: guests[:1]}
	if _, err := p.Add(twice); err != nil {
		t.Error(err)
	}
	if _, err := p.Add(&Inventory{Serial: 5, Part: 1, Parts: 2, Guests: guests[:1]}); err == nil {
		t.Error("a VM in two parts")
	}
}

// A switch lists as many sources of marks as it may. Those that are quiet make room for others at the agent and at the controller, and
// those that come back count right.
func TestTotals_QuietSourcesMakeRoom(t *testing.T) {
	const every = 5 * time.Millisecond
	totals, d, decoder := NewTotals(), Differences{}, TelemetryDecoder{}
	var sequence uint64
	got := sums{}
	read := func(by ...telemetry.VMMarks) {
		t.Helper()
		e := &telemetry.Telemetry{At: 1, T: every}
		for n := range uint32(4) { // a quarter of the VMs at each port
			p := telemetry.Port{N: n + 1, Packets: 100_000}
			for _, v := range by {
				if uint32(v.VM)%4 == n {
					p.Marks.ByVM = append(p.Marks.ByVM, v)
					p.Marks.Packets += v.Packets
				}
			}
			e.Ports = append(e.Ports, p)
		}
		m := totals.Telemetry(e)
		sequence++
		m.Origin = &Origin{Incarnation: 1, Sequence: sequence, StampNs: sequence * uint64(every)}
		b, err := Encode(m)
		if err != nil {
			t.Fatal(err)
		}
		if m, err = decoder.Decode(b); err != nil {
			t.Fatal(err)
		}
		got.add(d.Telemetry(m))
	}
	marks := func(first, n, packets int) (by []telemetry.VMMarks) {
		for vm := first; vm < first+n; vm++ {
			by = append(by, telemetry.VMMarks{VM: law.VM(vm), Packets: uint64(packets)})
		}
		return by
	}
	read(marks(1, MaxSources, 3)...)
	read(marks(MaxSources+1, 10, 7)...) // no room
	rest := got.at(2).Rest
	if of := law.VM(MaxSources + 1); rest == 0 || got.at(uint32(of)%4 + 1).ByVM[of] != 0 {
		t.Fatalf("%d marks without a name at port 2, VM %d has %d", rest, of, got.at(uint32(of)%4 + 1).ByVM[of])
	}
	for range unlisted + wholeEvery {
		read()
	}
	for range 3 {
		read(marks(MaxSources+1, 10, 7)...)
	}
	read(marks(1, 10, 2)...)
	for i, want := range map[law.VM]uint64{1: 5, 10: 5, 11: 3, MaxSources + 1: 21, MaxSources + 10: 21} {
		if n := got.at(uint32(i)%4 + 1).ByVM[i]; n != want {
			t.Errorf("VM %d has %d marks, want %d", i, n, want)
		}
	}
	if n := got.at(2).Rest; n != rest {
		t.Errorf("%d marks more without a name", n-rest)
	}
}
