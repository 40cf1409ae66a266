package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"weir/experiment"
	"weir/experiment/result"
	"weir/experiment/workload"
)

// worldNS3 is its name in reports.
const worldNS3 = "ns3"

// runNS3 carries out the runs in ns-3, as many in parallel as there are processors, and returns their statistics
// in order. The program's input files are kept in dir.
func runNS3(ctx context.Context, program, dir string, runs []*experiment.Run) ([]*result.Run, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("run ns-3: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	out := make([]*result.Run, len(runs))
	next := make(chan int)
	var workers sync.WaitGroup
	for range runtime.NumCPU() {
		workers.Go(func() {
			for i := range next {
				began := time.Now()
				r, err := oneNS3(ctx, program, filepath.Join(dir, fmt.Sprintf("%d.txt", i)), runs[i])
				if err != nil {
					cancel(fmt.Errorf("%s with seed %d in ns-3: %w", runs[i].Scheme, runs[i].Seed, err))
					continue
				}
				out[i] = r
				fmt.Fprintf(os.Stderr, "ns-3: %s, %s, seed %d: %.1f s\n", runs[i].Experiment, pointName(r), r.Seed, time.Since(began).Seconds())
			}
		})
	}
	for i := range runs {
		if ctx.Err() != nil {
			break
		}
		next <- i
	}
	close(next)
	workers.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return out, nil
}

// oneNS3 carries out one run. file is the path of its scenario.
func oneNS3(ctx context.Context, program, file string, r *experiment.Run) (*result.Run, error) {
	s, err := newScenario(r)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(file, []byte(s.text.String()), 0o644); err != nil {
		return nil, fmt.Errorf("write the scenario: %w", err)
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, program, file)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", program, file, err, bytes.TrimSpace(stderr.Bytes()))
	}
	raw, err := s.read(&stdout)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", program, file, err)
	}
	info := r.Info()
	info.World = worldNS3
	return result.Build(info, raw), nil
}

// line is one line of the program's output: a flow, a drop, or the queue.
type line struct {
	Flow      int        `json:"flow"` // the flow's index, also for a drop; -1: no flow
	StartNs   int64      `json:"start_ns"`
	EndNs     *int64     `json:"end_ns"`
	Done      bool       `json:"done"`
	Bytes     int64      `json:"bytes"`
	Timeouts  int        `json:"timeouts"`
	Delivered [][2]int64 `json:"delivered"` // bin, bytes

	DropNs *int64 `json:"drop_ns"`
	Law    bool   `json:"law"`

	StepNs         int64   `json:"step_ns"`
	Mean           []int64 `json:"mean"`
	Sent           []int64 `json:"sent"`
	Marks          []int64 `json:"marks"`
	DropsElsewhere int     `json:"drops_elsewhere"`
}

// read converts the program's output to the measurements of a world.
func (s *scenario) read(r io.Reader) (*result.Raw, error) {
	raw := &result.Raw{Bin: s.run.Config.Series.Std(), Flows: make([]result.Flow, len(s.work.Flows))}
	port := result.Port{
		Name: experiment.PortName("switch", receiver), Labels: s.labels,
		RateBps: int64(s.run.Config.Graph.Links[0].Rate), Buffer: s.run.Config.Graph.Links[0].Buffer.N,
	}
	flows, queues := 0, 0
	for dec := json.NewDecoder(r); ; {
		var l line
		err := dec.Decode(&l)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read the output of ns-3: %w", err)
		}
		if l.Flow < -1 || l.Flow >= len(raw.Flows) {
			return nil, fmt.Errorf("read the output of ns-3: there is no flow %d", l.Flow)
		}
		switch {
		case l.DropNs != nil:
			raw.Drops = append(raw.Drops, s.drop(&l, port.Name))
		case l.EndNs != nil && l.Flow >= 0:
			raw.Flows[l.Flow] = s.flow(&l)
			raw.Duration = max(raw.Duration, raw.Flows[l.Flow].End)
			flows++
		case l.StepNs > 0 && len(l.Mean) == len(l.Sent) && len(l.Mean) == len(l.Marks):
			port.Samples = samples(&l)
			queues++
			if l.DropsElsewhere > 0 {
				return nil, fmt.Errorf("%d packets were dropped at other ports than the bottleneck", l.DropsElsewhere)
			}
		default:
			return nil, errors.New("read the output of ns-3: a line that is neither flow nor drop nor queue")
		}
	}
	if flows != len(raw.Flows) || queues != 1 {
		return nil, fmt.Errorf("read the output of ns-3: %d of %d flows, %d of 1 queue", flows, len(raw.Flows), queues)
	}
	raw.Ports = []result.Port{port}
	return raw, nil
}

func (s *scenario) flow(l *line) result.Flow {
	w := &s.work.Flows[l.Flow]
	it := &s.run.Config.Items[w.Item]
	p := it.Pairs[w.Pair]
	f := result.Flow{
		Group: workload.Group(&it.Traffic), Item: it.Name, Src: p.Src, Dst: p.Dst, Mouse: int(w.Mouse), Epoch: int(w.Epoch),
		Key: key(l.Flow), Start: time.Duration(l.StartNs), End: time.Duration(*l.EndNs), Done: l.Done, Endless: w.Size == 0,
		Bytes: l.Bytes, Timeouts: l.Timeouts, Deadline: it.Deadline.Std(),
	}
	for _, d := range l.Delivered {
		f.Delivered = append(f.Delivered, result.Delivery{Bin: int32(d[0]), Bytes: int32(d[1])})
	}
	return f
}

func (s *scenario) drop(l *line, port string) result.Drop {
	d := result.Drop{At: time.Duration(*l.DropNs), Port: port, Bytes: int(l.Bytes), Reason: "tail"}
	if l.Flow >= 0 {
		d.Key = key(l.Flow)
	}
	if l.Law {
		d.Reason = "law"
	}
	return d
}

// key returns the key of a connection: in ns-3 the client's port identifies the flow.
func key(flow int) result.Key {
	const tcp = 6
	return result.Key{
		Proto: tcp,
		Src:   netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, 1}), uint16(firstClientPort+flow)),
		Dst:   netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, 2}), serverPort),
	}
}

// samples returns the means of the queue over equal steps, exact over time; the simulator samples at points in
// time.
func samples(l *line) []result.Sample {
	out := make([]result.Sample, len(l.Mean))
	for i := range out {
		out[i] = result.Sample{At: time.Duration(int64(i) * l.StepNs), Step: time.Duration(l.StepNs), Count: 1, Backlog: l.Mean[i]}
		if i > 0 { // a sample's counters are those at its beginning
			out[i].Sent, out[i].Marks = uint64(l.Sent[i-1]), uint64(l.Marks[i-1])
		}
	}
	return out
}
