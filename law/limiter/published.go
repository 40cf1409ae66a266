package limiter

import "time"

// publishedRecent is the time after which the published code counts a lower mark rate, too.
const publishedRecent = 3 * time.Millisecond

// Published is a VM's state in the law of the published evilbit.c (SPEC 1.8, 1.9).
type Published struct {
	before float64 // the rate when congestion began
	last   float64 // marks in the last message
}

// Fall takes step for each mark from the rate. It does not if the marks became fewer within 3 ms, or if the rate is not above Min_Rate and a
// fifth of Decrease for each mark.
func (p *Params) Fall(s *Published, rate, least, marks, step float64, first bool, since time.Duration) float64 {
	if first {
		s.before = rate
	}
	if rate > float64(p.MinRate)+marks*float64(p.Decrease)/5 && (marks >= s.last || since >= publishedRecent) {
		rate = max(least, rate-step*marks)
	}
	s.last = marks
	return rate
}

// Rise returns the rate after a period without congestion. The first one returns half of what was lost, and a tenth of the share. The
// code has only that one, so that its rate stays below the share. Here further periods add Increase for each unit of weight.
func (p *Params) Rise(s *Published, rate, share, weight float64, ended bool) float64 {
	if ended {
		return min(share, (rate+s.before)/2+share/10)
	}
	return min(share, rate+float64(p.Increase)*weight)
}
