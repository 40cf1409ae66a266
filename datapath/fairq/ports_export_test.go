package fairq

// Schema is the layout of this version's tables.
const Schema = schemaVersion

// SetOwned sets each port's count of opened connections.
func (f *Attachment) SetOwned(owned uint32) error {
	for i := range f.ports {
		var p fairqPort
		if err := f.maps.Ports.Lookup(f.ports[i].id, &p); err != nil {
			return err
		}
		p.Owned = owned
		if err := f.maps.Ports.Put(f.ports[i].id, p); err != nil {
			return err
		}
	}
	return nil
}

// LoseKept makes the count of a port's segments that wait once more one too many, as one that is lost in the parking does.
func (f *Attachment) LoseKept(id uint32) error {
	var state fairqRepairPort
	if err := f.maps.RepairPorts.Lookup(id, &state); err != nil {
		return err
	}
	state.Again++
	return f.maps.RepairPorts.Put(id, &state)
}
