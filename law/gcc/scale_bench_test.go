package gcc

import (
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"

	"weir/law"
	"weir/law/telemetry"
)

// The network of BenchmarkScale: 100 hosts behind 25 switches of 48 ports, where every VM has marks at 4 ports in every interval.
const (
	scaleHosts    = 100
	scaleSwitches = 25
	scalePorts    = 48
	scalePaths    = 4
)

// scaleReports is one report of each switch.
func scaleReports(vms int, t time.Duration) []*telemetry.Telemetry {
	out := make([]*telemetry.Telemetry, scaleSwitches)
	for i := range out {
		out[i] = &telemetry.Telemetry{At: law.Switch(i + 1), T: t, Ports: make([]telemetry.Port, scalePorts)}
		for n := range out[i].Ports {
			out[i].Ports[n].N = uint32(n + 1)
		}
	}
	for vm := range vms * scalePaths {
		p := &out[vm%scaleSwitches].Ports[vm/scaleSwitches%scalePorts]
		p.Marks.ByVM = append(p.Marks.ByVM, telemetry.VMMarks{VM: law.VM(vm/scalePaths + 1), Packets: 3})
		p.Marks.Packets += 3
	}
	return out
}

// used is the processor time of this process: other processes do not make it longer.
func used() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // it cannot fail
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// lookup returns how long a lookup in a map of so many VMs takes: the unit to compare machines by.
func lookup(vms int) float64 {
	m := map[law.VM]uint64{}
	for vm := range vms {
		m[law.VM(vm)] = uint64(vm)
	}
	const rounds = 1 << 20
	begun, sum := used(), uint64(0)
	for i := range rounds {
		sum += m[law.VM(i*7919%vms)]
	}
	took := used() - begun
	runtime.KeepAlive(sum)
	return float64(took.Nanoseconds()) / rounds
}

// The benchmark measures processor time, memory and messages of the half at a controller, by VMs of 100 hosts and by interval. Every VM is
// marked all the time, which is the worst case. The bus's part, for each report and command, is in BenchmarkScale of bus/soak.
func BenchmarkScale(b *testing.B) {
	for _, perHost := range []int{10, 40} {
		for _, t := range []time.Duration{time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond} {
			b.Run(fmt.Sprintf("vms=%d/T=%v", perHost*scaleHosts, t), func(b *testing.B) {
				vms := perHost * scaleHosts
				p := Default()
				p.Interval = law.Duration(t)
				reports := scaleReports(vms, t)
				var before, after runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&before)
				l, err := New(*p)
				if err != nil {
					b.Fatal(err)
				}
				var out []law.Action
				now, grants, commands := time.Duration(0), 0, 0
				round := func(count bool) {
					now += t
					for _, r := range reports {
						out = l.Step(now, r, out[:0])
						if !count {
							continue
						}
						hosts := map[int]bool{}
						for _, a := range out {
							hosts[int(a.(law.Grant).Key.VM-1)/perHost] = true
						}
						grants, commands = grants+len(out), commands+len(hosts)
					}
				}
				round(true)
				runtime.GC()
				runtime.ReadMemStats(&after)
				if grants != vms*scalePaths {
					b.Fatalf("%d grants, want %d", grants, vms*scalePaths)
				}
				begun := used()
				for b.Loop() {
					round(false)
				}
				each := float64((used() - begun).Nanoseconds()) / float64(b.N)
				b.ReportMetric(100*each/float64(t.Nanoseconds()), "cpu-%")
				b.ReportMetric(float64(grants)/t.Seconds(), "grants/s")
				b.ReportMetric(float64(commands)/t.Seconds(), "commands/s")
				b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/1024, "KB")
				b.ReportMetric(each/float64(grants)/lookup(vms), "x-lookup")
				runtime.KeepAlive(l)
			})
		}
	}
}
