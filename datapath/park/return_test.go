package park

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"weir/internal/testroot"
)

const redirect = 7 // TC_ACT_REDIRECT

// context returns struct __sk_buff with a mark, for BPF_PROG_TEST_RUN.
func context(mark uint32) []byte {
	c := make([]byte, 192)
	binary.NativeEndian.PutUint32(c[8:], mark)
	return c
}

// markOf returns the mark of a parked packet.
func markOf(magic, padded, priority, generation, trailer, port uint32) uint32 {
	return magic<<26 | padded<<24 | priority<<20 | generation<<14 | trailer<<10 | port
}

const magic = 0x2b

// packet builds a frame of 1514 bytes with an IP packet of as many bytes as claims.
func packet(ipv6 bool, claims uint16) []byte {
	b := append(bytes.Repeat([]byte{2}, 12), 0x08, 0x00, 0x45, 0)
	b = binary.BigEndian.AppendUint16(b, claims)
	b = append(b, 0, 0, 0, 0, 64, 253, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2)
	if ipv6 {
		b = append(bytes.Repeat([]byte{2}, 12), 0x86, 0xdd, 0x60, 0, 0, 0)
		b = binary.BigEndian.AppendUint16(b, claims-40)
		b = append(append(b, 253, 64), bytes.Repeat([]byte{0xfd}, 32)...)
	}
	return append(b, make([]byte, 1514-len(b))...)
}

