package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"time"

	"weir/datapath/attach"
	"weir/datapath/fairq"
	"weir/internal/testlog"
	"weir/lab"
)

// The daemon has its default table; each of 4 ports has a quarter of it. The cost of 100,000 connections is
// measured one level below, with a table of twice that size and heartbeats from this process, so that nothing else
// of the daemon is included.
const (
	daemonFlows   = fairq.DefaultFlows
	tableSize     = 2 * daemonFlows
	tableFlows    = 100_000
	tableName     = "truth"
	heartbeatRuns = 20
	statusRuns    = 5
)

// fullTable fills the daemon's table and measures the daemon.
func (b *switchBench) fullTable(ctx context.Context) ([]row, error) {
	empty, err := askStatus(ctx, b.place, "default")
	if err != nil {
		return nil, err
	}
	if err := fillTable(ctx, b.l, daemonFlows, func() (int, error) {
		a, err := askOnce(b.place, "default")
		return a.connections, err
	}); err != nil {
		return nil, err
	}
	full, err := askStatus(ctx, b.place, "default")
	if err != nil {
		return nil, err
	}
	u, err := b.watch(ctx)
	if err != nil {
		return nil, err
	}
	rows := b.rows(fmt.Sprintf("full table, %d silent connections", full.connections), u)
	return append(rows, statusRows("full table: weir status", full, empty)...), nil
}

// tableCost measures 100,000 connections in a table with room for them, compared with an empty table.
func tableCost(ctx context.Context, l *lab.Lab, p *place) (rows []row, err error) {
	f, err := attachPinned(l, p)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.do(f.Close)) }()
	empty, err := measureTable(ctx, f, p)
	if err != nil {
		return nil, err
	}
	err = withHeartbeats(ctx, f, func() error {
		return fillTable(ctx, l, tableFlows, func() (n int, err error) {
			all, err := f.Stats()
			for _, s := range all {
				n += int(s.Connections)
			}
			return n, err
		})
	})
	if err != nil {
		return nil, err
	}
	full, err := measureTable(ctx, f, p)
	if err != nil {
		return nil, err
	}
	what := fmt.Sprintf("table with %d connections: ", full.status.connections)
	rows = []row{
		{what: what + "kernel memory", ours: full.memory / 1e6, reference: empty.memory / 1e6, unit: "MB",
			note: fmt.Sprintf("made whole, with %d places of %.0f B", tableSize, full.memory/tableSize)},
		{what: what + "a heartbeat, with its sweep", ours: 1e3 * full.heartbeat, reference: 1e3 * empty.heartbeat, unit: "ms",
			note: fmt.Sprintf("median of %d; by the thread's own time %.0f ns a connection", heartbeatRuns,
				1e9*(full.heartbeatCPU-empty.heartbeatCPU)/float64(full.status.connections))},
		{what: what + "CPU of the heartbeats", ours: 100 * full.heartbeatCPU / fairq.HeartbeatInterval.Seconds(),
			reference: 100 * empty.heartbeatCPU / fairq.HeartbeatInterval.Seconds(), unit: "%", note: "of one processor, at a heartbeat every 250 ms"},
	}
	return append(rows, statusRows(what+"weir status", full.status, empty.status)...), nil
}

// attachPinned attaches FairQ with a larger table to the core's ports, pinned where `weir status` finds it.
func attachPinned(l *lab.Lab, p *place) (f *fairq.Attachment, err error) {
	var ports []fairq.Port
	for _, port := range l.Ports() {
		if port.Node == coreSwitch {
			ports = append(ports, fairq.Port{
				PortRef: attach.PortRef{Name: port.Ifname, Ifindex: port.Ifindex}, Law: fairqLaw(port.Rate, port.Buffer),
			})
		}
	}
	err = p.do(func() error {
		f, err = fairq.Attach(ports, fairq.Config{Flows: tableSize, Pin: "/sys/fs/bpf/weir/switch/" + tableName})
		return err
	})
	return f, err
}

// withHeartbeats sends heartbeats while do runs.
func withHeartbeats(ctx context.Context, f *fairq.Attachment, do func() error) error {
	over, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- f.Run(over) }()
	err := do()
	cancel()
	return errors.Join(err, <-done)
}

// tableState is the cost of a table in its current state.
type tableState struct {
	memory                  float64 // bytes
	heartbeat, heartbeatCPU float64 // seconds each
	status                  asked
}

func measureTable(ctx context.Context, f *fairq.Attachment, p *place) (s tableState, err error) {
	objects, err := kernelObjects(os.Getpid())
	if err != nil {
		return s, err
	}
	for _, o := range objects {
		if o.kind == "map" && o.maxEntries == tableSize {
			s.memory += o.bytes
		}
	}
	if s.memory == 0 {
		return s, errors.New("no map of the table's size")
	}
	if s.heartbeat, s.heartbeatCPU, err = timeHeartbeats(f); err != nil {
		return s, err
	}
	err = withHeartbeats(ctx, f, func() error {
		s.status, err = askStatus(ctx, p, tableName)
		return err
	})
	return s, err
}

// timeHeartbeats returns the median time of a heartbeat, by the clock and of this thread.
func timeHeartbeats(f *fairq.Attachment) (wall, cpu float64, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var walls, cpus []float64
	for range heartbeatRuns {
		began, had := time.Now(), threadTime()
		if err := f.Heartbeat(); err != nil {
			return 0, 0, err
		}
		walls, cpus = append(walls, time.Since(began).Seconds()), append(cpus, (threadTime()-had).Seconds())
	}
	return median(walls), median(cpus), nil
}

