package fairq

import "weir/datapath/park"

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
	var c fairqPortCredit
	err := f.maps.Credits.Lookup(f.ports[f.index(name)].id, &c)
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
