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
