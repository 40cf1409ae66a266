package lab

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weir/agent/agentd"
	"weir/bus"
	"weir/bus/pki"
	"weir/controller"
	"weir/datapath/attach"
	"weir/datapath/testnet"
	"weir/experiment"
	"weir/law"
	"weir/law/sicc"
)

const (
	loopRacks   = 4
	loopEvery   = 5 * time.Millisecond // T
	loopCore    = 100 * mbit
	loopIdle    = 40 * mbit // of the flow whose ACKs are watched
	loopTo      = "rack4.server1"
	loopMessage = 10_000
)

// BenchmarkLoop measures, in four racks of hypervisors with agents, the time from a signal at the core switch to an ACK at a VM that is
// limited because of it. Packets are captured: SYNs where they enter the core, and ACKs at the VM of one host in the middle of the racks.
//
//	hosts=28   hypervisors, and as many agents that a decision wakes on this machine; hosts=4: one in each rack
//	of=signal  one SYN is an incast (on_fraction: 0.001): the control loop alone
//	of=incast  all VMs of three racks begin to send 10 KB to one, and the law has its defaults; from the first SYN
//	load=idle  one flow at 40 Mbit/s, whose ACKs are watched: no queue. load=full: three flows fill a link of 100 Mbit/s
//
// The controller keeps its decisions for `weir trace`, and they give the parts of the time. reading is until the core's agent reads its
// counters, up to T. bus is until the report is at the controller, and law until the decision. command is until the watched VM's agent has
// the command, agent until the kernel has the grant, and ACK until the VM gets one that is limited.
//
// not-seen counts the events after which no ACK was limited, and not-seen-REASON gives why. Their facts are logged (-v).
func BenchmarkLoop(b *testing.B) {
	for _, perRack := range []int{7, 1} {
		b.Run(fmt.Sprint("hosts=", loopRacks*perRack), func(b *testing.B) {
			g := racks(loopRacks, perRack, true)
			// Linux delays ACKs by 40 ms while the receiving program, on a busy machine this benchmark, does not read.
			g.ackAtOnce = true
			for i := range g.Links {
				g.Links[i].Rate = min(g.Links[i].Rate, loopCore)
			}
			l := upWithAgents(b, "loop", g, testAgent(b))
			k := &loopKit{Lab: l, b: b, open: map[netip.AddrPort]bool{}, random: rand.New(rand.NewPCG(1, 2)), perRack: perRack}
			k.watchedVM, k.peer = k.name(2, 4), k.name(4, 4) // in the middle of the hosts
			k.smallBursts()
			k.watched = testnet.NewTap(b, portOf(b, l, k.watchedVM+"->"+k.watchedVM+hypervisorSuffix))
			for rack := range loopRacks - 1 {
				k.signals = append(k.signals, testnet.NewEndsTap(b, portOf(b, l, fmt.Sprintf("core->tor%d", rack+1))))
			}
			k.listen()
			for _, of := range []string{"signal", "incast"} {
				if of == "incast" && perRack == 1 {
					continue // three senders are none
				}
				for _, load := range []string{"idle", "full"} {
					b.Run("of="+of+"/load="+load, func(b *testing.B) { k.run(b, g, of, load) })
				}
			}
		})
	}
}

type loopKit struct {
	*Lab
	b       *testing.B
	random  *rand.Rand
	perRack int

	watchedVM, peer string
	watched         *testnet.Tap
	signals         []*testnet.Tap // at the core
	servers         map[string]netip.AddrPort
	shift           uint8
	window          int // of the last ACK
	bus             *bus.Conn
	lastACK         time.Time // the watched VM's
	gaps            []time.Duration
	parts           [len(loopParts)][]time.Duration
	open            map[netip.AddrPort]bool // flows whose SYN came to the core, and their FIN did not
	seen            missed                  // of the incast that goes on
	missed          []missed
}

// loopParts are the parts of the time between a signal and its limited ACK.
var loopParts = [...]string{"reading", "bus", "law", "command", "agent", "ACK"}

