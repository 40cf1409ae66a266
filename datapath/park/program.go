package park

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weir/datapath/attach"
)

// The program at the far end is a cls_bpf filter, not a tcx link: a link would end with this process, and the packets that
// wait would be lost. The filter and its maps live as long as the device. A later process opens the maps by their pins. Only
// with CAP_SYS_ADMIN it could open them through the filter, as it does for a parking that is not pinned.

const generations = 64 // PARK_GENERATIONS

var errUnusable = errors.New("the parking is incomplete or another version's")

func mapNames() []string { return []string{parkMapParking, parkMapParkPorts, parkMapParkStats} }

// filter describes the filter at the far end.
func (p *Park) filter() *netlink.BpfFilter {
	return &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: p.out.Attrs().Index, Parent: netlink.HANDLE_MIN_INGRESS, Handle: 1, Protocol: unix.ETH_P_ALL, Priority: 1,
		},
		Name: parkProgWeirParkReturn, DirectAction: true,
	}
}

func (p *Park) createMaps() error {
	p.closeMaps()
	spec, err := loadPark()
	if err != nil {
		return fmt.Errorf("read the embedded program: %w", err)
	}
	p.maps = map[string]*ebpf.Map{}
	for _, name := range mapNames() {
		if p.maps[name], err = ebpf.NewMap(spec.Maps[name]); err != nil {
			return fmt.Errorf("map %s: %w", name, err)
		}
	}
	return p.pinMaps()
}

func (p *Park) closeMaps() {
	for _, m := range p.maps {
		_ = m.Close()
	}
	p.maps = nil
}

// openMaps opens the maps of the program that is attached. It returns errUnusable if there is none, or if its maps have
// another layout.
func (p *Park) openMaps() error {
	list, err := attach.Again(netlink.ErrDumpInterrupted, func() ([]netlink.Filter, error) {
		return p.net.FilterList(p.out, netlink.HANDLE_MIN_INGRESS)
	})
	if err != nil {
		return fmt.Errorf("list the filters of %s: %w", p.out.Attrs().Name, err)
	}
	for _, f := range list {
		b, ok := f.(*netlink.BpfFilter)
		if !ok || b.Name != parkProgWeirParkReturn || b.Id <= 0 {
			continue
		}
		if err := p.openPinned(); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return p.mapsOf(ebpf.ProgramID(b.Id))
	}
	return errUnusable
}

func (p *Park) mapsOf(id ebpf.ProgramID) error {
	spec, err := loadPark()
	if err != nil {
		return fmt.Errorf("read the embedded program: %w", err)
	}
	program, err := ebpf.NewProgramFromID(id)
	switch {
	case errors.Is(err, unix.ENOENT):
		return errUnusable
	case attach.IsPermission(err):
		return fmt.Errorf("%w: open the attached program: %w", errUnusable, err)
	case err != nil:
		return fmt.Errorf("open the attached program: %w", err)
	}
	defer func() { _ = program.Close() }()
	info, err := program.Info()
	if err != nil {
		return fmt.Errorf("read the attached program: %w", err)
	}
	ids, _ := info.MapIDs()
	p.maps = map[string]*ebpf.Map{}
	for _, id := range ids {
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			p.closeMaps()
			return fmt.Errorf("open a map of the attached program: %w", err)
		}
		if err := p.keepMap(spec, m); err != nil {
			_ = m.Close()
		}
	}
	if len(p.maps) != len(mapNames()) {
		p.closeMaps()
		return errUnusable
	}
	return nil
}

// keepMap keeps an opened map that is one of ours.
func (p *Park) keepMap(spec *ebpf.CollectionSpec, m *ebpf.Map) error {
	info, err := m.Info()
	if err != nil {
		return err
	}
	for _, name := range mapNames() {
		if info.Name != name || p.maps[name] != nil {
			continue
		}
		if err := spec.Maps[name].Compatible(m); err != nil {
			return err
		}
		p.maps[name] = m
		return nil
	}
	return errUnusable
}