// The far end of the parking drops what is not its own, and never sends a packet cut or with a mark.
func TestReturn_Table(t *testing.T) {
	testroot.Need(t, "loads kernel programs")
	var objects parkObjects
	if err := loadParkObjects(&objects, nil); err != nil {
		t.Fatal(err)
	}
	defer objects.Close()
	put := func(id uint32, entry parkParkPort) {
		if err := objects.ParkPorts.Put(id, &entry); err != nil {
			t.Fatal(err)
		}
	}
	put(0, parkParkPort{Ifindex: 7, Open: 1})
	put(1023, parkParkPort{Ifindex: 9, Generation: 63})        // closed: packets that wait still leave
	put(5, parkParkPort{Ifindex: 0, Generation: 2, Open: 1})   // no device
	put(6, parkParkPort{Ifindex: 9, Generation: 100, Open: 1}) // never written so
	type want struct {
		verdict                             uint32
		length                              int // 0: as it was
		returned, untrimmed, stale, foreign uint64
	}
	sent := want{verdict: redirect, returned: 1}
	trimmed := func(n int) want { return want{verdict: redirect, returned: 1, length: n} }
	untrimmed := want{verdict: redirect, returned: 1, untrimmed: 1}
	stale, foreign := want{verdict: 2, stale: 1}, want{verdict: 2, foreign: 1}
	ipv4, ipv6 := packet(false, 60), packet(true, 60)
	for i, c := range []struct {
		in   []byte
		mark uint32
		want want
	}{
		{ipv4, 0, foreign},
		{ipv4, 1, foreign},
		{ipv4, 0xffffffff, foreign},
		{ipv4, markOf(magic^1, 0, 0, 0, 0, 0), foreign},
		{ipv4, markOf(magic^32, 0, 0, 0, 0, 0), foreign},
		{ipv4, markOf(magic, 0, 0, 0, 0, 0), sent},
		{ipv4, markOf(magic, 0, 15, 0, 15, 0), sent}, // not padded: the trailer means nothing
		{ipv4, markOf(magic, 0, 0, 63, 0, 1023), sent},
		{ipv4, markOf(magic, 0, 0, 1, 0, 0), stale},
		{ipv4, markOf(magic, 0, 0, 62, 0, 1023), stale},
		{ipv4, markOf(magic, 0, 0, 2, 0, 5), stale},
		{ipv4, markOf(magic, 0, 0, 100&63, 0, 6), stale},
		{ipv4, markOf(magic, 0, 0, 0, 0, 1022), stale},
		{ipv4, markOf(magic, 1, 3, 0, 0, 0), trimmed(74)},
		{ipv4, markOf(magic, 1, 3, 0, 15, 0), trimmed(89)},
		{ipv6, markOf(magic, 1, 0, 0, 0, 0), trimmed(74)},
		{ipv6, markOf(magic, 1, 0, 0, 6, 0), trimmed(80)},
		{packet(false, 1500), markOf(magic, 1, 0, 0, 0, 0), trimmed(1514)},
		{packet(true, 1500), markOf(magic, 1, 0, 0, 0, 0), trimmed(1514)},
		// A wrong length of 10, shorter than the header: park_send stored what was behind it as the trailer.
		{packet(false, 10), markOf(magic, 1, 0, 0, 15, 0), trimmed(39)},
		// These cannot be: park_send pads no such packet. They are sent as they are.
		{packet(false, 1500), markOf(magic, 1, 0, 0, 1, 0), untrimmed},
		{packet(false, 65535), markOf(magic, 1, 0, 0, 0, 0), untrimmed},
		{packet(true, 65535), markOf(magic, 1, 0, 0, 0, 0), untrimmed},
		{packet(false, 0), markOf(magic, 1, 0, 0, 0, 0), untrimmed},
		{packet(true, 40), markOf(magic, 1, 0, 0, 0, 0), untrimmed}, // a jumbogram
		{append(bytes.Repeat([]byte{2}, 12), make([]byte, 60)...), markOf(magic, 1, 0, 0, 0, 0), untrimmed},
	} {
		name := fmt.Sprintf("row %d, mark %#x", i, c.mark)
		if err := objects.ParkStats.Put(uint32(0), make([]parkParkCounts, ebpf.MustPossibleCPU())); err != nil {
			t.Fatal(err)
		}
		after := make([]byte, 192)
		o := ebpf.RunOptions{Data: c.in, DataOut: make([]byte, len(c.in)+64), Context: context(c.mark), ContextOut: after}
		verdict, err := objects.WeirParkReturn.Run(&o)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		p := Park{maps: map[string]*ebpf.Map{parkMapParkStats: objects.ParkStats}}
		s, err := p.counters()
		if err != nil {
			t.Fatal(err)
		}
		got := want{verdict, len(o.DataOut), s.Returned, s.Untrimmed, s.Stale, s.Foreign}
		if c.want.length == 0 {
			c.want.length = len(c.in)
		}
		if got != c.want {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
		if !bytes.Equal(o.DataOut, c.in[:len(o.DataOut)]) {
			t.Errorf("%s: the bytes have changed", name)
		}
		if verdict != redirect {
			continue
		}
		mark, priority := binary.NativeEndian.Uint32(after[8:]), binary.NativeEndian.Uint32(after[32:])
		if mark != 0 || priority != c.mark>>20&15 {
			t.Errorf("%s: mark %#x, priority %d", name, mark, priority)
		}
	}
}

// A probe says how late its class is: 0.1 ms does not count, nor being 1 ms early, and of two in a row the lesser counts.
func TestReturn_Probe(t *testing.T) {
	testroot.Need(t, "loads kernel programs")
	var objects parkObjects
	if err := loadParkObjects(&objects, nil); err != nil {
		t.Fatal(err)
	}
	defer objects.Close()
	now := func() uint64 {
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
			t.Fatal(err)
		}
		return uint64(ts.Nano())
	}
	const (
		out, class = 3, 5
		byteNs     = 800 // 10 Mbit/s
		ms         = int64(1e6)
		probe      = 1 << 25
		measured   = int64(1) << 62
	)
	for _, c := range []struct {
		name         string
		mark         uint32
		before, late int64 // ns; late: what it measures, at least
		bytes, after int64 // after: late_ns; measured: what it measured
		taken        bool  // the probe is no longer under way
	}{
		{"the first that is late", probe, 0, 25 * ms, 0, measured, true},
		{"the second", probe, 20 * ms, 25 * ms, (20*ms - ms/10) / byteNs, 0, true},
		{"the second, a little late", probe, ms / 20, 25 * ms, 0, measured, true},
		{"early twice", probe, -20 * ms, -900 * ms, -19 * ms / byteNs, 0, true},
		{"a little early twice", probe, -ms, -900 * ms, 0, measured, true},
		{"late after early", probe, -20 * ms, 25 * ms, 0, measured, true},
		{"lost, and found", probe, 20 * ms, 5000 * ms, 0, 20 * ms, true},
		{"no probe", 0, 20 * ms, 25 * ms, 0, 20 * ms, false},
	} {
		due := now() - uint64(c.late)
		for id, entry := range map[uint32]parkParkPort{
			out:   {Ifindex: 7, Open: 1, DueNs: due, Probe: class},
			class: {Ifindex: 8, Open: 1, ByteNsQ20: byteNs << 20, ProbesNs: due, LateNs: c.before},
		} {
			if err := objects.ParkPorts.Put(id, &entry); err != nil {
				t.Fatal(err)
			}
		}
		if verdict, err := objects.WeirParkReturn.Run(&ebpf.RunOptions{Data: packet(false, 60), Context: context(markOf(magic, 0, 0, 0, 0, out) | c.mark)}); err != nil || verdict != redirect {
			t.Fatalf("%s: verdict %d, %v", c.name, verdict, err)
		}
		var port, of parkParkPort
		if err := errors.Join(objects.ParkPorts.Lookup(uint32(out), &port), objects.ParkPorts.Lookup(uint32(class), &of)); err != nil {
			t.Fatal(err)
		}
		after := of.LateNs
		if after >= c.late && c.after == measured {
			after = measured
		}
		if of.LateBytes != c.bytes || after != c.after {
			t.Errorf("%s: %d bytes late, measured %d ns; want %d and %d", c.name, of.LateBytes, of.LateNs, c.bytes, c.after)
		}
		if (port.DueNs == 0 && of.ProbesNs == 0) != c.taken {
			t.Errorf("%s: the probe is under way: %d, %d", c.name, port.DueNs, of.ProbesNs)
		}
	}
}
