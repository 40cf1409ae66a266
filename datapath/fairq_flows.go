package datapath

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"
)

// FairQEnd is what the flow table knows of one end of a connection.
type FairQEnd struct {
	Addr       netip.AddrPort
	Port       string // that its data leaves by; "": not known, or not a port of this process
	Scale      uint8  // of its windows
	ScaleKnown bool   // its SYN told the scale; otherwise it is inferred
	MSS        uint16 // that its SYN announced; 0: not known
	Ended      bool   // it sent a FIN
}

// FairQConnection is a connection in the flow table.
type FairQConnection struct {
	End     [2]FairQEnd
	Opener  string // port that it is opened from behind, in whose share it is
	Adopted bool   // began before Weir saw it
	Signed  bool   // TCP-MD5 or TCP-AO: never touched
	Reset   bool
}

// Flags of bpf/flows.h.
const (
	endScaleKnown     = 4
	endFIN            = 8
	connectionSigned  = 1
	connectionAdopted = 2
	connectionReset   = 4
)

// tableBatch is how many entries are read at a time: above the fullest bucket of a table.
const tableBatch = 4096

// Connections reads the flow table, in no order. A table that changes meanwhile is not read as of one
// moment.
func (f *FairQ) Connections() ([]FairQConnection, error) {
	names := map[uint32]string{}
	for i := range f.ports {
		names[f.ports[i].id] = f.ports[i].Name
	}
	var out []FairQConnection
	err := eachEntry(f.maps.Flows, func(k *fairqFlowKey, c *fairqConnection) {
		flow := FairQConnection{
			Adopted: c.Flags&connectionAdopted != 0, Signed: c.Flags&connectionSigned != 0, Reset: c.Flags&connectionReset != 0,
		}
		if c.Owner > 0 {
			flow.Opener = names[uint32(c.Owner)-1]
		}
		for i := range c.End {
			e := &c.End[i]
			flow.End[i] = FairQEnd{
				Addr: k.end(i), Scale: e.Shift, ScaleKnown: e.Flags&endScaleKnown != 0, MSS: e.Mss, Ended: e.Flags&endFIN != 0,
			}
			if e.Port > 0 {
				flow.End[i].Port = names[uint32(e.Port)-1]
			}
		}
		out = append(out, flow)
	})
	if err != nil {
		return nil, fmt.Errorf("read the flow table: %w", err)
	}
	return out, nil
}

// Pending counts the connections of which only one end was heard of, and says how many there can be.
func (f *FairQ) Pending() (n, limit int, err error) {
	err = eachEntry(f.maps.Pending, func(*fairqFlowKey, *fairqConnection) { n++ })
	if err != nil {
		return 0, 0, fmt.Errorf("read the table of half-open connections: %w", err)
	}
	return n, int(f.maps.Pending.MaxEntries()), nil
}

// eachEntry reads a table in batches: unlike a walk from key to key it does not begin anew when the key
// that it stands at goes.
func eachEntry(m *ebpf.Map, do func(*fairqFlowKey, *fairqConnection)) error {
	keys, values := make([]fairqFlowKey, tableBatch), make([]fairqConnection, tableBatch)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := m.BatchLookup(&cursor, keys, values, nil)
		for i := range n {
			do(&keys[i], &values[i])
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) { // that was all
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// end is one end of a connection.
func (k *fairqFlowKey) end(i int) netip.AddrPort {
	var b [16]byte
	for j, word := range k.Address[i] {
		binary.NativeEndian.PutUint32(b[4*j:], word)
	}
	port := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, k.Port[i]))
	return netip.AddrPortFrom(netip.AddrFrom16(b).Unmap(), port)
}
