package fairq

import (
	"errors"
	"time"

	"github.com/cilium/ebpf"

	"weir/datapath/park"
)

// CreditState is what a port did with promises and credits.
type CreditState struct {
	Promises, Parked, Full uint64
	OwedBytes              uint64 // promises that are not used yet
	HandshakesLess         uint32 // 2^20 less the share of SYN-ACKs' promises that are used
	Holds                  uint64
	InFlight               uint32
	Charged                time.Duration // of the port's time, so far
}

// CreditOf returns the state of the port with this name.
func (f *Attachment) CreditOf(name string) (CreditState, error) {
	return creditIn(f.maps.Credits, f.ports[f.index(name)].id)
}

// CreditsAfter returns a function that reads once, also after Close, how many promises all ports made, and how many packets they parked.
func (f *Attachment) CreditsAfter() (read func() (promises, parked uint64, err error), err error) {
	credits, err := f.maps.Credits.Clone()
	if err != nil {
		return nil, err
	}
	var ids []uint32
	for _, p := range f.ports {
		ids = append(ids, p.id)
	}
	return func() (promises, parked uint64, err error) {
		for _, id := range ids {
			s, err2 := creditIn(credits, id)
			promises, parked, err = promises+s.Promises, parked+s.Parked, errors.Join(err, err2)
		}
		return promises, parked, errors.Join(err, credits.Close())
	}, nil
}

func creditIn(credits *ebpf.Map, id uint32) (CreditState, error) {
	var c fairqPortCredit
	err := credits.Lookup(id, &c)
	s := c.State
	return CreditState{s.Promises, s.Parked, s.Full, uint64(s.OwedBytes) + uint64(s.OwedBeforeBytes), s.HandshakesLess, s.Holds, s.Flight.Bytes, time.Duration(s.ChargedNs)}, err
}

// ParkStats returns the counters of the only parking.
func (f *Attachment) ParkStats() (park.Stats, error) {
	for _, p := range f.parks {
		return p.Stats()
	}
	return park.Stats{}, park.ErrClosed
}
