package switchd

import (
	"fmt"
	"unsafe"

	"github.com/safchain/ethtool"
	"golang.org/x/sys/unix"
)

// featureReader reads offloads of devices of the caller's namespace. Their names, which are the kernel's and
// the same for every device, are read once: they take a hundred times as long as a device's bits.
type featureReader struct {
	tool *ethtool.Ethtool
	fd   int
	bits map[string]uint // by ethtool's names; nil: not read yet
}

func newFeatureReader() (*featureReader, error) {
	tool, err := ethtool.NewEthtool()
	if err != nil {
		return nil, fmt.Errorf("read offloads: %w", err)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		tool.Close()
		return nil, fmt.Errorf("socket to read offloads: %w", err)
	}
	return &featureReader{tool: tool, fd: fd}, nil
}

func (r *featureReader) close() {
	r.tool.Close()
	_ = unix.Close(r.fd)
}

// gfeatures is the kernel's struct ethtool_gfeatures with room for 256 of them.
type gfeatures struct {
	command, blocks uint32
	features        [8]struct{ available, requested, active, neverChanged uint32 }
}

// ifreq is the kernel's struct ifreq with a pointer in it.
type ifreq struct {
	name [unix.IFNAMSIZ]byte
	data unsafe.Pointer
	_    [16]byte
}

// read says which of these a device has on; one that has none, or is gone, has none on.
func (r *featureReader) read(device string, names ...string) map[string]bool {
	on := map[string]bool{}
	if r.bits == nil {
		bits, err := r.tool.FeatureNames(device)
		if err != nil {
			return on
		}
		r.bits = bits
	}
	g := gfeatures{command: unix.ETHTOOL_GFEATURES}
	g.blocks = uint32(len(g.features))
	req := ifreq{data: unsafe.Pointer(&g)}
	copy(req.name[:unix.IFNAMSIZ-1], device)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(r.fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req))); errno != 0 {
		return on
	}
	for _, name := range names {
		if bit, known := r.bits[name]; known && bit/32 < min(uint(g.blocks), uint(len(g.features))) {
			on[name] = g.features[bit/32].active>>(bit%32)&1 != 0
		}
	}
	return on
}
