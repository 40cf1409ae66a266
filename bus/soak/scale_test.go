package soak

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"context"

	"google.golang.org/protobuf/proto"

	"weir/bus"
	"weir/bus/pki"
	"weir/bus/weirv1"
	"weir/controller"
	"weir/datapath/testnet"
	"weir/internal/testlog"
	"weir/law"
	"weir/law/sicc"
	"weir/law/telemetry"
)

// probe is SICC, and grants VM 1 a window of as many bytes as port 1 of switch 1 reports: so the time from a report to its grant
// can be measured.
type probe struct{ law.Law }

func probeSpec() law.Spec {
	return law.Spec{
		Name: "probe", Sites: []law.Site{law.Controller}, Params: func() any { return sicc.Default() },
		New: func(_ law.Site, params any, _ *law.Topology) (law.Law, error) {
			l, err := sicc.New(*params.(*sicc.Params))
			return probe{l}, err
		},
	}
}

func (l probe) Step(now time.Duration, e law.Event, out []law.Action) []law.Action {
	if t, is := e.(*telemetry.Telemetry); is && t.At == 1 && len(t.Ports) > 0 && t.Ports[0].BacklogBytes > probeBase {
		out = append(out, law.Grant{Kind: law.WindowGrant, Key: law.Key{Pair: law.Pair{VM: 1}}, Value: t.Ports[0].BacklogBytes, Lease: time.Second})
	}
	return l.Law.Step(now, e, out)
}

// cpuOf returns the processor time of a process, in seconds.
func cpuOf(pid int) float64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+2:]))
	user, _ := strconv.ParseFloat(f[11], 64)
	system, _ := strconv.ParseFloat(f[12], 64)
	return (user + system) / 100 // ticks of Linux's user space
}

// memoryOf returns the resident memory of a process, in MB.
func memoryOf(pid int) float64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	pages, _ := strconv.ParseFloat(strings.Fields(string(b))[1], 64)
	return pages * float64(os.Getpagesize()) / 1e6
}

// fabric is controllers and a bus on loopback.
type fabricKit struct {
	b        *testing.B
	dir      string
	ca       *pki.CA
	urls     []string
	controls []*exec.Cmd
	names    []string
	server   *exec.Cmd // nil: the bus is in the controller
}

func (k *fabricKit) enrol(id string, addresses ...string) string {
	k.b.Helper()
	who, err := pki.ParseIdentity(id)
	if err != nil {
		k.b.Fatal(err)
	}
	out := filepath.Join(k.dir, who.Name)
	if who.Role == pki.Bus {
		out += "-bus"
	}
	if _, err := k.ca.Enrol(who, out, addresses, 0); err != nil {
		k.b.Fatal(err)
	}
	return out
}

func (k *fabricKit) run(role, argument string) *exec.Cmd {
	k.b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVariable+"="+role, argumentVariable+"="+argument)
	log := &testlog.Log{}
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		k.b.Fatal(err)
	}
	k.b.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if said := log.String(); k.b.Failed() {
			k.b.Logf("%s:\n%s", role, said[max(0, len(said)-3000):])
		}
	})
	return cmd
}

// newFabric starts controllers: one with the bus in its process, or several with a server of their own. laws are those of
// the controllers' files.
func newFabric(b *testing.B, controllers int, laws string) *fabricKit {
	b.Helper()
	k := &fabricKit{b: b, dir: b.TempDir()}
	k.ca = &pki.CA{Dir: filepath.Join(k.dir, "ca")}
	if err := k.ca.Create(); err != nil {
		b.Fatal(err)
	}
	address := testnet.FreeAddress(b)
	k.urls = []string{"tls://" + address}
	own := k.enrol("bus/b1", "127.0.0.1")
	if controllers > 1 {
		cfg, err := json.Marshal(bus.ServerConfig{Listen: address, Store: filepath.Join(k.dir, "store"), Files: pki.In(own, "b1")})
		if err != nil {
			b.Fatal(err)
		}
		k.server = k.run("bus", string(cfg))
	}
	for i := range controllers {
		name := fmt.Sprint("c", i+1)
		link := fmt.Sprintf("listen: %q, server_keys: %s", address, own)
		if controllers > 1 {
			link = fmt.Sprintf("urls: [%q]", k.urls[0])
		}
		k.names = append(k.names, fmt.Sprintf("scale%d-%s", os.Getpid(), name))
		file := filepath.Join(k.dir, name+".yaml")
		text := fmt.Sprintf("kind: Controller\nname: %s\nlisten: 127.0.0.1:0\nmetrics: {listen: \"\"}\ngeneration: %s/%s.generation\nbus: {%s, keys: %s, buckets: 4}\nlaws: {%s}\n",
			k.names[i], k.dir, name, link, k.enrol("controller/"+name), laws)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			b.Fatal(err)
		}
		k.controls = append(k.controls, k.run("controller", file))
		testnet.Until(b, "the controller answers", func() bool { s := k.status(i); return s != nil && s.Bus != nil && s.Bus.Connected })
	}
	return k
}

