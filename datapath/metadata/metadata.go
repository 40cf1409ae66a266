// Package metadata serves the VMs of a hypervisor at a link-local address, each by its own port. The guests need no configuration, and the
// host gets no address and no device.
//
//	metadata.go  Open, Add, Remove, Close: the program at the VMs' ports (bpf/metadata/metadata.bpf.c)
//	port.go      a port: its frames in and out
//	stack.go     the TCP of a port: gVisor's netstack
//
// Each port has a TCP stack of its own in this process. So the port alone says who asks: VMs with the same addresses do not disturb one
// another, and a guest reaches nothing else of the host. When the process ends, the kernel detaches the program.
package metadata

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"

	"weir/datapath/attach"
)

// Port is the TCP port that is served, that of HTTP.
const Port = 80

// MAC is the address of all frames to a VM.
var MAC = net.HardwareAddr{0x02, 0, 0xa9, 0xfe, 0xa9, 0xfd}

// Config configures the service.
type Config struct {
	// IPv4 and IPv6 are the addresses, both link-local. Either may be the zero Addr: none.
	IPv4, IPv6 netip.Addr
}

// Counts counts the frames of a VM to the address.
type Counts struct {
	Taken   uint64
	Dropped uint64 // too many (4096 a second), too long, or neither TCP nor ICMP
}

// Metadata is the program at some ports. Its methods may be called by several goroutines at a time.
type Metadata struct {
	cfg     Config
	objects kernelObjects
	reader  *ringbuf.Reader
	reading sync.WaitGroup

	mu    sync.Mutex
	ports map[uint32]*port // by ifindex
}

// Open loads the program. Errors can be *attach.MissingFeature or attach.ErrPermission.
func Open(c Config) (*Metadata, error) {
	for _, a := range []netip.Addr{c.IPv4, c.IPv6} {
		if a.IsValid() && (!a.IsLinkLocalUnicast() || a.Is4() != (a == c.IPv4)) {
			return nil, fmt.Errorf("metadata: %v: a link-local address of its version of IP is needed", a)
		}
	}
	if err := attach.CheckAll(attach.PacketProbes()); err != nil {
		return nil, fmt.Errorf("metadata: %w", err)
	}
	m := &Metadata{cfg: c, ports: map[uint32]*port{}}
	if err := m.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("metadata: %w", err), m.objects.Close())
	}
	m.reading.Go(m.read)
	return m, nil
}

func (m *Metadata) load() error {
	spec, err := loadKernel()
	if err != nil {
		return fmt.Errorf("read the embedded program: %w", err)
	}
	if m.cfg.IPv4.IsValid() {
		a := m.cfg.IPv4.As4()
		if err := spec.Variables[kernelVarIpv4Address].Set(binary.NativeEndian.Uint32(a[:])); err != nil {
			return err
		}
	}
	if m.cfg.IPv6.IsValid() {
		if err := spec.Variables[kernelVarIpv6Address].Set(m.cfg.IPv6.As16()); err != nil {
			return err
		}
	}
	if err := spec.LoadAndAssign(&m.objects, &ebpf.CollectionOptions{Cache: attach.KernelTypes()}); err != nil {
		return fmt.Errorf("load program weir_metadata: %w", err)
	}
	m.reader, err = ringbuf.NewReader(m.objects.Frames)
	return err
}

// Add serves the VM at a port. The first frame to the address makes its TCP stack, and calls serve in a goroutine with a listener. Remove
// and Close end the listener and reset its connections.
func (m *Metadata) Add(ref attach.PortRef, mac net.HardwareAddr, serve func(net.Listener)) error {
	p, err := newPort(ref, mac, m.cfg, serve)
	if err != nil {
		return fmt.Errorf("metadata at %s: %w", ref.Name, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	key := uint32(ref.Ifindex)
	if m.ports[key] != nil {
		return errors.Join(fmt.Errorf("metadata at %s: it is served already", ref.Name), p.close())
	}
	m.ports[key] = p
	if err = m.objects.Ports.Put(key, kernelMetadataPort{}); err == nil {
		p.link, err = attach.Program(ref, m.objects.WeirMetadata, ebpf.AttachTCXIngress, link.Head())
	}
	if err != nil {
		return errors.Join(fmt.Errorf("metadata at %s: %w", ref.Name, err), m.remove(key))
	}
	return nil
}

// Remove ends the service at a port, and its connections.
func (m *Metadata) Remove(ifindex int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.remove(uint32(ifindex))
}

func (m *Metadata) remove(key uint32) error {
	p := m.ports[key]
	if p == nil {
		return fmt.Errorf("metadata: device %d is not served", key)
	}
	delete(m.ports, key)
	err := errors.Join(p.detach(), m.objects.Ports.Delete(key), p.close())
	if err != nil {
		return fmt.Errorf("end metadata at %s: %w", p.name, err)
	}
	return nil
}

// Counts returns the counts of the ports together.
func (m *Metadata) Counts() (sum Counts, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key := range m.ports {
		var c kernelMetadataPort
		if err := m.objects.Ports.Lookup(key, &c); err != nil {
			return sum, fmt.Errorf("read the counts of metadata: %w", err)
		}
		sum.Taken += c.Taken
		sum.Dropped += c.Dropped
	}
	return sum, nil
}

// Close ends the service at all ports.
func (m *Metadata) Close() error {
	m.mu.Lock()
	var errs []error
	for key := range m.ports {
		errs = append(errs, m.remove(key))
	}
	m.mu.Unlock()
	errs = append(errs, m.reader.Close())
	m.reading.Wait()
	return errors.Join(append(errs, m.objects.Close())...)
}

// frameAt is the offset of a frame in a record of the ring: its port comes before it.
const frameAt = 8

// read passes frames to their ports until the ring is closed.
func (m *Metadata) read() {
	var r ringbuf.Record
	for {
		err := m.reader.ReadInto(&r)
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil || len(r.RawSample) < frameAt {
			continue
		}
		m.mu.Lock()
		p := m.ports[binary.NativeEndian.Uint32(r.RawSample)]
		m.mu.Unlock()
		if p != nil {
			p.receive(r.RawSample[frameAt:])
		}
	}
}
