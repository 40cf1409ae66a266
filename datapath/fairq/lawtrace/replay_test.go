//go:build cgo

package lawtrace

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"weir/datapath/native"
)

// made is the trace of a port as a kernel without faults would write it.
type made struct {
	t      *testing.T
	sw     *native.Switch
	turns  []lawtraceLawTurn
	looks  []lawtraceLawLook
	acks   []lawtraceLawAck
	counts []lawtraceLawCount
	next   uint64

	paces      []lawtraceLawPaces
	credits    []creditRecord
	asked      []lawtraceLawAsked
	nextCredit uint64
}

const madePort = 7

var madeConfig = lawtracePortConfig{
	Law:     lawtraceFairqConfig{TargetBytes: 62_500, BufferBytes: 125_000, TickNs: 500_000, PeriodNs: 5_000_000, CapBytes: 80_000, MssMaxBytes: 1460},
	EpochNs: 33e6, IdleNs: 1e9, MssUnknown: 1460,
}

func (m *made) head(record uint32) lawtraceLawHead {
	m.next++
	return lawtraceLawHead{Number: m.next, Port: madePort, Record: record}
}

// turn makes one event happen to the port.
func (m *made) turn(t native.Turn) {
	port := m.sw.Port(madePort)
	r := lawtraceLawTurn{
		Head: m.head(recordTurn), Config: madeConfig, NowNs: t.NowNs, Event: uint16(t.Event), Value: t.Value, DataSeen: uint8(port.DataSeen),
	}
	if t.Live {
		r.Live = 1
	}
	if t.Readable {
		r.Readable = 1
	}
	m.sw.Turn(madePort, &t)
	r.After, r.Running = port.Kept(), port.Running
	m.turns = append(m.turns, r)
}

// slot makes a direction take a slot, and the port count its flows again.
func (m *made) slot(now uint64) {
	slot := uint64(madePort+1)<<48 | m.sw.Port(madePort).Epoch
	m.sw.SlotComes(madePort, slot)
	m.counts = append(m.counts, lawtraceLawCount{Head: m.head(recordCount), New: slot, Answer: 1, Event: slotTaken})
	m.turn(native.Turn{Event: native.Recounted, NowNs: now, Live: true})
}

// leave makes a direction leave its slot.
func (m *made) leave(slot uint64) {
	r := lawtraceLawCount{Head: m.head(recordCount), Old: slot, Event: slotGoes}
	if m.sw.SlotGoes(madePort, slot) {
		r.Answer = 1
	}
	m.counts = append(m.counts, r)
}

// ack makes an acknowledgement leave; interval: in edge mode.
func (m *made) ack(interval native.EdgeTime) { m.ackWith(interval, 0, 0) }

// ackWith does so with a promise of the data's sender; credit: 1 with promises and credits.
func (m *made) ackWith(interval native.EdgeTime, promise uint16, credit uint8) {
	port, edge := m.sw.Port(madePort), native.WindowEdge{Right: 900, Known: 1}
	a := native.Ack{Ack: 1000, Field: 60_000, MSS: 1460, GSO: 1448, Shift: 7, Shrink: native.ShrinkAvoid, Promise: uint32(promise), Credit: uint32(credit)}
	r := lawtraceLawAck{
		Head: m.head(recordAck), Config: madeConfig, Ack: a.Ack, Own: a.Field, Gso: a.GSO, Shrink: uint8(a.Shrink), Packets: 1, Live: 1, Called: 1,
		End: lawtraceLawEnd{Mss: a.MSS, Shift: a.Shift}, Before: lawtraceWindowEdge{Right: edge.Right, Known: edge.Known},
	}
	r.Promise, r.Credit = promise, credit
	if r.Granted.WindowQ8 = port.GrantQ8; promise != 0 {
		r.Granted.WindowQ8 = uint64(promise) << 8
	}
	r.Floor = m.sw.Floor(madePort, a.MSS, a.GSO)
	end := endOf(&r.End)
	field := m.sw.Window(madePort, 0, &a, &edge)
	if interval > 0 {
		r.EdgeConfig.Interval, r.EdgeConfig.Lease, r.EdgeConfig.Change, r.Clock = uint32(interval), 1000, 32, 5000
		m.sw.SetEdge(native.EdgeConfig{Interval: interval, Lease: 1000, Change: 32})
		edge = native.WindowEdge{Right: 900, Known: 1}
		field = m.sw.Advertise(madePort, 5000, false, false, &a, &end, &edge)
		r.Advertises = 1
	}
	r.Law, r.Left, r.Wire = field.Law(), field.Left(), field.Left()
	r.After = lawtraceWindowEdge{Right: edge.Right, Known: edge.Known}
	r.EndAfter = lawtraceLawEnd{
		EdgeAdvertised: end.EdgeAdvertised, EdgeAdvertisedAt: end.EdgeAdvertisedAt, UpstreamAt: end.UpstreamAt, Upstream: end.Upstream, Mss: end.MSS, Shift: end.Shift,
	}
	m.acks = append(m.acks, r)
}

