package fairq

import (
	"errors"

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
}

// CreditOf returns the state of the port with this name.
func (f *Attachment) CreditOf(name string) (CreditState, error) {
	return creditIn(f.maps.Credits, f.ports[f.index(name)].id)
}

// CreditAfter returns a function that reads the state of the port with this name once, also after Close.
func (f *Attachment) CreditAfter(name string) (read func() (CreditState, error), err error) {
	credits, err := f.maps.Credits.Clone()
	if err != nil {
		return nil, err
	}
	id := f.ports[f.index(name)].id
	return func() (CreditState, error) {
		s, err := creditIn(credits, id)
		return s, errors.Join(err, credits.Close())
	}, nil
}

func creditIn(credits *ebpf.Map, id uint32) (CreditState, error) {
	var c fairqPortCredit
	err := credits.Lookup(id, &c)
	s := c.State
	return CreditState{s.Promises, s.Parked, s.Full, uint64(s.OwedBytes) + uint64(s.OwedBeforeBytes), s.HandshakesLess, s.Holds, s.Flight.Bytes}, err
}

// ParkStats returns the counters of the only parking.
func (f *Attachment) ParkStats() (park.Stats, error) {
	for _, p := range f.parks {
		return p.Stats()
	}
	return park.Stats{}, park.ErrClosed
}