// name returns a server of a rack. There are perRack, so a number may stand for an earlier server.
func (k *loopKit) name(rack, server int) string {
	return fmt.Sprintf("rack%d.server%d", rack, 1+(server-1)%k.perRack)
}

// smallBursts has the watched VM send two segments at a time. Otherwise Linux sends up to 64 KB at once where the round trip is short
// (tcp_tso_rtt_log). At 40 Mbit/s no ACK would then come for 8 of 13 ms, and a grant would wait for the next one.
func (k *loopKit) smallBursts() {
	k.b.Helper()
	err := k.withNetlink(k.watchedVM, func(h *netlink.Handle) error {
		l, err := h.LinkByName(portOf(k.b, k.Lab, k.watchedVM+"->"+k.watchedVM+hypervisorSuffix).Name)
		if err != nil {
			return err
		}
		return h.LinkSetGSOMaxSegs(l, 2)
	})
	if err != nil {
		k.b.Fatal(err)
	}
}

// listen has all servers of the last rack read what comes.
func (k *loopKit) listen() {
	k.servers = map[string]netip.AddrPort{}
	for i := range k.perRack {
		name := k.name(loopRacks, i+1)
		var l net.Listener
		err := k.Enter(name, func() (err error) {
			l, err = net.Listen("tcp4", netip.AddrPortFrom(k.Addr(name, 0), 0).String())
			return err
		})
		if err != nil {
			k.b.Fatal(err)
		}
		k.b.Cleanup(func() { _ = l.Close() })
		k.servers[name] = testnet.AddrPort(l.Addr())
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() { _, _ = io.Copy(io.Discard, c); _ = c.Close() }()
			}
		}()
	}
}

func (k *loopKit) run(b *testing.B, g *graphBuilder, of, load string) {
	k.b = b
	p := *sicc.Default()
	p.Interval = law.Duration(loopEvery)
	senders := 1
	switch of {
	case "signal":
		p.OnFraction, p.SourceShare = 0.001, 0
	case "incast":
		senders = (loopRacks - 1) * k.perRack
	}
	r := &experiment.Run{Scheme: "s", Config: *g.config(), Laws: []string{"sicc"}, At: []string{"core", "tor1", "tor2", "tor3", "tor4"}, Params: map[string]any{"sicc": p}}
	k.record = filepath.Join(b.TempDir(), "sicc") // Enforce begins a controller that records
	stop, err := k.Enforce(b.Context(), r, Laws{"sicc": Controlled(sicc.Spec())})
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := stop(); err != nil {
			b.Error(err)
		}
	}()
	c := k.laws[0].Attached.(*controlled)
	k.dial(c)
	defer k.bus.Close()
	ctx, end := context.WithCancel(context.Background())
	defer end()
	k.streams(ctx, load)
	look := time.NewTicker(2 * time.Millisecond) // the kernel stamps packets, so this rate has no effect on the figures
	defer look.Stop()
	took := []time.Duration(nil)
	k.parts, k.missed = [len(loopParts)][]time.Duration{}, nil
	for i := range b.N {
		if d, ok := k.event(look.C, i, senders); ok {
			took = append(took, d)
		}
	}
	if len(took) == 0 {
		b.Fatalf("none of %d signals was answered", b.N)
	}
	testnet.ReportTimes(b, took, "to-ACK")
	testnet.ReportTimes(b, k.gaps, "gap-of-ACKs")
	for i, name := range loopParts {
		testnet.ReportTimes(b, k.parts[i], "part-"+name)
	}
	b.ReportMetric(float64(len(k.parts[0])), "split")
	b.ReportMetric(float64(len(k.missed)), "not-seen")
	if len(k.missed) > 0 {
		known := k.begins()
		if err := stop(); err != nil { // the recording is whole
			b.Error(err)
		}
		for why, n := range k.explain(&p, known) {
			b.ReportMetric(float64(n), "not-seen-"+why)
		}
	}
	b.ReportMetric(0, "ns/op")
}

