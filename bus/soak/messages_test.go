package soak

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"weir/bus/inband"
	"weir/bus/weirv1"
	"weir/datapath/testnet"
	"weir/law"
)

// BenchmarkMessages measures the grants of a whole controller, which carries the bus, to a whole agent. The time is from a report of a switch
// to an ACK at the VM with the window that answers it. Answers go by the bus, or in frames from the far end of the uplink; reports go by
// the bus both times. A stream of the VM has 50 Mbit/s meanwhile. The bytes are those that come to the agent's host for each answer: all of its
// link to the management network, and the frames.
func BenchmarkMessages(b *testing.B) {
	for _, how := range []string{"bus", "in-band"} {
		b.Run("messages="+how, func(b *testing.B) { benchmarkMessages(b, how) })
	}
}

func benchmarkMessages(b *testing.B, how string) {
	w := newWorld(b, worldOptions{messages: how})
	watch := newWatch(w)
	testnet.Until(b, "the agent has its VM", func() bool { return strings.Contains(w.controls[0].status(), "VMs:1") })
	w.Path(0).NewStreams(b, testnet.PeerIPv4(0), 1)
	r := w.startReporter()
	sees := func(window int, since time.Time) (at time.Time) {
		watch.windows(func(s *testnet.Segment, got int) {
			if got == window && at.IsZero() && s.At.After(since) {
				at = s.At
			}
		})
		return at
	}
	testnet.Until(b, "a report is answered", func() bool { return !sees(r.window(0), r.report(0)).IsZero() })
	controller, agent := w.controls[0].cmd.Process.Pid, w.agent.cmd.Process.Pid
	cpu, bytes, sent, begun := [2]float64{cpuOf(controller), cpuOf(agent)}, w.received(), w.framesSent(), time.Now()
	var took []time.Duration
	look := time.NewTicker(5 * time.Millisecond) // the kernel stamps ACKs, so this rate has no effect on the figures
	defer look.Stop()
	for i := range b.N {
		at := r.report(i + 1)
		for end := at.Add(900 * time.Millisecond); time.Now().Before(end); {
			<-look.C
			if seen := sees(r.window(i+1), at); !seen.IsZero() {
				took = append(took, seen.Sub(at))
				break
			}
		}
	}
	seconds := time.Since(begun).Seconds()
	if len(took) < b.N*9/10 {
		b.Fatalf("of %d grants only %d were seen", b.N, len(took))
	}
	sent = w.framesSent() - sent
	if how == inBand && sent < uint64(b.N) {
		b.Fatalf("%d reports were answered, by %d frames", b.N, sent)
	}
	testnet.ReportTimes(b, took, "to-ACK")
	b.ReportMetric((cpuOf(controller)-cpu[0])*100/seconds, "controller-%")
	b.ReportMetric((cpuOf(agent)-cpu[1])*100/seconds, "agent-%")
	b.ReportMetric(float64(w.received()-bytes+sent*uint64(frameBytes(b)))/float64(b.N), "bytes-an-answer")
	b.ReportMetric(0, "ns/op")
}

const inBand = "in-band"

// received is how many bytes came to the agent's host by the management network.
func (w *world) received() (bytes uint64) {
	w.tb.Helper()
	w.Host.Must(w.tb, func() error {
		l, err := netlink.LinkByName("mgmt0")
		if err == nil {
			bytes = l.Attrs().Statistics.RxBytes
		}
		return err
	})
	return bytes
}

// framesSent is how many commands the controller has sent in frames.
func (w *world) framesSent() uint64 {
	w.tb.Helper()
	s, err := w.controls[0].read()
	if err != nil {
		w.tb.Fatal(err)
	}
	return s.Bus.Frames["sent"]
}

// frameBytes is the length of a frame with one grant.
func frameBytes(tb testing.TB) int {
	tb.Helper()
	grant := law.Grant{Owner: 1, Kind: law.WindowGrant, Key: law.Key{Pair: law.Pair{VM: 1}}, Value: probeBase, Lease: time.Second}
	b, err := weirv1.Encode(&weirv1.Command{
		Bucket: 1, Term: 6, Controller: &weirv1.Controller{Name: "c1", Run: 1 << 60}, Sequence: 1000, Incarnation: 1 << 60, EchoNs: uint64(time.Minute),
		Grants: []*weirv1.Grant{weirv1.NewGrant(grant)},
	})
	if err == nil {
		b, err = inband.NewTagger(inband.Ethernet, inband.Key{}).Append(nil, &inband.Frame{Type: inband.On, Command: b})
	}
	if err != nil {
		tb.Fatal(err)
	}
	return len(b)
}