func (k *fabricKit) status(i int) *controller.Status {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	s, err := controller.ReadStatus(ctx, k.names[i], controller.Here)
	if err != nil {
		return nil
	}
	return s
}

// figures of a step.
type figures struct {
	published
	cpu, memory, serverCPU float64 // of the controllers together
	replaced, dropped      uint64  // reports that no law of the first controller saw
}

func (f *figures) at(part float64) time.Duration {
	if len(f.LagUs) == 0 {
		return 0
	}
	return time.Duration(f.LagUs[min(int(part*float64(len(f.LagUs))), len(f.LagUs)-1)]) * time.Microsecond
}

// breaks returns what the controllers could not do; "": they followed. few is the first step, which has few
// switches: it shows how even the machine runs. A newer report replaces one that waits for the laws, so a controller that is behind loses no time, but
// readings.
func (f *figures) breaks(few *figures) string {
	share := func(f *figures, n uint64) float64 { return float64(n) / float64(f.Telemetry+f.Missed) }
	switch {
	case share(f, f.Missed) > share(few, few.Missed)+0.05:
		return "the publishers do not follow"
	case f.dropped > few.dropped:
		return "messages are lost before they reach the laws"
	case share(f, f.replaced) > share(few, few.replaced)+0.1:
		return "a tenth of the reports is replaced by newer ones before a law sees them"
	case f.at(0.99) > 5*few.at(0.99) || len(f.LagUs) == 0:
		return "grants are late"
	}
	return ""
}

// publish has switches report for some time.
func (k *fabricKit) publish(p publishing) (f figures) {
	k.b.Helper()
	p.URLs, p.Dir, p.Buckets, p.Ports, p.Every = k.urls, k.dir, 4, 48, 5*time.Millisecond
	argument, err := json.Marshal(p)
	if err != nil {
		k.b.Fatal(err)
	}
	lost := func() (replaced, dropped uint64) {
		for reason, n := range k.status(0).Bus.Dropped {
			if reason == "replaced" {
				replaced += n
			} else {
				dropped += n
			}
		}
		return replaced, dropped
	}
	replaced, dropped := lost()
	var before []float64
	for _, c := range k.controls {
		before = append(before, cpuOf(c.Process.Pid))
	}
	server := 0.0
	if k.server != nil {
		server = cpuOf(k.server.Process.Pid)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVariable+"=publisher", argumentVariable+"="+string(argument))
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		k.b.Fatalf("publisher: %v\n%s", err, exit.Stderr[max(0, len(exit.Stderr)-2000):])
	}
	if err == nil {
		err = json.Unmarshal(out, &f.published)
	}
	if err != nil {
		k.b.Fatal(err)
	}
	slices.Sort(f.LagUs)
	for i, c := range k.controls {
		f.cpu += cpuOf(c.Process.Pid) - before[i]
		f.memory += memoryOf(c.Process.Pid)
	}
	if k.server != nil {
		f.serverCPU = cpuOf(k.server.Process.Pid) - server
	}
	r, d := lost()
	f.replaced, f.dropped = r-replaced, d-dropped
	return f
}

func (f *figures) String() string {
	return fmt.Sprintf("%.0f reports/s, %.1f MB/s, controllers %.2f CPU %.0f MB, server %.2f CPU, publishers %.2f CPU; lag p50 %v p99 %v; replaced %.2f %%, dropped %d, not sent in time %.1f %%",
		float64(f.Telemetry)/f.Seconds, float64(f.Bytes)/f.Seconds/1e6, f.cpu/f.Seconds, f.memory, f.serverCPU/f.Seconds, f.CPUSeconds/f.Seconds,
		f.at(0.5), f.at(0.99), float64(f.replaced)*100/float64(max(f.Telemetry, 1)), f.dropped, float64(f.Missed)*100/float64(f.Telemetry+f.Missed))
}