// attach loads the program and puts it at the far end, in the place of an earlier one.
func (p *Park) attach() error {
	spec, err := loadPark()
	if err != nil {
		return fmt.Errorf("read the embedded program: %w", err)
	}
	var programs parkPrograms
	if err := spec.LoadAndAssign(&programs, &ebpf.CollectionOptions{Cache: attach.KernelTypes(), MapReplacements: p.Maps()}); err != nil {
		return fmt.Errorf("load program %s: %w", parkProgWeirParkReturn, err)
	}
	defer func() { _ = programs.WeirParkReturn.Close() }()
	_ = p.learn.Close()
	p.learn = programs.WeirParkLearn
	// The program does not use this map, which must live as long as the others.
	if err := programs.WeirParkReturn.BindMap(p.maps[parkMapParking]); err != nil {
		return fmt.Errorf("bind map %s to program %s: %w", parkMapParking, parkProgWeirParkReturn, err)
	}
	clsact := &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: p.out.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}}
	if err := p.net.QdiscReplace(clsact); err != nil {
		return fmt.Errorf("put clsact on %s (it needs CONFIG_NET_SCH_INGRESS): %w", p.out.Attrs().Name, err)
	}
	f := p.filter()
	f.Fd = programs.WeirParkReturn.FD()
	if err := p.net.FilterReplace(f); err != nil {
		return fmt.Errorf("put the program on %s (it needs CONFIG_NET_CLS_BPF): %w", p.out.Attrs().Name, err)
	}
	return nil
}

// adopt continues with a pair that an earlier process left.
func (p *Park) adopt() error {
	if err := p.openMaps(); err != nil {
		return err
	}
	_, _, has, err := p.backlog()
	if err != nil {
		return err
	}
	if !has {
		return errUnusable
	}
	if p.classes, err = p.listClasses(); err != nil {
		return err
	}
	if err := p.pinMaps(); err != nil {
		return err
	}
	return p.start()
}

// admit lets packets in: the program learns the device.
func (p *Park) admit() error {
	index := uint32(p.in.Attrs().Index)
	if err := p.putState(parkParkState{
		InIfindex: index, OutIfindex: uint32(p.out.Attrs().Index), LimitBytes: p.o.LimitBytes, LimitPackets: p.o.LimitPackets,
	}); err != nil {
		return err
	}
	// struct __sk_buff of a packet of the device
	context := make([]byte, 192)
	binary.NativeEndian.PutUint32(context[40:], index) // ifindex
	verdict, err := p.learn.Run(&ebpf.RunOptions{Data: make([]byte, 60), Context: context})
	if err == nil && verdict != 0 {
		err = errors.New("the kernel gave it another device")
	}
	if err != nil {
		return fmt.Errorf("run program %s: %w", parkProgWeirParkLearn, err)
	}
	return nil
}

// refuse lets no more packets in. Packets that come back still are recognised.
func (p *Park) refuse() error {
	if p.maps == nil {
		return nil
	}
	return p.putState(parkParkState{InIfindex: uint32(p.in.Attrs().Index), OutIfindex: uint32(p.out.Attrs().Index)})
}

func (p *Park) putState(s parkParkState) error {
	if err := p.maps[parkMapParking].Put(uint32(0), &s); err != nil {
		return fmt.Errorf("write map %s: %w", parkMapParking, err)
	}
	return nil
}

func (p *Park) port(id uint32) (entry parkParkPort, err error) {
	if err := p.maps[parkMapParkPorts].Lookup(id, &entry); err != nil {
		return entry, fmt.Errorf("read map %s: %w", parkMapParkPorts, err)
	}
	return entry, nil
}

func (p *Park) putPort(id uint32, entry parkParkPort) error {
	if err := p.maps[parkMapParkPorts].Put(id, &entry); err != nil {
		return fmt.Errorf("write map %s: %w", parkMapParkPorts, err)
	}
	return nil
}

// beginSchedule begins the schedule of a class anew: nothing waits in it.
func (p *Park) beginSchedule(id uint32) error {
	entry, err := p.port(id)
	if err != nil {
		return err
	}
	return p.putPort(id, parkParkPort{Ifindex: entry.Ifindex, Generation: entry.Generation, Open: entry.Open, ByteNsQ20: entry.ByteNsQ20})
}
