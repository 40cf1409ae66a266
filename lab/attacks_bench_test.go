package lab

import (
	"encoding/binary"
	"errors"
	"math"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weir/datapath/host"
	"weir/experiment"
	"weir/law"
	"weir/law/gcc"
)

const (
	attackLink   = 20 * mbit // that four VMs share: 5 Mbit/s each
	attackShare  = 5         // datagrams each 5 ms: twice the share of a VM
	attackFlood  = 10 * attackShare
	attackBegin  = 8 * time.Second // until four VMs have their shares
	attackSettle = 2 * time.Second
	attackTime   = 2 * time.Second // of a measurement
	attackRounds = 7
	attackMost   = 0.05 // of a rate that an attack may move
	ect0, ce     = 2, 3 // the ECN field, RFC 3168
)

var attackOthers = []string{"vm2", "vm3", "vm4"}

// kernelAttack is what vm1 does, next to or in place of its honest traffic. vm2 is at its host, vm3 and vm4 are at another one.
type kernelAttack struct {
	name      string
	datagrams int64 // each 5 ms, of its traffic
	tos       int
	forge     func(l *Lab, to netip.AddrPort) (send func() error, end func() error, err error) // sends one packet more; nil: none
	counted   func(c *host.Stats) uint64
}

var kernelAttacks = []kernelAttack{
	{"marks-its-packets", attackShare, ce, nil, func(c *host.Stats) uint64 { return c.ECNSet }},
	{"clears-ect", attackShare, 0, nil, func(c *host.Stats) uint64 { return c.ECNSet }},
	{"spoofs", attackShare, ect0, spoofs, func(c *host.Stats) uint64 { return c.SpoofedIP }},
	{"forges-143", attackShare, ect0, forges143, func(c *host.Stats) uint64 { return c.Control }},
	{"floods", attackFlood, ect0, nil, func(c *host.Stats) uint64 { return c.OverRate }},
}

// BenchmarkAttacks reports by how much the rate of another VM moves at most while a VM attacks, and how many of its packets are counted.
// Rates are medians of 7 rounds, without the attack and with it in turn.
func BenchmarkAttacks(b *testing.B) {
	g := &graphBuilder{}
	g.sw("switch")
	g.vms("host1", "switch", attackLink, "vm1", "vm2")
	g.vms("host2", "switch", attackLink, "vm3", "vm4")
	g.vms("host3", "switch", attackLink, "receiver")
	p := *gcc.Default()
	// Those of gcc-transports.yaml at a fifth of its rate. Times are four times as long, for a busy machine.
	p.Gain, p.MinRate, p.Increase, p.FastIncrease = 0.2, 200e3, 6_500, 52_500
	p.Interval, p.Timeout, p.Period, p.FastAfter, p.Inactivity, p.Depth = 20e6, 24e6, 1e6, 800e6, 4e9, 100e6
	l, stop := marked(b, "gcc", p, g, 30_000)
	for _, a := range kernelAttacks {
		b.Run(a.name, func(b *testing.B) {
			for b.Loop() {
				a.run(b, l)
			}
			b.ReportMetric(0, "ns/op") // it waits most of its time
		})
	}
	if err := stop(); err != nil {
		b.Fatal(err)
	}
}

func (a *kernelAttack) run(b *testing.B, l *Lab) {
	floods := map[string]*udpFlood{}
	defer func() {
		for vm, f := range floods {
			if err := f.stop(); err != nil {
				b.Errorf("%s: %v", vm, err)
			}
		}
	}()
	for _, vm := range append([]string{"vm1"}, attackOthers...) {
		f, err := newUDPFlood(l, vm, "receiver", attackShare, ect0)
		if err != nil {
			b.Fatal(err)
		}
		floods[vm] = f
	}
	forging, end, err := a.forgeUntil(l, floods["vm2"].at)
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := end(); err != nil {
			b.Error(err)
		}
	}()
	count := func() uint64 { return a.counted(statusOf(b, l, "vm1").Host.VMs[0].Counts) }
	var honest, attacked [3][]float64 // Mbit/s, by other VM and round
	counted := uint64(0)
	time.Sleep(attackBegin)
	for range attackRounds {
		othersRates(floods, &honest)
		before := count()
		forging.Store(true)
		floods["vm1"].datagrams.Store(a.datagrams)
		failed := floods["vm1"].setTOS(a.tos)
		othersRates(floods, &attacked)
		forging.Store(false)
		floods["vm1"].datagrams.Store(attackShare)
		if failed = errors.Join(failed, floods["vm1"].setTOS(ect0)); failed != nil {
			b.Fatal(failed)
		}
		counted += count() - before
	}
	moved := 0.0
	for i, vm := range attackOthers {
		slices.Sort(honest[i])
		slices.Sort(attacked[i])
		without, with := honest[i][attackRounds/2], attacked[i][attackRounds/2]
		b.Logf("%s has %.2f Mbit/s, and %.2f with the attack", vm, without, with)
		moved = max(moved, math.Abs(with/without-1))
	}
	b.ReportMetric(100*moved, "moved-%")
	b.ReportMetric(float64(counted), "counted")
	if moved > attackMost || counted < 1000 {
		b.Errorf("a rate moved by %.1f %%, at most %.0f %% is right; %d packets counted", 100*moved, 100*attackMost, counted)
	}
}