// decoded is how many reports one processor decodes in a second with the generated decoder: the baseline.
func decoded(b *testing.B) float64 {
	b.Helper()
	a := &publisher{number: 2, m: &weirv1.Telemetry{Switch: 2, IntervalNs: 5e6, Origin: &weirv1.Origin{Incarnation: 1, Sequence: 1, StampNs: 1e9}}}
	for n := range uint32(48) {
		a.m.Ports = append(a.m.Ports, &weirv1.PortReport{Port: n + 1, BacklogBytes: 5e4, PeakBytes: 9e4, OfferedBytes: 1e9, OfferedPackets: 1e6, SentBytes: 1e9})
	}
	text, err := weirv1.Encode(a.m)
	if err != nil {
		b.Fatal(err)
	}
	n, cpu := 0, cpuOf(os.Getpid())
	for end := time.Now().Add(time.Second); time.Now().Before(end); n++ {
		if err := proto.Unmarshal(text, &weirv1.Telemetry{}); err != nil {
			b.Fatal(err)
		}
	}
	return float64(n) / (cpuOf(os.Getpid()) - cpu)
}

// BenchmarkScale finds how many switches of 48 busy ports, which report each 5 ms, the controllers follow. The publishers' processor
// time is counted apart, but they share the machine.
func BenchmarkScale(b *testing.B) {
	for _, controllers := range []int{1, 2} {
		b.Run(fmt.Sprint("controllers=", controllers), func(b *testing.B) {
			for range b.N {
				base := decoded(b)
				k := newFabric(b, controllers, "probe: {interval: 5ms}")
				for i := range maxSwitches {
					k.enrol("agent/" + agentName(i+1))
				}
				k.enrol("agent/" + publishedHost)
				few := k.publish(publishing{Switches: 5, For: stepTime})
				b.Logf("%d switches: %s", 5, &few)
				best, bestAt := few, 5
				for n := 10; n <= maxSwitches; n = n * 3 / 2 {
					f := k.publish(publishing{Switches: n, For: stepTime})
					b.Logf("%d switches: %s", n, &f)
					if why := f.breaks(&few); why != "" {
						b.Logf("%d switches are too many: %s", n, why)
						break
					}
					best, bestAt = f, n
				}
				b.ReportMetric(float64(bestAt), "switches")
				b.ReportMetric(float64(best.Telemetry)/best.cpu, "reports/CPU-s")
				b.ReportMetric(base*best.cpu/float64(best.Telemetry), "x-decoding")
				b.ReportMetric(float64(best.Bytes)/best.Seconds/1e6, "MB/s")
				b.ReportMetric(float64(best.at(0.99).Microseconds()), "lag-p99-us")
				b.ReportMetric(best.memory, "MB")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

const (
	maxSwitches = 400
	stepTime    = 4 * time.Second
)

// BenchmarkSYNFlood has one switch report 200,000 SYNs a second: of one VM, and of ever new addresses, which a host without a check
// of sources lets pass. It compares the controller's time and the lag of another switch with a run before, without the flood. It
// counts the grants that limit a VM with one flow through the same port, as the paper counts arrivals and with source_share.
func BenchmarkSYNFlood(b *testing.B) {
	for _, from := range []flooding{ofOneVM, ofForged} {
		for _, row := range []struct{ name, params string }{{"paper", ", source_share: 0"}, {"shares", ""}} {
			b.Run(fmt.Sprintf("of=%s/count=%s", from, row.name), func(b *testing.B) {
				for range b.N {
					k := newFabric(b, 1, "probe: {interval: 5ms"+row.params+"}")
					for i := range 10 {
						k.enrol("agent/" + agentName(i+1))
					}
					k.enrol("agent/" + publishedHost)
					calm := k.publish(publishing{Switches: 10, For: 5 * time.Second})
					flood := k.publish(publishing{Switches: 10, For: 5 * time.Second, Flood: from})
					b.Logf("without: %s", &calm)
					b.Logf("flood:   %s", &flood)
					b.ReportMetric(float64(flood.Innocent), "grants-against-others")
					b.ReportMetric(flood.cpu/flood.Seconds-calm.cpu/calm.Seconds, "CPU-more")
					b.ReportMetric(float64(flood.at(0.5))/float64(max(calm.at(0.5), 1)), "p50-ratio")
					b.ReportMetric(float64(flood.at(0.99))/float64(max(calm.at(0.99), 1)), "p99-ratio")
				}
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