// dial connects an operator to the bus of the lab's controller.
func (k *loopKit) dial(c *controlled) {
	k.b.Helper()
	err := k.enterController(func() (err error) {
		url := fmt.Sprintf("tls://%v:%d", k.plan.byName[controllerNode].mgmt, busPort)
		k.bus, err = bus.Dial(bus.ClientConfig{URLs: []string{url}, Files: pki.In(c.dir("keys-operator"), "lab")})
		return err
	})
	if err != nil {
		k.b.Fatal(err)
	}
	testnet.Until(k.b, "the operator is connected", k.bus.Connected)
}

// streams has VMs send until ctx is done: the watched one, at its rate or as fast as it can, and two others.
func (k *loopKit) streams(ctx context.Context, load string) {
	k.b.Helper()
	pairs := [][2]string{{k.watchedVM, k.peer}}
	if load == "full" {
		pairs = append(pairs, [2]string{k.name(1, 2), k.name(4, 2)}, [2]string{k.name(3, 3), k.name(4, 3)})
	}
	for _, pair := range pairs {
		c := k.connect(pair[0], pair[1])
		if load == "idle" {
			testnet.Option(k.b, c, func(fd int) error {
				return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE, int(loopIdle/8))
			})
		}
		go func() {
			data := make([]byte, 64<<10)
			for ctx.Err() == nil {
				if _, err := c.Write(data); err != nil {
					return
				}
			}
		}()
		context.AfterFunc(ctx, func() { _ = c.Close() })
	}
}

func (k *loopKit) connect(from, to string) (c *net.TCPConn) {
	k.b.Helper()
	err := k.Enter(from, func() error {
		d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(k.Addr(from, 0), 0)), Timeout: 5 * time.Second}
		any, err := d.Dial("tcp4", k.servers[to].String())
		if err == nil {
			c = any.(*net.TCPConn)
		}
		return err
	})
	if err != nil {
		k.b.Fatal(err)
	}
	return c
}

// event causes one signal, and returns how long it took until an ACK was limited.
func (k *loopKit) event(look <-chan time.Time, i, senders int) (time.Duration, bool) {
	k.b.Helper()
	// The limit before is released, and the flows before have ended: their FINs would hide SYNs (SI-9).
	for end := time.Now().Add(5 * time.Second); ; <-look {
		k.firstSYN()
		k.acks(func(time.Time) {})
		late := time.Now().After(end)
		if k.window > 20*sizeOfLimited && (len(k.open) == 0 || late) {
			break
		}
		if late {
			k.b.Fatalf("the window of %s stays at %d", k.watchedVM, k.window)
		}
	}
	clear(k.open)
	<-time.After(5*time.Millisecond + time.Duration(k.random.Int64N(int64(2*loopEvery)))) // signals come at any time of T
	fds := k.sockets(i, senders)
	defer func() {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	}()
	k.firstSYN()
	k.acks(func(time.Time) {})
	k.seen = missed{}
	to := k.servers[loopTo]
	for _, fd := range fds {
		if err := unix.Connect(fd, &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())}); err != nil && err != unix.EINPROGRESS {
			k.b.Fatal(err)
		}
	}
	var began, limited time.Time
	data := make([]byte, loopMessage)
	left := slices.Clone(fds)
	for end := time.Now().Add(500 * time.Millisecond); time.Now().Before(end); <-look {
		if at := k.firstSYN(); began.IsZero() {
			began = at
		}
		left = slices.DeleteFunc(left, func(fd int) bool {
			n, err := unix.Write(fd, data)
			return err == nil && n > 0
		})
		if !limited.IsZero() {
			if len(left) == 0 {
				break
			}
			continue
		}
		k.acks(func(at time.Time) {
			if !began.IsZero() && limited.IsZero() && at.After(began) {
				limited = at
			}
		})
	}
	if began.IsZero() || limited.IsZero() {
		k.seen.began, k.seen.ended = began, time.Now()
		k.missed = append(k.missed, k.seen)
		return 0, false
	}
	k.split(began, limited)
	return limited.Sub(began), true
}

