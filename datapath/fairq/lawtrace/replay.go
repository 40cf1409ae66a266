//go:build cgo

package lawtrace

import (
	"fmt"
	"slices"

	"weir/datapath/internal/vector"
	"weir/datapath/native"
)

// The rows of a report, in their order.
const (
	countFlows          = "fairq_flows"
	countSample         = "fairq_sample"
	countNoSample       = "queue read and not sampled (windows released, or a part of the flows limited)"
	countSawMSS         = "fairq_saw_mss"
	countLook           = "fairq_packet_may_sample"
	countSlots          = "slots taken"
	countGone           = "  slots left"
	countOpenings       = "open handshakes that began and ended"
	countRegister       = "entries of the register, added and removed"
	countLaw            = "turns that granted the law's window"
	countReleased       = "turns that released windows, of all flows"
	countLimited        = "port_limited: turns of a port of whose flows a part is limited, or was"
	countStopped        = "turns in which user space stopped a port"
	countOpening        = "fairq_opening_q8"
	countFloor          = "window_floor"
	countRewrite        = "window_rewrite"
	countSmaller        = "  of them: the window was small enough"
	countFits           = "  of them: the program did not look at the floor"
	countFree           = "  of them: of an unlimited flow, nothing written"
	countUngoverned     = "ACKs whose data's port granted nothing"
	countReleasing      = "ACKs of flows that were being released"
	countTorn           = "turns while user space changed their configuration: not compared"
	countEdgeLeft       = "ACKs left to the edge"
	countEdgeAdvertised = "ACKs that advertised a window to the edge"
	countEdgeSilent     = "ACKs that edge mode did not concern"
)

var counts = []string{
	countFlows, countSample, countNoSample, countSawMSS, countLook, countSlots, countGone, countOpenings, countRegister, countLaw,
	countReleased, countLimited, countStopped, countOpening, countFloor, countRewrite, countSmaller, countFits, countFree,
	countUngoverned, countReleasing, countTorn, countEdgeLeft, countEdgeAdvertised, countEdgeSilent,
}

// Replay runs the native core on the trace from each port's beginning, with its own state, and compares all its
// decisions with the kernel's. These are the counts, and the whole port after each turn. For each ACK they are
// the window granted, whether the ACK is left to the edge, the field, its right edge, and what is recorded of its
// end. Replay returns an error if the trace cannot be read.
func (t *Trace) Replay() (*Report, error) {
	r := &replay{trace: t}
	for _, what := range slices.Concat(counts, creditCounts) {
		r.count(what, 0)
	}
	defer r.end()
	for _, p := range t.order {
		if r.sw == nil || r.port != p.port {
			r.end()
			r.port = p.port
		}
		r.number = p.number
		if err := r.record(p); err != nil {
			return nil, err
		}
	}
	return &r.Report, nil
}

// replay has one port's decisions. The port is number 0 of a switch with the ids below it, as slots name it.
type replay struct {
	Report
	trace   *Trace
	port    uint32
	number  uint64
	sw      *native.Switch
	config  native.PortConfig
	credits native.CreditConfig
	mode    uint8 // rule of counting
}

// begin makes the switch. Its state is that of a map's element before its first use.
func (r *replay) begin(mode uint8) {
	if r.sw != nil {
		return
	}
	r.mode, r.config, r.credits = mode, native.PortConfig{}, native.CreditConfig{}
	r.sw = native.NewSwitch(int(r.port)+1, native.Count(mode), native.EdgeConfig{})
}

func (r *replay) end() {
	if r.sw != nil {
		r.sw.Close()
		r.sw = nil
	}
}

func (r *replay) id() int { return int(r.port) }

func (r *replay) record(p place) error {
	switch p.record {
	case recordTurn:
		return r.turn(p)
	case recordLook:
		return r.look(p)
	case recordCount:
		return r.counted(p)
	case recordPaces:
		return r.paces(p)
	case recordCredit:
		return r.credit(p)
	case recordAsked:
		return r.asked(p)
	}
	return r.ack(p)
}

// configure sets a configuration as user space does in the kernel: between two events.
func (r *replay) configure(c *lawtracePortConfig) {
	if config := portConfigOf(c); config != r.config {
		r.config = config
		r.sw.SetConfig(r.id(), &config)
	}
}

