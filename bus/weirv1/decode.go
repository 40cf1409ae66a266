package weirv1

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"weir/law/telemetry"
)

// message is one of the five kinds.
type message interface {
	proto.Message
	check() error
}

// Encode returns the message's bytes. It applies the checks of the decoder, so that a receiver never refuses it.
func Encode(m message) ([]byte, error) { return Append(nil, m) }

// Append is Encode that appends to b.
func Append(b []byte, m message) ([]byte, error) {
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	before := len(b)
	b, err := proto.MarshalOptions{}.MarshalAppend(b, m)
	if n := len(b) - before; err == nil && n > MaxMessage {
		err = tooLong(n)
	}
	return b, err
}

func tooLong(n int) error {
	return fmt.Errorf("%w: %d bytes, want at most %d", ErrMalformed, n, MaxMessage)
}

// DecodeEvents reads the payload of weir.v1.evt.AGENT.
func DecodeEvents(b []byte) (*Events, error) { return decode(b, new(Events)) }

// DecodeCommand reads the payload of weir.v1.cmd.AGENT.
func DecodeCommand(b []byte) (*Command, error) { return decode(b, new(Command)) }

// DecodePairMarks reads the payload of weir.v1.mrk.FROM.TO.
func DecodePairMarks(b []byte) (*PairMarks, error) { return decode(b, new(PairMarks)) }

// DecodeHeartbeat reads the payload of weir.v1.ctl.CONTROLLER.
func DecodeHeartbeat(b []byte) (*Heartbeat, error) { return decode(b, new(Heartbeat)) }

