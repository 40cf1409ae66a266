package soak

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"weir/bus"
	"weir/bus/pki"
	"weir/bus/weirv1"
	"weir/law"
	"weir/law/telemetry"
)

// publishing is the argument of a process that is many switches, and one host with VM 1.
type publishing struct {
	URLs     []string
	Dir      string // of the agents' certificates
	Buckets  int
	Switches int
	Ports    int
	Rate     uint64 // of a port, bit/s; 0: 10 Gbit/s
	Every    time.Duration
	For      time.Duration
	Flood    flooding   // of SYNs at port 1 of the last switch
	Flows    []law.Flow // through port 1, of a switch whose port is congested
}

// flooding is where the SYNs of a flood come from.
type flooding string

const (
	calm     flooding = ""
	ofOneVM  flooding = "VM"     // VM 2: an agent lists 8 pairs, the last with all further SYNs
	ofForged flooding = "forged" // ever new addresses: an agent lists 64 pairs
)

// innocent is a VM that has a flow through the port with the flood.
const innocent = 3

// published has the figures that the process prints.
type published struct {
	Telemetry, Commands, Late uint64
	Missed                    uint64 // intervals that the process left out
	LagUs                     []int64
	Innocent                  uint64  // grants that limit the innocent VM
	CPUSeconds                float64 // of the process, while it published
	Seconds                   float64
	Bytes                     uint64 // of all reports
}

func agentName(i int) string { return fmt.Sprint("sw", i) }

const publishedHost = "host"

// publisher is one of these agents.
type publisher struct {
	*bus.Agent
	number  uint64
	m       *weirv1.Telemetry
	flood   *weirv1.Events
	counted uint64
}

func newPublisher(p *publishing, name string, obey func([]law.Grant)) (*publisher, error) {
	a, err := bus.NewAgent(bus.AgentConfig{
		Client: bus.ClientConfig{URLs: p.URLs, Files: pki.In(filepath.Join(p.Dir, name), name), Log: logger()}, Buckets: p.Buckets,
		Terms: bus.TermFile{Path: filepath.Join(p.Dir, name, "term")}, Clock: func() time.Duration { return time.Since(begun) + time.Second },
		Obey: func(_ *weirv1.Command, g []law.Grant) { obey(g) },
	})
	return &publisher{Agent: a}, err
}

var begun = time.Now()

// switchOf makes a switch whose ports are all busy.
func (a *publisher) switchOf(p *publishing, number int) error {
	a.number = uint64(number)
	a.m = &weirv1.Telemetry{Switch: a.number, IntervalNs: uint64(p.Every)}
	var ports []*weirv1.SwitchPort
	for n := range uint32(p.Ports) {
		a.m.Ports = append(a.m.Ports, &weirv1.PortReport{Port: n + 1})
		ports = append(ports, &weirv1.SwitchPort{Port: n + 1, Name: fmt.Sprint("swp", n+1), Rate: cmp.Or(p.Rate, 10e9), BufferBytes: 1e6})
	}
	parts, err := (&weirv1.Inventory{Serial: 1, Ports: ports}).Split()
	if err != nil {
		return err
	}
	for _, part := range parts {
		err = errors.Join(err, a.SendEvents(&weirv1.Events{Switch: a.number, State: a.State("soak"), Inventory: part}))
	}
	if number == p.Switches && p.Flood != calm {
		a.flood = &weirv1.Events{Switch: a.number, Arrivals: []*weirv1.Arrivals{{Port: 1}}}
		long := &weirv1.NewPair{Source: vmAddress(innocent), Destination: []byte{10, 9, 9, 9}, Kinds: 1, Opened: 1}
		err = errors.Join(err, a.SendEvents(&weirv1.Events{Switch: a.number, Arrivals: []*weirv1.Arrivals{{Port: 1, Syn: 1, Pairs: []*weirv1.NewPair{long}}}}))
		a.flood.Arrivals[0].Syn = 1
	}
	return err
}

// report sends the next telemetry. Port 1 of the first switch has the number of the report as its backlog.
func (a *publisher) report(p *publishing) (bytes int, err error) {
	a.counted++
	for i, r := range a.m.Ports {
		r.BacklogBytes, r.PeakBytes = a.counted%100_000, 90_000+uint64(i)
		r.OfferedPackets += 40
		r.OfferedBytes += 60_000
		r.SentBytes += 59_000
	}
	if a.number == 1 {
		a.m.Ports[0].BacklogBytes = probeBase + a.counted
	}
	if a.flood != nil {
		a.floods(a.flood.Arrivals[0], p)
		if err := a.SendEvents(a.flood); err != nil {
			return 0, err
		}
	}
	return a.size(), a.SendTelemetry(a.m)
}

// floods makes the next report of 200,000 SYNs a second.
func (a *publisher) floods(one *weirv1.Arrivals, p *publishing) {
	n := uint64(200_000 * p.Every / time.Second)
	listed, each := uint64(weirv1.MaxPairs), []byte(nil)
	if p.Flood == ofOneVM {
		listed, each = telemetry.MaxSourcePairs, vmAddress(2)
	}
	one.Syn += n
	one.Pairs = one.Pairs[:0]
	for i := range listed {
		x := a.counted*listed + i
		source, destination := each, []byte{10, byte(x >> 16), byte(x >> 8), byte(x)}
		if source == nil {
			source, destination = destination, []byte{10, 0, 0, 9}
		}
		one.Pairs = append(one.Pairs, &weirv1.NewPair{Source: source, Destination: destination, Kinds: 1, Opened: 1})
	}
	if p.Flood == ofOneVM {
		one.Pairs[listed-1].Opened += uint32(n - listed)
	} else {
		one.Further += n - listed
	}
}