// check compares one answer. For a difference it records the call and the state before it.
func (r *replay) check(kind Kind, same bool, call string, before, kernel, native any) {
	r.Compared++
	r.Kinds[kind]++
	if same {
		return
	}
	r.Differences++
	if r.First != "" {
		return
	}
	r.First = fmt.Sprintf("port %d, record %d: %s\n  config%s%s\n", r.port, r.number, call, vector.Of(r.config.Law), vector.Of(r.config))
	if before != nil {
		r.First += fmt.Sprintf("  before%s\n", text(before))
	}
	r.First += fmt.Sprintf("  kernel%s\n  native%s", text(kernel), text(native))
}

// text returns a struct as test vectors have it, or a number.
func text(v any) string {
	switch v := v.(type) {
	case uint8, uint16, uint32, uint64, bool:
		return fmt.Sprintf(" %v", v)
	case native.CreditTurn:
		return fmt.Sprintf(" turn=%d begins=%t longest=%d", v.Turn, v.Begins, v.Longest)
	case *native.Port:
		return vector.Of(v.Law).String() + vector.Of(*v).String()
	}
	return vector.Of(v).String()
}

func (r *replay) look(p place) error {
	var l lawtraceLawLook
	if err := r.trace.decode(p, &l); err != nil {
		return err
	}
	r.begin(r.mode)
	r.count(countLook, 1)
	if law := lawOf(&l.Config); law != r.config.Law {
		r.config.Law = law
		r.sw.SetConfig(r.id(), &r.config)
	}
	ours := r.sw.PacketMaySample(r.id(), l.NowNs)
	r.check(KindLaw, ours == (l.Answer != 0), fmt.Sprintf("fairq_packet_may_sample(now_ns=%d)", l.NowNs), r.sw.Port(r.id()).Law, l.Answer != 0, ours)
	return nil
}

// counted replays a direction that enters the counts of the port, or leaves them.
func (r *replay) counted(p place) error {
	var c lawtraceLawCount
	if err := r.trace.decode(p, &c); err != nil {
		return err
	}
	r.begin(c.Count)
	answer := func(call string, kernel, ours uint64) { r.check(KindCounting, kernel == ours, call, nil, kernel, ours) }
	truth := func(b bool) uint64 {
		if b {
			return 1
		}
		return 0
	}
	switch c.Event {
	case slotTaken:
		r.count(countSlots, 1)
		r.sw.SlotComes(r.id(), c.New)
		answer(fmt.Sprintf("slot_is_new(old=%#x, new=%#x, counted=%d)", c.Old, c.New, c.Counted), c.Answer,
			truth(r.sw.SlotIsNew(c.Old, c.New, c.Counted != 0)))
	case slotGoes:
		r.count(countGone, 1)
		answer(fmt.Sprintf("slot_goes(slot=%#x), in epoch %d", c.Old, r.sw.Port(r.id()).Epoch), c.Answer, truth(r.sw.SlotGoes(r.id(), c.Old)))
	case openingComes:
		r.count(countOpenings, 1)
		if r.config.EpochNs != c.EpochNs {
			r.config.EpochNs = c.EpochNs
			r.sw.SetConfig(r.id(), &r.config)
		}
		answer(fmt.Sprintf("opening_comes(now_ns=%d)", c.NowNs), c.Answer, uint64(r.sw.OpeningComes(r.id(), c.NowNs)))
	case openingGoes:
		r.count(countOpenings, 1)
		answer(fmt.Sprintf("opening_goes(registration=%d)", c.Old), c.Answer, truth(r.sw.OpeningGoes(r.id(), uint32(c.Old))))
	case registerComes:
		r.count(countRegister, 1)
		ours := uint64(r.sw.RegisterComes(r.id()))
		answer("register_comes()", c.Answer, ours)
		answer("register_comes(): how many there are", uint64(c.Flows), uint64(r.sw.Port(r.id()).Registered))
	case registerGoes:
		r.count(countRegister, 1)
		r.sw.RegisterGoes(r.id(), uint32(c.Answer))
		answer("register_goes(): how many there are", uint64(c.Flows), uint64(r.sw.Port(r.id()).Registered))
	default:
		return fmt.Errorf("law trace: port %d, record %d: a count of kind %d", p.port, p.number, c.Event)
	}
	return nil
}

