package soak

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"weir/bus/weirv1"
	"weir/law"
)

// marking is the argument of a process that is switches whose ports mark packets, and the hosts of the VMs that sent them.
type marking struct {
	publishing
	Hosts, VMs int // VMs of each host
	Controller int // its process
}

func hostName(i int) string { return fmt.Sprint("host", i) }

// marked has the figures that the process prints.
type marked struct {
	published
	Messages   uint64  // with marks, to VMs
	Controller float64 // its processor time, in seconds
}

// runMarks prints marked as JSON. Each VM has marks at one port of one switch, all the time.
func runMarks(ctx context.Context, config string) error {
	var m marking
	if err := json.Unmarshal([]byte(config), &m); err != nil {
		return err
	}
	var messages, commands atomic.Uint64
	var hosts, switches []*publisher
	for i := range m.Hosts {
		a, err := newPublisher(&m.publishing, hostName(i+1), func(grants []law.Grant) {
			messages.Add(uint64(len(grants)))
			commands.Add(1)
		})
		if err != nil {
			return err
		}
		hosts = append(hosts, a)
	}
	for i := range m.Switches {
		a, err := newPublisher(&m.publishing, agentName(i+1), func([]law.Grant) {})
		if err != nil {
			return err
		}
		switches = append(switches, a)
	}
	if err := connected(ctx, append(slices.Clip(hosts), switches...)); err != nil {
		return err
	}
	for i, a := range hosts {
		if err := m.hostOf(a, i+1); err != nil {
			return err
		}
	}
	for i, a := range switches {
		if err := a.switchOf(&m.publishing, i+1); err != nil {
			return err
		}
		m.sources(a)
	}
	states := func() (err error) {
		for i, h := range hosts {
			err = errors.Join(err, h.SendEvents(&weirv1.Events{Host: uint32(i + 1), State: h.State("soak")}))
		}
		for _, s := range switches {
			err = errors.Join(err, s.SendEvents(&weirv1.Events{Switch: s.number, State: s.State("soak")}))
		}
		return err
	}
	for commands.Load() < uint64(m.Hosts) && ctx.Err() == nil { // the controller gets to know the agents
		if _, err := m.mark(ctx, switches, states, warmUp); err != nil {
			return err
		}
	}
	cpu, before, beforeCommands := cpuOf(m.Controller), messages.Load(), commands.Load()
	out, err := m.mark(ctx, switches, states, m.For)
	if err != nil {
		return err
	}
	out.Messages, out.Commands, out.Controller = messages.Load()-before, commands.Load()-beforeCommands, cpuOf(m.Controller)-cpu
	return json.NewEncoder(os.Stdout).Encode(out)
}

// hostOf has a host report its VMs.
func (m *marking) hostOf(a *publisher, number int) error {
	var guests []*weirv1.Guest
	for i := range m.VMs {
		vm := (number-1)*m.VMs + i + 1
		address := netip.AddrFrom4([4]byte{10, byte(vm >> 16), byte(vm >> 8), byte(vm)})
		guests = append(guests, &weirv1.Guest{Vm: uint32(vm), Addresses: []*weirv1.Range{weirv1.NewRange(netip.PrefixFrom(address, 32))}})
	}
	parts, err := (&weirv1.Inventory{Serial: 1, Guests: guests}).Split()
	for _, part := range parts {
		err = errors.Join(err, a.SendEvents(&weirv1.Events{Host: uint32(number), State: a.State("soak"), Inventory: part}))
	}
	return err
}

// sources gives a switch's ports their VMs: those whose number, divided by the number of switches, has the switch as its rest.
func (m *marking) sources(a *publisher) {
	n := 0
	for vm := int(a.number); vm <= m.Hosts*m.VMs; vm += m.Switches {
		r := a.m.Ports[n%len(a.m.Ports)]
		r.Sources = append(r.Sources, &weirv1.SourceMarks{Vm: uint32(vm)})
		n++
	}
}

// warmUp is how long switches report before the figures count.
const warmUp = time.Second

