package host

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"

	"weir/datapath/attach"
	"weir/law"
)

// Came is marked packets that came from the network for a VM, from one source.
type Came struct {
	VM      law.VM
	Source  netip.Addr
	Packets uint64 // as on the wire
}

// Limits of the table `came` of bpf/host/tables.h.
const (
	maxCame  = 8192
	cameLife = 5 * time.Second // without a mark, then the table forgets a pair
)

// came has what this process read of the kernel's table.
type came struct {
	begun  bool
	total  uint64 // of all pairs
	pairs  map[hostHostPair]*camePair
	keys   []hostHostPair // memory of a reading
	values []uint64
	swept  uint64 // ns
}

// camePair is a pair's count at the last reading that found it, when that was, and when the count last rose.
type camePair struct{ packets, found, rose uint64 }

// Came appends the marked packets since the last call to out; the first call appends none. While nothing is marked it costs one lookup.
// A pair that the table evicted, or that had no mark for 5 s, begins anew: marks between the last reading and its end are lost.
func (h *Host) Came(out []Came) ([]Came, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return out, ErrClosed
	}
	out, err := h.readCame(out)
	if err != nil {
		return out, fmt.Errorf("host: marks by source: %w", err)
	}
	return out, nil
}

func (h *Host) readCame(out []Came) ([]Came, error) {
	c, total, now := &h.came, uint64(0), attach.MonotonicNs()
	if err := h.maps.CameTotal.Lookup(uint32(0), &total); err != nil {
		return out, err
	}
	if c.begun && total == c.total && now-c.swept < uint64(cameLife) {
		return out, nil
	}
	if c.pairs == nil {
		c.pairs, c.keys, c.values = map[hostHostPair]*camePair{}, make([]hostHostPair, maxCame), make([]uint64, maxCame)
	}
	var cursor ebpf.MapBatchCursor
	n, err := h.maps.Came.BatchLookup(&cursor, c.keys, c.values, nil)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) { // which means: this was all
		return out, err
	}
	ofID := make(map[uint32]law.VM, len(h.vms))
	for number, v := range h.vms {
		ofID[v.id] = number
	}
	for i, key := range c.keys[:n] {
		p := c.pairs[key]
		if p == nil {
			p = &camePair{}
			c.pairs[key] = p
		}
		since := c.values[i] - p.packets
		if c.values[i] < p.packets { // it was evicted, and came back
			since = c.values[i]
		}
		p.packets, p.found = c.values[i], now
		if since > 0 {
			p.rose = now
		}
		if vm := ofID[key.Vm]; c.begun && since > 0 && vm != 0 {
			out = append(out, Came{vm, address(key.Peer), since})
		}
	}
	c.total, c.begun = total, true
	if len(c.pairs) > maxCame { // the table has evicted pairs
		maps.DeleteFunc(c.pairs, func(_ hostHostPair, p *camePair) bool { return p.found != now })
	}
	return out, h.forgetCame(now)
}

// forgetCame removes pairs without a mark for a time, so that a reading stays short.
func (h *Host) forgetCame(now uint64) error {
	c := &h.came
	if now-c.swept < uint64(cameLife) {
		return nil
	}
	c.swept = now
	var errs []error
	for key, p := range c.pairs {
		if now-p.rose < uint64(cameLife) {
			continue
		}
		delete(c.pairs, key)
		errs = append(errs, missing(h.maps.Came.Delete(key)))
	}
	return errors.Join(errs...)
}
