package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/cilium/ebpf"

	"weir/datapath/attach"
	"weir/law"
)

// VM is a guest, as the operator configures it.
type VM struct {
	Number law.VM // not 0
	// Port is the hypervisor's port to the guest, in the uplink's namespace. Every packet that comes in by it is this VM's.
	Port attach.PortRef
	MAC  net.HardwareAddr
	// Addresses are what the VM may send from: single addresses, or prefixes. IPv6 guests also need their link-local
	// address, or fe80::/64.
	Addresses []netip.Prefix
}

// vm is a VM in the tables.
type vm struct {
	number   law.VM
	id       uint32
	port     string
	ifindex  uint32
	cookie   uint64    // of its port's namespace
	attached *attached // nil: pinned by an earlier process, and not added again yet
	class    uint64    // rate of its class, bit/s; 0: it has none
	excess   string    // of its class's queue; "": not set by this process
	dirty    bool      // its class may need another rate
}

// AddVM adds a VM, or changes one. A VM that is added again keeps its grants and connections, and no packet passes unchecked
// meanwhile.
func (h *Host) AddVM(c VM) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return ErrClosed
	}
	if err := h.addVM(&c); err != nil {
		return fmt.Errorf("host: VM %d at %s: %w", c.Number, c.Port.Name, err)
	}
	return nil
}

func (h *Host) addVM(c *VM) error {
	entry, err := c.entry(h.cookie)
	if err != nil {
		return err
	}
	var owner uint32
	known := h.vms[c.Number]
	if err := h.maps.VmPorts.Lookup(entry.Ifindex, &owner); err == nil && (known == nil || known.id+1 != owner) {
		holder := h.withID(owner - 1)
		if holder == nil || holder.attached != nil {
			return errors.New("another VM has this port: remove that VM first")
		}
		if err := h.removeVM(holder); err != nil { // of an earlier process, whose VM is elsewhere now or gone
			return err
		}
	}
	if known == nil && len(h.vms) >= MaxVMs {
		return fmt.Errorf("there are %d VMs already, the most", MaxVMs)
	}
	v := &vm{number: c.Number, id: h.freeID(known), port: c.Port.Name, ifindex: entry.Ifindex, cookie: entry.Cookie}
	if known != nil {
		v.class, v.dirty, v.excess = known.class, known.dirty, known.excess
	}
	if v.class != 0 {
		entry.Class = classOf(v.id)
	}
	mtu, err := attach.DeviceMTU(c.Port)
	if err != nil {
		return err
	}
	if known == nil {
		if err := h.clear(v.id); err != nil {
			return err
		}
	}
	err = h.changeGrants(v, func(e *hostHostGrants) error {
		e.MssMax = uint16(mtu - attach.SegmentOverhead)
		return nil
	})
	if err != nil {
		return err
	}
	if known != nil && known.ifindex != v.ifindex {
		if err := errors.Join(h.detachVM(known), h.setPort(known.ifindex, 0)); err != nil {
			return err
		}
	}
	if known != nil && known.attached != nil {
		v.attached = known.attached
	} else if v.attached, err = h.attach(c.Port, h.program, v.id+1); err != nil {
		return err
	}
	if err := errors.Join(h.maps.Vms.Put(v.id, entry), h.setPort(entry.Ifindex, v.id+1)); err != nil {
		return errors.Join(fmt.Errorf("write its entry: %w", err), v.attached.detach())
	}
	h.vms[c.Number], h.used[v.id] = v, true
	return h.setLeaf(v)
}

// withID returns the VM with this index; nil: none.
func (h *Host) withID(id uint32) *vm {
	for _, v := range h.vms {
		if v.id == id {
			return v
		}
	}
	return nil
}

// clear clears what an earlier VM with this index left.
func (h *Host) clear(id uint32) error {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("number of CPUs: %w", err)
	}
	var old hostHostGrants
	if err := h.maps.VmGrants.Lookup(id, &old); err != nil {
		return fmt.Errorf("read its entry: %w", err)
	}
	// Connections of the earlier VM must not match the generation.
	fresh := hostHostGrants{Zero: h.zero(), Generation: old.Generation + 1}
	return errors.Join(h.maps.VmGrants.Put(id, fresh), h.maps.Counts.Put(id, make([]hostHostCounts, cpus)))
}

