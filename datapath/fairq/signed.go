package fairq

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"
)

// MaxSignedSources is the largest number of sources of signed segments that a switch counts. It drops the one
// that was silent longest.
const MaxSignedSources = 1024

// SignedSourcesShown is the number of sources that Switch lists.
const SignedSourcesShown = 10

// SignedSources returns the sources with the most signed segments, at most `most` of them; all if that is
// negative.
func (f *Attachment) SignedSources(most int) ([]SignedSource, error) {
	return f.maps.signedSources(most)
}

// SignedSources does the same for the pinned tables.
func (v *View) SignedSources(most int) ([]SignedSource, error) {
	return v.maps.signedSources(most)
}

func (m *fairqMaps) signedSources(most int) ([]SignedSource, error) {
	keys, values := make([]fairqSourceKey, MaxSignedSources), make([]fairqSourceCounts, MaxSignedSources)
	var cursor ebpf.MapBatchCursor
	n, err := m.SignedSources.BatchLookup(&cursor, keys, values, nil)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil, fmt.Errorf("read the sources of signed segments: %w", err)
	}
	all := make([]SignedSource, n)
	for i := range all {
		var b [16]byte
		for j, word := range keys[i].Address {
			binary.NativeEndian.PutUint32(b[4*j:], word)
		}
		all[i] = SignedSource{Addr: netip.AddrFrom16(b).Unmap(), VLANs: keys[i].Vlans, Segments: values[i].Segments, Dropped: values[i].Dropped}
	}
	slices.SortFunc(all, func(a, b SignedSource) int {
		return cmp.Or(cmp.Compare(b.Segments, a.Segments), a.Addr.Compare(b.Addr), cmp.Compare(a.VLANs, b.VLANs))
	})
	if most >= 0 && len(all) > most {
		all = all[:most]
	}
	return all, nil
}

// isSigned reports whether the signatures of a connection's segments count: signed.h.
func (c *fairqConnection) isSigned() bool {
	const signed, bare, heard, last = 1, 16, 8, 1
	switch {
	case c.Flags&bare != 0:
		return false
	case c.Flags&signed != 0:
		return true
	}
	return c.Signs[0] == heard|last && c.Signs[1] == heard|last
}
