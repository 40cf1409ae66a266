package tcp

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"weir/sim/event"
	"weir/sim/network"
)

// expect compares the packets that the endpoint sends at the time with the expected ones.
func (r *rig) expect(st *step, at event.Time) error {
	size := st.packet.to - st.packet.from
	for i := range int64(st.packet.repeat) {
		one := st.packet
		one.from += i * size
		one.to += i * size
		if err := r.expectOne(&one, at, st.tolerance); err != nil {
			return err
		}
	}
	return nil
}

func (r *rig) expectOne(want *packetSpec, at, tolerance event.Time) error {
	if len(r.sent) == 0 && r.queue.Now() <= at+tolerance {
		r.queue.Run(at + tolerance)
	}
	if len(r.sent) == 0 {
		r.queue.Run(r.queue.Now() + giveUp)
		if len(r.sent) == 0 {
			return fmt.Errorf("not sent at %s, nor anything else in %s", clock(at), clock(giveUp))
		}
		return fmt.Errorf("not sent at %s; what was sent next: %s", clock(at), r.describe(&r.sent[0]))
	}
	got := r.sent[0]
	r.sent = r.sent[1:]
	r.log = append(r.log, r.describe(&got))
	if diff := r.differs(want, &got.pk); diff != "" {
		return fmt.Errorf("%s: want %s, sent was %s", diff, want, r.describe(&got))
	}
	if got.at < at-tolerance || got.at > at+tolerance {
		return fmt.Errorf("sent at %s, want %s within %s", clock(got.at), clock(at), clock(tolerance))
	}
	r.last = got.at
	return nil
}

// differs names a field in which a packet differs from the expected one.
func (r *rig) differs(want *packetSpec, pk *network.Packet) string {
	got := r.spec(pk)
	size := want.to - want.from
	if want.from < 0 {
		size = -1
	}
	for _, f := range []struct {
		name      string
		want, got int64
	}{
		{"flags", int64(want.flags &^ network.PSH), int64(got.flags &^ network.PSH)},
		{"sequence number", want.from, got.from},
		{"length", size, got.to - got.from},
		{"ack", want.ack, got.ack},
		{"window", want.window, got.window},
		{"mss", want.mss, got.mss},
		{"scale", want.scale, got.scale},
		{"ecn", want.ecn, got.ecn},
	} {
		if f.want >= 0 && f.want != f.got {
			return f.name
		}
	}
	if want.sackOK && !got.sackOK {
		return "sackok"
	}
	if want.plain && (got.sackOK || got.scale >= 0) {
		return "options"
	}
	if want.noSack && len(got.sack) > 0 || want.sack != nil && !slices.Equal(want.sack, got.sack) {
		return "SACK blocks"
	}
	return ""
}

// spec writes a packet of the endpoint as a script would.
func (r *rig) spec(pk *network.Packet) *packetSpec {
	from := int64(int32(pk.Seq() - r.isn))
	s := &packetSpec{
		flags: pk.Flags(), from: from, to: from + int64(pk.Payload()), ack: -1, window: int64(pk.Window()),
		mss: -1, scale: int64(pk.Scale()), ecn: int64(pk.ECN()), sackOK: pk.SACKPermitted(),
	}
	if pk.Flags()&network.ACK != 0 {
		s.ack = int64(int32(pk.Ack() - scriptISN))
	}
	if pk.MSS() != 0 {
		s.mss = int64(pk.MSS())
	}
	for _, b := range pk.Blocks() {
		s.sack = append(s.sack, [2]int64{int64(int32(b.From - scriptISN)), int64(int32(b.To - scriptISN))})
	}
	return s
}

func (r *rig) describe(c *captured) string {
	return fmt.Sprintf("%s sent %s", clock(c.at), r.spec(&c.pk))
}

func clock(t event.Time) string { return time.Duration(t).String() }

// state compares the endpoint's state.
func (r *rig) state(settings []setting) error {
	for _, s := range settings {
		if is, ok := r.named(s.key); ok {
			if is != s.value {
				return fmt.Errorf("%s is %s, want %s", s.key, is, s.value)
			}
			continue
		}
		got, err := r.inspect(s.key)
		if err != nil {
			return err
		}
		want, err := parseNumber(s.value)
		if err != nil {
			return err
		}
		if s.op == "=" && got != want || s.op == ">=" && got < want || s.op == "<=" && got > want {
			if d, err := parseDuration(s.value); err == nil && want != 0 {
				return fmt.Errorf("%s is %s, want %s %s", s.key, clock(event.Time(got)), s.op, clock(d))
			}
			return fmt.Errorf("%s is %d, want %s %d", s.key, got, s.op, want)
		}
	}
	return nil
}

// named returns the values that scripts compare by name: state and recovery.
func (r *rig) named(key string) (string, bool) {
	switch {
	case r.endpoint == nil:
		return "none", key == "state" || key == "recovery"
	case key == "state":
		return r.endpoint.State().String(), true
	case key == "recovery":
		return r.endpoint.Recovery().String(), true
	}
	return "", false
}

// inspect returns the value that a script calls key: a value of the endpoint, a call that its program got (connected,
// received, finished, acknowledged, failed), or one of Counters, in snake_case.
func (r *rig) inspect(key string) (int64, error) {
	switch key {
	case "connected":
		return r.app.connected, nil
	case "received":
		return r.app.received, nil
	case "finished":
		return r.app.finished, nil
	case "acknowledged":
		return r.app.acknowledged, nil
	case "failed":
		return r.app.failed, nil
	}
	e := r.endpoint
	if e == nil {
		return 0, fmt.Errorf("%s: there is no endpoint yet", key)
	}
	srtt, rto := e.RTT()
	switch key {
	case "cwnd":
		return int64(e.Window().Cwnd), nil
	case "ssthresh":
		return int64(e.Window().Ssthresh), nil
	case "srtt":
		return int64(srtt), nil
	case "rto":
		return int64(rto), nil
	case "in_flight":
		return int64(e.InFlight()), nil
	case "alpha":
		return int64(e.Alpha()), nil
	}
	v := fieldOf(reflect.ValueOf(e.Counters()), key)
	if !v.IsValid() {
		return 0, fmt.Errorf("%s: nothing has that name", key)
	}
	return v.Int(), nil
}
