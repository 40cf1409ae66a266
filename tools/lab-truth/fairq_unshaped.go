package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"

	"weir/datapath/fairq"
	"weir/experiment"
	"weir/internal/nic"
	"weir/lab"
)

// A machine's speed drifts in seconds by more than the effect to be measured. So two equal paths, one with FairQ
// on its ports and one without, alternate every quarter of a second, and a ratio compares neighbouring slices;
// then the paths swap roles.
const (
	slicePairs  = 40
	sliceSettle = 60 * time.Millisecond
	sliceSpan   = 200 * time.Millisecond

	unshapedBuffer = 8 << 20 // bytes of the port's queue; the target is half of it
	unshapedRate   = 400e9   // bit/s: more than the processors forward
	iperfPort      = 5201
)

// unshapedTicks are the sampling intervals (T) that are compared: that of the experiments, and one with one sample
// per update (M = 1, and the same M*T). The group `timer` measures the cost of the timer.
var unshapedTicks = []time.Duration{fairqTick, fairqTick * fairqSamples}

// path is a path through the switch: iperf3's client, and its server.
type path struct{ from, to string }

var unshapedPaths = [2]path{{"sender1", "sender2"}, {"sender3", "sender4"}}

func (p path) has(port *lab.Port) bool { return port.Peer == p.from || port.Peer == p.to }

// The least throughput with FairQ, as a share of that without. Without offloads each frame is a packet of its own.
const (
	unshapedLeast         = 0.97
	unshapedLeastOffloads = 0.94 // offloads off
)

// subject is what a comparison attaches to the ports of one path.
type subject struct {
	name   string
	least  float64 // share of the throughput without it; 0: the row is for information
	attach func(l *lab.Lab, p path, flows int) (attachment, error)
}

// attachment is a subject on the ports of a path.
type attachment interface {
	// check returns an error if the traffic of the path did not pass through it.
	check() error
	stop() error
}

// subjects are FairQ with each sampling interval, after the baseline: a program that does nothing.
func subjects(least float64) []subject {
	all := []subject{{name: "an empty program", attach: attachEmpty}}
	for _, tick := range unshapedTicks {
		all = append(all, subject{fmt.Sprintf("FairQ, T = %v", tick), least,
			func(l *lab.Lab, p path, flows int) (attachment, error) {
				f, err := governPath(l, p, fairq.Config{}, tick)
				return &governed{f, p, flows}, err
			}})
	}
	return all
}

// creditSubjects are FairQ without and with credits, at a rate that the flows do not reach: no port paces. For information.
func creditSubjects(float64) (all []subject) {
	for _, c := range []struct {
		name   string
		config fairq.Config
	}{{"FairQ", fairq.Config{}}, {"FairQ with credits", fairq.Config{Credit: fairq.CreditPaces}}} {
		all = append(all, subject{name: c.name, attach: func(l *lab.Lab, p path, flows int) (attachment, error) {
			f, err := governPath(l, p, c.config, fairqTick)
			return &governed{f, p, flows}, err
		}})
	}
	return all
}

// unshaped compares the throughput of iperf3 with FairQ and without, on a path that only the processors limit. The
// ports have a queue (bfifo) in both cases, because FairQ needs one. An empty program in FairQ's place shows how much
// of the difference is the cost of calling a program at all.
func unshaped(ctx context.Context) (rows []row, err error) { return unshapedOf(ctx, subjects) }

// unshapedCredits does the same without credits and with them.
func unshapedCredits(ctx context.Context) (rows []row, err error) {
	return unshapedOf(ctx, creditSubjects)
}

