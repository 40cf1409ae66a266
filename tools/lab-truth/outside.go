package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/cmd/weir/laws"
	"weir/experiment"
	"weir/lab"
)

// withLab builds the network of a traffic text, calls f and removes the network.
func withLab(ctx context.Context, name, traffic string, f func(*lab.Lab, *experiment.Run) error, set ...string) (err error) {
	runs, err := plan(traffic, set...)
	if err != nil {
		return err
	}
	l, err := lab.Up(ctx, name, &runs[0].Config, lab.Options{Experiment: "truth", Owned: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Down()) }()
	return f(l, runs[0])
}

// start starts a program in a node: a child inherits the namespace of the thread that forks.
func start(l *lab.Lab, node string, cmd *exec.Cmd) error {
	if err := l.Enter(node, cmd.Start); err != nil {
		return fmt.Errorf("start %s in %s: %w", cmd.Path, node, err)
	}
	return nil
}

// awaitListener waits until a program accepts connections on a port of a node.
func awaitListener(ctx context.Context, l *lab.Lab, node, address string) error {
	for ctx.Err() == nil {
		err := l.Enter(node, func() error {
			c, err := net.DialTimeout("tcp4", address, time.Second)
			if err == nil {
				err = c.Close()
			}
			return err
		})
		if err == nil {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return ctx.Err()
}

// goodputAgainstIperf sends the same 16 flows with our client and with iperf3.
func goodputAgainstIperf(ctx context.Context) ([]row, error) {
	r, err := runOnce(ctx, &lab.World{Laws: laws.Lab()}, longFlows)
	if err != nil {
		return nil, err
	}
	ours, err := metric(r, "loaded.long.throughput_mbps")
	if err != nil {
		return nil, err
	}
	var theirs float64
	err = withLab(ctx, "truth-iperf", longFlows, func(l *lab.Lab, _ *experiment.Run) error {
		theirs, err = iperfSum(ctx, l, 16)
		return err
	})
	if err != nil {
		return nil, err
	}
	return []row{{what: "goodput of 16 flows, compared with iperf3's receivers", ours: ours, reference: theirs, unit: "Mbit/s", limit: 0.02}}, nil
}

// iperfSum runs one iperf3 client in each sender against servers in the receiver, and adds up the bytes that the
// servers received from the 4th to the 14th second. The clients start one after the other and run for 18 s, so
// that all of them send during that time.
func iperfSum(ctx context.Context, l *lab.Lab, senders int) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	address := l.Addr("receiver1", 0).String()
	servers := make([]*exec.Cmd, senders)
	reports := make([]bytes.Buffer, senders)
	for i := range senders {
		servers[i] = exec.CommandContext(ctx, "iperf3", "-s", "-1", "-J", "-p", strconv.Itoa(5201+i))
		servers[i].Stdout = &reports[i]
		if err := start(l, "receiver1", servers[i]); err != nil {
			return 0, err
		}
	}
	time.Sleep(500 * time.Millisecond) // a test connection would use up the one test that -1 allows
	var g errgroup.Group
	for i := range senders {
		cmd := exec.CommandContext(ctx, "iperf3", "-c", address, "-p", strconv.Itoa(5201+i), "-t", "18")
		if err := start(l, fmt.Sprintf("sender%d", i+1), cmd); err != nil {
			return 0, err
		}
		g.Go(cmd.Wait)
	}
	err := g.Wait()
	for _, s := range servers {
		err = errors.Join(err, s.Wait())
	}
	if err != nil {
		return 0, fmt.Errorf("iperf3: %w", err)
	}
	total := 0.0
	for i := range reports {
		mbps, err := iperfMean(reports[i].Bytes(), 4, 14)
		if err != nil {
			return 0, err
		}
		total += mbps
	}
	return total, nil
}

// iperfMean returns the mean rate in Mbit/s over the seconds [from, to) of an iperf3 server's report.
func iperfMean(report []byte, from, to int) (float64, error) {
	var doc struct {
		Intervals []struct {
			Sum struct {
				BitsPerSecond float64 `json:"bits_per_second"`
			} `json:"sum"`
		} `json:"intervals"`
	}
	if err := json.Unmarshal(report, &doc); err != nil {
		return 0, fmt.Errorf("iperf3's report: %w", err)
	}
	if len(doc.Intervals) < to {
		return 0, fmt.Errorf("iperf3's report has %d of %d seconds", len(doc.Intervals), to)
	}
	sum := 0.0
	for _, i := range doc.Intervals[from:to] {
		sum += i.Sum.BitsPerSecond / 1e6
	}
	return sum / float64(to-from), nil
}

// requests is how many pages each of the loopSenders requests, one after another. The pages of eight fit into the
// buffer: runs with losses do not repeat well enough to be compared.
const (
	requests    = 500
	loopSenders = 8
)

const loopTraffic = `  - {name: pages, from: "sender1..8", to: receiver1, data: pull, pattern: closed_loop, size: 11.5KB, start: 0s, requests: 500, concurrency: 1}`

// fctAgainstHTTP requests the same pages from our server with our client, and from nginx with ab.
func fctAgainstHTTP(ctx context.Context) ([]row, error) {
	r, err := runOnce(ctx, &lab.World{Laws: laws.Lab()}, loopTraffic, "duration=60s")
	if err != nil {
		return nil, err
	}
	p50, err := metric(r, "pages.fct_ms.p50")
	if err != nil {
		return nil, err
	}
	mean, err := metric(r, "pages.fct_ms.mean")
	if err != nil {
		return nil, err
	}
	var theirs abResult
	err = withLab(ctx, "truth-http", loopTraffic, func(l *lab.Lab, _ *experiment.Run) error {
		theirs, err = abAgainstNginx(ctx, l, loopSenders)
		return err
	})
	if err != nil {
		return nil, err
	}
	note := "8 closed loops; an HTTP answer is 240 B longer than the page"
	return []row{
		{what: "FCT p50 of 11.5 KB pages, compared with nginx and ab", ours: p50, reference: theirs.p50, unit: "ms", limit: 0.10, note: note},
		{what: "FCT mean of 11.5 KB pages, compared with nginx and ab", ours: mean, reference: theirs.mean, unit: "ms", limit: 0.10, note: note},
	}, nil
}

// abResult is the median over the clients of their reports, in ms.
type abResult struct{ p50, mean float64 }

func abAgainstNginx(ctx context.Context, l *lab.Lab, senders int) (res abResult, err error) {
	ctx, cancel := context.WithTimeout(ctx, 120*time.Second)
	defer cancel()
	dir, err := os.MkdirTemp("", "weir-truth-")
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.Chmod(dir, 0o755); err != nil { // nginx's workers are not root
		return res, err
	}
	if err := os.WriteFile(filepath.Join(dir, "page"), make([]byte, 11500), 0o644); err != nil {
		return res, err
	}
	for i := range senders {
		stop, err := startNginx(ctx, l, fmt.Sprintf("sender%d", i+1), dir)
		if err != nil {
			return res, err
		}
		defer stop()
	}
	outs := make([]string, senders)
	texts := make([]bytes.Buffer, senders)
	var g errgroup.Group
	for i := range senders {
		outs[i] = filepath.Join(dir, fmt.Sprintf("ab%d.csv", i))
		url := fmt.Sprintf("http://%s:80/page", l.Addr(fmt.Sprintf("sender%d", i+1), 0))
		cmd := exec.CommandContext(ctx, "ab", "-q", "-n", strconv.Itoa(requests), "-c", "1", "-e", outs[i], url)
		cmd.Stdout = &texts[i]
		if err := start(l, "receiver1", cmd); err != nil {
			return res, err
		}
		g.Go(cmd.Wait)
	}
	if err := g.Wait(); err != nil {
		return res, fmt.Errorf("ab: %w", err)
	}
	var p50s, means []float64
	for i, name := range outs {
		p50, err := readMedian(name)
		if err != nil {
			return res, err
		}
		mean, err := readMean(texts[i].String())
		if err != nil {
			return res, err
		}
		p50s, means = append(p50s, p50), append(means, mean)
	}
	return abResult{median(p50s), median(means)}, nil
}

// startNginx runs a separate nginx in a node; it writes only below dir.
func startNginx(ctx context.Context, l *lab.Lab, node, dir string) (stop func(), err error) {
	conf := filepath.Join(dir, node+".conf")
	text := fmt.Sprintf(`daemon off; master_process off; pid %[1]s/%[2]s.pid; error_log %[1]s/%[2]s.log;
events { worker_connections 1024; }
http { access_log off; client_body_temp_path %[1]s/%[2]s.body; proxy_temp_path %[1]s/%[2]s.proxy;
fastcgi_temp_path %[1]s/%[2]s.fcgi; uwsgi_temp_path %[1]s/%[2]s.uwsgi; scgi_temp_path %[1]s/%[2]s.scgi;
server { listen 80; root %[1]s; } }
`, dir, node)
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "nginx", "-c", conf, "-e", filepath.Join(dir, node+".log"))
	if err := start(l, node, cmd); err != nil {
		return nil, err
	}
	stop = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	if err := awaitListener(ctx, l, node, l.Addr(node, 0).String()+":80"); err != nil {
		stop()
		return nil, fmt.Errorf("nginx in %s: %w", node, err)
	}
	return stop, nil
}

// readMedian reads ab's table "percentage served, time in ms".
func readMedian(name string) (float64, error) {
	f, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if percent, ms, _ := strings.Cut(s.Text(), ","); percent == "50" {
			return strconv.ParseFloat(ms, 64)
		}
	}
	return 0, fmt.Errorf("%s has no median", name)
}

// readMean reads ab's line "Time per request: 7.842 [ms] (mean)".
func readMean(text string) (float64, error) {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "Time per request:"); ok {
			return strconv.ParseFloat(strings.Fields(rest)[0], 64)
		}
	}
	return 0, errors.New("ab reported no time per request")
}
