package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"weir/experiment"
	"weir/experiment/workload"
	"weir/law"
	"weir/law/droptail"
	"weir/law/mark"
)

// How the two programs are made equal:
//
//   - Line. Ours counts an Ethernet frame (14 bytes more than the IP packet) and 24 bytes of preamble, CRC and gap:
//     1538 for a full segment. ns-3's point-to-point link counts 2 bytes more than the IP packet: 1502. So its rate
//     is lower by 1502/1538, and a full segment takes as long in both. A bare ACK takes 43 of our bytes instead of 84.
//   - Buffer. Ours counts frames of 1514 bytes, including the one being sent; ns-3's queue discipline counts IP
//     packets of 1500, and the device behind it holds two more.
//   - Threshold. Ours marks above the threshold, ns-3's RED at and above it.
//   - Reported queue and drops are bytes of Ethernet frames, all packets in the port, in both.
const (
	ourLine, theirLine = 1538, 1502
	frame, ipPacket    = 1514, 1500
	inDevice           = 2 // packets in ns-3's device: one being sent and one after it
)

// Values of sim/tcp that an experiment file cannot set (tcp.Default).
const (
	receiveBuffer = 3 << 20
	delayedACK    = 40 * time.Millisecond
	granularity   = time.Millisecond
	mss           = 1460
	optionBytes   = 12 // of a timestamp, in every segment
	requestBytes  = 64 // of a pull
)

// ns-3's own: the data that an application may write in advance, and queues that must lose nothing, longer than
// the largest window. Without TCP small queues (TSQ) a sender whose link is the bottleneck has its whole window in
// its NIC.
const (
	sendBuffer = 1 << 20
	otherLimit = 4000
)

// Ports of the ns-3 program (transfer.h): a client's port identifies the flow.
const (
	serverPort, firstClientPort = 5001, 10240
	mostFlows                   = 65536 - firstClientPort
)

// queueStep is the time over which the ns-3 program averages the queue.
const queueStep = time.Millisecond

// transport is a guest's congestion control in ns-3.
type transport struct {
	control, recovery string
	sack, timestamps  bool
}

// scenario is a run as the ns-3 program carries it out.
type scenario struct {
	run    *experiment.Run
	work   *workload.Workload
	labels []string // of the bottleneck
	text   strings.Builder
}

// newScenario converts r to a scenario for ns-3. A setting that the program does not support is an error.
func newScenario(r *experiment.Run) (*scenario, error) {
	cfg := &r.Config
	link, hosts, err := dumbbell(cfg)
	if err != nil {
		return nil, err
	}
	work, err := workload.Expand(cfg, r.Seed)
	if err != nil {
		return nil, err
	}
	if err := supported(cfg, work); err != nil {
		return nil, err
	}
	t, err := transportOf(&cfg.Profiles[0])
	if err != nil {
		return nil, err
	}
	threshold, err := thresholdOf(r)
	if err != nil {
		return nil, err
	}
	s := &scenario{run: r, work: work}
	for _, label := range slices.Sorted(maps.Keys(cfg.Ports)) {
		if port := cfg.Ports[label]; port != experiment.PortName("switch", receiver) {
			return nil, fmt.Errorf("measure.ports: %s is %s: ns-3 measures switch->%s only", label, port, receiver)
		}
		s.labels = append(s.labels, label)
	}
	s.line("senders", len(hosts))
	s.line("rate_bps", int64(link.Rate)*theirLine/ourLine)
	s.line("delay_ns", int64(link.Delay))
	s.line("limit_bytes", theirBytes(link.Buffer.N))
	s.line("threshold_bytes", threshold)
	s.line("other_limit_packets", otherLimit)
	s.line("frame_bytes", frame-ipPacket)
	s.transport(t, &cfg.Profiles[0])
	s.line("request_bytes", requestBytes)
	s.line("duration_ns", int64(cfg.Duration))
	s.line("bin_ns", int64(cfg.Series))
	s.line("step_ns", int64(queueStep))
	s.flows(hosts)
	return s, nil
}

func (s *scenario) line(key string, value any) { fmt.Fprintf(&s.text, "%s %v\n", key, value) }

// transport writes the settings of TCP.
func (s *scenario) transport(t transport, g *experiment.Guests) {
	segment, every := mss, 1
	if t.timestamps {
		segment -= optionBytes
	}
	if *g.DelayedACK {
		every = 2
	}
	s.line("control", t.control)
	s.line("recovery", t.recovery)
	s.line("segment_bytes", segment)
	s.line("initial_window", *g.InitialWindow)
	s.line("min_rto_ns", int64(*g.RTOMin))
	s.line("initial_rto_ns", int64(*g.InitialRTO))
	s.line("granularity_ns", int64(granularity))
	s.line("ack_every", every)
	s.line("delayed_ack_ns", int64(delayedACK))
	s.line("sack", number(t.sack))
	s.line("timestamps", number(t.timestamps))
	s.line("ecn", number(*g.ECN))
	s.line("receive_buffer_bytes", receiveBuffer)
	s.line("send_buffer_bytes", sendBuffer)
}

// flows writes the schedule, the same as the simulator's.
func (s *scenario) flows(hosts map[string]int) {
	for i := range s.work.Flows {
		f := &s.work.Flows[i]
		it := &s.run.Config.Items[f.Item]
		side := "push"
		if workload.Pulls(&it.Traffic) {
			side = "pull"
		}
		fmt.Fprintf(&s.text, "flow %d %s %d %d\n", hosts[it.Pairs[f.Pair].Src], side, int64(f.Start), int64(f.Size))
	}
}

