package fairq

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"weir/datapath/internal/frames"
	"weir/internal/testroot"
)

// inMaps counts the entries of a connection in the two maps of the flow table.
type inMaps struct{ near, flows int }

// whereAll returns where the flow table has its connections, by the port of their left end. It checks that each is in its own place, and
// that the places of no connection are free.
func (s *frameSwitch) whereAll(tb testing.TB) map[uint16]inMaps {
	tb.Helper()
	where := map[uint16]inMaps{}
	places := nearPlaces(s.constants.flows)
	left := func(c *fairqConnection) uint16 { return max(c.Ends.end(0).Port(), c.Ends.end(1).Port()) } // the right end has port 80
	err := eachEntry(s.Near, func(i *uint32, at *fairqNearPlace) bool {
		if at.Holder == 0 {
			if at.Key != (fairqFlowKey{}) {
				tb.Errorf("place %d is free and has a key", *i)
			}
			return true
		}
		if place, holder := PlaceOf(at.Key.Word, places); place != *i || holder != at.Holder {
			tb.Errorf("place %d, holder %x: want %d, %x", *i, at.Holder, place, holder)
		}
		is := where[left(&at.C)]
		is.near++
		where[left(&at.C)] = is
		return true
	})
	if err != nil {
		tb.Fatal(err)
	}
	for _, c := range entries[fairqConnection](tb, s.Flows) {
		is := where[left(&c)]
		is.flows++
		where[left(&c)] = is
	}
	return where
}

// resets ends a connection.
func (c *frameConn) resets(t *testing.T, s *frameSwitch) {
	t.Helper()
	rst := c.segment()
	rst.Flags |= frames.RST
	s.mustRun(t, 0, rst.Bytes())
}

// A connection is in its place if nobody had it when it came, and otherwise in the hash table. It is found in both.
func TestFairQFrames_Places(t *testing.T) {
	testroot.Need(t, "loads kernel programs")
	f := newFrameTable(t, frameConfig{flows: 40, pending: 1024})
	rapid.Check(t, func(rt *rapid.T) {
		if err := errors.Join(emptyNear(f.Near), empty(f.Flows, 0), empty(f.Pending, 0), empty(f.Ports, 2)); err != nil {
			t.Fatal(err)
		}
		open := map[uint16]*frameConn{}
		want := map[uint16]inMaps{}
		held := map[uint32]uint16{}
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			if len(open) > 0 && rapid.Bool().Draw(rt, "close") {
				port := rapid.SampledFrom(slices.Sorted(maps.Keys(open))).Draw(rt, "port")
				open[port].resets(t, f.frameSwitch)
				for range 3 {
					f.sweep(t)
				}
				delete(open, port)
				delete(want, port)
				for place, holder := range held {
					if holder == port {
						delete(held, place)
					}
				}
			} else {
				c := f.conn(frames.IP{})
				c.open(t, f.frameSwitch)
				open[c.port] = c
				k, _ := f.entry(t, c)
				place, _ := PlaceOf(k.Word, nearPlaces(40))
				if _, taken := held[place]; taken {
					want[c.port] = inMaps{flows: 1}
				} else {
					held[place], want[c.port] = c.port, inMaps{near: 1}
				}
			}
			is := f.whereAll(t)
			if len(is) != len(want) {
				rt.Fatalf("%d connections in the table, want %d", len(is), len(want))
			}
			for port, w := range want {
				if is[port] != w {
					rt.Fatalf("the connection from port %d is in %+v, want %+v", port, is[port], w)
				}
			}
			f.checkShares(t, len(open), 0)
		}
		f.setGrant(t, 1, rowGrant)
		f.counted(t, 0)
		for _, c := range open {
			f.rewritten(t, "in the table", c.segment(), rowField, fairqPortCounts{})
		}
	})
}
