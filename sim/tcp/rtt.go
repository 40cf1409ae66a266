package tcp

import "weir/sim/event"

// estimator is RFC 6298: SRTT, RTTVAR, RTO. As in Linux, SRTT is stored eight times and RTTVAR four times as large, so
// that their gains are shifts.
type estimator struct {
	srtt8   event.Time // 8 SRTT; 0: no measurement yet
	var4    event.Time // 4 RTTVAR: the difference of RTO and SRTT
	mdev4   event.Time // LinuxRTT: 4 times the mean deviation
	worst4  event.Time // LinuxRTT: its largest value of this round trip
	rto     event.Time
	least   event.Time // smallest RTT so far (Linux: of the last 5 minutes)
	end     uint32     // LinuxRTT: the round trip ends when this is acknowledged
	backoff uint8      // doublings of rto since the last measurement
}

func (r *estimator) smoothed() event.Time { return r.srtt8 >> 3 }

// sample adds the RTT of a segment that was sent once (Karn), and sets the RTO, which ends its back-off (RFC 6298 5.7,
// last paragraph of 5). una and nxt are SND.UNA and SND.NXT after the ACK.
func (r *estimator) sample(p *profile, rtt event.Time, una, nxt uint32) {
	rtt = max(rtt, 1)
	if r.least == 0 || rtt < r.least {
		r.least = rtt
	}
	r.backoff = 0
	if p.LinuxRTT {
		r.linux(p, rtt, una, nxt)
		r.rto = min(r.smoothed()+r.var4, p.RTOMax)
		return
	}
	if r.srtt8 == 0 { // 2.2
		r.srtt8 = rtt << 3
		r.var4 = rtt << 1
	} else { // 2.3: beta = 1/4, alpha = 1/8
		d := rtt - r.smoothed()
		r.srtt8 += d
		r.var4 += abs(d) - r.var4>>2
	}
	r.set(p)
}

// set computes RTO = SRTT + max(G, 4 RTTVAR) within its limits (2.3, 2.4, 2.5).
func (r *estimator) set(p *profile) {
	r.rto = min(max(r.smoothed()+max(p.Granularity, r.var4), p.RTOMin), p.RTOMax)
}

// linux is tcp_rtt_estimator. RTTVAR rises at once to the largest deviation, and falls once per round trip. Its term is
// never below the minimum RTO, so the RTO exceeds SRTT by at least that.
func (r *estimator) linux(p *profile, rtt event.Time, una, nxt uint32) {
	if r.srtt8 == 0 {
		r.srtt8 = rtt << 3
		r.mdev4 = rtt << 1
		r.var4 = max(r.mdev4, p.RTOMin)
		r.worst4 = r.var4
		r.end = nxt
		return
	}
	m := rtt - r.smoothed()
	r.srtt8 += m
	if m < 0 {
		m = -m - r.mdev4>>2
		if m > 0 {
			m >>= 3 // a falling RTT is no deviation (Eifel)
		}
	} else {
		m -= r.mdev4 >> 2
	}
	r.mdev4 += m
	if r.mdev4 > r.worst4 {
		r.worst4 = r.mdev4
		r.var4 = max(r.var4, r.worst4)
	}
	if after(una, r.end) {
		if r.worst4 < r.var4 {
			r.var4 -= (r.var4 - r.worst4) >> 2
		}
		r.end = nxt
		r.worst4 = p.RTOMin
	}
}

// fallback is RFC 6298 5.7: the handshake timed out and measured nothing.
func (r *estimator) fallback(p *profile) {
	r.backoff = 0
	r.rto = min(max(p.FallbackRTO, p.InitialRTO), p.RTOMax)
	r.var4, r.mdev4, r.worst4 = p.FallbackRTO, p.FallbackRTO, p.FallbackRTO
}

// backOff doubles RTO (5.5).
func (r *estimator) backOff(p *profile) {
	if r.backoff < 63 {
		r.backoff++
	}
	r.rto = min(r.rto*2, p.RTOMax)
}

func abs(t event.Time) event.Time {
	if t < 0 {
		return -t
	}
	return t
}
