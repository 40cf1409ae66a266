//go:build cgo

package native_test

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"weir/datapath/fairq/model"
	"weir/datapath/native"
	"weir/internal/testseed"
)

// The vectors of the hardware's law. rtl/tb/bench_law.cpp reads them too. Lines:
//
//	c REGISTERS   a new queue, in the order of native.FairSwitchConfig
//	o, f, r       SYN-ACK, FIN, RST
//	d PAYLOAD     data
//	s WORDS       a sample
//	= FLOWS AGGREGATE WINDOW AVERAGE MSS   the state after the lines above it
const fairSwitchVectors = "../core/testdata/fairswitch.txt"

// fairSwitchPair is the C law and the slow model, side by side.
type fairSwitchPair struct {
	law   *native.FairSwitch
	model *model.FairSwitch
	lines bytes.Buffer
}

func newFairSwitchPair(c native.FairSwitchConfig) *fairSwitchPair {
	p := &fairSwitchPair{law: native.NewFairSwitch(c), model: &model.FairSwitch{FairSwitchConfig: model.FairSwitchConfig{
		QueueWords: int(c.QueueWords), AggregateMax: int(c.AggregateMaxBytes), Floor: int(c.FloorBytes), MSSMax: int(c.MSSMaxBytes),
		IdleSamples: int(c.IdleSamples), Threshold: int(c.Threshold), Updates: int(c.Updates)}}}
	fmt.Fprintf(&p.lines, "c %d %d %d %d %d %d %d\n", c.QueueWords, c.AggregateMaxBytes, c.FloorBytes, c.MSSMaxBytes,
		c.IdleSamples, c.Threshold, c.Updates)
	return p
}

// do passes an event to both.
func (p *fairSwitchPair) do(event byte, n int) error {
	switch event {
	case 'o':
		p.law.Count(native.FairSwitchOpens)
		p.model.Opens()
	case 'f':
		p.law.Count(native.FairSwitchCloses)
		p.model.Closes()
	case 'r':
		p.law.Count(native.FairSwitchAborts)
		p.model.Aborts()
	case 'd':
		p.law.Data(uint32(n))
		p.model.Data(n)
	case 's':
		for p.law.Job() { // an event that waits comes before the sample, as in the model
		}
		p.law.Sample(uint32(n))
		p.model.Sample(n)
	default:
		return fmt.Errorf("no event %q", event)
	}
	if event == 'd' || event == 's' {
		fmt.Fprintf(&p.lines, "%c %d\n", event, n)
	} else {
		fmt.Fprintf(&p.lines, "%c\n", event)
	}
	return nil
}

// settle lets the divider finish and compares all registers.
func (p *fairSwitchPair) settle() error {
	for p.law.Job() {
	}
	p.model.Settle()
	m, s := p.model, p.law.State()
	want := native.FairSwitchState{
		AggregateBytes: uint32(m.Aggregate), WindowBytes: uint32(m.Window), AverageWords: uint32(m.Average()),
		Flows: uint16(m.Flows), SYNs: uint16(m.SYNs), FINs: uint16(m.FINs), RSTs: uint16(m.RSTs), MSSBytes: uint16(m.MSS),
	}
	if s != want {
		return fmt.Errorf("the law has %+v, the model %+v", s, want)
	}
	fmt.Fprintf(&p.lines, "= %d %d %d %d %d\n", m.Flows, m.Aggregate, m.Window, m.Average(), m.MSS)
	return nil
}

// fairSwitchConfig draws registers, many of them at their limits.
func fairSwitchConfig(rng *rand.Rand) native.FairSwitchConfig {
	pick := func(values ...int) int { return values[rng.IntN(len(values))] }
	return native.FairSwitchConfig{
		QueueWords:        uint32(pick(0, 1, 65536, 1<<18-1, 1+rng.IntN(1<<(4+rng.IntN(14))))),
		AggregateMaxBytes: uint32(pick(0, 0, 1<<20, 1<<30-1, rng.IntN(1<<22))),
		FloorBytes:        uint16(pick(0, 1, 1461, 1461, 8961, 65535)),
		MSSMaxBytes:       uint16(pick(0, 1460, 1460, 8960, 1<<14-1)),
		IdleSamples:       uint16(pick(0, 0, 3, 50)),
		Threshold:         uint8(pick(0, 1, 2, 2, 3, 15)),
		Updates:           uint8(pick(0, 1, 10, 10, 32, 63)),
	}
}

// fairSwitchCase plays n random events: bursts of changes that the divider coalesces, samples around the target, data.
func fairSwitchCase(rng *rand.Rand, c native.FairSwitchConfig, n int) (*fairSwitchPair, error) {
	p := newFairSwitchPair(c)
	around := p.model.Target()
	for range n {
		event, value := byte('s'), 0
		switch rng.IntN(8) {
		case 0, 1:
			event = 'o'
		case 2:
			event = 'f'
		case 3:
			event = []byte("rd")[rng.IntN(2)]
			value = []int{0, 1, 536, 1448, 65535}[rng.IntN(5)]
		default:
			value = min(rng.IntN(2*around+rng.IntN(64)+1), 1<<18-1)
		}
		if err := p.do(event, value); err != nil {
			return p, err
		}
		if event == 's' && rng.IntN(4) == 0 { // a change of the count drops the update that is due
			if err := p.do("of"[rng.IntN(2)], 0); err != nil {
				return p, err
			}
		}
		if event == 's' || rng.IntN(3) == 0 {
			if err := p.settle(); err != nil {
				return p, err
			}
		}
	}
	return p, p.settle()
}

