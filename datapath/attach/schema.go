package attach

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/cilium/ebpf"
)

// OtherSchema is the error for a pin directory of another version of Weir, whose tables this version cannot
// read.
type OtherSchema struct {
	Dir  string
	Want uint32 // the version of the layout that this Weir has
	Have uint32 // the version of the layout in the directory; 0: unknown
	Size uint32 // connections that the configuration asks for, if the tables have another size; else 0
}

func (e *OtherSchema) Error() string {
	have := fmt.Sprintf("another layout, this Weir has %d", e.Want)
	switch {
	case e.Size != 0:
		have = fmt.Sprintf("not the size that 'flows: %d' asks for", e.Size)
	case e.Have != 0:
		have = fmt.Sprintf("layout %d, this Weir has %d", e.Have, e.Want)
	}
	return fmt.Sprintf("the tables in %s have %s: start afresh with --renew (it adopts the flows that exist), or remove them with weir switch --purge", e.Dir, have)
}

// CheckSchema returns *OtherSchema if the layout of the maps pinned in dir is not want, before any is opened.
// The map called name has the version.
func CheckSchema(dir, name string, want uint32) error {
	m, err := ebpf.LoadPinnedMap(filepath.Join(dir, name), &ebpf.LoadPinOptions{ReadOnly: true})
	if err != nil {
		return fmt.Errorf("open the pinned tables: %w", err)
	}
	defer func() { _ = m.Close() }()
	have, err := ReadSchema(m)
	if err != nil {
		return err
	}
	if have != 0 && have != want {
		return &OtherSchema{Dir: dir, Want: want, Have: have}
	}
	return nil
}

// ReadSchema reads the layout's version: the first word of the map's first entry, in every layout. 0: never
// set.
func ReadSchema(controls *ebpf.Map) (uint32, error) {
	value, err := controls.LookupBytes(uint32(0))
	if err != nil || len(value) < 4 {
		return 0, fmt.Errorf("version of the tables: %w", errors.Join(err, errors.New("no control entry")))
	}
	return uint32(value[0]) | uint32(value[1])<<8 | uint32(value[2])<<16 | uint32(value[3])<<24, nil
}