// sockets makes a socket in the namespace of each sender. One sender is one of the first rack's by turns, and otherwise all send.
func (k *loopKit) sockets(i, senders int) (fds []int) {
	k.b.Helper()
	for n := range senders {
		name := k.name(1+n/k.perRack, 1+i+n)
		err := k.Enter(name, func() error {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			fds = append(fds, fd)
			return unix.Bind(fd, &unix.SockaddrInet4{Addr: k.Addr(name, 0).As4()})
		})
		if err != nil {
			k.b.Fatal(err)
		}
	}
	return fds
}

// firstSYN returns when the first SYN came to the core since the last call; zero: none came.
func (k *loopKit) firstSYN() (at time.Time) {
	for _, tap := range k.signals {
		tap.Each(k.b, func(s *testnet.Segment) {
			switch {
			case s.Out:
			case s.Flags&testnet.FIN != 0:
				k.seen.end(s, k.open)
			case s.Flags&testnet.ACK == 0:
				k.open[s.From] = true
				k.seen.syns++
				if at.IsZero() || s.At.Before(at) {
					at = s.At
				}
			}
		})
	}
	return at
}

// sizeOfLimited is more than a limited window: a segment and a byte, rounded up to the unit of the window's scale.
const sizeOfLimited = 2000

// acks calls limited for the ACKs of the watched VM whose window is limited.
func (k *loopKit) acks(limited func(at time.Time)) {
	k.b.Helper()
	k.watched.Each(k.b, func(s *testnet.Segment) {
		switch {
		case s.Out:
			if s.Payload > 0 {
				k.seen.sent = append(k.seen.sent, s.At)
			}
		case s.Flags&testnet.SYN != 0:
			if scale := s.Option(3); len(scale) > 0 {
				k.shift = scale[0]
			}
		case s.From == k.servers[k.peer]:
			k.seen.acks = append(k.seen.acks, seenACK{s.At, int(s.Window) << k.shift})
			if !k.lastACK.IsZero() {
				k.gaps = append(k.gaps, s.At.Sub(k.lastACK))
			}
			k.lastACK = s.At
			if k.window = int(s.Window) << k.shift; k.window < sizeOfLimited {
				limited(s.At)
			}
		}
	})
}

// split adds the parts of the time between a signal and its limited ACK, as BenchmarkLoop names them. If another decision limited the
// ACK than the core's, there are none.
func (k *loopKit) split(began, limited time.Time) {
	k.b.Helper()
	var list []controller.Decision
	who := pki.Identity{Role: pki.Controller, Name: "lab"}
	if err := k.bus.Ask(k.b.Context(), who, &bus.Question{What: bus.AskTrace, Last: 16}, &list); err != nil {
		k.b.Fatal(err)
	}
	boot := time.Now().Add(-time.Duration(attach.MonotonicNs())) // agents' stamps count from it
	core := agentName(k.plan.byName["core"])
	slices.SortFunc(list, func(x, y controller.Decision) int { return cmp.Compare(x.Unix, y.Unix) })
	for _, d := range list {
		at := time.Unix(0, d.Unix)
		if at.Before(began) || at.After(limited) || d.Reporter != core || len(d.First) == 0 || d.First[0].Lease == 0 {
			continue
		}
		var obeyed []agentd.Obeyed
		host := pki.Identity{Role: pki.Agent, Name: agentName(k.plan.byName[k.watchedVM+hypervisorSuffix])}
		if err := k.bus.Ask(k.b.Context(), host, &bus.Question{What: bus.AskTrace, Of: []uint64{d.Serial}, Last: 1}, &obeyed); err != nil {
			k.b.Fatal(err)
		}
		if len(obeyed) == 0 {
			return
		}
		came, read := at.Add(d.CameNs-d.BeganNs), boot.Add(time.Duration(d.StampNs))
		has, set := boot.Add(obeyed[0].CameNs), boot.Add(obeyed[0].SetNs)
		if set.After(limited) {
			return
		}
		for i, part := range []time.Duration{read.Sub(began), came.Sub(read), at.Sub(came), has.Sub(at), set.Sub(has), limited.Sub(set)} {
			k.parts[i] = append(k.parts[i], part)
		}
		return
	}
}