// TestFairSwitch_EqualsTheModel compares the C law with the slow model on random events.
func TestFairSwitch_EqualsTheModel(t *testing.T) {
	rng := testseed.New(t)
	for range 300 {
		p, err := fairSwitchCase(rng, fairSwitchConfig(rng), 1000)
		if err != nil {
			t.Fatalf("%v; the last events:\n%s", err, tail(p.lines.Bytes(), 400))
		}
	}
}

func tail(text []byte, n int) []byte { return text[max(0, len(text)-n):] }

// directed are cases with a purpose each.
func directed() map[string]func(p *fairSwitchPair) error {
	many := func(p *fairSwitchPair, n int, event byte, value int) error {
		for range n {
			if err := p.do(event, value); err != nil {
				return err
			}
			if event == 's' {
				if err := p.settle(); err != nil {
					return err
				}
			}
		}
		return p.settle()
	}
	play := func(steps ...any) func(p *fairSwitchPair) error {
		return func(p *fairSwitchPair) error {
			for i := 0; i < len(steps); i += 3 {
				if err := many(p, steps[i].(int), byte(steps[i+1].(rune)), steps[i+2].(int)); err != nil {
					return err
				}
			}
			return nil
		}
	}
	return map[string]func(p *fairSwitchPair) error{
		"1 the windows of 1 to 40 flows": play(1, 'o', 0, 1, 'o', 0, 1, 'o', 0, 1, 'o', 0, 6, 'o', 0, 30, 'o', 0, 39, 'f', 0, 1, 'f', 0, 1, 'f', 0),
		"2 more FINs than SYN-ACKs":      play(5, 'f', 0, 2, 'o', 0, 3, 'r', 0, 1, 'o', 0),
		"3 an empty queue, then a full":  play(3, 'o', 0, 1, 'd', 1448, 64, 's', 0, 64, 's', 65535),
		"4 around the target":            play(2, 'o', 0, 40, 's', 16384, 33, 's', 16383, 33, 's', 16385),
		"5 the count at its upper end":   play(4100, 'o', 0, 12, 's', 60000, 10, 'f', 0),
		"6 no data for the idle time":    play(3, 'o', 0, 1, 'd', 100, 30, 's', 9, 1, 'o', 0, 1, 'd', 1460, 30, 's', 9),
		"7 a change between two updates": play(1, 'o', 0, 15, 's', 0, 1, 'o', 0, 7, 's', 0),
		"8 the counters at their ends":   play(4095, 'o', 0, 4095, 'f', 0, 4095, 'r', 0),
		"9 the most of all windows":      play(1, 'o', 0, 1, 'o', 0, 20, 's', 0, 1, 'f', 0),
	}
}

func directedConfig(name string) native.FairSwitchConfig {
	c := native.FairSwitchConfig{QueueWords: 65536, FloorBytes: 1461, MSSMaxBytes: 1460, Threshold: 2, Updates: 10}
	switch name[0] {
	case '6':
		c.IdleSamples = 20
	case '9':
		c.AggregateMaxBytes = 20_000
	}
	return c
}

// fairSwitchText returns the vectors. The results are the slow model's; an error says that the law has others.
func fairSwitchText() ([]byte, error) {
	var b bytes.Buffer
	b.WriteString("# The hardware's law; results of datapath/fairq/model. go test ./datapath/native -run FairSwitchVectors -update\n")
	cases := directed()
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		p := newFairSwitchPair(directedConfig(name))
		if err := cases[name](p); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		fmt.Fprintf(&b, "# %s\n", name)
		b.Write(p.lines.Bytes())
	}
	rng := rand.New(rand.NewPCG(23, 1))
	for range 40 {
		p, err := fairSwitchCase(rng, fairSwitchConfig(rng), 120)
		if err != nil {
			return nil, err
		}
		b.Write(p.lines.Bytes())
	}
	return b.Bytes(), nil
}

// TestFairSwitchVectors compares the vectors with the model and the C law.
func TestFairSwitchVectors(t *testing.T) {
	got, err := fairSwitchText()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(fairSwitchVectors, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(fairSwitchVectors)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs from the law and its model: if that is intended, run this test with -update and review the difference", fairSwitchVectors)
	}
	if n := bytes.Count(want, []byte("\n= ")); n < 3000 {
		t.Errorf("%d results: there are thousands", n)
	}
}

// The printed count |SYN - FIN| grows when connections end that the switch did not see begin. Ours stops at 0 (FQ-1).
func TestFairSwitch_FINsOfUnseenConnections(t *testing.T) {
	printed := func(syns, fins int) int { return max(syns-fins, fins-syns) }
	q := native.NewFairSwitch(directedConfig("-"))
	for range 10 {
		q.Count(native.FairSwitchCloses)
	}
	if n := printed(0, 10); n != 10 {
		t.Fatalf("printed: %d flows of none", n)
	}
	if s := q.State(); s.Flows != 0 || s.FINs != 10 {
		t.Errorf("%+v: want 0 flows and 10 FINs", s)
	}
	q.Count(native.FairSwitchOpens)
	for q.Job() {
	}
	if s := q.State(); s.Flows != 1 || s.WindowBytes != 65536/4*8 {
		t.Errorf("%+v: want the whole target for 1 flow", s)
	}
}