// theirBytes converts a length of our queue to that of ns-3's queue discipline.
func theirBytes(ours int64) int64 { return max(0, ours-inDevice*frame) * ipPacket / frame }

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

const receiver = "receiver1"

// dumbbell checks that the network is the one that the program builds: one switch, equal links, no hypervisors. It
// returns the properties of the links, and the index of each sender.
func dumbbell(cfg *experiment.Config) (experiment.Link, map[string]int, error) {
	hosts := map[string]int{}
	for _, n := range cfg.Graph.Nodes {
		switch {
		case n.Kind == experiment.Switch && n.Name != "switch" || n.Kind == experiment.Hypervisor:
			return experiment.Link{}, nil, fmt.Errorf("%s: ns-3's network is a dumbbell with one switch and no hypervisors", n.Name)
		case n.Kind == experiment.Guest && n.Name != receiver:
			hosts[n.Name] = len(hosts)
		}
	}
	first := cfg.Graph.Links[0]
	for _, l := range cfg.Graph.Links {
		if l.Rate != first.Rate || l.Delay != first.Delay || l.Buffer != first.Buffer {
			return first, nil, fmt.Errorf("link %s - %s differs from the others: in ns-3 all links are the same", l.A, l.B)
		}
	}
	if first.Buffer.Packets || theirBytes(first.Buffer.N) < ipPacket {
		return first, nil, fmt.Errorf("a buffer of %v: in ns-3 it must be in bytes, at least %d", first.Buffer, (inDevice+1)*frame)
	}
	return first, hosts, nil
}

// supported returns an error if the program does not support the traffic.
func supported(cfg *experiment.Config, work *workload.Workload) error {
	if len(cfg.Profiles) != 1 {
		return fmt.Errorf("%d settings of TCP: in ns-3 all flows of a run have the same one", len(cfg.Profiles))
	}
	if len(work.Flows) > mostFlows {
		return fmt.Errorf("%d flows: in ns-3 each needs its own port, and there are %d", len(work.Flows), mostFlows)
	}
	if len(work.Loops) > 0 {
		return errors.New("closed loops: ns-3 has only flows with a fixed start")
	}
	for i := range cfg.Items {
		it := &cfg.Items[i]
		for _, p := range it.Pairs {
			if p.Dst != receiver || p.Src == receiver {
				return fmt.Errorf("traffic %s: from %s to %s: in ns-3 data goes to %s", it.Name, p.Src, p.Dst, receiver)
			}
		}
		switch {
		case workload.UDP(&it.Traffic) || workload.Persistent(&it.Traffic) || it.Rate > 0 || it.GiveUp > 0:
			return fmt.Errorf("traffic %s: ns-3 has TCP without pacing, a connection for each flow, and no give_up", it.Name)
		case it.Stop > 0 && it.Stop < cfg.Duration && it.Size == 0:
			return fmt.Errorf("traffic %s stops at %v: in ns-3 a flow without a size ends with the run", it.Name, it.Stop)
		}
	}
	return nil
}

// transportOf returns the same TCP in ns-3. newreno and sack follow only the RFCs in both programs. reno and dctcp
// are Linux's here; ns-3 has their windows, PRR and timestamps, but no RACK, TLP, F-RTO or undo.
func transportOf(g *experiment.Guests) (transport, error) {
	const plain, prr = "ns3::TcpClassicRecovery", "ns3::TcpPrrRecovery"
	switch g.CC {
	case "newreno", "sack":
		if *g.DelayedACK {
			return transport{}, fmt.Errorf("guests.cc %s with delayed ACKs: ns-3's TcpNewReno grows by acknowledgements, ours by segments; set delayed_ack: false", g.CC)
		}
		return transport{"ns3::TcpNewReno", plain, g.CC == "sack", false}, nil
	case "reno":
		return transport{"ns3::TcpLinuxReno", prr, *g.SACK, true}, nil
	case "dctcp":
		return transport{"ns3::TcpDctcp", prr, *g.SACK, true}, nil
	}
	return transport{}, fmt.Errorf("guests.cc %s: only newreno, sack, reno and dctcp are compared with ns-3", g.CC)
}

// thresholdOf returns the threshold at which RED marks, in the bytes of its queue: the smallest backlog there for
// which our port is above the threshold. 0: no marking.
func thresholdOf(r *experiment.Run) (int64, error) {
	if len(r.Laws) != 1 {
		return 0, fmt.Errorf("laws %v: ns-3 has one law, droptail or ecn", r.Laws)
	}
	if r.Laws[0] == droptail.Name {
		return 0, nil
	}
	params, ok := r.Params[r.Laws[0]].(mark.Params)
	least := law.Limit{N: (inDevice + 1) * frame}
	switch {
	case r.Laws[0] != mark.ECN || !ok:
		return 0, fmt.Errorf("law %s: ns-3 has droptail and ecn", r.Laws[0])
	case params.NotECT != mark.Drop:
		return 0, fmt.Errorf("not_ect: %s: ns-3's RED drops packets that it cannot mark; set not_ect: drop", params.NotECT)
	case params.Threshold.Packets || params.Threshold.N < least.N:
		return 0, fmt.Errorf("a threshold of %v: in ns-3 it must be in bytes, at least %v", params.Threshold, least)
	}
	return theirBytes(params.Threshold.N) + 1, nil
}
