//go:build cgo

package lawtrace

import (
	"fmt"

	"weir/datapath/internal/vector"
	"weir/datapath/native"
)

// The rows of a report, in their order.
const (
	countFlows      = "fairq_flows"
	countSample     = "fairq_sample"
	countNoSample   = "queue read and not sampled (windows let go, or held in part)"
	countRestart    = "fairq_restart"
	countSawMSS     = "fairq_saw_mss"
	countLook       = "fairq_packet_may_sample"
	countOpening    = "fairq_opening_q8"
	countFloor      = "window_floor"
	countRewrite    = "window_rewrite"
	countSmaller    = "  of them: the window was small enough"
	countFree       = "  of them: of a flow that is not held, nothing written"
	countUngoverned = "ACKs whose data's port granted nothing"
	countStopped    = "ACKs and turns after user space had stopped their port"
	countLaw        = "turns that granted the law's window"
	countGiven      = "turns that granted another (windows let go, or held in part)"
)

var counts = []string{
	countFlows, countSample, countNoSample, countRestart, countSawMSS, countLook, countLaw, countGiven,
	countOpening, countFloor, countRewrite, countSmaller, countFree, countUngoverned, countStopped,
}

// Replay lets the native law go through the trace from each port's beginning, with its own state, and
// compares all that it says with what the kernel recorded: the whole state after each turn, the window
// granted, the floor, the field of each ACK and its edge. An error: the trace cannot be read.
func (t *Trace) Replay() (*Report, error) {
	r := &replay{trace: t}
	for _, what := range counts {
		r.count(what, 0)
	}
	defer r.end()
	for _, p := range t.order {
		if r.law == nil || r.port != p.port {
			r.begin(p.port)
		}
		r.number = p.number
		var err error
		switch p.record {
		case recordTurn:
			err = r.turn(p)
		case recordLook:
			err = r.look(p)
		case recordAck:
			err = r.ack(p)
		}
		if err != nil {
			return nil, err
		}
	}
	return &r.Report, nil
}

// replay is one port's law, as far as it was called.
type replay struct {
	Report
	trace  *Trace
	port   uint32
	number uint64
	law    *native.FairQ
	grant  uint64 // q8
}

func (r *replay) begin(port uint32) {
	r.end()
	r.port, r.grant = port, 0
	r.law = native.NewFairQ(native.FairQConfig{}, 0)
	r.law.SetState(native.FairQState{}) // as a map's element is before its first use
}

func (r *replay) end() {
	if r.law != nil {
		r.law.Close()
		r.law = nil
	}
}

// configure puts a configuration in place as user space does in the kernel: between two calls, and no event.
func (r *replay) configure(c *lawtraceFairqConfig) {
	config := configOf(c)
	if config == r.law.Config() {
		return
	}
	state := r.law.State()
	r.law.Close()
	r.law = native.NewFairQ(config, 0)
	r.law.SetState(state)
}

// check compares one answer, and says what differs: the call, and what it began with.
func (r *replay) check(same bool, call string, before, kernel, native any) {
	r.Compared++
	if same {
		return
	}
	r.Differences++
	if r.First != "" {
		return
	}
	r.First = fmt.Sprintf("port %d, record %d: %s\n  config%s\n", r.port, r.number, call, vector.Of(r.law.Config()))
	if before != nil {
		r.First += fmt.Sprintf("  before%s\n", text(before))
	}
	r.First += fmt.Sprintf("  kernel%s\n  native%s", text(kernel), text(native))
}

// text is a struct as test vectors have it, or a number.
func text(v any) string {
	switch v.(type) {
	case uint16, uint32, uint64, bool:
		return fmt.Sprintf(" %v", v)
	}
	return vector.Of(v).String()
}

func (r *replay) turn(p place) error {
	var t lawtraceLawTurn
	if err := r.trace.decode(p, &t); err != nil {
		return err
	}
	if int(t.Calls) > len(t.Call) {
		return fmt.Errorf("law trace: port %d, record %d: %d calls in a turn, there is room for %d", p.port, p.number, t.Calls, len(t.Call))
	}
	r.configure(&t.Config)
	before, last := r.law.State(), ""
	for _, c := range t.Call[:t.Calls] {
		began := r.law.State()
		name, err := r.call(&c)
		if err != nil {
			return fmt.Errorf("law trace: port %d, record %d: %w", p.port, p.number, err)
		}
		last = name
		s := r.law.State()
		r.check(s.WindowQ8 == c.WindowQ8 && s.AggregateQ8 == c.AggregateQ8, name, began,
			native.FairQState{WindowQ8: c.WindowQ8, AggregateQ8: c.AggregateQ8},
			native.FairQState{WindowQ8: s.WindowQ8, AggregateQ8: s.AggregateQ8})
	}
	kernel, ours := stateOf(&t.State), r.law.State()
	r.check(kernel == ours, "all the state, after "+last, before, kernel, ours)
	var want uint64
	switch t.Grant {
	case grantSame:
		r.stopped(t.GrantQ8, t.Running)
		want = r.grant
	case grantLaw:
		r.count(countLaw, 1)
		if r.law.Flows() > 0 {
			want = r.law.WindowQ8()
		}
	default:
		r.count(countGiven, 1)
		want = t.GrantQ8
	}
	r.check(want == t.GrantQ8, "the window granted, in 1/256 byte", r.grant, t.GrantQ8, want)
	r.law.SetState(kernel)
	r.grant = t.GrantQ8
	return nil
}

// stopped takes what a port grants to be what user space wrote, where it stopped the port: a turn that grants leaves
// the port's timer running.
func (r *replay) stopped(grantQ8 uint64, running uint32) {
	if r.grant == 0 || grantQ8 != 0 || running != 0 {
		return
	}
	r.count(countStopped, 1)
	r.grant = 0
}

// call makes one call of a turn, and gives it as it is written.
func (r *replay) call(c *lawtraceLawCall) (string, error) {
	switch c.Event {
	case eventRestart:
		r.count(countRestart, 1)
		r.law.Restart()
		return "fairq_restart()", nil
	case eventFlows:
		r.count(countFlows, 1)
		r.law.SetFlows(c.NowNs, c.Value)
		return fmt.Sprintf("fairq_flows(now_ns=%d, flows=%d)", c.NowNs, c.Value), nil
	case eventSample:
		r.count(countSample, 1)
		r.law.Sample(c.NowNs, c.Value)
		return fmt.Sprintf("fairq_sample(now_ns=%d, backlog_bytes=%d)", c.NowNs, c.Value), nil
	case eventNoSample:
		r.count(countNoSample, 1)
		s := r.law.State()
		s.LastSampleNs = c.NowNs
		r.law.SetState(s)
		return fmt.Sprintf("no sample at now_ns=%d", c.NowNs), nil
	case eventSawMSS:
		r.count(countSawMSS, 1)
		r.law.SawMSS(c.Value)
		return fmt.Sprintf("fairq_saw_mss(bytes=%d)", c.Value), nil
	}
	return "", fmt.Errorf("a call of kind %d", c.Event)
}

func (r *replay) look(p place) error {
	var l lawtraceLawLook
	if err := r.trace.decode(p, &l); err != nil {
		return err
	}
	r.count(countLook, 1)
	r.configure(&l.Config)
	ours := r.law.PacketMaySample(l.NowNs)
	r.check(ours == (l.Answer != 0), fmt.Sprintf("fairq_packet_may_sample(now_ns=%d)", l.NowNs), r.law.State(), l.Answer != 0, ours)
	return nil
}
