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
	t     *testing.T
	law   *native.FairQ
	turns []lawtraceLawTurn
	looks []lawtraceLawLook
	acks  []lawtraceLawAck
	next  uint64
}

var madeConfig = lawtraceFairqConfig{TargetBytes: 62_500, BufferBytes: 125_000, TickNs: 500_000, PeriodNs: 5_000_000, CapBytes: 80_000, MssMaxBytes: 1460}

func (m *made) head(record uint32) lawtraceLawHead {
	m.next++
	return lawtraceLawHead{Number: m.next, Port: 7, Record: record}
}

// turn lets the law be called once, and grants its window.
func (m *made) turn(event uint32, now uint64, value uint32, call func()) {
	call()
	s := m.law.State()
	t := lawtraceLawTurn{
		Head: m.head(recordTurn), Config: madeConfig, GrantQ8: s.WindowQ8, Grant: grantLaw, Calls: 1,
		State: lawtraceFairqState{
			AggregateQ8: s.AggregateQ8, WindowQ8: s.WindowQ8, UnderByteNs: s.UnderByteNs, OverByteNs: s.OverByteNs,
			LastSampleNs: s.LastSampleNs, BacklogSum: s.BacklogSum, Rest: s.Rest, RestNs: s.RestNs, ElapsedNs: s.ElapsedNs,
			Flows: s.Flows, MssBytes: s.MSSBytes, SlowStart: s.SlowStart, Next: s.Next, Backlogs: s.Backlogs,
		},
	}
	if s.Flows == 0 {
		t.GrantQ8 = 0
	}
	t.Call[0] = lawtraceLawCall{NowNs: now, Event: event, Value: value, WindowQ8: s.WindowQ8, AggregateQ8: s.AggregateQ8}
	m.turns = append(m.turns, t)
}

func (m *made) ack() {
	a := native.WindowAck{WindowQ8: m.law.WindowQ8(), FloorBytes: native.WindowFloor(1460, 1448), Ack: 1000, Field: 60_000, Shift: 7, Shrink: native.ShrinkAvoid}
	edge := native.WindowEdge{Right: 900, Known: 1}
	r := lawtraceLawAck{
		Head: m.head(recordAck), GrantQ8: a.WindowQ8, Mss: 1460, Gso: 1448, Divisor: 1, Packets: 1, Own: a.Field, Called: 1, Held: 1, Running: 1,
		Before: lawtraceWindowEdge{Right: edge.Right, Known: edge.Known},
		Ack:    lawtraceWindowAck{WindowQ8: a.WindowQ8, FloorBytes: a.FloorBytes, Ack: a.Ack, Field: a.Field, Shift: a.Shift, Shrink: uint8(a.Shrink)},
	}
	r.Answer = native.WindowRewrite(&a, &edge)
	r.Left, r.Wire = r.Answer, r.Answer
	r.After = lawtraceWindowEdge{Right: edge.Right, Known: edge.Known}
	m.acks = append(m.acks, r)
}

func newMade(t *testing.T) *made {
	m := &made{t: t, law: native.NewFairQ(configOf(&madeConfig), 0)}
	t.Cleanup(m.law.Close)
	m.law.SetState(native.FairQState{})
	m.turn(eventSawMSS, 0, 1460, func() { m.law.SawMSS(1460) })
	m.turns[0].Grant, m.turns[0].GrantQ8 = grantSame, 0
	m.turn(eventFlows, 1e9, 3, func() { m.law.SetFlows(1e9, 3) })
	m.ack()
	for i := range uint64(40) {
		now, backlog := 1e9+i*600_000, uint32(i*5000)
		m.turn(eventSample, now, backlog, func() { m.law.Sample(now, backlog) })
		m.looks = append(m.looks, lawtraceLawLook{Head: m.head(recordLook), Config: madeConfig, NowNs: now + 1_500_001, Answer: 1})
		m.ack()
	}
	m.turn(eventRestart, 0, 0, m.law.Restart)
	return m
}