// turn replays one change of the port under its lock, and continues from the kernel's result.
func (r *replay) turn(p place) error {
	var t lawtraceLawTurn
	if err := r.trace.decode(p, &t); err != nil {
		return err
	}
	r.begin(t.Count)
	r.configure(&t.Config)
	port := r.sw.Port(r.id())
	port.DataSeen = uint32(t.DataSeen)
	before := *port
	turn := native.Turn{Event: native.Event(t.Event), NowNs: t.NowNs, Value: t.Value, Live: t.Live != 0, Readable: t.Readable != 0}
	call := r.called(&turn, &before, t.Config.Releasing)
	if call == "" {
		return fmt.Errorf("law trace: port %d, record %d: a turn of kind %d", p.port, p.number, t.Event)
	}
	kept := native.Kept(t.After)
	if t.Torn != 0 {
		r.count(countTorn, 1)
		port.SetKept(&kept)
		port.Running, port.Pacing = t.Running, uint32(t.Pacing)
		return nil
	}
	r.sw.Turn(r.id(), &turn)
	kernel, ours := *port, *port
	kernel.SetKept(&kept)
	kernel.Running, kernel.Pacing, kernel.DataSeen = t.Running, uint32(t.Pacing), ours.DataSeen // data is seen without the lock
	is := func(kind Kind, same bool, what string) { r.check(kind, same, call+": "+what, &before, &kernel, &ours) }
	if turn.Event == native.Ticked || turn.Event == native.Recounted || turn.Event == native.SawMSS {
		is(KindCounting, kernel.Law.Flows == ours.Law.Flows && kernel.Wheel == ours.Wheel && kernel.Opening == ours.Opening &&
			kernel.Epoch == ours.Epoch && kernel.Registered == ours.Registered && kernel.Generation == ours.Generation, "what counts")
	}
	if turn.Event == native.Paces {
		is(KindCredit, kernel.Pacing == ours.Pacing, "whether it paces")
	}
	is(KindLaw, kernel.Law == ours.Law, "the law")
	is(KindRelease, kernel.GrantQ8 == ours.GrantQ8 && kernel.ReleaseQ8 == ours.ReleaseQ8 && kernel.ReleaseFrom == ours.ReleaseFrom &&
		kernel.EquilibriumQ8 == ours.EquilibriumQ8 && kernel.Spared == ours.Spared && kernel.Enforced == ours.Enforced &&
		kernel.Mode == ours.Mode && kernel.Easing == ours.Easing, "what is granted")
	is(KindLaw, kernel.Same(&ours), "all the port")
	*port = kernel
	return nil
}

// called counts a turn, and returns its name and arguments; empty: there is no turn of this kind.
func (r *replay) called(t *native.Turn, before *native.Port, releasing uint32) string {
	switch t.Event {
	case native.Ticked:
		r.count(countFlows, 1)
		if before.Enforced != 0 && before.Mode == 0 && t.Readable {
			r.count(countSample, 1)
		} else {
			r.count(countNoSample, 1)
		}
		r.granted(t, releasing)
		return fmt.Sprintf("port_ticked(now_ns=%d, backlog_bytes=%d, live=%t)", t.NowNs, t.Value, t.Live)
	case native.Recounted:
		r.count(countFlows, 1)
		r.granted(t, releasing)
		return fmt.Sprintf("port_recounted(now_ns=%d, live=%t)", t.NowNs, t.Live)
	case native.Limited:
		r.count(countLimited, 1)
		return fmt.Sprintf("port_limited(gap_ns=%d)", t.NowNs)
	case native.SawMSS:
		r.count(countSawMSS, 1)
		return fmt.Sprintf("fairq_saw_mss(bytes=%d)", t.Value)
	case native.Stopped:
		r.count(countStopped, 1)
		return "port_stopped()"
	case native.Reused:
		return "port_reused()"
	case native.Paces:
		r.count(countPaces, 1)
		return fmt.Sprintf("port_paces(paces=%d)", t.Value)
	}
	return ""
}

func (r *replay) granted(t *native.Turn, releasing uint32) {
	if t.Live && releasing == 0 {
		r.count(countLaw, 1)
	} else {
		r.count(countReleased, 1)
	}
}
