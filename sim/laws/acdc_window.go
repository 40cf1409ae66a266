//go:build cgo

package laws

import (
	"math"

	"weir/sim/event"
)

const (
	alphaOne = 1 << 20 // alpha = 1
	gainOne  = 1 << 16 // g = 1
	// firstSegments is the window at the start of a connection, in segments (RFC 6928), as in the kernels of the paper.
	firstSegments = 10
	// mostWindow is just above the largest window that TCP can offer, 65535 << 14 bytes (RFC 7323 2.3).
	mostWindow = 1 << 30
	// lossDupACKs is the number of duplicate ACKs that show a loss (RFC 5681 3.2).
	lossDupACKs = 3
)

// dctcpWindow is the window that AC/DC computes for what a guest sends: DCTCP's (RFC 8257), in bytes. Its input is the
// traffic that passes the virtual switch, and the feedback of the receiver's virtual switch. It uses integers only, so
// that every machine gets the same result.
//
// The paper does not say whether a window grows that its guest does not fill. Here it does not grow. Otherwise a guest
// limited by its own window would find the enforced one far too large when marks come. (Linux: tcp_is_cwnd_limited.)
type dctcpWindow struct {
	una, nxt  uint32 // SND.UNA and SND.NXT, as seen by the virtual switch
	bytes     uint32 // the window, bytes
	threshold uint32 // ssthresh
	counted   uint32 // bytes acknowledged towards the next segment of congestion avoidance
	mss       uint32
	floor     uint32 // least window

	gain     uint32 // g in 1/gainOne
	alpha    uint32 // in 1/alphaOne
	measured uint32 // alpha's observation ends when this sequence number is acknowledged
	total    uint32 // bytes that reached the receiver during it
	marked   uint32 // those of them with CE

	cutEnd   uint32 // the window is not cut again until more than this is acknowledged,
	cutting  bool   // if cutting is set
	dupACKs  uint8
	patience event.Time // a timeout: time without any ACK
	heard    event.Time // when the last ACK came, or data left while nothing was in flight
}

// start begins with the window of a new connection. It keeps nxt and una.
func (w *dctcpWindow) start(mss, floor, gain uint32, patience, now event.Time) {
	w.mss, w.floor, w.gain, w.patience, w.heard = mss, floor, gain, patience, now
	w.bytes, w.threshold = max(firstSegments*mss, floor), math.MaxUint32
	w.alpha, w.measured = alphaOne, w.nxt
}

// sent notes that the guest sent data up to end.
func (w *dctcpWindow) sent(end uint32, now event.Time) {
	if w.una == w.nxt {
		w.heard = now
	}
	if isAfter(end, w.nxt) {
		w.nxt = end
	}
}

// hears adds what the receiver's virtual switch counted since its last report, in bytes.
func (w *dctcpWindow) hears(total, marked uint32) {
	w.total += total
	w.marked += marked
}

// acknowledged processes an ACK, after hears. duplicate: the ACK has the form of a duplicate. marked: it reports marks.
func (w *dctcpWindow) acknowledged(ack uint32, duplicate, marked bool, now event.Time) {
	flight := w.nxt - w.una
	if flight == 0 {
		return
	}
	if now-w.heard > w.patience {
		w.timedOut()
	}
	w.heard = now
	n := ack - w.una
	advances, lost := n > 0 && n <= flight, false
	if advances {
		w.una, w.dupACKs = ack, 0
	} else if n == 0 && duplicate && w.dupACKs < lossDupACKs {
		w.dupACKs++
		lost = w.dupACKs == lossDupACKs
	}
	if w.cutting && isAfter(w.una, w.cutEnd) {
		w.cutting = false
	}
	if !isAfter(w.measured, w.una) {
		w.measure()
	}
	switch {
	case lost:
		w.cut(alphaOne) // RFC 8257 3.5: half, as TCP answers a loss
	case marked:
		w.cut(w.alpha)
	case advances:
		w.grow(n, flight)
	}
}

// measure is RFC 8257 3.3, steps 5 to 8: once per window, alpha moves by g towards the marked fraction. Without a
// report, alpha stays.
func (w *dctcpWindow) measure() {
	if w.total > 0 {
		fraction := int64(min(w.marked, w.total)) * alphaOne / int64(w.total)
		alpha := int64(w.alpha)
		alpha += int64(w.gain) * (fraction - alpha) >> 16 // rounded down: alpha reaches 0
		w.alpha = uint32(max(alpha, 0))
	}
	w.total, w.marked, w.measured = 0, 0, w.nxt
}

// cut reduces the window by half of part (in 1/alphaOne). It does so once, until all data in flight is acknowledged.
func (w *dctcpWindow) cut(part uint32) {
	if w.cutting {
		return
	}
	w.cutting, w.cutEnd = true, w.nxt
	w.bytes = max(w.bytes-uint32(uint64(w.bytes)*uint64(part)/(2*alphaOne)), w.floor)
	w.threshold, w.counted = w.bytes, 0
}

// timedOut is RFC 5681 3.1: slow start from one segment.
func (w *dctcpWindow) timedOut() {
	w.threshold = max(w.bytes/2, 2*w.mss)
	w.bytes, w.counted, w.dupACKs = w.floor, 0, 0
	w.cutting, w.cutEnd = true, w.nxt
}

// grow is RFC 5681 3.1, by n acknowledged bytes (RFC 3465). It does nothing unless flight, the bytes in flight, was
// limited by the window.
func (w *dctcpWindow) grow(n, flight uint32) {
	if w.bytes < w.threshold {
		if 2*flight > w.bytes {
			w.bytes = min(w.bytes+min(n, w.threshold-w.bytes), mostWindow)
		}
		return
	}
	if flight+w.mss <= w.bytes {
		return
	}
	if w.counted += n; w.counted >= w.bytes {
		w.counted -= w.bytes
		w.bytes = min(w.bytes+w.mss, mostWindow)
	}
}

// isAfter reports whether sequence number a is after b (RFC 9293 3.4).
func isAfter(a, b uint32) bool { return int32(a-b) > 0 }