// raw are the records, acks before looks before turns: as a ring buffer may give them.
func (m *made) raw() (out []byte) {
	for _, list := range []any{m.acks, m.looks, m.turns} {
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

// One bit that the kernel wrote otherwise is one difference, whichever it is, and is told with its call.
func TestReplay_FindsEveryBit(t *testing.T) {
	r := newMade(t).replay()
	if r.Differences != 0 || r.Acks != 41 || countOf(r, countSample) != 40 || countOf(r, countRewrite) != 41 || r.Compared < 300 {
		t.Fatalf("%+v", r)
	}
	type change = func(*lawtraceLawTurn, *lawtraceLawLook, *lawtraceLawAck)
	for _, c := range []struct {
		first       string
		differences uint64 // 2: what comes next has it from there
		change      change
	}{
		{"fairq_sample(now_ns=1010800000, backlog_bytes=90000)", 1, func(turn *lawtraceLawTurn, _ *lawtraceLawLook, _ *lawtraceLawAck) { turn.Call[0].WindowQ8 ^= 1 }},
		{"all the state", 2, func(turn *lawtraceLawTurn, _ *lawtraceLawLook, _ *lawtraceLawAck) { turn.State.RestNs ^= 1 }},
		{"port 7, record 58: the window granted", 2, func(turn *lawtraceLawTurn, _ *lawtraceLawLook, _ *lawtraceLawAck) { turn.GrantQ8 ^= 1 }},
		{"fairq_packet_may_sample", 1, func(_ *lawtraceLawTurn, look *lawtraceLawLook, _ *lawtraceLawAck) { look.Answer = 0 }},
		{"whether the law is asked", 1, func(_ *lawtraceLawTurn, _ *lawtraceLawLook, ack *lawtraceLawAck) { ack.Called = 0 }},
		{"window_floor(1460, 1448)", 1, func(_ *lawtraceLawTurn, _ *lawtraceLawLook, ack *lawtraceLawAck) { ack.Ack.FloorBytes++ }},
		{"window_rewrite", 1, func(_ *lawtraceLawTurn, _ *lawtraceLawLook, ack *lawtraceLawAck) { ack.Answer++ }},
		{"the edge that is kept", 1, func(_ *lawtraceLawTurn, _ *lawtraceLawLook, ack *lawtraceLawAck) { ack.After.Right++ }},
		{"the field in the packet", 1, func(_ *lawtraceLawTurn, _ *lawtraceLawLook, ack *lawtraceLawAck) { ack.Wire++ }},
		{"the field that it leaves with", 1, func(_ *lawtraceLawTurn, _ *lawtraceLawLook, ack *lawtraceLawAck) {
			ack.Left, ack.Wire = ack.Own, ack.Own
		}},
	} {
		m := newMade(t)
		c.change(&m.turns[20], &m.looks[20], &m.acks[20])
		if r := m.replay(); r.Differences != c.differences || !strings.Contains(r.First, c.first) {
			t.Errorf("%s: %d differences, the first:\n%s", c.first, r.Differences, r.First)
		}
	}
}

// User space that stops a port is told from a law that grants another window: by an ACK, and by a turn that leaves what
// is granted as it is.
func TestReplay_StoppedPort(t *testing.T) {
	for running, differences := range map[uint8]uint64{0: 0, 1: 1} {
		m := newMade(t)
		m.ack()
		ack := &m.acks[len(m.acks)-1]
		ack.GrantQ8, ack.Called, ack.Running, ack.Left, ack.Wire = 0, 0, running, ack.Own, ack.Own
		if r := m.replay(); r.Differences != differences {
			t.Errorf("an ACK, running %d: %d differences, the first:\n%s", running, r.Differences, r.First)
		}
		m = newMade(t)
		m.turn(eventFlows, 2e9, 2, func() { m.law.SetFlows(2e9, 2) })
		turn := &m.turns[len(m.turns)-1]
		turn.Grant, turn.GrantQ8, turn.Running = grantSame, 0, uint32(running)
		if r := m.replay(); r.Differences != differences || countOf(r, countStopped) != 1-differences {
			t.Errorf("a turn, running %d: %d differences, the first:\n%s", running, r.Differences, r.First)
		}
	}
}

// A trace with a hole, or of which the end is missing, is refused; a file gives the same trace again.
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
		t.Error("a file is not as this test makes them")
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
	m.turns[3].Calls = 5
	trace, err := newTrace(m.raw())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := trace.Replay(); err == nil {
		t.Error("a turn with more calls than it has room for was replayed")
	}
}
