package fairq

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/cilium/ebpf"

	"weir/datapath/attach"
	"weir/datapath/reading"
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
	firstMax      = 48 << 10               // CREDIT_FIRST_MAX
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
	c.Config.FirstBytes, c.Config.WaitNs, c.Config.HoldBytes = min(firstSegments*(mtu-40), firstMax), uint32(cmp.Or(l.LongestWait, creditWait)), creditHold
	c.Config.LineBytes, c.Config.Mode = l.LineBytes, uint32(f.cfg.Credit)
	if l.HoldRequests && f.cfg.Credit == CreditPaces {
		c.Config.BufferBytes = l.BufferBytes
	}
	return c
}

// repairConfig returns the configuration of the repair of losses at a port, which works with credits; zero: none.
func (f *Attachment) repairConfig(l *Law) (c fairqRepairPortConfig) {
	if f.creditConfig(l).Config.Mode != uint32(CreditPaces) {
		return c
	}
	c.LimitBytes, c.ParkBytes, c.DueNs = l.RepairLimitBytes, l.RepairMostBytes, uint64(l.RepairDue)
	c.FullBytes = l.RepairFullBytes
	c.NsPerKib = uint32(1024 * 8e9 / float64(max(l.RateBps, leastRate)))
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
	if err := f.setParkPort(p, c.Config.Mode); err != nil {
		return err
	}
	repair := f.repairConfig(&p.Law)
	if err := f.maps.RepairConfigs.Put(p.id, &repair); err != nil {
		return fmt.Errorf("configure the repair of losses: %w", err)
	}
	return nil
}

// credits reads what promises and credits do at a port. live: the bytes of the live promises.
func (m *fairqMaps) credits(id uint32, p *fairqPort, live uint64) (s Credits, err error) {
	var c fairqPortCredit
	if err := m.Credits.LookupWithFlags(id, &c, ebpf.LookupLock); err != nil {
		return s, fmt.Errorf("read its credits: %w", err)
	}
	if c.Config.Mode == 0 {
		return s, nil
	}
	mode := Credit(c.Config.Mode)
	s = Credits{
		Promises: mode&CreditPromises != 0, Paces: mode == CreditPaces, Pacing: p.Pacing != 0, LiveBytes: live,
		Promised: c.State.Promises, Parked: c.State.Parked, Refused: c.State.Full, Longest: time.Duration(c.State.LongestNs),
	}
	if ahead := int64(c.State.ClockNs - attach.MonotonicNs()); ahead > 0 {
		s.Ahead = time.Duration(ahead)
	}
	return s, nil
}

// repairs reads what the repair of losses did at a port; nil: it is off.
func (m *fairqMaps) repairs(id uint32) (*reading.Repairs, error) {
	var c fairqRepairPortConfig
	var state fairqRepairPort
	var cpus []reading.RepairCounts
	if err := errors.Join(m.RepairConfigs.Lookup(id, &c), m.RepairPorts.Lookup(id, &state), m.RepairStats.Lookup(id, &cpus)); err != nil {
		return nil, fmt.Errorf("read its repairs: %w", err)
	}
	if c.ParkBytes == 0 {
		return nil, nil
	}
	r := &reading.Repairs{LimitBytes: c.LimitBytes, MostBytes: c.ParkBytes, WaitingBytes: reading.Waiting(state.Bytes, attach.Age(state.ParkedNs))}
	r.Add(cpus)
	return r, nil
}

// creditProgram is the switch program with promises and credits.
const creditProgram = "weir_fairq_credit"

// credits reports whether that program runs.
func (c *Config) credits() bool { return c.Credit != CreditOff && !c.Observe }
