package controller

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weir/law/fabric"
)

// BenchmarkSYNFlood has a host send SYNs, 200,000 a second or as many as the machine can make, of random addresses and ports to
// one MAC address in another rack, through Open vSwitch in user space. It reports the SYNs per second at four places: sent, read
// by the switch, out of its port towards the spine, and to the controller through its meter. It also reports the effect on
// others: round trips of datagrams through the same switches, one each 2 ms, and the controller's time to answer another switch.
func BenchmarkSYNFlood(b *testing.B) {
	const seconds = 10
	r := newRacks(b, 2, 1, 2)
	r.connect(b)
	r.startController()
	r.settled(b, 2)
	r.reach(b)
	other := newHonest(b, r)
	var calm, stormy, quick, slow []float64
	var lost, sent, matched, through, copies uint64
	for b.Loop() {
		both := func(d time.Duration) (trips, answers []float64, lost uint64) {
			var all sync.WaitGroup
			all.Go(func() { trips, lost = r.trips(b, r.hosts[1], r.hosts[3], d) })
			all.Go(func() {
				for i, end := 0, time.Now().Add(d); time.Now().Before(end); i++ {
					if took, ok := other.ask(byte(i), time.Second); ok {
						answers = append(answers, float64(took)/1e3)
					}
					time.Sleep(2 * time.Millisecond)
				}
			})
			all.Wait()
			return trips, answers, lost
		}
		t, a, _ := both(3 * time.Second)
		calm, quick = append(calm, t...), append(quick, a...)
		before, out, read := r.status(b).Forward.Counts.SYN, r.sent(b, leafSpine(1, 1)), r.matchedSYNs(b)
		stop, n := r.flood(b, r.hosts[0], r.hosts[2], 200_000)
		t, a, l := both(seconds * time.Second)
		stormy, slow, lost = append(stormy, t...), append(slow, a...), lost+l
		stop()
		sent += n.Load()
		through += r.sent(b, leafSpine(1, 1)) - out
		matched += r.matchedSYNs(b) - read
		copies += r.status(b).Forward.Counts.SYN - before
	}
	each := float64(b.N * seconds)
	b.ReportMetric(float64(sent)/each, "SYN-sent/s")
	b.ReportMetric(float64(matched)/each, "read-by-the-switch/s")
	b.ReportMetric(float64(through)/each, "out-of-the-switch/s")
	b.ReportMetric(float64(copies)/each, "to-the-controller/s")
	b.ReportMetric(float64(lost), "lost-of-others")
	for name, values := range map[string][]float64{"trip-before": calm, "trip": stormy, "answer-before": quick, "answer": slow} {
		if n := len(values); n > 0 {
			slices.Sort(values)
			b.ReportMetric(values[n/2], name+"-p50-us")
			b.ReportMetric(values[n*99/100], name+"-p99-us")
		}
	}
	b.ReportMetric(0, "ns/op")
}

// matchedSYNs is how many SYNs the first leaf has looked at.
func (r *racks) matchedSYNs(tb testing.TB) uint64 {
	tb.Helper()
	text := r.ofctl(tb, "dump-flows", "leaf1", fmt.Sprintf("cookie=%#x/-1", fabric.SYN.Cookie()))
	_, text, _ = strings.Cut(text, "n_packets=")
	text, _, _ = strings.Cut(text, ",")
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

// trips asks another host each 2 ms, one after the other, and gives what the round trips took, in us.
func (r *racks) trips(tb testing.TB, a, z *host, d time.Duration) (took []float64, lost uint64) {
	var c *net.UDPConn
	if err := a.ns.Enter(func() (err error) {
		c, err = net.DialUDP("udp4", nil, &net.UDPAddr{IP: z.ip, Port: 7})
		return err
	}); err != nil {
		tb.Error(err)
		return nil, 0
	}
	defer c.Close()
	var in, out [8]byte
	for n, end := uint64(1), time.Now().Add(d); time.Now().Before(end); n++ {
		binary.BigEndian.PutUint64(out[:], n)
		begun := time.Now()
		_ = c.SetReadDeadline(begun.Add(time.Second)) // fails on a closed socket only
		_, err := c.Write(out[:])
		for err == nil && in != out {
			_, err = c.Read(in[:])
		}
		if err != nil {
			lost++
		} else {
			took = append(took, float64(time.Since(begun))/1e3)
		}
		time.Sleep(2 * time.Millisecond)
	}
	return took, lost
}

// flood sends SYNs from one host's device to another's address until stop.
func (r *racks) flood(tb testing.TB, a, z *host, perSecond int) (stop func(), sent *atomic.Uint64) {
	tb.Helper()
	var from, to fabric.MAC
	var index int
	for h, m := range map[*host]*fabric.MAC{a: &from, z: &to} {
		h.ns.Must(tb, func() error {
			l, err := netlink.LinkByName("eth0")
			if err == nil {
				copy(m[:], l.Attrs().HardwareAddr)
				if h == a {
					index = l.Attrs().Index
				}
			}
			return err
		})
	}
	var fd int
	a.ns.Must(tb, func() (err error) {
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1); err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: index})
	})
	sent = new(atomic.Uint64)
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread()
		rng := rand.New(rand.NewPCG(1, 3))
		for begun := time.Now(); ; {
			select {
			case <-quit:
				return
			default:
			}
			if due := uint64(time.Since(begun).Seconds() * float64(perSecond)); sent.Load() < due {
				sent.Add(sendSYNs(fd, rng, from, to))
			} else {
				time.Sleep(100 * time.Microsecond)
			}
		}
	}()
	return func() { close(quit); <-ended; _ = unix.Close(fd) }, sent
}

// sendSYNs sends 64 of them with one call, and gives how many the kernel took.
func sendSYNs(fd int, rng *rand.Rand, from, to fabric.MAC) uint64 {
	const batch = 64
	type mmsghdr struct {
		head unix.Msghdr
		_    [8]byte // how much was sent
	}
	var messages [batch]mmsghdr
	var parts [batch]unix.Iovec
	frames := make([][]byte, batch)
	for i := range messages {
		f := randomSYN(rng)
		copy(f, to[:])
		copy(f[6:], from[:])
		frames[i] = f
		parts[i].Base = &f[0]
		parts[i].SetLen(len(f))
		messages[i].head.Iov = &parts[i]
		messages[i].head.SetIovlen(1)
	}
	n, _, err := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&messages)), batch, 0, 0, 0)
	runtime.KeepAlive(frames)
	if err != 0 {
		if err != unix.ENOBUFS && err != unix.EAGAIN {
			panic(os.NewSyscallError("sendmmsg", err))
		}
		return 0
	}
	return uint64(n)
}
