package limiter

import (
	"errors"
	"fmt"
	"time"

	"weir/law"
)

// Steps are the parameters of the law whose rates fall by a part of themselves. It is SDN-GCC's, with scale() as fitted (GS-5).
type Steps struct {
	Gain         float64      `json:"gain" jsonschema:"exclusiveMinimum=0,maximum=4" jsonschema_description:"the rate falls by this times the marked packets as a part of what the uplink could have sent in an interval (GS-5, fitted)"`
	FastAfter    law.Duration `json:"fast_after" jsonschema_description:"after so long without marks the rate rises by fast_increase (GS-5, fitted); 0s: never"`
	FastIncrease law.Rate     `json:"fast_increase" jsonschema_description:"added to the rate each period then"`
}

// Check returns an error for parameters that cannot work. increase is the ordinary step.
func (s *Steps) Check(increase law.Rate) error {
	switch {
	case s.FastAfter > MostTime:
		return fmt.Errorf("fast_after: at most %v", MostTime)
	case s.FastIncrease > MostRate:
		return fmt.Errorf("fast_increase: at most %v", MostRate)
	case increase == 0:
		return errors.New("increase: a rate that fell would never rise: choose it above 0kbit")
	}
	return nil
}

// Fall returns the rate after a message. could is how many packets the uplink could have sent in an interval. The paper divides marks by the
// time since the last message, which is long for the first one (GS-4), and short if two controllers or two switches send at the same
// time. Each message is about one interval.
func (s *Steps) Fall(rate, least, marks, could float64) float64 {
	return max(least, rate*(1-s.Gain*min(1, marks/could)))
}

// Rise returns the rate after a period without congestion. increase is the ordinary step, and quiet the time since the last mark.
func (s *Steps) Rise(rate, share, weight, increase float64, quiet time.Duration) float64 {
	if s.FastAfter > 0 && quiet >= time.Duration(s.FastAfter) {
		increase = max(increase, float64(s.FastIncrease))
	}
	return min(share, rate+increase*weight)
}