// mark has all switches report each Every.
func (m *marking) mark(ctx context.Context, switches []*publisher, states func() error, d time.Duration) (*marked, error) {
	out := &marked{}
	begin, cpu := time.Now(), cpuOf(os.Getpid())
	next, stated := begin, begin
	for end := begin.Add(d); time.Now().Before(end) && ctx.Err() == nil; {
		time.Sleep(time.Until(next))
		for _, a := range switches {
			for _, r := range a.m.Ports {
				for _, s := range r.Sources {
					s.MarkedPackets += 3
					r.MarkedPackets += 3
				}
			}
			bytes, err := a.report(&m.publishing)
			if err != nil {
				return nil, err
			}
			out.Telemetry++
			out.Bytes += uint64(bytes)
		}
		if time.Since(stated) >= stateEvery {
			stated = stated.Add(stateEvery)
			if err := states(); err != nil {
				return nil, err
			}
		}
		next = next.Add(m.Every)
		if late := time.Since(next); late > 0 {
			left := late / m.Every
			next = next.Add(left * m.Every)
			out.Missed += uint64(left) * uint64(len(switches))
		}
	}
	out.Seconds, out.CPUSeconds = time.Since(begin).Seconds(), cpuOf(os.Getpid())-cpu
	return out, nil
}

// stateEvery is how often an agent sends its state.
const stateEvery = 250 * time.Millisecond

const (
	gccHosts    = 100
	gccSwitches = 25
)

// BenchmarkGCC has 25 switches report marks of all VMs of 100 hosts each T, over the bus, to a controller with SDN-GCC. Each report is
// answered with a message to every host whose VMs it names.
func BenchmarkGCC(b *testing.B) {
	for _, vms := range []int{10, 40} {
		for _, every := range []time.Duration{5 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond} {
			b.Run(fmt.Sprintf("vms=%d/T=%v", gccHosts*vms, every), func(b *testing.B) {
				for range b.N {
					k := newFabric(b, 1, fmt.Sprintf("gcc: {interval: %v}", every))
					for i := range gccSwitches {
						k.enrol("agent/" + agentName(i+1))
					}
					for i := range gccHosts {
						k.enrol("agent/" + hostName(i+1))
					}
					k.marks(marking{Hosts: gccHosts, VMs: vms, publishing: publishing{Switches: gccSwitches, Ports: 48, Every: every, For: stepTime}})
				}
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// marks has switches report marks, and reports what the controller needed.
func (k *fabricKit) marks(m marking) {
	k.b.Helper()
	pid := k.controls[0].Process.Pid
	m.URLs, m.Dir, m.Buckets, m.Controller = k.urls, k.dir, 4, pid
	argument, err := json.Marshal(m)
	if err != nil {
		k.b.Fatal(err)
	}
	dropped := func() (n uint64) {
		for reason, count := range k.status(0).Bus.Dropped {
			if reason != "replaced" {
				n += count
			}
		}
		return n
	}
	lost := dropped()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVariable+"=marks", argumentVariable+"="+string(argument))
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		k.b.Fatalf("marks: %v\n%s", err, exit.Stderr[max(0, len(exit.Stderr)-2000):])
	}
	var f marked
	if err == nil {
		err = json.Unmarshal(out, &f)
	}
	if err != nil {
		k.b.Fatal(err)
	}
	k.b.ReportMetric(100*f.Controller/f.Seconds, "controller-%")
	k.b.ReportMetric(float64(f.Telemetry)/f.Seconds, "reports/s")
	k.b.ReportMetric(float64(f.Commands)/f.Seconds, "commands/s")
	k.b.ReportMetric(float64(f.Messages)/float64(max(f.Telemetry, 1)*uint64(m.Hosts*m.VMs/m.Switches)), "answered")
	k.b.ReportMetric(float64(f.Missed)/float64(max(f.Telemetry+f.Missed, 1)), "not-sent")
	k.b.ReportMetric(f.Controller*1e6/float64(max(f.Commands, 1)), "us/command")
	k.b.ReportMetric(memoryOf(pid), "MB")
	if n := dropped() - lost; n > 0 {
		k.b.Logf("%d messages were dropped before the law", n)
	}
}
