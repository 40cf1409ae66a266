package lab

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weir/datapath/testnet"
	"weir/experiment"
	"weir/experiment/result"
	"weir/lab/traffic"
	"weir/law"
)

// The packets on the line are netstack's alone: its SYN options, the guests' addresses, full checksums, and no
// reset by a kernel that does not know the connection.
func TestTheWireShowsWhoseTCPItIs(t *testing.T) {
	t.Parallel()
	for _, mix := range append(mixes, [2]string{"linux", "linux"}) {
		untilWhole(t, func() (void []string) { return checkTheWire(t, mix) })
	}
}

// checkTheWire checks what both guests of a mix send in a run, which may be void.
func checkTheWire(t *testing.T, mix [2]string) (void []string) {
	t.Helper()
	cfg := items(dumbbell(1, false).config(stacks(mix[0], mix[1])), time.Minute,
		experiment.Traffic{Name: "push", Pattern: "burst", Size: 100_000, Every: law.Duration(50 * time.Millisecond), Epochs: 3},
		experiment.Traffic{Name: "pull", Data: "pull", Pattern: "burst", Size: 100_000, Every: law.Duration(50 * time.Millisecond), Epochs: 3},
	)
	l := upForeign(t, "nswire", cfg)
	watches := map[string]func() []segment{
		mix[0]:       capture(t, l, "switch", "switch->sender1"),
		mix[1] + " ": capture(t, l, "switch", "switch->receiver1"),
	}
	// With less patience than this, a run on a slow machine resets connections that are still closing.
	out, void := makeTrafficUntil(t.Context(), t, l, traffic.Options{Drain: testnet.Patience})
	keys := map[result.Key]bool{}
	for _, f := range out.Flows {
		keys[f.Key] = true
	}
	for whose, stop := range watches {
		list := stop()
		if whose = strings.TrimSpace(whose); len(void) == 0 {
			checkSegments(t, fmt.Sprintf("%v, from %s", mix, whose), whose == "netstack", list, keys)
		}
	}
	if len(void) == 0 && len(out.Failures) > 0 {
		t.Errorf("%v: failures %v", mix, out.Failures)
	}
	if err := l.Down(); err != nil {
		t.Error(err)
	}
	return void
}

// lastOf describes the last segments of a list that belong to the flow of s.
func lastOf(list []segment, s segment) string {
	var lines []string
	for _, x := range list {
		if x.src == s.src && x.dst == s.dst {
			lines = append(lines, fmt.Sprintf("\n  seq %d, ack %d, %d B, syn %v, fin %v, rst %v, window %d", x.seq, x.acked, x.payload, x.syn, x.fin, x.rst, x.window))
		}
	}
	return strings.Join(lines[max(0, len(lines)-6):], "")
}

// answersLateACK reports whether a reset answers a segment that came after the end of its connection (RFC 9293 3.10.7.1). It happens if
// the other end is slow: it acknowledges a FIN that was sent again, after the ACK of the first one ended the connection. Or it sends its
// own FIN again, which had been acknowledged.
func answersLateACK(before []segment, reset segment) bool {
	fins, both := 0, false
	var fin segment // the first
	for _, x := range before {
		if x.src != reset.src || x.dst != reset.dst {
			continue
		}
		switch {
		case x.fin && x.seq+uint32(x.payload)+1 == reset.seq:
			if fins++; fins == 1 {
				fin = x
			}
		case fins > 0 && x.payload == 0 && x.seq == reset.seq && x.acked == fin.acked+1:
			both = true
		}
	}
	return (fins > 1 || both) && reset.acked == 0
}

// checkSegments checks what one guest sent.
func checkSegments(t *testing.T, what string, netstack bool, list []segment, keys map[result.Key]bool) {
	t.Helper()
	syns, data := 0, 0
	for i, s := range list {
		there := result.Key{Proto: unix.IPPROTO_TCP, Src: s.src, Dst: s.dst}
		back := result.Key{Proto: unix.IPPROTO_TCP, Src: s.dst, Dst: s.src}
		if !keys[there] && !keys[back] {
			t.Errorf("%s: a segment %v -> %v of no flow", what, s.src, s.dst)
		}
		if s.rst && !answersLateACK(list[:i], s) {
			t.Errorf("%s: a reset %v -> %v, after these of the same flow:%s", what, s.src, s.dst, lastOf(list[:i+1], s))
		}
		if netstack && !s.checksumsComplete {
			t.Errorf("%s: checksums of %v -> %v are wrong", what, s.src, s.dst)
		}
		data += s.payload
		// Linux forbids fragmentation of its SYN and SYN-ACK; netstack does not.
		if s.syn {
			syns++
			if s.dontFragment == netstack {
				t.Errorf("%s: SYN with window %d, don't fragment %v", what, s.window, s.dontFragment)
			}
			// netstack's first window is ten segments twice, in units of its window scale; Linux's is 44.
			if (s.window == 2*10*1460&^63) != netstack {
				t.Errorf("%s: SYN with window %d", what, s.window)
			}
		}
	}
	if syns < 3 || data == 0 {
		t.Errorf("%s: %d SYNs and %d B of payload: the capture sees nothing", what, syns, data)
	}
}
