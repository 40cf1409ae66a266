package tcp

import (
	"testing"

	"weir/sim/event"
	"weir/sim/network"
)

// RFC 6298 2.2 and 2.3 by hand.
func TestRTOFollowsRFC6298(t *testing.T) {
	p := &profile{Config: *Default("sack")}
	p.RTOMin, p.Granularity = event.Millisecond, event.Millisecond
	const ms = event.Millisecond
	var r estimator
	r.sample(p, 100*ms, 0, 0)
	if r.smoothed() != 100*ms || r.rto != 300*ms {
		t.Errorf("after 100 ms: SRTT %d, RTO %d", r.smoothed(), r.rto)
	}
	// RTTVAR = 3/4 50 + 1/4 |100 - 180| = 57.5; SRTT = 7/8 100 + 1/8 180 = 110.
	r.sample(p, 180*ms, 0, 0)
	if r.smoothed() != 110*ms || r.rto != 340*ms {
		t.Errorf("after 180 ms: SRTT %d, RTO %d", r.smoothed(), r.rto)
	}
	for range 200 {
		r.sample(p, 110*ms, 0, 0)
	}
	if got := r.rto - r.smoothed(); got != ms { // the granularity remains
		t.Errorf("variance of a steady path: %d", got)
	}
	p.RTOMin = event.Second
	r.sample(p, 110*ms, 0, 0)
	if r.rto != event.Second {
		t.Errorf("RTO %d below its minimum", r.rto)
	}
	for range 20 {
		r.backOff(p)
	}
	if r.rto != p.RTOMax || r.backoff != 20 {
		t.Errorf("RTO %d after 20 doublings", r.rto)
	}
	r.sample(p, 110*ms, 0, 0)
	if r.rto != event.Second || r.backoff != 0 {
		t.Errorf("RTO %d: a measurement ends the back-off", r.rto)
	}
}

// Linux: the variance term rises at once, falls by a quarter of the difference per RTT, and is at least 200 ms.
// Compared by hand with tcp_rtt_estimator, in microseconds times 8 and 4.
func TestRTOOfLinux(t *testing.T) {
	p := &profile{Config: *Default("reno")}
	const ms = event.Millisecond
	var r estimator
	r.sample(p, ms, 100, 200)
	if r.rto != 201*ms {
		t.Errorf("RTO %d of a path of 1 ms", r.rto)
	}
	r.sample(p, 401*ms, 150, 300) // srtt 51 ms; mdev = 2 + 400 - 0.5 = 401.5
	if r.smoothed() != 51*ms || r.var4 != 401*ms+ms/2 {
		t.Errorf("SRTT %d, 4 RTTVAR %d", r.smoothed(), r.var4)
	}
	before := r.var4
	r.sample(p, 51*ms, 201, 400) // the round trip ends; its worst is still the largest
	if r.var4 != before {
		t.Errorf("4 RTTVAR %d within the round trip of the worst", r.var4)
	}
	// A calm round trip: down by a quarter of the part above 200 ms.
	r.sample(p, 51*ms, 401, 500)
	want := before - (before-max(200*ms, r.worst4))/4
	if r.var4 > before || r.var4 < want-ms {
		t.Errorf("4 RTTVAR %d after a calm round trip, %d before", r.var4, before)
	}
	for i := range uint32(100) {
		r.sample(p, 51*ms, 501+100*i, 600+100*i)
	}
	if got := r.rto - r.smoothed(); got < 200*ms || got > 201*ms {
		t.Errorf("variance of a steady path: %d", got)
	}
}