// nearPorts is HOST_PORTS of bpf/host/tables.h.
const nearPorts = 1 << 16

// setPort sets the VM behind a port: its index and 1; 0: none.
func (h *Host) setPort(ifindex, vm uint32) error {
	if vm == 0 {
		if err := missing(h.maps.VmPorts.Delete(ifindex)); err != nil {
			return err
		}
	} else if err := h.maps.VmPorts.Put(ifindex, vm); err != nil {
		return err
	}
	if ifindex >= nearPorts {
		return nil
	}
	return h.maps.NearPorts.Put(ifindex, vm)
}

func (h *Host) zero() uint16 {
	if h.cfg.PauseZero {
		return 1
	}
	return 0
}

// freeID returns the index of a known VM, or one that no VM has.
func (h *Host) freeID(known *vm) uint32 {
	if known != nil {
		return known.id
	}
	id := uint32(0)
	for h.used[id] {
		id++
	}
	return id
}

// entry returns the VM as the kernel's table has it.
func (c *VM) entry(cookie uint64) (e hostHostVm, err error) {
	switch {
	case c.Number == 0:
		return e, errors.New("its number is 0: give it another")
	case len(c.MAC) != 6:
		return e, fmt.Errorf("MAC address %q: 6 bytes are needed", c.MAC)
	case len(c.Addresses) == 0 || len(c.Addresses) > MaxAddresses:
		return e, fmt.Errorf("%d addresses: 1 to %d are needed", len(c.Addresses), MaxAddresses)
	}
	var here uint64
	if err := c.Port.In(func() (err error) { here, err = attach.NetnsCookie(); return err }); err != nil {
		return e, err
	}
	if here != cookie {
		return e, errors.New("its port is in another network namespace than the uplink")
	}
	e = hostHostVm{Number: uint32(c.Number), Ifindex: uint32(c.Port.Ifindex), Cookie: here, Addresses: uint32(len(c.Addresses))}
	for i := range e.Mac {
		e.Mac[i] = binary.LittleEndian.Uint16(c.MAC[2*i:])
	}
	for i, b := range []byte(c.Port.Name) {
		if i < len(e.Name)-1 {
			e.Name[i] = int8(b)
		}
	}
	for i, p := range c.Addresses {
		if !p.IsValid() {
			return e, errors.New("an address is not valid")
		}
		bits := p.Bits()
		if p.Addr().Is4() {
			bits += 96
		}
		if bits < 96 && p.Contains(anyIPv4) { // the tables have IPv4 addresses in this range
			return e, fmt.Errorf("the range %v covers ::ffff:0:0/96, which is all of IPv4: choose narrower ranges", p)
		}
		masked := p.Masked().Addr()
		e.Address[i].Address = words(masked)
		var mask [16]byte
		copy(mask[:], net.CIDRMask(bits, 128))
		e.Address[i].Mask = words(netip.AddrFrom16(mask))
	}
	return e, nil
}

var anyIPv4 = netip.AddrFrom16([16]byte{10: 0xff, 11: 0xff})

// words returns an address as the tables have it: IPv4 as ::ffff:a.b.c.d.
func words(a netip.Addr) (w [4]uint32) {
	b := a.As16()
	for i := range w {
		w[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return w
}

// RemoveVM removes a VM, with its grants and its class. Its packets then pass unchecked, as those of the host do.
func (h *Host) RemoveVM(number law.VM) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	v := h.vms[number]
	switch {
	case h.closed:
		return ErrClosed
	case v == nil:
		return fmt.Errorf("host: there is no VM %d", number)
	}
	if err := h.removeVM(v); err != nil {
		return fmt.Errorf("host: %w", err)
	}
	return nil
}

func (h *Host) removeVM(v *vm) error {
	errs := []error{h.detachVM(v), h.setPort(v.ifindex, 0), h.clear(v.id),
		h.maps.Vms.Put(v.id, hostHostVm{})}
	for key, k := range h.pairs {
		if key.Vm == v.id {
			delete(h.pairs, key)
			errs = append(errs, missing(h.maps.Pairs.Delete(key)), h.maps.Keyed.Put(k.index, hostGrants{}))
			h.indexes.give(k.index)
		}
	}
	for key, k := range h.flows {
		if key.Vm == v.id {
			delete(h.flows, key)
			errs = append(errs, missing(h.maps.FlowGrants.Delete(key)), h.maps.Keyed.Put(k.index, hostGrants{}))
			h.indexes.give(k.index)
		}
	}
	if v.class != 0 && h.lost == nil {
		errs = append(errs, h.limiter.removeClass(v.id))
	}
	delete(h.vms, v.number)
	delete(h.used, v.id)
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove VM %d at %s: %w", v.number, v.port, err)
	}
	return nil
}

