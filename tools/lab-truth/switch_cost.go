package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"

	"weir/internal/testlog"
	"weir/lab"
	"weir/lab/traffic"
)

// The core of the papers' testbed is the switch; the servers of rack 4 receive.
const (
	racksLong  = `  - {name: long, from: "rack1..3.server*", to: "rack4.server*", pair: other_index, pattern: bulk, start: 0s, stop: 60s}`
	racksPages = `  - {name: pages, from: "rack1..3.server*", to: "rack4.server*", pair: other_index, data: pull, pattern: closed_loop, size: 11.5KB, requests: 1000, start: 0s}`

	daemonSettle = 1500 * time.Millisecond
	daemonSpan   = 4 * time.Second

	coreBottleneck = coreSwitch + "->tor4"
	metricsAddress = "127.0.0.1:9187"
)

// switchBench is a lab whose core has a `weir switch` on all its ports.
type switchBench struct {
	l     *lab.Lab
	place *place
	d     *daemon
	idle  usage
}

// switchCost measures the process `weir switch`: during traffic, while it answers requests, with a large file, and
// with a full table. It does not include the kernel programs (group `timer`, make bench-datapath).
func switchCost(ctx context.Context) (rows []row, err error) {
	weir, remove, err := buildWeir(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	if rows, err = checkCost(ctx, weir); err != nil {
		return rows, err
	}
	runs, err := planOf(racks+racksLong, "topology.hypervisors=false")
	if err != nil {
		return rows, err
	}
	l, err := lab.Up(ctx, "truth-switch", &runs[0].Config, lab.Options{Experiment: "truth", Owned: true})
	if err != nil {
		return rows, err
	}
	defer func() { err = errors.Join(err, l.Down()) }()
	p, err := newPlace(l, weir)
	if err != nil {
		return rows, err
	}
	defer p.close()
	for _, part := range []func(context.Context, *lab.Lab, *place) ([]row, error){daemonCost, tableCost} {
		got, err := part(ctx, l, p)
		rows = append(rows, got...)
		if err != nil {
			return rows, err
		}
	}
	return rows, nil
}

// coreDevices returns the names of the core switch's devices.
func coreDevices(l *lab.Lab) (names []string) {
	for _, p := range l.Ports() {
		if p.Node == coreSwitch {
			names = append(names, p.Ifname)
		}
	}
	return names
}

// daemonCost measures the daemon idle, during traffic, while it answers requests, and with as many connections as
// its table can hold.
func daemonCost(ctx context.Context, l *lab.Lab, p *place) (rows []row, err error) {
	b := &switchBench{l: l, place: p}
	if b.d, err = startDaemon(ctx, p, coreDevices(l)); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.d.stop()) }()
	if err := pause(ctx, daemonSettle); err != nil {
		return nil, err
	}
	if b.idle, err = b.watch(ctx); err != nil {
		return nil, err
	}
	rows = b.rows("idle", b.idle)
	for _, f := range []func(context.Context) ([]row, error){b.duringLong, b.duringPages, b.fullTable} {
		got, err := f(ctx)
		rows = append(rows, got...)
		if err != nil {
			return rows, err
		}
	}
	return rows, nil
}

// usage is the daemon's use of resources over a time.
type usage struct {
	cpu        float64 // % of one processor
	rss        float64 // bytes, at the end
	maps       float64 // bytes of kernel memory
	mapsN      int
	programs   float64
	machineCPU float64 // share of all processors that was busy
	mbps       float64 // sent by the bottleneck
}

func (b *switchBench) watch(ctx context.Context) (u usage, err error) {
	pid := b.d.pid()
	before, err := processTime(pid)
	if err != nil {
		return u, err
	}
	sent, err := sentBy(b.l, coreBottleneck)
	if err != nil {
		return u, err
	}
	began := time.Now()
	if _, u.machineCPU, err = idleCost(ctx, daemonSpan); err != nil {
		return u, err
	}
	after, err := processTime(pid)
	took := time.Since(began).Seconds()
	u.cpu = 100 * (after - before).Seconds() / took
	if err != nil {
		return u, err
	}
	now, err := sentBy(b.l, coreBottleneck)
	u.mbps = float64(now-sent) * 8 / took / 1e6
	if err != nil {
		return u, err
	}
	if u.rss, err = memoryOf(pid, "VmRSS"); err != nil {
		return u, err
	}
	objects, err := kernelObjects(pid)
	u.maps, u.mapsN = sumOf(objects, "map")
	u.programs, _ = sumOf(objects, "prog")
	return u, err
}