// Karn: a retransmitted segment measures nothing without timestamps. The RTO stays doubled until a segment sent once is
// acknowledged.
func TestKarn(t *testing.T) {
	p := newPair(t)
	c := plain("sack")
	c.DelayedACK = 0
	client, _ := p.connect(c, c)
	p.run(event.Millisecond)
	e := client.e
	srtt, rto := e.RTT()
	first := p.sent[0]
	p.lose = func(direction, n int, _ *network.Packet) bool { return direction == 0 && n == first }
	e.Write(100)
	p.run(p.q.Now() + event.Second)
	if got, doubled := e.RTT(); got != srtt || doubled != 2*rto {
		t.Errorf("SRTT %d, was %d; RTO %d, was %d", got, srtt, doubled, rto)
	}
	e.Write(100)
	p.run(p.q.Now() + event.Second)
	if _, got := e.RTT(); got > rto {
		t.Errorf("RTO %d after a new measurement, was %d", got, rto)
	}
}

// With Linux's jiffies of 4 ms an RTO of 201 ms takes 51 of them, counted from the latest: 200 to 204 ms.
func TestTimersOnTicks(t *testing.T) {
	p := newPair(t)
	c := plain("reno")
	c.Tick, c.TLP = 4*event.Millisecond, false
	client, _ := p.connect(c, c)
	p.run(251 * event.Millisecond)
	var at []event.Time
	p.lose = func(direction, _ int, pk *network.Packet) bool {
		if direction == 0 && pk.Payload() > 0 {
			at = append(at, p.q.Now())
		}
		return true
	}
	client.e.Write(100)
	p.run(event.Second)
	// RTO is 200.1 ms, then 400.2 ms: 101 jiffies.
	want := []event.Time{251 * event.Millisecond, (248 + 204) * event.Millisecond, (452 + 404) * event.Millisecond}
	if len(at) != 3 || at[0] != want[0] || at[1] != want[1] || at[2] != want[2] {
		t.Errorf("sent at %v, want %v", at, want)
	}
}

// With timestamps a retransmitted segment measures the RTT too, if an ACK answers its last copy (RFC 7323 4.1, Linux).
// Without them it never does (Karn). The first flight is lost and each copy takes 10 ms.
func TestTimestampsMeasureRetransmissions(t *testing.T) {
	for _, on := range []bool{true, false} {
		p := newPair(t)
		c := Default("reno")
		c.Timestamps = on
		client, server := p.connect(c, c)
		p.run(event.Millisecond)
		e := client.e
		p.loseData(0, 1, 2, 3, 4, 5, 6, 7)
		p.late = func(direction, _ int, pk *network.Packet) event.Time {
			if direction == 0 && pk.Payload() > 0 {
				return 10 * event.Millisecond
			}
			return 0
		}
		n := 8 * int64(e.mss)
		e.Write(n)
		p.run(150 * event.Millisecond)
		k := e.Counters()
		if server.got != n || k.Timeouts != 0 || k.Retransmitted != 8 {
			t.Fatalf("timestamps %v: got %d, %+v", on, server.got, k)
		}
		// At least seven measurements move SRTT by an eighth of the way each; the last one alone would move it by 1.25
		// ms.
		srtt, _ := e.RTT()
		if on && srtt < 5*event.Millisecond || !on && srtt > event.Millisecond {
			t.Errorf("timestamps %v: SRTT %d", on, srtt)
		}
	}
}

// An ACK that answers an earlier copy of a retransmitted segment measures nothing, although its timestamp identifies
// the copy: only a segment's last transmission is known. All copies take 300 ms, so one is retransmitted before the
// first arrives.
func TestTimestampsOfEarlierCopies(t *testing.T) {
	p := newPair(t)
	c := Default("reno")
	c.Timestamps = true
	client, server := p.connect(c, c)
	p.run(event.Millisecond)
	e := client.e
	p.late = func(direction, _ int, pk *network.Packet) event.Time {
		if direction == 0 && pk.Payload() > 0 {
			return 300 * event.Millisecond
		}
		return 0
	}
	srtt, _ := e.RTT()
	e.Write(100)
	p.run(event.Second)
	if k := e.Counters(); server.got != 100 || k.Retransmitted == 0 {
		t.Fatalf("got %d, %+v", server.got, k)
	}
	if got, _ := e.RTT(); got != srtt {
		t.Errorf("SRTT %d, was %d", got, srtt)
	}
}
