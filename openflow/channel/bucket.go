package channel

import "time"

// bucket is a token bucket of the reading goroutine, without a lock. It is used for each message: golang.org/x/time/rate, with
// its lock, took a twentieth of the cost of handling a message.
type bucket struct {
	perSecond, most float64
	left            float64 // tokens; below zero: owed
	at              time.Time
}

func newBucket(now time.Time, perSecond, most int) bucket {
	return bucket{perSecond: float64(perSecond), most: float64(most), left: float64(most), at: now}
}

func (b *bucket) fill(now time.Time) {
	if d := now.Sub(b.at); d > 0 {
		b.left, b.at = min(b.most, b.left+d.Seconds()*b.perSecond), now
	}
}

// take reports whether there are n tokens, and takes them.
func (b *bucket) take(now time.Time, n int) bool {
	b.fill(now)
	if float64(n) > b.left {
		return false
	}
	b.left -= float64(n)
	return true
}

// owe takes n tokens and returns how long no more may be taken.
func (b *bucket) owe(now time.Time, n int) time.Duration {
	b.fill(now)
	b.left -= float64(n)
	if b.left >= 0 {
		return 0
	}
	return time.Duration(-b.left / b.perSecond * float64(time.Second))
}