func unshapedOf(ctx context.Context, subjects func(least float64) []subject) (rows []row, err error) {
	for _, offloads := range []bool{true, false} {
		least := unshapedLeast
		if !offloads {
			least = unshapedLeastOffloads
		}
		err := withLab(ctx, "truth-unshaped", oneFlow, func(l *lab.Lab, _ *experiment.Run) error {
			if err := unshape(l, offloads); err != nil {
				return err
			}
			for _, flows := range []int{1, 16} {
				for _, s := range subjects(least) {
					r, err := withAgainstWithout(ctx, l, flows, s)
					if err != nil {
						return err
					}
					r.what = fmt.Sprintf("unshaped, offloads %s, %d flows: %s", onOff(offloads), flows, s.name)
					rows = append(rows, r)
				}
			}
			return nil
		}, "topology.senders=4")
		if err != nil {
			return nil, err
		}
	}
	return rows, nil
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// withAgainstWithout compares the two paths, with the subject on one and then on the other.
func withAgainstWithout(ctx context.Context, l *lab.Lab, flows int, s subject) (row, error) {
	var with, without []float64
	for i := range unshapedPaths {
		mbps, err := takeTurns(ctx, l, flows, s, i)
		if err != nil {
			return row{}, err
		}
		with, without = append(with, mbps[i]...), append(without, mbps[1-i]...)
	}
	return compareSlices(with, without, s.least)
}

// takeTurns runs iperf3 on both paths in turn, with the subject on one, and returns the rates of all slices in Mbit/s.
func takeTurns(ctx context.Context, l *lab.Lab, flows int, s subject, on int) (mbps [2][]float64, err error) {
	a, err := s.attach(l, unshapedPaths[on], flows)
	if err != nil {
		return mbps, err
	}
	defer func() { err = errors.Join(err, a.stop()) }()
	var clients [2]*iperf
	for i, p := range unshapedPaths {
		if clients[i], err = startIperf(ctx, l, p, flows); err != nil {
			return mbps, err
		}
		defer clients[i].kill()
	}
	for i := range slicePairs {
		for j := range clients {
			k := (i + j) % 2 // the first path alternates
			got, err := clients[k].slice(ctx)
			if err != nil {
				return mbps, err
			}
			mbps[k] = append(mbps[k], got)
		}
	}
	return mbps, a.check()
}

// governPath attaches FairQ to the ports of one path.
func governPath(l *lab.Lab, p path, c fairq.Config, tick time.Duration) (*running, error) {
	return startFairQ(l, c, func(port *lab.Port) (fairq.Law, bool) {
		// No largest window: the cost of the program is measured.
		law := fairq.Law{
			TargetBytes: unshapedBuffer / 2, BufferBytes: unshapedBuffer, Tick: tick, Period: fairqTick * fairqSamples,
		}
		if c.Credit != fairq.CreditOff {
			law.RateBps, law.PipeBytes = unshapedRate, unshapedBuffer
		}
		return law, p.has(port)
	})
}

// governed is FairQ on the ports of a path.
type governed struct {
	*running
	path  path
	flows int
}

// check checks that FairQ's program processed the flows of the path.
func (g *governed) check() error {
	s, err := g.PortStats("switch->" + g.path.to)
	if err == nil && (s.Data == 0 || s.DeviceRefused != 0 || s.Opened < uint64(g.flows) || s.Samples == 0) {
		err = fmt.Errorf("FairQ did not process the flows: %+v", s)
	}
	return err
}

// iperf is a client of iperf3 that runs on demand, with its server.
type iperf struct {
	l              *lab.Lab
	path           path
	client, server *exec.Cmd
}

// startIperf starts client and server and stops the client once it sends. A veth forwards on the sender's
// processor, the first one; the server uses the second.
func startIperf(ctx context.Context, l *lab.Lab, p path, flows int) (*iperf, error) {
	r := &iperf{l: l, path: p}
	r.server = exec.CommandContext(ctx, "iperf3", "-4", "-s", "-A", "1")
	if err := start(l, p.to, r.server); err != nil {
		return nil, err
	}
	address := l.Addr(p.to, 0)
	if err := awaitListening(ctx, l, p.to, iperfPort); err != nil {
		r.kill()
		return nil, err
	}
	client := exec.CommandContext(ctx, "iperf3", "-c", address.String(), "-t", "3600", "-P", strconv.Itoa(flows), "-A", "0")
	if err := start(l, p.from, client); err != nil {
		r.kill()
		return nil, err
	}
	r.client = client
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		const sure = 50e6 // bytes: more than the connections need to open
		got, err := r.received()
		if err == nil && got < sure && time.Now().After(end) {
			err = fmt.Errorf("iperf3 from %s does not send: check that it is installed and that %s:%d is free", p.from, address, iperfPort)
		}
		if err != nil {
			r.kill()
			return nil, err
		}
		if got >= sure {
			return r, client.Process.Signal(syscall.SIGSTOP)
		}
	}
}

