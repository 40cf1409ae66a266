package fairq

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"net/netip"

	"github.com/cilium/ebpf"
)

// End is what the flow table has of one end of a connection.
type End struct {
	Addr       netip.AddrPort
	Port       string // port that its data leaves by; "": unknown, or not a port of this process
	Scale      uint8  // scale shift of its windows
	ScaleKnown bool   // its SYN announced the scale; otherwise it is inferred
	MSS        uint16 // announced by its SYN; 0: unknown
	Ended      bool   // it sent a FIN
}

// Connection is a connection in the flow table.
type Connection struct {
	End     [2]End
	Opener  string // the port that it is opened from behind, in whose share it counts
	Adopted bool   // it is older than the program
	Signed  bool   // both ends sign: TCP-MD5 or TCP-AO
	Reset   bool
}

// Flags of bpf/fairq/flows.h.
const (
	endScaleKnown     = 4
	endFIN            = 8
	connectionAdopted = 2
	connectionReset   = 4
)

// tableBatch is the number of entries of one read: more than the fullest hash bucket of a table has.
const tableBatch = 4096

// Connections reads the flow table, in no order. If the table changes meanwhile, the result is not of one
// moment.
func (f *Attachment) Connections() ([]Connection, error) {
	names := map[uint32]string{}
	for i := range f.ports {
		names[f.ports[i].id] = f.ports[i].Name
	}
	var out []Connection
	err := f.maps.eachConnection(func(_ *fairqFlowKey, c *fairqConnection) bool {
		flow := Connection{
			Adopted: c.Flags&connectionAdopted != 0, Signed: c.isSigned(), Reset: c.Flags&connectionReset != 0,
		}
		if c.Owner > 0 {
			flow.Opener = names[uint32(c.Owner)-1]
		}
		for i := range c.End {
			e := &c.End[i]
			flow.End[i] = End{
				Addr: c.Ends.end(i), Scale: e.Shift, ScaleKnown: e.Flags&endScaleKnown != 0, MSS: e.Mss, Ended: e.Flags&endFIN != 0,
			}
			if e.Port > 0 {
				flow.End[i].Port = names[uint32(e.Port)-1]
			}
		}
		out = append(out, flow)
		return true
	})
	if err != nil {
		return nil, fmt.Errorf("read the flow table: %w", err)
	}
	return out, nil
}

// Flows iterates over the flows whose data leaves by a port, in no order, and keeps a few thousand in memory.
// If the table changes meanwhile, the result is not of one moment. An error ends the iteration.
func (f *Attachment) Flows(port string) iter.Seq2[Flow, error] {
	i := f.index(port)
	if i < 0 {
		return func(yield func(Flow, error) bool) {
			yield(Flow{}, fmt.Errorf("flows of %s: FairQ is not on this port", port))
		}
	}
	return f.maps.portFlows(f.ports[i].id)
}

// Flows does the same by the port's id in the tables.
func (v *View) Flows(id uint32) iter.Seq2[Flow, error] { return v.maps.portFlows(id) }

func (m *fairqMaps) portFlows(id uint32) iter.Seq2[Flow, error] {
	return func(yield func(Flow, error) bool) {
		err := m.eachFlow(map[uint32]string{id: ""}, func(_ string, f Flow) bool { return yield(f, nil) })
		if err != nil {
			yield(Flow{}, err)
		}
	}
}

// flow returns the direction of the data that one side sends, at its port.
func (c *fairqConnection) flow(side int, p *fairqPort, sweep uint32) Flow {
	sender, receiver, back := &c.End[side], &c.End[1-side], &c.Acks[1-side]
	data, acks := c.DataLately[side], c.AcksLately[side]
	f := Flow{
		From: c.Ends.end(side), To: c.Ends.end(1 - side), VLANs: c.Ends.Vlans,
		Limited: uint32(c.Bucket) >= p.Spared, Counted: p.counts(sender), Seen: sweep-c.Seen <= 1,
		OneSided: data == 0 && acks+2 >= latelySweeps || acks == 0 && data+2 >= latelySweeps, // as of the last sweep
		Signed:   c.isSigned(),
	}
	f.OfferedBytes, f.GrantedBytes = back.Offered, back.Granted
	f.Acknowledged, f.Scale = back.Una, receiver.Shift
	switch {
	case f.OneSided:
	case c.Seen == sweep:
		f.InFlightBytes = max(back.Flight, back.FlightBefore)
	case f.Seen:
		f.InFlightBytes = back.Flight
	}
	return f
}

// counts reports whether an end is one of the port's flows: its slot is of an epoch that still counts, or it is
// in the port's register (count: handshake).
func (p *fairqPort) counts(e *fairqEnd) bool {
	if e.Registration != 0 {
		return e.Registration == p.Generation
	}
	const epochs = 1<<48 - 1
	return e.Slot != 0 && (p.Epoch-e.Slot)&epochs < liveEpochs
}

// Pending returns the number of connections of which only one end was seen, and the largest number.
func (f *Attachment) Pending() (n, limit int, err error) {
	err = eachEntry(f.maps.Pending, func(*fairqFlowKey, *fairqConnection) bool {
		n++
		return true
	})
	if err != nil {
		return 0, 0, fmt.Errorf("read the table of half-open connections: %w", err)
	}
	return n, int(f.maps.Pending.MaxEntries()), nil
}

// eachConnection reads the flow table, until do returns false: both maps of bpf/fairq/table.h.
func (m *fairqMaps) eachConnection(do func(*fairqFlowKey, *fairqConnection) bool) error {
	const phase, holds = 3, 2
	more := true
	err := eachEntry(m.Near, func(_ *uint32, at *fairqNearPlace) bool {
		if at.Holder&phase == holds {
			more = do(&at.Key, &at.C)
		}
		return more
	})
	if err != nil || !more {
		return err
	}
	return eachEntry(m.Flows, do)
}

// eachEntry reads a map in batches. A walk from key to key would begin again when its present key is removed.
// It ends when do returns false.
func eachEntry[K, V any](m *ebpf.Map, do func(*K, *V) bool) error {
	keys, values := make([]K, tableBatch), make([]V, tableBatch)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := m.BatchLookup(&cursor, keys, values, nil)
		for i := range n {
			if !do(&keys[i], &values[i]) {
				return nil
			}
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) { // the end of the table
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// end returns one end of a connection.
func (k *fairqFlowEnds) end(i int) netip.AddrPort {
	var b [16]byte
	for j, word := range k.Address[i] {
		binary.NativeEndian.PutUint32(b[4*j:], word)
	}
	port := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, k.Port[i]))
	return netip.AddrPortFrom(netip.AddrFrom16(b).Unmap(), port)
}
