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