// reporter is a switch that reports when the benchmark asks.
type reporter struct {
	w   *world
	in  io.Writer
	out *bufio.Reader // a line for each line of in
}

func (w *world) startReporter() *reporter {
	return w.startSwitch("reporter", &publishing{Ports: 48, Every: 5 * time.Millisecond})
}

// startSwitch starts the process of a switch.
func (w *world) startSwitch(role string, p *publishing) *reporter {
	w.tb.Helper()
	n := w.add("agent", "sw1", 22, testnet.NewNamespace(w.tb))
	p.URLs, p.Dir, p.Buckets, p.Switches = strings.Split(w.urls(), ","), n.path(""), 4, 1
	argument, err := json.Marshal(p)
	if err == nil {
		err = os.Rename(n.path("agent"), filepath.Join(n.path(""), "sw1"))
	}
	if err != nil {
		w.tb.Fatal(err)
	}
	n.cmd, n.done = n.command(role, string(argument)), make(chan struct{})
	n.cmd.Stderr = &n.log
	in, err := n.cmd.StdinPipe()
	if err != nil {
		w.tb.Fatal(err)
	}
	out, err := n.cmd.StdoutPipe()
	if err != nil {
		w.tb.Fatal(err)
	}
	n.ns.Must(w.tb, n.cmd.Start)
	go func() { _ = n.cmd.Wait(); close(n.done) }()
	return &reporter{w: w, in: in, out: bufio.NewReader(out)}
}

// window is what the law probe answers to report i. All window scales divide it.
func (r *reporter) window(i int) int { return probeBase + (1+i%8)<<14 }

// report sends report i and returns when that was.
func (r *reporter) report(i int) time.Time { return r.ask("window", r.window(i)) }

// marks reports packets that were marked at port 1, all of VM 1, and returns when that was.
func (r *reporter) marks(n int) time.Time { return r.ask("marks", n) }

// ask has the switch send a report with n in it.
func (r *reporter) ask(what string, n int) time.Time {
	r.w.tb.Helper()
	line := ""
	_, err := fmt.Fprintln(r.in, what, n)
	if err == nil {
		line, err = r.out.ReadString('\n')
	}
	ns, wrong := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
	if err != nil || wrong != nil {
		r.w.tb.Fatalf("the switch reports %q, %v", line, err)
	}
	return time.Unix(0, ns)
}

// runReporter is the process of a reporter: it reads what to report, and prints the times of its reports.
func runReporter(ctx context.Context, config string) error {
	p, a, err := newSwitch(ctx, config)
	if err != nil {
		return err
	}
	go a.lives(ctx)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		what, number, _ := strings.Cut(lines.Text(), " ")
		n, err := strconv.ParseUint(number, 10, 64)
		if err != nil {
			return err
		}
		switch port := a.m.Ports[0]; what {
		case "window":
			a.counted = n - probeBase - 1 // report adds 1
		case "marks":
			port.MarkedPackets += n
			port.Sources = []*weirv1.SourceMarks{{Vm: 1, MarkedPackets: port.MarkedPackets}}
		}
		at := time.Now()
		if _, err := a.report(p); err != nil {
			return err
		}
		fmt.Println(at.UnixNano())
	}
	return nil
}

// newSwitch connects the switch of a process to the bus.
func newSwitch(ctx context.Context, config string) (*publishing, *publisher, error) {
	var p publishing
	if err := json.Unmarshal([]byte(config), &p); err != nil {
		return nil, nil, err
	}
	a, err := newPublisher(&p, agentName(1), func([]law.Grant) {})
	if err == nil {
		err = connected(ctx, []*publisher{a})
	}
	if err == nil {
		err = a.switchOf(&p, 1)
	}
	return &p, a, err
}

// lives sends the switch's state until the bus does not take it.
func (a *publisher) lives(ctx context.Context) {
	every := time.NewTicker(stateEvery)
	defer every.Stop()
	for a.SendEvents(&weirv1.Events{Switch: a.number, State: a.State("soak")}) == nil {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
	}
}