func newMade(t *testing.T) *made {
	m := &made{t: t, sw: native.NewSwitch(madePort+1, native.CountActive, native.EdgeConfig{})}
	t.Cleanup(m.sw.Close)
	config := portConfigOf(&madeConfig)
	m.sw.SetConfig(madePort, &config)
	m.turn(native.Turn{Event: native.SawMSS, Value: 1460})
	for range 3 {
		m.slot(1e9)
	}
	m.ack(0)
	for i := range uint64(40) {
		now := 1e9 + i*600_000
		m.turn(native.Turn{Event: native.Ticked, NowNs: now, Value: uint32(i * 5000), Live: true, Readable: true})
		m.looks = append(m.looks, lawtraceLawLook{Head: m.head(recordLook), Config: madeConfig.Law, NowNs: now + 1_500_001, Answer: 1})
		m.ack(native.EdgeTime(i % 2))
	}
	m.leave(uint64(madePort+1) << 48)
	m.turn(native.Turn{Event: native.Ticked, NowNs: 1e9 + 50*600_000, Live: true, Readable: true})
	for i := range uint64(3) { // user space has gone
		m.turn(native.Turn{Event: native.Ticked, NowNs: 1e9 + (60+i)*600_000, Readable: true})
	}
	m.turn(native.Turn{Event: native.Stopped})
	m.promises()
	return m
}

// raw returns the records, acks before looks before turns: a ring buffer may deliver them so.
func (m *made) raw() (out []byte) {
	for _, list := range []any{m.credits, m.asked, m.paces, m.acks, m.counts, m.looks, m.turns} {
		var err error
		if out, err = binary.Append(out, binary.LittleEndian, list); err != nil {
			m.t.Fatal(err)
		}
	}
	return out
}

func (m *made) replay() *Report {
	m.t.Helper()
	trace, err := newTrace(m.raw())
	if err != nil {
		m.t.Fatal(err)
	}
	r, err := trace.Replay()
	if err != nil {
		m.t.Fatal(err)
	}
	return r
}

func countOf(r *Report, what string) uint64 {
	return r.Calls[slices.IndexFunc(r.Calls, func(c Count) bool { return c.What == what })].N
}

