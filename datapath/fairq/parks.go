package fairq

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"weir/datapath/park"
)

// Packets that wait for credits wait in the parking of their namespace (datapath/park), which belongs to one switch.

const parkPackets = 8192

// parkOptions returns the options of the parking of the switch that is pinned in dir; "": it is not pinned.
func parkOptions(dir string) park.Options {
	return park.Options{LimitBytes: 2 * creditHold, LimitPackets: parkPackets}.OfSwitch(dir, "weir-pk-")
}

// openPark opens the parking of a port's namespace, if packets may have to wait there. isNew reports that it was not open.
func (f *Attachment) openPark(c *Config, p *Port, cookie uint64) (isNew bool, err error) {
	if c.Credit != CreditPaces || c.Observe || f.parks[cookie] != nil {
		return false, nil
	}
	at, err := park.Open(p.In, parkOptions(c.Pin))
	if err != nil {
		return false, fmt.Errorf("the parking: %w", err)
	}
	f.shared.Lock()
	defer f.shared.Unlock()
	if f.parks == nil {
		f.parks = map[uint64]*park.Park{}
	}
	f.parks[cookie] = at
	return true, nil
}

// openParks opens the parkings that a new configuration needs, and returns the namespaces of those that were not open.
func (f *Attachment) openParks(c *Config) (opened []uint64, err error) {
	for i := range f.ports {
		p := &f.ports[i]
		isNew, err := f.openPark(c, &p.Port, p.cookie)
		if err != nil {
			return opened, fmt.Errorf("port %s: %w", p.Name, err)
		}
		if isNew {
			opened = append(opened, p.cookie)
		}
	}
	return opened, nil
}

// closeParks closes and removes the parkings of some namespaces.
func (f *Attachment) closeParks(cookies []uint64) error {
	var errs []error
	for _, cookie := range cookies {
		at := f.parks[cookie]
		f.shared.Lock()
		delete(f.parks, cookie)
		f.shared.Unlock()
		errs = append(errs, at.Close())
	}
	return errors.Join(errs...)
}

// parkMaps returns the maps of the parking for programs in a namespace. Without a parking, packets pass.
func (f *Attachment) parkMaps(cookie uint64) map[string]*ebpf.Map {
	if at := f.parks[cookie]; at != nil {
		return at.Maps()
	}
	return nil
}

// setParkPort enters a port in the parking of its namespace, with its rate. Packets that leave by this port wait for
// credits of other ports. So the parking has to know it, also without credits; no packet waits in its class then.
func (f *Attachment) setParkPort(p *attachedPort, mode uint32) error {
	at := f.parks[p.cookie]
	if at == nil {
		return nil
	}
	rate, bursts := uint64(unusedRate), park.Bursts{Kept: p.Law.RepairBurst}
	if mode != 0 {
		rate = min(max(p.Law.RateBps, leastRate), unusedRate)
	}
	err := at.SetPort(p.id, p.Ifindex, rate, bursts)
	if err == nil {
		return nil
	}
	if restored := at.Restore(); restored != nil { // somebody removed the devices
		return errors.Join(err, restored)
	}
	return at.SetPort(p.id, p.Ifindex, rate, bursts)
}

// restoreParks has parkings made again that somebody has removed or changed. Until then packets pass.
func (f *Attachment) restoreParks() {
	f.shared.Lock()
	var all []*park.Park
	for _, at := range f.parks {
		all = append(all, at)
	}
	f.shared.Unlock()
	for _, at := range all {
		at.KeepSoon()
	}
}

// leaveParks closes the parkings. With pins the devices stay, for the programs that stay. end: nothing stays.
func (f *Attachment) leaveParks(end bool) error {
	f.shared.Lock()
	all := f.parks
	f.parks = nil
	f.shared.Unlock()
	var errs []error
	for _, at := range all {
		if end || f.cfg.Pin == "" {
			errs = append(errs, at.Close())
		} else {
			errs = append(errs, at.Leave())
		}
	}
	return errors.Join(errs...)
}

// leaveNewParks removes the parkings that did not exist before this process.
func (f *Attachment) leaveNewParks() error {
	var cookies []uint64
	for cookie, at := range f.parks {
		if !at.Adopted() {
			cookies = append(cookies, cookie)
		}
	}
	return f.closeParks(cookies)
}

// removeFormerParks removes the parkings of an earlier process with credits, once its programs are replaced.
func (f *Attachment) removeFormerParks() error {
	if f.cfg.Pin == "" || f.fresh || f.cfg.Credit == CreditPaces {
		return nil
	}
	var errs []error
	done := map[uint64]bool{}
	for i := range f.ports {
		if p := &f.ports[i]; !done[p.cookie] {
			done[p.cookie] = true
			errs = append(errs, removePark(p.In, f.cfg.Pin))
		}
	}
	return errors.Join(errs...)
}

// removePark removes the parking that the switch pinned in dir left in a namespace. Devices of others are left alone.
func removePark(enter func(f func() error) error, dir string) error {
	err := park.Remove(enter, parkOptions(dir))
	var foreign *park.Foreign
	if errors.As(err, &foreign) {
		return nil
	}
	return err
}
