package flows

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"

	"weir/law"
)

const (
	// endedFor is how long a flow that has ended stays in the table: data that is sent again behind its FIN is no new flow.
	endedFor = time.Second
	// quietFor is how long a flow stays that sends nothing.
	quietFor = 30 * time.Second
)

// known is a flow as the reading before saw it.
type known struct {
	bytes      uint64 // as in the table
	before     uint64 // of earlier entries, which the table evicted
	connection uint32
	ended      bool
	changed    time.Duration
	found      uint64 // the last reading that found it in the table
}

// Change is what happened to a flow at a port since the reading before.
type Change struct {
	Port  uint32
	Flow  law.Flow
	Sent  uint64 // bytes of payload since the port knows the flow, without what was sent again; 0: none since the reading before
	Began bool
	Ended bool
}

// Usable reports whether both ends are those of a host. A guest can send from any other, too.
func (c *Change) Usable() bool {
	usable := func(a netip.AddrPort) bool { return a.Port() != 0 && !a.Addr().IsUnspecified() }
	return usable(c.Flow.Src) && usable(c.Flow.Dst)
}

// Read appends what happened since the last reading, in no order. A flow that ended and began again is in two changes. now is a
// clock that does not go back.
func (f *Flows) Read(now time.Duration, out []Change) ([]Change, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reading++
	err := f.each(func(key *kernelSentKey, v *kernelSentFlow) { out = f.see(now, key, v, out) })
	if err != nil {
		return out, err
	}
	for key, k := range f.known {
		quiet := now - k.changed
		// An entry that the table has evicted may come back. If there are many of them, a guest makes flows that never come back.
		evicted := k.found != f.reading && len(f.known) > most
		if k.ended && quiet >= endedFor || quiet >= quietFor || evicted {
			f.drop(key)
		}
	}
	return out, nil
}

// each calls do for each entry of the table.
func (f *Flows) each(do func(key *kernelSentKey, v *kernelSentFlow)) error {
	var cursor ebpf.MapBatchCursor
	for {
		n, err := f.maps.Sent.BatchLookup(&cursor, f.keys, f.values, nil)
		for i := range n {
			do(&f.keys[i], &f.values[i])
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil // the end of the table
		}
		if err != nil {
			return fmt.Errorf("flows: read the table: %w", err)
		}
	}
}

// see compares an entry with the reading before.
func (f *Flows) see(now time.Duration, key *kernelSentKey, v *kernelSentFlow, out []Change) []Change {
	k := f.known[*key]
	change := Change{Port: key.Port, Flow: flowOf(key)}
	switch {
	case k == nil:
		k = &known{connection: v.Connection, changed: now}
		f.known[*key] = k
		change.Began = true
	case k.connection != v.Connection:
		if !k.ended {
			out = append(out, Change{Port: key.Port, Flow: change.Flow, Ended: true})
		}
		*k = known{connection: v.Connection, changed: now}
		change.Began = true
	case v.Bytes < k.bytes: // a new entry: the table had evicted the one before
		k.before, k.bytes = k.before+k.bytes, 0
	}
	k.found = f.reading
	if v.Bytes != k.bytes || change.Began {
		k.bytes, k.changed = v.Bytes, now
		change.Sent = k.before + v.Bytes
	}
	if v.Ended != 0 && !k.ended {
		k.ended, k.changed = true, now
		change.Ended = true
	}
	if change.Began || change.Ended || change.Sent > 0 {
		out = append(out, change)
	}
	return out
}

// drop forgets a flow.
func (f *Flows) drop(key kernelSentKey) {
	delete(f.known, key)
	_ = f.maps.Sent.Delete(key) // the table may have evicted it
}

func flowOf(key *kernelSentKey) law.Flow {
	swap := func(p uint32) uint16 { return uint16(p)>>8 | uint16(p)<<8 }
	return law.Flow{
		Src:   netip.AddrPortFrom(address(key.Source), swap(key.Ports)),
		Dst:   netip.AddrPortFrom(address(key.Destination), swap(key.Ports>>16)),
		Proto: 6,
	}
}

// address returns an address of the table.
func address(w [4]uint32) netip.Addr {
	var b [16]byte
	for i := range w {
		b[4*i], b[4*i+1], b[4*i+2], b[4*i+3] = byte(w[i]), byte(w[i]>>8), byte(w[i]>>16), byte(w[i]>>24)
	}
	return netip.AddrFrom16(b).Unmap()
}
