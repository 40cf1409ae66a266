package testnet

import "testing"

// A look at a tap ends with the frames that passed before it, though each one that is read brings another one: so it is
// where traffic comes faster than a slow machine reads it.
func TestTap_EndsWhileTrafficComes(t *testing.T) {
	p := NewPath(t, PathOptions{NoIPv6: true})
	raw, tap := NewRaw(t, p.Uplink), NewTap(t, p.Uplink)
	frame := append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 9, 8, 0}, make([]byte, 40)...)
	frame[14], frame[14+3], frame[14+8], frame[14+9], frame[14+20+12] = 0x45, 40, 64, 6, 5<<4 // IPv4 and TCP, without data
	const sent = 3
	for range sent {
		raw.Send(t, frame)
	}
	for look := range 2 {
		seen := 0
		tap.Each(t, func(s *Segment) {
			if seen++; seen > 10*sent {
				t.Fatal("the look does not end")
			}
			raw.Send(t, frame)
		})
		if seen != sent {
			t.Errorf("look %d has %d segments, want %d", look, seen, sent)
		}
	}
}