// asked is the result and the cost of `weir status --json`.
type asked struct {
	connections int
	wall, cpu   float64 // seconds
}

// askStatus returns the medians of some calls.
func askStatus(ctx context.Context, p *place, name string) (all asked, err error) {
	var walls, cpus []float64
	for range statusRuns {
		a, err := askOnce(p, name)
		if err := errors.Join(err, ctx.Err()); err != nil {
			return all, err
		}
		all.connections = a.connections
		walls, cpus = append(walls, a.wall), append(cpus, a.cpu)
	}
	all.wall, all.cpu = median(walls), median(cpus)
	return all, nil
}

func askOnce(p *place, name string) (a asked, err error) {
	var said testlog.Log
	began := time.Now()
	cmd, err := p.command(&said, "status", "--json", "--name", name)
	if err != nil {
		return a, err
	}
	// The exit code is the switch's state, which does not matter here.
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
		return a, err
	}
	a.wall = time.Since(began).Seconds()
	a.cpu = (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	a.connections, err = connectionsIn([]byte(said.String()))
	return a, err
}

// connectionsIn returns the number of connections of the one switch in the output of `weir status --json`.
func connectionsIn(text []byte) (n int, err error) {
	var doc struct {
		Switches []struct {
			Ports []struct{ Connections int }
		}
	}
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&doc); err != nil {
		return 0, fmt.Errorf("weir status --json: %w: %.300s", err, text)
	}
	if len(doc.Switches) != 1 || len(doc.Switches[0].Ports) == 0 {
		return 0, fmt.Errorf("weir status --json does not list one switch with ports: %.300s", text)
	}
	for _, p := range doc.Switches[0].Ports {
		n += p.Connections
	}
	return n, nil
}

func statusRows(what string, full, empty asked) []row {
	return []row{
		{what: what + ", time", ours: 1e3 * full.wall, reference: 1e3 * empty.wall, unit: "ms",
			note: fmt.Sprintf("median of %d, with %d connections against %d; it waits 200 ms between its two readings", statusRuns, full.connections, empty.connections)},
		{what: what + ", CPU", ours: 1e3 * full.cpu, reference: 1e3 * empty.cpu, unit: "ms", note: "user and system, of a call"},
	}
}

// Connections of strangers are opened from behind each of the core's ports to the next, with forged handshakes: no
// node has the addresses of their ends, so nothing answers.
const (
	openBatch  = 512 // the capacity of the ports' queues, for each of the three segments
	openDrain  = 2 * time.Millisecond
	openRate   = 200_000
	coreRacks  = 4
	openRounds = 5
)

// fillTable opens connections through the core until count returns this many.
func fillTable(ctx context.Context, l *lab.Lab, connections int, count func() (int, error)) (err error) {
	var servers [coreRacks]*forger
	for i := range servers {
		if servers[i], err = newForger(l, rackServer(i)); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, servers[i].close()) }()
	}
	for i := range servers {
		next := (i + 1) % coreRacks
		servers[i].macs[listenerOf(next).Addr()] = servers[i].macs[l.Addr(rackServer(next), 0)]
		servers[next].macs[openerOf(i, 0).Addr()] = servers[next].macs[l.Addr(rackServer(i), 0)]
	}
	n := 0
	for range openRounds { // some may be lost; existing ones are not entered twice
		for i := range servers {
			if err := openFrom(ctx, i, servers[i], servers[(i+1)%coreRacks], connections/coreRacks); err != nil {
				return err
			}
		}
		if n, err = count(); err != nil || n >= connections {
			return err
		}
	}
	return fmt.Errorf("%d of %d connections are in the table", n, connections)
}

func rackServer(rack int) string { return fmt.Sprintf("rack%d.server1", rack+1) }

func openerOf(rack, i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 18, byte(rack), 1}), uint16(1024+i))
}

func listenerOf(rack int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 19, byte(rack), 1}), 80)
}

// openFrom opens connections from behind one rack to the next.
func openFrom(ctx context.Context, rack int, opener, listener *forger, connections int) error {
	to := listenerOf((rack + 1) % coreRacks)
	options := []byte{2, 4, 5, 180, 1, 3, 3, 7} // MSS 1460, window scale 7
	const openerSeq, listenerSeq = 1000, 5000
	for first := 0; first < connections; first += openBatch {
		for _, segment := range []struct {
			by   *forger
			fill func(from netip.AddrPort, s *forged)
		}{
			{opener, func(from netip.AddrPort, s *forged) {
				s.from, s.to, s.seq, s.ack, s.flags, s.options = from, to, openerSeq, 0, flagSYN, options
			}},
			{listener, func(from netip.AddrPort, s *forged) {
				s.from, s.to, s.seq, s.ack, s.flags, s.options = to, from, listenerSeq, openerSeq+1, flagSYN|flagACK, options
			}},
			{opener, func(from netip.AddrPort, s *forged) {
				s.from, s.to, s.seq, s.ack, s.flags = from, to, openerSeq+1, listenerSeq+1, flagACK
			}},
		} {
			i := first
			_, err := segment.by.flood(ctx, openRate, min(openBatch, connections-first), func(_ *rand.Rand, s *forged) {
				segment.fill(openerOf(rack, i), s)
				i++
			})
			// The next segment must not pass the core before this one.
			if err := errors.Join(err, pause(ctx, openDrain)); err != nil {
				return err
			}
		}
	}
	return nil
}