// vmAddress is the address of a VM of the host.
func vmAddress(vm byte) []byte { return []byte{10, 255, 0, vm} }

func (a *publisher) size() int {
	b, err := weirv1.Encode(a.m)
	if err != nil { // the first one has no origin
		return 0
	}
	return len(b)
}

// probeBase marks the windows that the law of this benchmark grants.
const probeBase = 1 << 20

// runPublisher prints published as JSON.
func runPublisher(ctx context.Context, config string) error {
	var p publishing
	if err := json.Unmarshal([]byte(config), &p); err != nil {
		return err
	}
	var mu sync.Mutex
	var out published
	sent := map[uint64]time.Time{}
	host, err := newPublisher(&p, publishedHost, func(grants []law.Grant) {
		now := time.Now()
		mu.Lock()
		defer mu.Unlock()
		for _, g := range grants {
			out.Commands++
			if g.Key.VM == innocent && g.Lease > 0 {
				out.Innocent++
			}
			if at, ok := sent[g.Value]; ok {
				out.LagUs = append(out.LagUs, now.Sub(at).Microseconds())
				delete(sent, g.Value)
			}
		}
	})
	if err != nil {
		return err
	}
	var all []*publisher
	for i := range p.Switches {
		a, err := newPublisher(&p, agentName(i+1), func([]law.Grant) {})
		if err != nil {
			return err
		}
		all = append(all, a)
	}
	if err := connected(ctx, append(slices.Clip(all), host)); err != nil {
		return err
	}
	var guests []*weirv1.Guest
	for vm := range byte(innocent) {
		a, _ := netip.AddrFromSlice(vmAddress(vm + 1))
		guests = append(guests, &weirv1.Guest{Vm: uint32(vm + 1), Addresses: []*weirv1.Range{weirv1.NewRange(netip.PrefixFrom(a, 32))}})
	}
	parts, err := (&weirv1.Inventory{Serial: 1, Guests: guests}).Split()
	if err != nil {
		return err
	}
	if err := host.SendEvents(&weirv1.Events{Host: 1, State: host.State("soak"), Inventory: parts[0]}); err != nil {
		return err
	}
	for i, a := range all {
		if err := a.switchOf(&p, i+1); err != nil {
			return err
		}
	}
	if err := p.publish(ctx, host, all, &mu, sent, &out); err != nil {
		return err
	}
	mu.Lock()
	defer mu.Unlock()
	return json.NewEncoder(os.Stdout).Encode(&out)
}

// connected waits until all agents are.
func connected(ctx context.Context, all []*publisher) error {
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for slices.ContainsFunc(all, func(a *publisher) bool { return !a.Conn().Connected() }) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-look.C:
		}
	}
	return nil
}

// publish sends reports at a fixed rate, from as many goroutines as there are processors. Clocks of switches differ, so their
// reports are spread over the interval.
func (p *publishing) publish(ctx context.Context, host *publisher, all []*publisher, mu *sync.Mutex, sent map[uint64]time.Time, out *published) error {
	begin, cpu := time.Now(), cpuOf(os.Getpid())
	end := begin.Add(p.For)
	const parts = 2
	var group sync.WaitGroup
	var errs [parts]error
	var counts [parts]published
	for g := range parts {
		group.Go(func() {
			c := &counts[g]
			next := begin
			for n := uint64(1); time.Now().Before(end) && ctx.Err() == nil; n++ {
				for i := g; i < len(all); i += parts {
					time.Sleep(time.Until(next.Add(p.Every * time.Duration(i) / time.Duration(len(all)))))
					a := all[i]
					if a.number == 1 {
						mu.Lock()
						sent[probeBase+a.counted+1] = time.Now()
						mu.Unlock()
					}
					bytes, err := a.report(p)
					if err != nil {
						errs[g] = err
						return
					}
					c.Telemetry++
					c.Bytes += uint64(bytes)
					if n%50 == 1 {
						errs[g] = errors.Join(errs[g], a.SendEvents(&weirv1.Events{Switch: a.number, State: a.State("soak")}))
					}
				}
				if g == 0 && n%50 == 1 {
					errs[g] = errors.Join(errs[g], host.SendEvents(&weirv1.Events{Host: 1, State: host.State("soak")}))
				}
				next = next.Add(p.Every)
				if late := time.Since(next); late > 0 {
					left := late / p.Every
					next = next.Add(left * p.Every)
					c.Missed += uint64(left) * uint64((len(all)+parts-1-g)/parts)
				}
			}
		})
	}
	group.Wait()
	mu.Lock()
	defer mu.Unlock()
	for _, c := range counts {
		out.Telemetry, out.Bytes, out.Missed = out.Telemetry+c.Telemetry, out.Bytes+c.Bytes, out.Missed+c.Missed
	}
	out.Seconds, out.CPUSeconds = time.Since(begin).Seconds(), cpuOf(os.Getpid())-cpu
	out.Late = host.Counts()["late"]
	return errors.Join(errs[:]...)
}
