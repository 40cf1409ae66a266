package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weir/agent/switchd"
	"weir/datapath/attach"
	"weir/datapath/testnet"
	"weir/internal/testlog"
)

// flood sends a frame out of a port about 5000 times a second, until the test ends or stop is called; bypassing the
// queue like sockets with that option.
func flood(t *testing.T, p attach.PortRef, frame []byte, pastQueue bool) (end func()) {
	t.Helper()
	var fd int
	err := p.In(func() (err error) {
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil || !pastQueue {
			return err
		}
		return unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1)
	})
	if err != nil {
		t.Fatal(err)
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			for range 50 { // a full queue may refuse some
				_ = unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: p.Ifindex, Halen: 6})
			}
		}
	}()
	end = func() {
		select {
		case <-stop:
			return
		default:
		}
		close(stop)
		<-done
		_ = unix.Close(fd)
	}
	t.Cleanup(end)
	return end
}

// ipFrame is a broadcast frame with an IPv4 packet of this protocol.
func ipFrame(protocol byte) []byte {
	const payload = 60
	f := append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 9, 8, 0}, make([]byte, 20+payload)...)
	ip := f[14:]
	ip[0], ip[8], ip[9] = 0x45, 64, protocol
	binary.BigEndian.PutUint16(ip[2:], 20+payload)
	copy(ip[12:], net.IPv4(10, 0, 0, 1).To4())
	copy(ip[16:], net.IPv4(10, 0, 0, 2).To4())
	var sum uint32
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum))
	return f
}

// Status reports traffic that FairQ cannot limit while there is enough of it, and not afterwards.
func TestSwitch_StatusOfTraffic(t *testing.T) {
	const gre = 47
	m := newMachine(t)
	p := m.switchUp("weir")
	for _, c := range []struct {
		what, word, reason string
		port               attach.PortRef
		pastQueue          bool
	}{
		{"tunnels", "tunnels", "are in tunnels", m.Uplink, false},
		{"bypassing the queue", "bypassed", "bypass it", m.Port, true},
	} {
		a := &ailing{machine: m, t: t, p: p, table: &[]string{}}
		end := flood(t, c.port, ipFrame(gre), c.pastQueue)
		a.ails(c.what, time.Now(), switchd.Degraded, c.word, c.reason)
		end()
		a.await("well", time.Now(), func(s *switchd.Switch, code int) bool { return code == 0 })
		t.Log((*a.table)[0])
	}
}

// Findings about offloads are true: with GSO and GRO every window that leaves is limited, with GRO's chains not.
func TestSwitch_HiddenSegments(t *testing.T) {
	parallel(t)
	m := newMachine(t)
	const bps = 10e6 // slow enough for the test to read on a busy machine
	testnet.Shape(t, m.Port, bps, machineBuffer, 2*1514)
	testnet.Shape(t, m.In, bps, 1_000_000, 10_000)
	p := m.switchUp("weir") // before the connection: its window scale is learnt from the SYN
	l := m.Listen(t, testnet.ReceiverIPv4)
	pair := m.Dial(t, l)
	ends := &testlog.Log{} // why a direction ended
	endless := func(name string, c *net.TCPConn) {
		go func() {
			n, err := io.Copy(io.Discard, c)
			_, _ = fmt.Fprintf(ends, "%s read %d bytes: %v\n", name, n, err)
		}()
		go func() {
			n, err := io.Copy(c, testnet.Zeros{})
			_, _ = fmt.Fprintf(ends, "%s wrote %d bytes: %v\n", name, n, err)
		}()
	}
	var last []testnet.Segment // that the tap saw
	t.Cleanup(func() {         // if nothing comes back any more: why
		if !t.Failed() {
			return
		}
		t.Logf("client %+v\nserver %+v\n%s", testnet.ReadTCPInfo(t, pair.Client), testnet.ReadTCPInfo(t, pair.Server), ends)
		for _, s := range last {
			t.Logf("%+v", s)
		}
	})
	endless("client", pair.Client)
	endless("server", pair.Server)
	m.until(p, "windows are limited", m.limited)
	a := &ailing{machine: m, t: t, p: p}
	scale := testnet.ReadTCPInfo(t, pair.Client).PeerScale
	const limit = 25_625 // C*RTT and the target, of the data's port
	tap := testnet.NewTap(t, m.Uplink)
	// wide counts segments with data that came back to the sender, and how many of them have a window that the law
	// never grants. Each is looked at for itself, so the tap of a slow machine may miss others.
	wide := func() (n, all int) {
		tap.Some(t, func(*testnet.Segment) {})                   // starting now
		testnet.Until(t, "200 segments came back", func() bool { // without a look at the status, which takes long
			tap.Some(t, func(s *testnet.Segment) {
				last = append(last[max(0, len(last)-30):], *s)
				if s.Out || s.Payload == 0 {
					return
				}
				all++
				if int(s.Window)<<scale > limit+1<<scale {
					n++
				}
			})
			return all >= 200
		})
		return n, all
	}
	// A port without data for a time limits nothing, so that a few windows are wide on a slow machine. Of hidden segments about half are.
	limited := func() bool { n, all := wide(); return n <= all/20 }
	a.setFeatures(map[string]bool{"tx-generic-segmentation": true, "rx-gro": true, "tx-checksum-ip-generic": true})
	m.until(p, "with GRO and GSO all windows are limited", limited)
	a.setFeatures(map[string]bool{"rx-gro-list": true})
	m.until(p, "with rx-gro-list some segments are hidden, as status reports", func() bool {
		n, all := wide()
		t.Logf("with rx-gro-list %d of %d segments have a window that is not granted", n, all)
		return n >= all/5
	})
	a.setFeatures(map[string]bool{"rx-gro-list": false})
	m.until(p, "windows are limited again", limited)
	_ = errors.Join(pair.Client.Close(), pair.Server.Close())
}
