package fairq

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/cilium/ebpf"

	"weir/datapath/park"
)

// Credit is whether opening packets carry promises, and whether packets wait for credits: enum credit_mode of
// core/fairq/credit.h. docs/credits.md explains both.
type Credit uint8

// The values are those of core/fairq/credit.h.
const (
	CreditOff      Credit = 0
	CreditPromises Credit = 1 // SYN-ACKs and requests grant a first flight that the port has room for
	CreditPaces    Credit = 3 // and ACKs wait in the parking while one segment of each flow exceeds the port's capacity
)

const (
	creditWait    = 100 * time.Millisecond // half of the least retransmission timeout
	creditHold    = 4 << 20                // bytes
	firstSegments = 10                     // of a first flight (RFC 6928)
	parkOwner     = "weir fairq"
)

// creditConfig returns the configuration of promises and credits at a port; zero: none.
func (f *Attachment) creditConfig(l *Law) (c fairqPortCredit) {
	if f.cfg.Credit == CreditOff || l.RateBps == 0 || f.cfg.Observe {
		return c
	}
	mtu := l.MTU
	if mtu == 0 {
		mtu = 1500
	}
	c.Config.ByteNsQ20 = uint64(math.Round(8e9 * (1 << 20) / float64(max(l.RateBps, leastRate))))
	c.Config.CapacityBytes = uint32(min(uint64(l.PipeBytes)+uint64(l.TargetBytes), creditHold))
	c.Config.TargetBytes = min(l.TargetBytes, creditHold)
	c.Config.FirstBytes, c.Config.WaitNs, c.Config.HoldBytes = firstSegments*(mtu-40), uint32(creditWait), creditHold
	c.Config.LineBytes, c.Config.Mode = l.LineBytes, uint32(f.cfg.Credit)
	return c
}

const (
	leastRate  = 64_000 // bit/s: core/fairq/credit.h
	unusedRate = 1e12   // bit/s: the most that the parking accepts
)

// setCredit configures promises and credits at a port. Bytes that were released to it earlier stay charged.
func (f *Attachment) setCredit(p *attachedPort) error {
	var was fairqPortCredit
	c := f.creditConfig(&p.Law)
	if err := f.maps.Credits.Lookup(p.id, &was); err != nil {
		return fmt.Errorf("read the credits: %w", err)
	}
	if was.Config != c.Config {
		c.State = was.State
		if err := f.maps.Credits.Update(p.id, &c, ebpf.UpdateLock); err != nil {
			return fmt.Errorf("configure credits: %w", err)
		}
	}
	at := f.parks[p.cookie]
	if at == nil {
		return nil
	}
	// Packets that leave by this port wait for credits of other ports. So the parking has to know it, also without a rate;
	// no packet waits in its class then.
	rate := uint64(unusedRate)
	if c.Config.Mode != 0 {
		rate = min(max(p.Law.RateBps, leastRate), unusedRate)
	}
	return at.SetPort(p.id, p.Ifindex, rate)
}

// openPark opens the parking of a port's namespace, if packets may have to wait there.
func (f *Attachment) openPark(p *Port, cookie uint64) error {
	if f.cfg.Credit != CreditPaces || f.cfg.Observe || f.parks[cookie] != nil {
		return nil
	}
	at, err := park.Open(p.In, park.Options{Owner: parkOwner, LimitBytes: 2 * creditHold})
	if err != nil {
		return fmt.Errorf("the parking: %w", err)
	}
	if f.parks == nil {
		f.parks = map[uint64]*park.Park{}
	}
	f.parks[cookie] = at
	return nil
}

// parkMaps returns the maps of the parking for programs in a namespace. Without a parking, packets pass.
func (f *Attachment) parkMaps(cookie uint64) map[string]*ebpf.Map {
	if at := f.parks[cookie]; at != nil {
		return at.Maps()
	}
	return nil
}

// leaveParks closes the parkings. With pins the devices stay, for the programs that stay. end: nothing stays.
func (f *Attachment) leaveParks(end bool) error {
	var errs []error
	for _, at := range f.parks {
		if end || f.cfg.Pin == "" {
			errs = append(errs, at.Close())
		} else {
			errs = append(errs, at.Leave())
		}
	}
	f.parks = nil
	return errors.Join(errs...)
}

// creditProgram is the switch program with promises and credits.
const creditProgram = "weir_fairq_credit"

// credits reports whether that program runs.
func (c *Config) credits() bool { return c.Credit != CreditOff && !c.Observe }