// sentBy returns how many bytes a port sent.
func sentBy(l *lab.Lab, name string) (bytes uint64, err error) {
	for _, p := range l.Ports() {
		if p.Name != name {
			continue
		}
		err = l.Enter(p.Node, func() error {
			link, err := netlink.LinkByIndex(p.Ifindex)
			if err == nil {
				bytes = link.Attrs().Statistics.TxBytes
			}
			return err
		})
		return bytes, err
	}
	return 0, fmt.Errorf("no port %s", name)
}

// rows compares with the idle daemon. The maps are allocated at the start: their row is the last.
func (b *switchBench) rows(when string, u usage) []row {
	what := "weir switch, " + when + ": "
	return []row{
		{what: what + "CPU", ours: u.cpu, reference: b.idle.cpu, unit: "%",
			note: fmt.Sprintf("of one processor; %s sends %.0f Mbit/s; the machine is %.0f %% busy", coreBottleneck, u.mbps, 100*u.machineCPU)},
		{what: what + "RSS", ours: u.rss / 1e6, reference: b.idle.rss / 1e6, unit: "MB"},
		{what: what + "its maps", ours: u.maps / 1e6, reference: b.idle.maps / 1e6, unit: "MB",
			note: fmt.Sprintf("kernel memory of %d maps, its own and its programs'; programs %.2f MB", u.mapsN, u.programs/1e6)},
	}
}

// during runs traffic, and f while it runs.
func (b *switchBench) during(ctx context.Context, items string, f func() error) error {
	runs, err := planOf(racks+items, "topology.hypervisors=false")
	if err != nil {
		return err
	}
	over, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := traffic.Run(over, b.l, &runs[0].Config, runs[0].Seed, traffic.Options{})
		done <- err
	}()
	err = pause(ctx, daemonSettle)
	if err == nil {
		err = f()
	}
	select {
	case e := <-done:
		return errors.Join(err, e, errors.New("the traffic ended before the measurement"))
	default:
	}
	cancel()
	return errors.Join(err, <-done)
}

func (b *switchBench) duringLong(ctx context.Context) (rows []row, err error) {
	err = b.during(ctx, racksLong, func() error {
		u, err := b.watch(ctx)
		rows = b.rows("126 long flows", u)[:2]
		return err
	})
	return rows, err
}

func (b *switchBench) duringPages(ctx context.Context) (rows []row, err error) {
	err = b.during(ctx, racksPages, func() error {
		u, err := b.watch(ctx)
		if err != nil {
			return err
		}
		rows = b.rows("pages of 11.5 KB", u)[:2]
		scraped, n, err := b.scraped(ctx)
		if err != nil {
			return err
		}
		rows = append(rows, b.rows("pages, /metrics each second", scraped)[0])
		rows[len(rows)-1].note += fmt.Sprintf("; %d answers", n)
		polled, watcher, err := b.polled(ctx)
		if err != nil {
			return err
		}
		rows = append(rows, b.rows("pages, status --watch", polled)[0])
		rows[len(rows)-1].note += fmt.Sprintf("; weir status itself %.1f %% of one", watcher)
		return nil
	})
	return rows, err
}

// scraped measures while /metrics is read once a second.
func (b *switchBench) scraped(ctx context.Context) (u usage, n int, err error) {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (c net.Conn, err error) {
			err = b.l.Enter(coreSwitch, func() error {
				c, err = (&net.Dialer{}).DialContext(ctx, network, address)
				return err
			})
			return c, err
		},
	}}
	defer client.CloseIdleConnections()
	over, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		for {
			if err := scrape(over, client); err != nil {
				done <- err
				return
			}
			n++
			if pause(over, time.Second) != nil {
				done <- nil
				return
			}
		}
	}()
	u, err = b.watch(ctx)
	cancel()
	if e := <-done; !errors.Is(e, context.Canceled) {
		err = errors.Join(err, e)
	}
	return u, n, err
}

func scrape(ctx context.Context, client *http.Client) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+metricsAddress+"/metrics", nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("/metrics: %s", answer.Status)
	}
	_, err = io.Copy(io.Discard, answer.Body)
	return err
}

// polled measures while `weir status --watch` runs, and returns the cost of that process, too.
func (b *switchBench) polled(ctx context.Context) (u usage, watcher float64, err error) {
	var said testlog.Log
	cmd, err := b.place.command(&said, "status", "--watch")
	if err != nil {
		return u, 0, err
	}
	defer func() {
		_ = cmd.Process.Signal(syscall.SIGKILL)
		_ = cmd.Wait() // its error is that it was killed
	}()
	began := time.Now()
	u, err = b.watch(ctx)
	if err != nil {
		return u, 0, err
	}
	took, err := processTime(cmd.Process.Pid)
	if err == nil && said.String() == "" {
		err = errors.New("weir status --watch printed nothing")
	}
	return u, 100 * took.Seconds() / time.Since(began).Seconds(), err
}
