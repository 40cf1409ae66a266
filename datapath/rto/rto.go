// Package rto sets the initial retransmission timeout of the lab's guests (bpf/rto/rto.bpf.c).
package rto

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"weir/datapath/attach"
)

// initialRTO keeps the attachment alive.
type initialRTO struct {
	objects rtoObjects
	link    link.Link
}

// AttachInitial sets the initial retransmission timeout (RTO) of TCP sockets, for SYN and SYN-ACK alike. It
// applies to sockets that processes of the cgroup (version 2, by path) open in the network namespaces given by
// their cookies (NetnsCookie). Times are above 0, rounded up to a whole jiffy (1/CONFIG_HZ s), and at most the
// kernel's maximum RTO. Other namespaces keep the kernel's second. Close detaches.
func AttachInitial(cgroupPath string, byCookie map[uint64]time.Duration) (io.Closer, error) {
	if err := Check(); err != nil {
		return nil, fmt.Errorf("initial RTO: %w", err)
	}
	spec, err := loadRto()
	if err != nil {
		return nil, fmt.Errorf("initial RTO: read the embedded program: %w", err)
	}
	// One entry for each namespace. The kernel refuses an empty map.
	spec.Maps[rtoMapInitialRtos].MaxEntries = uint32(max(len(byCookie), 1))
	r := &initialRTO{}
	if err := spec.LoadAndAssign(&r.objects, nil); err != nil {
		return nil, fmt.Errorf("initial RTO: load program weir_initial_rto: %w", err)
	}
	for cookie, rto := range byCookie {
		if rto <= 0 {
			return nil, errors.Join(fmt.Errorf("initial RTO: %s for namespace %d: must be above 0", rto, cookie), r.Close())
		}
		if err := r.objects.InitialRtos.Put(cookie, uint64(rto)); err != nil {
			return nil, errors.Join(fmt.Errorf("initial RTO of namespace %d: %w", cookie, err), r.Close())
		}
	}
	r.link, err = link.AttachCgroup(link.CgroupOptions{
		Path: cgroupPath, Attach: ebpf.AttachCGroupSockOps, Program: r.objects.WeirInitialRto,
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("initial RTO: attach weir_initial_rto to cgroup %s: %w", cgroupPath, err), r.Close())
	}
	return r, nil
}

// Close detaches the program: sockets opened later have the kernel's initial RTO.
func (r *initialRTO) Close() error {
	var err error
	if r.link != nil {
		err = r.link.Close()
	}
	if err = errors.Join(err, r.objects.Close()); err != nil {
		return fmt.Errorf("detach initial RTO: %w", err)
	}
	return nil
}

// Check checks that AttachInitial can work on this kernel and for this user. Errors: ErrPermission or
// *MissingFeature.
func Check() error { return attach.CheckAll(attach.SocketProbes()) }
