package nic

import (
	"fmt"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	featureSet  = 4 // the kernel's ETH_SS_FEATURES
	nameBytes   = 32
	blockBits   = 32
	blocksMax   = 8
	featuresMax = blocksMax * blockBits // the kernel has 64
)

// Feature is the state of one offload of a device.
type Feature struct {
	On    bool
	Fixed bool // it cannot be changed
}

// names reads the kernel's names of the offloads and the number of each.
func (t *Tool) names(device string) (map[string]int, error) {
	if t.bits != nil {
		return t.bits, nil
	}
	count := struct {
		command, _ uint32
		sets       uint64
		length     uint32
		_          uint32
	}{command: unix.ETHTOOL_GSSET_INFO, sets: 1 << featureSet}
	if err := t.call(device, unsafe.Pointer(&count)); err != nil {
		return nil, err
	}
	if count.sets == 0 || count.length == 0 {
		return nil, fmt.Errorf("read the names of offloads: the kernel has none: %w", unix.EOPNOTSUPP)
	}
	if count.length > featuresMax {
		return nil, fmt.Errorf("read the names of offloads: the kernel has %d, at most %d can be read: %w", count.length, featuresMax, unix.E2BIG)
	}
	list := struct {
		command, set, length uint32
		names                [featuresMax][nameBytes]byte
	}{command: unix.ETHTOOL_GSTRINGS, set: featureSet, length: count.length}
	if err := t.call(device, unsafe.Pointer(&list)); err != nil {
		return nil, err
	}
	bits := map[string]int{}
	for i, name := range list.names[:min(list.length, count.length)] {
		if name[0] != 0 {
			bits[unix.ByteSliceToString(name[:])] = i
		}
	}
	t.bits, t.blocks = bits, (count.length+blockBits-1)/blockBits
	return bits, nil
}

// states is the kernel's struct ethtool_gfeatures.
type states struct {
	command, blocks uint32
	features        [blocksMax]struct{ available, requested, active, fixed uint32 }
}

func (t *Tool) states(device string) (map[string]int, *states, error) {
	bits, err := t.names(device)
	if err != nil {
		return nil, nil, fmt.Errorf("offloads of %s: %w", device, err)
	}
	s := &states{command: unix.ETHTOOL_GFEATURES, blocks: blocksMax}
	if err := t.call(device, unsafe.Pointer(s)); err != nil {
		return nil, nil, fmt.Errorf("offloads of %s: %w", device, err)
	}
	return bits, s, nil
}

func (s *states) of(bit int) Feature {
	block, mask := s.features[bit/blockBits], uint32(1)<<(bit%blockBits)
	// An offload that is not available cannot be changed either.
	return Feature{On: block.active&mask != 0, Fixed: block.fixed&mask != 0 || block.available&mask == 0}
}

// Features returns all offloads of a device by the kernel's names ("tx-tcp-segmentation"). Reading the names takes a hundred
// times as long as reading a device's states, so it is done once.
func (t *Tool) Features(device string) (map[string]Feature, error) {
	bits, s, err := t.states(device)
	if err != nil {
		return nil, err
	}
	out := make(map[string]Feature, len(bits))
	for name, bit := range bits {
		out[name] = s.of(bit)
	}
	return out, nil
}

// On returns whether a device has these offloads on. Offloads that this kernel lacks are left out.
func (t *Tool) On(device string, names ...string) (map[string]bool, error) {
	bits, s, err := t.states(device)
	if err != nil {
		return nil, err
	}
	out := make(map[string]bool, len(names))
	for _, name := range names {
		if bit, known := bits[name]; known {
			out[name] = s.of(bit).On
		}
	}
	return out, nil
}

// Change switches offloads on and off, and reads them again. An offload that did not change is an error. If this kernel lacks
// one of the names, nothing is changed.
func (t *Tool) Change(device string, want map[string]bool) error {
	bits, err := t.names(device)
	if err != nil {
		return fmt.Errorf("offloads of %s: %w", device, err)
	}
	set := struct {
		command, blocks uint32
		features        [blocksMax]struct{ valid, requested uint32 }
	}{command: unix.ETHTOOL_SFEATURES, blocks: t.blocks}
	for name, on := range want {
		bit, known := bits[name]
		if !known {
			return fmt.Errorf("offloads of %s: this kernel has no %q: %w", device, name, unix.EOPNOTSUPP)
		}
		set.features[bit/blockBits].valid |= 1 << (bit % blockBits)
		if on {
			set.features[bit/blockBits].requested |= 1 << (bit % blockBits)
		}
	}
	if len(want) == 0 {
		return nil
	}
	if err := t.call(device, unsafe.Pointer(&set)); err != nil {
		return fmt.Errorf("change offloads of %s: %w", device, err)
	}
	now, err := t.Features(device)
	if err != nil {
		return err
	}
	var wrong []string
	for name, on := range want {
		if now[name].On != on {
			wrong = append(wrong, name)
		}
	}
	if len(wrong) > 0 {
		slices.Sort(wrong)
		return fmt.Errorf("change offloads of %s: the device did not change %s: %w", device, strings.Join(wrong, ", "), unix.EOPNOTSUPP)
	}
	return nil
}