// awaitListening waits until a program listens, without a connection: iperf3 accepts one client at a time.
func awaitListening(ctx context.Context, l *lab.Lab, node string, port int) error {
	listens := fmt.Sprintf(":%04X 00000000:0000 0A", port)
	for found := false; !found; {
		err := l.Enter(node, func() error {
			data, err := os.ReadFile("/proc/thread-self/net/tcp")
			found = strings.Contains(string(data), listens)
			return err
		})
		if err != nil {
			return err
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// kill ends both.
func (r *iperf) kill() {
	for _, cmd := range []*exec.Cmd{r.client, r.server} {
		if cmd != nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait() // its error is that it was killed
		}
	}
}

// received returns how many bytes arrived at the server's device.
func (r *iperf) received() (bytes uint64, err error) {
	err = r.l.Enter(r.path.to, func() error {
		link, err := netlink.LinkByName("eth0")
		if err == nil {
			bytes = link.Attrs().Statistics.RxBytes
		}
		return err
	})
	return bytes, err
}

// slice lets the client send for a while and returns its rate in Mbit/s, 0 if nothing arrived.
func (r *iperf) slice(ctx context.Context) (float64, error) {
	if err := r.client.Process.Signal(syscall.SIGCONT); err != nil {
		return 0, fmt.Errorf("iperf3 from %s: %w", r.path.from, err)
	}
	err := pause(ctx, sliceSettle)
	before, e := r.received()
	began := time.Now()
	err = errors.Join(err, e, pause(ctx, sliceSpan))
	after, e := r.received()
	took := time.Since(began)
	if err := errors.Join(err, e, r.client.Process.Signal(syscall.SIGSTOP)); err != nil {
		return 0, err
	}
	return float64(after-before) * 8 / took.Seconds() / 1e6, nil
}

// unshape removes the shapers, gives the switch's ports a queue without a rate, and turns the offloads of all
// devices on or off.
func unshape(l *lab.Lab, offloads bool) error {
	for _, p := range l.Ports() {
		err := l.Enter(p.Node, func() error {
			root := netlink.QdiscAttrs{LinkIndex: p.Ifindex, Parent: netlink.HANDLE_ROOT, Handle: netlink.MakeHandle(1, 0)}
			if err := netlink.QdiscDel(&netlink.GenericQdisc{QdiscAttrs: root, QdiscType: "tbf"}); err != nil {
				return err
			}
			if err := setOffloads(p.Ifname, offloads); err != nil || !p.OfSwitch {
				return err
			}
			link, err := netlink.LinkByIndex(p.Ifindex)
			if err != nil {
				return err
			}
			// The limit of a bfifo without its own setting.
			if err := netlink.LinkSetTxQLen(link, unshapedBuffer/(link.Attrs().MTU+14)); err != nil {
				return err
			}
			return netlink.QdiscAdd(&netlink.GenericQdisc{QdiscAttrs: root, QdiscType: "bfifo"})
		})
		if err != nil {
			return fmt.Errorf("take the shaper off %s: %w", p.Name, err)
		}
		if p.OfSwitch {
			continue
		}
		// Otherwise each slice would begin with slow start.
		if err := sysctl(l, p.Node, "net/ipv4/tcp_slow_start_after_idle", "0"); err != nil {
			return err
		}
	}
	return nil
}

func setOffloads(ifname string, on bool) error {
	e, err := nic.Open()
	if err != nil {
		return err
	}
	defer e.Close()
	return e.Change(ifname, map[string]bool{
		"tx-generic-segmentation": on, "tx-tcp-segmentation": on, "tx-tcp-ecn-segmentation": on,
		"tx-tcp-mangleid-segmentation": on, "rx-gro": on,
	})
}
