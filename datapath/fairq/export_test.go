package fairq

import (
	"weir/datapath/attach"
)

import "github.com/cilium/ebpf/link"

// For tests of package datapath_test, which build networks and so cannot be of this package.

// StopTimer stops a port's timer, as if it had died.
func (f *Attachment) StopTimer(port string) error { return f.disarm(f.ports[f.index(port)].id) }

// Attacher loads a program and returns a function that attaches it to a port, as Attach does.
func (f *Attachment) Attacher() (func(attach.PortRef) (link.Link, error), error) {
	program, err := f.source.loadPort(0, f.maps, nil)
	return func(p attach.PortRef) (link.Link, error) { return sole().AttachFirst(p, "", program) }, err
}

// PlaceOf returns the place of a connection among so many, and the holder that the place then has (bpf/fairq/table.h), under the
// default key of digests.
func PlaceOf(key [2]uint64, places uint32) (place uint32, holder uint64) {
	const secret, holds = 0x243f6a8985a308d3, 2
	h := (key[0] ^ secret) * 0x9e3779b97f4a7c15
	h = ((h ^ h>>32) + key[1]) * 0xbf58476d1ce4e5b9
	h ^= h >> 32
	return uint32((h >> 32) * uint64(places) >> 32), h&^3 | holds
}
