package park_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"weir/datapath/internal/parktest"
	"weir/datapath/park"
	"weir/datapath/testnet"
)

// Frames come out byte by byte as they went in, whatever they stood for, and are charged their cost.
func TestPark_FramesAreRestored(t *testing.T) {
	y := newYard(t, testnet.PathOptions{NoIPv6: true, MTU: 9000}, park.Options{}, 1e9)
	tx, rx := testnet.NewRaw(t, y.Uplink), testnet.NewRaw(t, y.Rx)
	n := uint32(0)
	for _, ipv6 := range []bool{false, true} {
		for _, tags := range [][]uint16{nil, {0x8100}, {0x88a8}, {0x88a8, 0x8100}} {
			for _, size := range []struct{ bytes, trailer int }{
				{4, 0}, {20, 6}, {32, 15}, {32, 16}, {33, 1}, {1460, 0}, {1461, 3}, {8000, 0},
			} {
				for _, cost := range []uint32{0, 60, 1514, 9000, 16000, 70000} {
					n++
					name := fmt.Sprintf("ipv6 %v, %d tags, %d+%d bytes, cost %d", ipv6, len(tags), size.bytes, size.trailer, cost)
					before := stats(t, y.park)
					y.rule(t, parktest.ParkRule{Enabled: 1, All: 1, Cost: cost})
					frame := frameOf(ipv6, tags, n, size.bytes, size.trailer)
					tx.Send(t, frame)
					got := rx.Receive(t, isOurs)
					out := got.Data
					if got.TPID != 0 { // the kernel has moved the outer tag to the metadata
						tag := binary.BigEndian.AppendUint16(nil, got.TPID)
						tag = binary.BigEndian.AppendUint16(tag, got.TCI)
						out = append(append(append([]byte(nil), out[:12]...), tag...), out[12:]...)
					}
					if !bytes.Equal(out, frame) {
						t.Errorf("%s: got %d bytes, sent %d:\n% x\n% x", name, len(out), len(frame), out[:60], frame[:60])
					}
					s := stats(t, y.park)
					length := uint32(len(frame))
					if len(tags) > 0 {
						length -= 4 // the outer tag is in the metadata, where HTB does not count it
					}
					charged := length
					if cost > length && size.trailer <= 15 {
						charged = min(cost, 16000)
					}
					if padded := s.Padded - before.Padded; (padded == 1) != (charged > length) {
						t.Errorf("%s: %d padded", name, padded)
					}
					if debt := int32(y.seen(t).LastDebt); debt != int32(cost)-int32(charged) {
						t.Errorf("%s: debt %d, want %d", name, debt, int32(cost)-int32(charged))
					}
					if s.Parked-before.Parked != 1 || s.Untrimmed != 0 || s.Foreign != 0 || s.Stale != 0 {
						t.Errorf("%s: %+v", name, s)
					}
				}
			}
		}
	}
}
