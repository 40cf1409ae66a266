package agentd

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"

	"golang.org/x/net/netutil"

	"weir/datapath/attach"
	"weir/datapath/metadata"
	"weir/law"
)

// metadataRole answers programs of VMs at a link-local address, each VM at its port (datapath/metadata). The agent's goroutine owns it.
type metadataRole struct {
	cfg   metadata.Config
	d     *deadlines
	log   *slog.Logger
	open  *metadata.Metadata // nil: not yet, and why
	why   string
	again retry // to open it
	ports map[law.VM]*answered
	said  map[law.VM]string
}

// answered is a VM's port.
type answered struct {
	addedVM
	server *http.Server
}

// newMetadataRole returns nil if there is no address.
func newMetadataRole(addresses []netip.Addr, d *deadlines, log *slog.Logger) *metadataRole {
	if len(addresses) == 0 {
		return nil
	}
	r := &metadataRole{d: d, log: log, ports: map[law.VM]*answered{}, said: map[law.VM]string{}}
	for _, a := range addresses {
		if a.Is4() {
			r.cfg.IPv4 = a
		} else {
			r.cfg.IPv6 = a
		}
	}
	return r
}

// follow answers the VMs in the list.
func (r *metadataRole) follow(list map[law.VM]addedVM) {
	if r == nil || r.open == nil && !r.begin() {
		return
	}
	for vm, on := range r.ports {
		if now, still := list[vm]; !still || now.ifindex != on.ifindex || !slices.Equal(now.MAC, on.MAC) {
			r.remove(vm)
		}
	}
	for vm, v := range list {
		if r.ports[vm] != nil {
			continue
		}
		one := &answered{v, newDeadlineServer(r.d.handler(vm), r.log)}
		err := r.open.Add(attach.PortRef{Name: v.Port, Ifindex: v.ifindex}, v.MAC, func(l net.Listener) {
			_ = one.server.Serve(netutil.LimitListener(l, declareConns)) // it ends with remove
		})
		text := ""
		if err == nil {
			r.ports[vm] = one
		} else if text = err.Error(); text != r.said[vm] {
			r.log.Warn("a VM cannot declare deadlines at the metadata address", "vm", vm, "error", err)
		}
		r.said[vm] = text
	}
}

// begin loads the program, unless a recent attempt failed.
func (r *metadataRole) begin() bool {
	if !r.again.due() {
		return false
	}
	var err error
	if r.open, err = metadata.Open(r.cfg); err != nil {
		r.again.failed()
		if text := remedy(err); text != r.why {
			r.why = text
			r.log.Warn("no VM can declare deadlines at the metadata address", "reason", text)
		}
		return false
	}
	r.why, r.again = "", retry{}
	return true
}

func (r *metadataRole) remove(vm law.VM) {
	one := r.ports[vm]
	delete(r.ports, vm)
	_ = one.server.Close() // closes what it was given, which the stack has closed if it fails
	if err := r.open.Remove(one.ifindex); err != nil {
		r.log.Warn("at the end of a VM's metadata address", "vm", vm, "error", err)
	}
}

// end ends it at all ports.
func (r *metadataRole) end() {
	if r == nil || r.open == nil {
		return
	}
	for vm := range r.ports {
		r.remove(vm)
	}
	if err := r.open.Close(); err != nil {
		r.log.Warn("at the end of the metadata address", "error", err)
	}
	r.open = nil
}

// status returns nil if there is no address.
func (r *metadataRole) status() *MetadataStatus {
	if r == nil {
		return nil
	}
	s := &MetadataStatus{Addresses: []string{}, VMs: len(r.ports), Off: r.why}
	for _, a := range []netip.Addr{r.cfg.IPv4, r.cfg.IPv6} {
		if a.IsValid() {
			s.Addresses = append(s.Addresses, a.String())
		}
	}
	if r.open != nil {
		c, err := r.open.Counts()
		if err != nil {
			r.log.Warn("cannot read the counts of the metadata address", "error", err)
		}
		s.Taken, s.Dropped = c.Taken, c.Dropped
	}
	return s
}

// wrongMetadata returns what is wrong with an address of host.deadlines.metadata.
func wrongMetadata(text string) string {
	if a, err := netip.ParseAddr(text); err != nil || a.Zone() != "" || !a.IsLinkLocalUnicast() || a.Is4In6() {
		return fmt.Sprintf("%q is no link-local address", text)
	}
	return ""
}