// Replay finds any single bit that the kernel wrote otherwise, and reports it with its call.
func TestReplay_FindsEveryBit(t *testing.T) {
	r := newMade(t).replay()
	if r.Differences != 0 || r.Acks != 42 || countOf(r, countSample) != 42 || countOf(r, countRewrite) != 42 || countOf(r, countEdgeAdvertised) != 20 ||
		countOf(r, countReleased) != 3 || countOf(r, countSlots) != 3 || r.Compared < 300 {
		t.Fatalf("%+v", r)
	}
	for k, n := range r.Kinds {
		if n == 0 {
			t.Errorf("no answers about %v", Kind(k))
		}
	}
	turn := func(m *made, i int) *native.Port { // the port as the turn left it
		p := &native.Port{}
		kept := native.Kept(m.turns[i].After)
		p.SetKept(&kept)
		return p
	}
	changed := func(i int, change func(p *native.Port)) func(m *made) {
		return func(m *made) {
			p := turn(m, i)
			change(p)
			m.turns[i].After = p.Kept()
		}
	}
	for _, c := range []struct {
		first  string
		change func(m *made)
	}{
		{"port_ticked(now_ns=1009600000, backlog_bytes=80000, live=true): the law", changed(20, func(p *native.Port) { p.Law.WindowQ8 ^= 1 })},
		{"the law", changed(20, func(p *native.Port) { p.Law.RestNs ^= 1 })},
		{"port 7, record 57: port_ticked(now_ns=1009600000, backlog_bytes=80000, live=true): what is granted", changed(20, func(p *native.Port) { p.GrantQ8 ^= 1 })},
		{"what counts", changed(20, func(p *native.Port) { p.Wheel[2]++ })},
		{"what counts", changed(20, func(p *native.Port) { p.Epoch++ })},
		{"all the port", changed(20, func(p *native.Port) { p.TickedNs++ })},
		{"fairq_packet_may_sample", func(m *made) { m.looks[20].Answer = 0 }},
		{"slot_is_new(", func(m *made) { m.counts[1].Answer = 0 }},
		{"slot_goes(", func(m *made) { m.counts[3].Answer = 0 }},
		{"whether it is limited", func(m *made) { m.acks[20].Granted.WindowQ8 = 0; m.acks[20].Granted.WouldQ8 = 1 }},
		{"grant_floor(1460, 1448)", func(m *made) { m.acks[20].Floor++ }},
		{"what its window is limited to", func(m *made) { m.acks[20].Law++ }},
		{"the edge that is kept", func(m *made) { m.acks[20].After.Right++ }},
		{"the field in the packet", func(m *made) { m.acks[20].Wire++ }},
		{"the field that it leaves with", func(m *made) { m.acks[20].Left, m.acks[20].Wire = m.acks[20].Own, m.acks[20].Own }},
		{"whether it advertises", func(m *made) { m.acks[20].Advertises = 0 }},
		{"what is kept of what was advertised", func(m *made) { m.acks[20].EndAfter.EdgeAdvertised++ }},
		{"whether it is left to the edge", func(m *made) { m.acks[20].Leaves = leftToEdge }},
		{"all the port", func(m *made) { m.turns[20].Running ^= 1 }},
	} {
		m := newMade(t)
		c.change(m)
		if r := m.replay(); r.Differences == 0 || r.Differences > 8 || !strings.Contains(r.First, c.first) {
			t.Errorf("%s: %d differences, the first:\n%s", c.first, r.Differences, r.First)
		}
	}
}

// A turn during which user space changed the configuration is not compared. The replay continues from the
// kernel's result.
func TestReplay_TornConfiguration(t *testing.T) {
	m := newMade(t)
	m.turns[20].Torn, m.turns[20].Config.Law.TargetBytes = 1, 1
	if r := m.replay(); r.Differences != 0 || countOf(r, countTorn) != 1 {
		t.Errorf("%d differences, %d torn, the first:\n%s", r.Differences, countOf(r, countTorn), r.First)
	}
}

// A trace with a hole, or without its end, is refused. A file gives the same trace again.
func TestTrace_IsWhole(t *testing.T) {
	m := newMade(t)
	whole, err := newTrace(m.raw())
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if err := whole.Write(&file); err != nil {
		t.Fatal(err)
	}
	again, err := Read(bytes.NewReader(file.Bytes()))
	if err != nil || !bytes.Equal(again.raw, whole.raw) {
		t.Errorf("read again: %v", err)
	}
	n, raw, turn := uint64(len(whole.order)), m.raw(), sizes[recordTurn] // the last to be written, and of the port
	of := func(magic string, records uint64, raw ...[]byte) []byte {
		return append(binary.LittleEndian.AppendUint64([]byte(magic), records), bytes.Join(raw, nil)...)
	}
	if !bytes.Equal(of(magic, n, raw), file.Bytes()) {
		t.Error("Write makes another file than this test")
	}
	bad := map[string][]byte{
		"cut short": file.Bytes()[:file.Len()-1], "cut short by a record": file.Bytes()[:file.Len()-turn],
		"cut short behind its first line": []byte(magic), "a record less at the front": of(magic, n-1, raw[sizes[recordAck]:]),
		"another layout": of("weir law trace 1\n", n, raw), "no record": of(magic, 1, make([]byte, 20)),
		"a record twice": of(magic, n+1, raw, raw[:sizes[recordAck]]), "nothing": nil,
	}
	for what, text := range bad {
		if _, err := Read(bytes.NewReader(text)); err == nil {
			t.Errorf("%s: it was read", what)
		}
	}
	for what, change := range map[string]func(m *made){
		"a turn of no kind":  func(m *made) { m.turns[3].Event = 9 },
		"a count of no kind": func(m *made) { m.counts[1].Event = 9 },
	} {
		m := newMade(t)
		change(m)
		trace, err := newTrace(m.raw())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := trace.Replay(); err == nil {
			t.Errorf("%s was replayed", what)
		}
	}
}
