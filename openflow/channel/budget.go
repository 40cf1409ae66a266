package channel

import (
	"time"

	"golang.org/x/time/rate"
)

// budget is what a token bucket holds at one moment, for all messages of a batch: to ask the bucket for each of them
// would cost a tenth of what it takes to handle one.
type budget struct {
	bucket     *rate.Limiter
	left, used int
	open       bool
}

// take says whether there are n tokens, and takes them. Until settle, now is the same.
func (b *budget) take(now time.Time, n int) bool {
	if !b.open {
		b.left, b.open = int(b.bucket.TokensAt(now)), true
	}
	if n > b.left {
		return false
	}
	b.left -= n
	b.used += n
	return true
}

// settle takes from the bucket what was used.
func (b *budget) settle(now time.Time) {
	if b.used > 0 {
		b.bucket.AllowN(now, b.used)
	}
	b.used, b.open = 0, false
}

// settle ends what was budgeted for the moment in.now.
func (c *Conn) settle() {
	c.in.packetIns.settle(c.in.now)
	c.in.packetInB.settle(c.in.now)
}