func decode[M message](b []byte, m M) (M, error) {
	var none M
	if len(b) > MaxMessage {
		return none, tooLong(len(b))
	}
	// Fields of a later version are unknown here, and not kept.
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(b, m); err != nil {
		return none, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if err := m.check(); err != nil {
		return none, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return m, nil
}

func atMost[T any](what string, list []T, limit int) error {
	if len(list) > limit {
		return fmt.Errorf("%d %s, want at most %d", len(list), what, limit)
	}
	return nil
}

// totals checks counters, so that a receiver can subtract and add them.
func totals(list ...uint64) error {
	for _, n := range list {
		if n > maxTotal {
			return fmt.Errorf("a counter of %d, want at most 2^62-1", n)
		}
	}
	return nil
}

func (x *Origin) check() error {
	switch {
	case x == nil:
		return errors.New("no origin")
	case x.GetIncarnation() == 0:
		return errors.New("no incarnation")
	case x.GetStampNs() > maxDuration:
		return fmt.Errorf("a stamp of %d ns", x.GetStampNs())
	}
	return nil
}

func (x *Telemetry) check() error {
	if err := errors.Join(x.GetOrigin().check(), atMost("ports", x.GetPorts(), MaxPorts)); err != nil {
		return err
	}
	if x.GetIntervalNs() == 0 || x.GetIntervalNs() > maxDuration {
		return fmt.Errorf("an interval of %d ns", x.GetIntervalNs())
	}
	if err := portsOnce(x.GetPorts()); err != nil {
		return err
	}
	sources := 0
	for _, p := range x.GetPorts() {
		if sources += len(p.GetSources()); sources > MaxSources {
			return errManySources
		}
		if err := p.check(); err != nil {
			return fmt.Errorf("port %d: %w", p.GetPort(), err)
		}
	}
	return nil
}

// portsOnce returns an error if a port is in the list twice. Agents list ports in order, which costs no memory to check.
func portsOnce(list []*PortReport) error {
	inOrder := true
	for i := 1; i < len(list) && inOrder; i++ {
		inOrder = list[i].GetPort() > list[i-1].GetPort()
	}
	if inOrder {
		return nil
	}
	seen := make(map[uint32]bool, len(list))
	for _, p := range list {
		if seen[p.GetPort()] {
			return fmt.Errorf("port %d twice", p.GetPort())
		}
		seen[p.GetPort()] = true
	}
	return nil
}

func (x *PortReport) check() error {
	err := totals(x.GetBacklogBytes(), x.GetPeakBytes(), x.GetOfferedBytes(), x.GetOfferedPackets(), x.GetSentBytes(), x.GetDroppedPackets(),
		x.GetMarkedPackets(), x.GetUnknownMarks(), x.GetFurtherMarks())
	if err != nil {
		return err
	}
	left := x.GetMarkedPackets()
	if x.GetUnknownMarks()+x.GetFurtherMarks() > left {
		return errSources
	}
	if len(x.GetSources()) == 0 {
		return nil
	}
	seen := make(map[uint32]bool, len(x.GetSources()))
	left -= x.GetUnknownMarks() + x.GetFurtherMarks()
	for _, s := range x.GetSources() {
		if s.GetVm() == 0 || seen[s.GetVm()] {
			return fmt.Errorf("source %d is no VM, or is there twice", s.GetVm())
		}
		seen[s.GetVm()] = true
		// A law divides by the sum, so the parts must not exceed it.
		if s.GetMarkedPackets() > left {
			return errSources
		}
		left -= s.GetMarkedPackets()
	}
	return nil
}

var (
	errSources     = errors.New("the sources have more marks than the port")
	errManySources = fmt.Errorf("more than %d sources", MaxSources)
)

func (x *Events) check() error {
	if (x.GetSwitch() == 0) == (x.GetHost() == 0) {
		return errors.New("events need either a switch or a host")
	}
	err := errors.Join(x.GetOrigin().check(), atMost("arrivals", x.GetArrivals(), MaxPorts), atMost("drops", x.GetDrops(), MaxDrops),
		atMost("deadlines", x.GetDeadlines(), MaxDeadlines), atMost("flows", x.GetFlows(), MaxFlows))
	if err != nil {
		return err
	}
	for _, a := range x.GetArrivals() {
		if err := a.check(); err != nil {
			return fmt.Errorf("arrivals at port %d: %w", a.GetPort(), err)
		}
	}
	for _, d := range x.GetDrops() {
		if d.GetFlow() == nil {
			return errors.New("a drop without its flow")
		}
		if err := d.GetFlow().check(); err != nil {
			return err
		}
	}
	for _, d := range x.GetDeadlines() {
		if err := d.GetFlow().ends(); err != nil {
			return fmt.Errorf("a deadline: %w", err)
		}
		if d.GetSizeBytes() > maxTotal || d.GetWithinNs() > maxDuration || d.GetValue() > MaxValue {
			return errors.New("a deadline with a size or time above 2^62, or a value above 100")
		}
	}
	for _, f := range x.GetFlows() {
		if err := errors.Join(totals(f.GetSentBytes()), f.GetFlow().ends()); err != nil {
			return fmt.Errorf("a flow at port %d: %w", f.GetPort(), err)
		}
	}
	return errors.Join(x.GetState().check(), x.GetInventory().check(x.GetHost() != 0))
}

func (x *Arrivals) check() error {
	err := totals(x.GetSyn(), x.GetSynAck(), x.GetFin(), x.GetRst(), x.GetResumed(), x.GetFound(), x.GetRequests(), x.GetFurther())
	if err := errors.Join(err, atMost("new pairs", x.GetPairs(), MaxPairs)); err != nil {
		return err
	}
	for _, p := range x.GetPairs() {
		if err := errors.Join(checkAddr(p.GetSource(), false), checkAddr(p.GetDestination(), false)); err != nil {
			return err
		}
		if len(p.GetSource()) != len(p.GetDestination()) {
			return errors.New("a pair of IPv4 and IPv6")
		}
		if p.GetKinds() == 0 || p.GetKinds() >= 1<<telemetry.Kinds {
			return fmt.Errorf("arrivals of the kinds %#x", p.GetKinds())
		}
	}
	return nil
}

// check accepts nil.
func (x *AgentState) check() error {
	if err := errors.Join(atMost("terms", x.GetTerms(), MaxBuckets), atMost("grants", x.GetGrants(), MaxGrants)); err != nil {
		return err
	}
	if len(x.GetVersion()) > maxVersion {
		return fmt.Errorf("a version of %d bytes", len(x.GetVersion()))
	}
	seen := make(map[uint32]bool, len(x.GetTerms()))
	for _, t := range x.GetTerms() {
		if seen[t.GetBucket()] {
			return fmt.Errorf("bucket %d twice", t.GetBucket())
		}
		seen[t.GetBucket()] = true
		if err := checkTerm(t.GetBucket(), t.GetTerm(), t.GetController()); err != nil {
			return err
		}
	}
	for _, g := range x.GetGrants() {
		if g.GetGrant() == nil || g.GetBucket() >= MaxBuckets || g.GetTerm() > MaxTerm {
			return errors.New("a live grant without grant, bucket or term")
		}
		if err := g.GetGrant().check(); err != nil {
			return err
		}
	}
	if err := atMost("refused grants", x.GetRefused(), MaxRefused); err != nil {
		return err
	}
	for _, g := range x.GetRefused() {
		if err := g.check(); err != nil {
			return err
		}
	}
	return errors.Join(x.GetPlan().check(), x.GetHostPlan().check())
}

func checkTerm(bucket uint32, term uint64, c *Controller) error {
	switch {
	case bucket >= MaxBuckets:
		return fmt.Errorf("bucket %d, want at most %d", bucket, MaxBuckets-1)
	case term == 0 || term > MaxTerm:
		return fmt.Errorf("term %d, want 1 to 2^62", term)
	}
	return c.check()
}

func (x *Controller) check() error {
	if x == nil || x.GetRun() == 0 || !ValidName(x.GetName()) {
		return fmt.Errorf("no controller, or one without a run or a valid name")
	}
	return nil
}

func (x *Command) check() error {
	if err := errors.Join(checkTerm(x.GetBucket(), x.GetTerm(), x.GetController()), atMost("grants", x.GetGrants(), MaxGrants)); err != nil {
		return err
	}
	if x.GetSequence() == 0 {
		return errors.New("a command without a sequence number")
	}
	if x.GetEchoNs() > maxDuration {
		return fmt.Errorf("an echo of %d ns", x.GetEchoNs())
	}
	for i, g := range x.GetGrants() {
		if err := g.check(); err != nil {
			return fmt.Errorf("grant %d: %w", i, err)
		}
	}
	return errors.Join(x.GetPlan().check(), x.GetHostPlan().check())
}

func (x *PairMarks) check() error {
	if err := errors.Join(x.GetOrigin().check(), atMost("pairs", x.GetPairs(), MaxMarkedPairs)); err != nil {
		return err
	}
	if x.GetOrigin().GetSequence() == 0 || len(x.GetPairs()) == 0 {
		return errors.New("marks without a sequence number, or of no pair")
	}
	for _, p := range x.GetPairs() {
		if err := checkAddr(p.GetSource(), false); err != nil {
			return err
		}
		if p.GetVm() == 0 || p.GetPackets() == 0 || p.GetPackets() > telemetry.MaxMarks {
			return fmt.Errorf("%d marks of VM %d, want 1 to 2^32 of a VM", p.GetPackets(), p.GetVm())
		}
	}
	return nil
}

func (x *Heartbeat) check() error {
	if err := errors.Join(x.GetController().check(), atMost("buckets", x.GetHeld(), MaxBuckets)); err != nil {
		return err
	}
	seen := make(map[uint32]bool, len(x.GetHeld()))
	for _, h := range x.GetHeld() {
		if seen[h.GetBucket()] {
			return fmt.Errorf("bucket %d twice", h.GetBucket())
		}
		seen[h.GetBucket()] = true
		if err := checkTerm(h.GetBucket(), h.GetTerm(), x.GetController()); err != nil {
			return err
		}
	}
	return nil
}