// detachVM detaches a VM's program, also one that an earlier process pinned.
func (h *Host) detachVM(v *vm) error {
	if v.attached != nil {
		a := v.attached
		v.attached = nil
		return a.detach()
	}
	name := attach.PortPin(v.cookie, int(v.ifindex))
	if l, ok := h.pins.Links[name]; ok {
		delete(h.pins.Links, name)
		return l.Remove()
	}
	return nil
}

// missing ignores the error for an entry that is not there.
func missing(err error) error {
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil
	}
	return err
}

// restore reads the VMs and the keys of grants that an earlier process left in the tables. VMs of another namespace than the
// uplink's are removed: their ifindexes are those of other devices here.
func (h *Host) restore() error {
	var entry hostHostVm
	var id, ifindex uint32
	ports := h.maps.VmPorts.Iterate()
	for ports.Next(&ifindex, &id) {
		id--
		if err := h.maps.Vms.Lookup(id, &entry); err != nil {
			return fmt.Errorf("read VM %d of the tables: %w", id, err)
		}
		if entry.Number == 0 {
			continue
		}
		name := make([]byte, len(entry.Name))
		for i, c := range entry.Name {
			name[i] = byte(c)
		}
		h.vms[law.VM(entry.Number)] = &vm{number: law.VM(entry.Number), id: id, port: attach.TextOf(name), ifindex: ifindex, cookie: entry.Cookie}
		h.used[id] = true
	}
	if err := ports.Err(); err != nil {
		return fmt.Errorf("read the VMs: %w", err)
	}
	err := errors.Join(restoreKeys(h, h.maps.Pairs, h.pairs), restoreKeys(h, h.maps.FlowGrants, h.flows))
	h.restoreIndexes()
	for _, v := range h.vms {
		if v.cookie != h.cookie {
			err = errors.Join(err, h.removeVM(v))
		}
	}
	return err
}

func restoreKeys[K comparable](h *Host, t *ebpf.Map, known map[K]*keyed) error {
	var key K
	var index uint32
	entries := t.Iterate()
	for entries.Next(&key, &index) {
		var g hostGrants
		if err := h.maps.Keyed.Lookup(index, &g); err != nil {
			return fmt.Errorf("read a grant: %w", err)
		}
		known[key] = &keyed{index: index, end: lastEnd(&g)}
	}
	if err := entries.Err(); err != nil {
		return fmt.Errorf("read the keys of grants: %w", err)
	}
	return nil
}

// restoreIndexes finds the indexes that no key has.
func (h *Host) restoreIndexes() {
	used := map[uint32]bool{}
	for _, k := range h.pairs {
		used[k.index] = true
		h.indexes.next = max(h.indexes.next, k.index)
	}
	for _, k := range h.flows {
		used[k.index] = true
		h.indexes.next = max(h.indexes.next, k.index)
	}
	for i := uint32(1); i < h.indexes.next; i++ {
		if !used[i] {
			h.indexes.give(i)
		}
	}
}

// VMs lists the VMs, by number. Attached is false for a VM of an earlier process that was not added again: its program runs on
// with the earlier configuration.
func (h *Host) VMs() map[law.VM]bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := map[law.VM]bool{}
	for number, v := range h.vms {
		all[number] = v.attached != nil
	}
	return all
}