// othersRates adds the rates of the other VMs over a time, after they have settled.
func othersRates(floods map[string]*udpFlood, rates *[3][]float64) {
	time.Sleep(attackSettle)
	var before [3]int64
	for i, vm := range attackOthers {
		before[i] = floods[vm].received.Load()
	}
	begun := time.Now()
	time.Sleep(attackTime)
	for i, vm := range attackOthers {
		rates[i] = append(rates[i], float64(floods[vm].received.Load()-before[i])*8/1e6/time.Since(begun).Seconds())
	}
}

// forgeUntil sends 1000 forged packets a second while forging is set, until end.
func (a *kernelAttack) forgeUntil(l *Lab, to netip.AddrPort) (forging *atomic.Bool, end func() error, err error) {
	forging = &atomic.Bool{}
	if a.forge == nil {
		return forging, func() error { return nil }, nil
	}
	send, closes, err := a.forge(l, to)
	if err != nil {
		return nil, nil, err
	}
	over, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-over:
				ended <- nil
				return
			case <-tick.C:
			}
			for range 5 {
				if !forging.Load() {
					break
				}
				if err := send(); err != nil {
					ended <- err
					return
				}
			}
		}
	}()
	return forging, func() error { close(over); return errors.Join(<-ended, closes()) }, nil
}

// rawIP sends packets of vm1 with this protocol; with IPPROTO_RAW they have their own IP header.
func rawIP(l *Lab, protocol int, packet []byte, to netip.Addr) (send func() error, end func() error, err error) {
	fd := -1
	err = l.Enter("vm1", func() (err error) {
		fd, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	send = func() error { return unix.Sendto(fd, packet, 0, &unix.SockaddrInet4{Addr: to.As4()}) }
	return send, func() error { return unix.Close(fd) }, nil
}

// spoofs sends datagrams from the address of vm2 to where vm2 sends. If they came, they would count as its own, and take its marks.
func spoofs(l *Lab, to netip.AddrPort) (send func() error, end func() error, err error) {
	const size = 1400
	p := make([]byte, size)
	p[0], p[1], p[8], p[9] = 0x45, ect0, 64, unix.IPPROTO_UDP // the kernel fills in length and checksum
	from, dst := l.Addr("vm2", 0).As4(), to.Addr().As4()
	copy(p[12:], from[:])
	copy(p[16:], dst[:])
	binary.BigEndian.PutUint16(p[20:], 4000)
	binary.BigEndian.PutUint16(p[22:], to.Port())
	binary.BigEndian.PutUint16(p[24:], size-20)
	return rawIP(l, unix.IPPROTO_RAW, p, to.Addr())
}

// forges143 sends packets of the protocol in which the paper's controller reports marks, to a VM at another host.
func forges143(l *Lab, _ netip.AddrPort) (send func() error, end func() error, err error) {
	const marks = 143
	return rawIP(l, marks, make([]byte, 64), l.Addr("vm3", 0))
}

// vms adds a hypervisor with guests.
func (g *graphBuilder) vms(name, sw string, rate law.Rate, guests ...string) {
	for _, guest := range guests {
		g.Nodes = append(g.Nodes, experiment.Node{Name: guest, Kind: experiment.Guest, Attached: sw})
		g.Links = append(g.Links, experiment.Link{A: guest, B: name})
	}
	g.Nodes = append(g.Nodes, experiment.Node{Name: name, Kind: experiment.Hypervisor, Attached: sw})
	g.link(name, sw, rate)
}
