package switchd

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weir/datapath/attach"
	"weir/datapath/testnet"
	"weir/law"
)

var scrapePorts = flag.Int("scrape-ports", 0, "time a scrape with so many ports, too: 1024 take three minutes to be attached")

// BenchmarkScrape measures the CPU time of one scrape of /metrics with FairQ on so many ports: reading the kernel and
// writing the text. The baseline is listing the queue disciplines of all devices once. A scraper gets a new reading at
// most once a second, and scrapes use at most a twentieth of a CPU.
func BenchmarkScrape(b *testing.B) {
	for _, ports := range []int{10, 100, *scrapePorts} {
		if ports == 0 {
			continue
		}
		b.Run(fmt.Sprintf("%d_ports", ports), func(b *testing.B) {
			n := testnet.NewNamespace(b)
			n.Must(b, func() error { return benchSwitch(ports) })
			x := newExporter(&testKeys()[0], "bench", "v1", &events{}, slog.New(slog.DiscardHandler))
			var read, list time.Duration
			var text countingWriter
			n.Must(b, func() error {
				for b.Loop() {
					begun := threadTime()
					text = 0
					if err := benchScrape(x, &text); err != nil {
						return err
					}
					read += threadTime() - begun
				}
				for range b.N {
					begun := threadTime()
					if _, err := listQdiscs(); err != nil {
						return err
					}
					list += threadTime() - begun
				}
				return nil
			})
			if _, health := x.health(); strings.HasPrefix(health, string(Off)) {
				b.Fatalf("what was read is %q", health)
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(read.Microseconds())/float64(b.N)/1000, "cpu-ms/scrape")
			b.ReportMetric(float64(read.Microseconds())/float64(b.N*ports), "cpu-us/port")
			b.ReportMetric(float64(text)/1000, "KB")
			b.ReportMetric(float64(read)/float64(list), "qdisc-lists")
		})
	}
}

// threadTime returns the CPU time of the calling thread, which depends little on the machine's load.
func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic(err)
	}
	return time.Duration(t.Nano())
}

// BenchmarkScrapeWritten measures the part of a scrape after the kernel is read, with the most ports a switch may have.
// The baseline is copying the text line by line.
func BenchmarkScrapeWritten(b *testing.B) {
	const ports = 1024
	r := sampleReading()
	one := r.kernel.Ports[0]
	r.kernel.Ports = nil
	for i := range ports {
		one.Port, one.ID = fmt.Sprintf("swp%d", i), uint32(i)
		r.kernel.Ports = append(r.kernel.Ports, one)
	}
	x := newExporter(&testKeys()[0], "bench", "v1", &events{}, slog.New(slog.DiscardHandler))
	x.read = (&momentReader{of: func(string) (*snapshot, error) { return r, nil }}).read
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var wrote time.Duration
	var text bytes.Buffer
	for b.Loop() {
		text.Reset()
		begun := threadTime()
		if err := benchScrape(x, &text); err != nil {
			b.Fatal(err)
		}
		wrote += threadTime() - begun
	}
	begun := threadTime()
	copied := 0
	for line := range strings.Lines(text.String()) {
		copied += len(strings.Clone(line))
	}
	copies := threadTime() - begun
	if copied != text.Len() {
		b.Fatal("a copy is shorter")
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(wrote.Microseconds())/float64(b.N)/1000, "cpu-ms/scrape")
	b.ReportMetric(float64(wrote.Microseconds())/float64(b.N*ports), "cpu-us/port")
	b.ReportMetric(float64(text.Len())/1000, "KB")
	b.ReportMetric(float64(wrote)/float64(b.N)/float64(copies), "text-copies")
}

type countingWriter int

func (w *countingWriter) Write(p []byte) (int, error) {
	*w += countingWriter(len(p))
	return len(p), nil
}

// benchScrape does the work of a scrape on the calling thread.
func benchScrape(x *exporter, to io.Writer) error {
	r := prometheus.NewRegistry()
	sent := make(chan prometheus.Metric, 1000) // the size that a registry uses
	done := make(chan []prometheus.Metric)
	go func() {
		var all []prometheus.Metric
		for m := range sent {
			all = append(all, m)
		}
		done <- all
	}()
	x.Collect(sent)
	close(sent)
	if err := r.Register(replay{x, <-done}); err != nil {
		return err
	}
	families, err := r.Gather()
	if err != nil {
		return err
	}
	e := expfmt.NewEncoder(to, expfmt.NewFormat(expfmt.TypeTextPlain))
	for _, f := range families {
		if err := e.Encode(f); err != nil {
			return err
		}
	}
	return nil
}

// replay repeats metrics collected on another thread: a registry collects on threads of its own, which are not in the
// namespace.
type replay struct {
	*exporter
	metrics []prometheus.Metric
}

func (r replay) Collect(to chan<- prometheus.Metric) {
	for _, m := range r.metrics {
		to <- m
	}
}

// benchSwitch attaches FairQ to so many ports of the calling thread's namespace, pinned in a BPF file system
// that only this thread sees.
func benchSwitch(ports int) error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("bpf", "/sys/fs/bpf", "bpf", 0, ""); err != nil {
		return err
	}
	var list []LawPort
	for i := range ports / 2 {
		a, z := fmt.Sprintf("p%da", i), fmt.Sprintf("p%dz", i)
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: a}, PeerName: z}); err != nil {
			return err
		}
		for _, name := range []string{a, z} {
			p, err := benchPort(name)
			if err != nil {
				return err
			}
			list = append(list, p)
		}
	}
	if err := os.MkdirAll(pinRoot, 0o700); err != nil {
		return err
	}
	o, err := TestLaw.Own(&Common{Pin: testKeys()[0].pin("bench"), Version: "bench", Keys: TestLaw.Facts().All})
	if err != nil {
		return err
	}
	return errors.Join(o.Attach(list...), o.Heartbeat())
}

func benchPort(name string) (p LawPort, err error) {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return p, err
	}
	if err := netlink.LinkSetUp(l); err != nil {
		return p, err
	}
	index := l.Attrs().Index
	tbf := &netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Parent: netlink.HANDLE_ROOT, Handle: netlink.MakeHandle(1, 0)},
		Rate:       1e9 / 8, Limit: 1_000_000, Buffer: 10_000,
	}
	if err := netlink.QdiscReplace(tbf); err != nil {
		return p, err
	}
	settings := defaultPort(testKeys())
	own := shaper{Kind: "tbf", Rate: law.Rate(1e9), Buffer: 1_000_000}
	p.PortRef = attach.PortRef{Name: name, Ifindex: index}
	p.Params, err = lawAt(&settings, name, own)
	return p, err
}
