package fairq

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"

	"weir/datapath/attach"
)

// A note is a text of user space about a port, which status reads from the kernel: why its flows are not
// limited. It is pinned with the tables and outlives the process. Only user space uses its table, which is
// created with the first note.
const (
	notesPin  = "notes"
	noteBytes = 256 // with the 0 at its end
)

type note [noteBytes]byte

func notesSpec() *ebpf.MapSpec {
	return &ebpf.MapSpec{
		Name: notesPin, Type: ebpf.Hash, KeySize: 4, ValueSize: noteBytes, MaxEntries: maxPorts, Pinning: ebpf.PinByName,
	}
}

// Note sets a port's note, at most 255 bytes; "" removes it. Without Config.Pin nobody could read the note, so
// Note does nothing.
func (f *Attachment) Note(port, text string) error {
	i := f.index(port)
	if i < 0 || f.cfg.Pin == "" {
		return nil
	}
	m, err := openNotes(f.cfg.Pin, nil)
	if errors.Is(err, fs.ErrNotExist) {
		if text == "" {
			return nil
		}
		m, err = ebpf.NewMapWithOptions(notesSpec(), ebpf.MapOptions{PinPath: f.cfg.Pin})
	}
	if err != nil {
		return fmt.Errorf("note of port %s: %w", port, err)
	}
	defer func() { _ = m.Close() }()
	if text == "" {
		err = m.Delete(f.ports[i].id)
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			err = nil
		}
	} else {
		var n note
		copy(n[:noteBytes-1], text)
		err = m.Put(f.ports[i].id, n)
	}
	if err != nil {
		return fmt.Errorf("note of port %s: %w", port, err)
	}
	return nil
}

// ClearNotes removes all notes, by this process or one before it.
func (f *Attachment) ClearNotes() error {
	if f.cfg.Pin == "" {
		return nil
	}
	if err := os.Remove(filepath.Join(f.cfg.Pin, notesPin)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("clear the notes: %w", err)
	}
	return nil
}

// Note reads the note of the port with this id in the tables.
func (v *View) Note(id uint32) (string, error) {
	m, err := openNotes(v.dir, &ebpf.LoadPinOptions{ReadOnly: true})
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("notes: %w", err)
	}
	defer func() { _ = m.Close() }()
	var n note
	err = m.Lookup(id, &n)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("note of port %d: %w", id, err)
	}
	return attach.TextOf(n[:]), nil
}

func openNotes(dir string, o *ebpf.LoadPinOptions) (*ebpf.Map, error) {
	return ebpf.LoadPinnedMap(filepath.Join(dir, notesPin), o)
}
