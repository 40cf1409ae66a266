package host

import (
	"errors"
	"fmt"
	"maps"

	"weir/law"
)

// dropWaits is how many packets wait above the rate of a VM whose excess is dropped. HTB takes packets from a queue, so it cannot be 0. It
// is a number of packets, because a limit in bytes below 64 KB would drop all GSO packets.
const dropWaits = 1

// SetExcess gives these VMs another excess than Config.Excess: law.ExcessQueue or law.ExcessDrop. VMs that it leaves out have that. It may
// name VMs that do not exist yet.
func (h *Host) SetExcess(of map[law.VM]string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return ErrClosed
	}
	for vm, excess := range of {
		if excess != law.ExcessQueue && excess != law.ExcessDrop {
			return fmt.Errorf("host: VM %d: excess %q: %s or %s", vm, excess, law.ExcessQueue, law.ExcessDrop)
		}
	}
	h.excess = maps.Clone(of)
	var errs []error
	for _, v := range h.vms {
		errs = append(errs, h.setLeaf(v))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("host: excess: %w", err)
	}
	return nil
}

// excessOf returns what must happen to the packets of a VM above its rate.
func (h *Host) excessOf(v *vm) string {
	if excess := h.excess[v.number]; excess != "" {
		return excess
	}
	return h.cfg.Excess
}

// setLeaf gives the class of a VM, if it has one, the queue that it must have.
func (h *Host) setLeaf(v *vm) error {
	if v.class == 0 || h.limiter == nil || v.excess == h.excessOf(v) {
		return nil
	}
	return h.makeLeaf(v, v.class)
}

// makeLeaf makes the queue of a VM's class with this rate. Packets that wait in one of the other kind are lost.
func (h *Host) makeLeaf(v *vm, bps uint64) (err error) {
	excess := h.excessOf(v)
	if excess == law.ExcessDrop {
		err = h.limiter.leaf(classOf(v.id), "pfifo", dropWaits)
	} else {
		err = h.limiter.leaf(classOf(v.id), "bfifo", bucketLimit(bps))
	}
	if err == nil {
		v.excess = excess
	}
	return err
}
