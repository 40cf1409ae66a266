package fairq

import "weir/datapath/park"

// CreditState is what a port did with promises and credits.
type CreditState struct{ Promises, Parked, Full uint64 }

// CreditOf returns the state of the port with this name.
func (f *Attachment) CreditOf(name string) (CreditState, error) {
	var c fairqPortCredit
	err := f.maps.Credits.Lookup(f.ports[f.index(name)].id, &c)
	return CreditState{c.State.Promises, c.State.Parked, c.State.Full}, err
}

// ParkStats returns the counters of the only parking.
func (f *Attachment) ParkStats() (park.Stats, error) {
	for _, p := range f.parks {
		return p.Stats()
	}
	return park.Stats{}, park.ErrClosed
}
