package attach

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/cilium/ebpf"
)

// OtherSchema is the error for a pin directory that another version of Weir left, whose tables this one
// cannot read.
type OtherSchema struct {
	Dir  string
	Want uint32 // the version of the layout that this Weir has
	Have uint32 // the version of the layout that is there; 0: not known
	Size uint32 // connections that were asked for, where the tables are for another number of them; else 0
}

func (e *OtherSchema) Error() string {
	have := fmt.Sprintf("another layout, this Weir has %d", e.Want)
	switch {
	case e.Size != 0:
		have = fmt.Sprintf("not the size that 'flows: %d' asks for", e.Size)
	case e.Have != 0:
		have = fmt.Sprintf("layout %d, this Weir has %d", e.Have, e.Want)
	}
	return fmt.Sprintf("the tables in %s have %s: begin anew with --renew (flows that are there are adopted), or remove them with weir switch --purge", e.Dir, have)
}

// CheckSchema refuses maps pinned in dir with *OtherSchema, before any is opened, if their layout is not want. The map
// of this name has the version.
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

// ReadSchema reads the layout's version, which is the first word of the map's first entry whatever the layout is; 0:
// never set.
func ReadSchema(controls *ebpf.Map) (uint32, error) {
	value, err := controls.LookupBytes(uint32(0))
	if err != nil || len(value) < 4 {
		return 0, fmt.Errorf("version of the tables: %w", errors.Join(err, errors.New("no control entry")))
	}
	return uint32(value[0]) | uint32(value[1])<<8 | uint32(value[2])<<16 | uint32(value[3])<<24, nil
}
