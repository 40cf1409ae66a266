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

// What is made equal, and how:
//
//   - Line. Ours takes an Ethernet frame (14 bytes more than the IP packet) and 24 bytes of preamble, CRC and gap:
//     1538 for a full segment. ns-3's point-to-point link takes 2 bytes more than the IP packet: 1502. So its rate
//     is lower by 1502/1538, and a full segment takes as long in both. A bare ACK takes 43 of our bytes and not 84.
//   - Buffer. Ours counts frames of 1514 bytes, that which is being sent included; ns-3's queue discipline counts IP
//     packets of 1500, and the device behind it holds two more.
//   - Threshold. Ours marks when it is exceeded, ns-3's RED when it is reached.
//   - Reported queue and drops are bytes of Ethernet frames, all packets in the port, in both.
const (
	ourLine, theirLine = 1538, 1502
	frame, ipPacket    = 1514, 1500
	inDevice           = 2 // packets that ns-3's device holds: one being sent and one behind it
)

// What sim/tcp takes where an experiment file cannot say (tcp.Default).
const (
	receiveBuffer = 3 << 20
	delayedACK    = 40 * time.Millisecond
	granularity   = time.Millisecond
	mss           = 1460
	optionBytes   = 12 // of a timestamp, in every segment
	requestBytes  = 64 // of a pull
)

// ns-3's own: what an application may write ahead; and queues that are to lose nothing, longer than the largest
// window: without small queues (TSQ) a sender whose link is the bottleneck puts all of it into its NIC.
const (
	sendBuffer = 1 << 20
	otherLimit = 4000
)

// Ports of the ns-3 program (transfer.h): a client's says which flow it is.
const (
	serverPort, firstClientPort = 5001, 10240
	mostFlows                   = 65536 - firstClientPort
)

// queueStep is over how much time the ns-3 program gives the mean of the queue.
const queueStep = time.Millisecond

// transport is what a guest's congestion control is in ns-3.
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

// newScenario writes r down for ns-3. What the program there cannot do is an error.
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
			return nil, fmt.Errorf("measure.ports: %s is %s: ns-3 looks at switch->%s alone", label, port, receiver)
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

// flows writes the schedule: that of the simulator.
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

// theirBytes is a length of our queue in ns-3's queue discipline.
func theirBytes(ours int64) int64 { return max(0, ours-inDevice*frame) * ipPacket / frame }

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

const receiver = "receiver1"

// dumbbell checks that the network is the one that the program builds: one switch, equal links, no hypervisors. It
// gives what all links are like, and the index of each sender.
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
			return first, nil, fmt.Errorf("link %s - %s is not as the others: in ns-3 all links are the same", l.A, l.B)
		}
	}
	if first.Buffer.Packets || theirBytes(first.Buffer.N) < ipPacket {
		return first, nil, fmt.Errorf("a buffer of %v: in ns-3 it is in bytes, and of %d at least", first.Buffer, (inDevice+1)*frame)
	}
	return first, hosts, nil
}

// supported tells what of the traffic the program cannot do.
func supported(cfg *experiment.Config, work *workload.Workload) error {
	if len(cfg.Profiles) != 1 {
		return fmt.Errorf("%d settings of TCP: in ns-3 all flows of a run have the same", len(cfg.Profiles))
	}
	if len(work.Flows) > mostFlows {
		return fmt.Errorf("%d flows: in ns-3 each has a port of its own, of %d", len(work.Flows), mostFlows)
	}
	if len(work.Loops) > 0 {
		return errors.New("closed loops: ns-3 has flows with a start of their own only")
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
			return fmt.Errorf("traffic %s: ns-3 has unpaced TCP, a connection for each flow, and gives none up", it.Name)
		case it.Stop > 0 && it.Stop < cfg.Duration && it.Size == 0:
			return fmt.Errorf("traffic %s stops at %v: in ns-3 a flow without a size ends with the run", it.Name, it.Stop)
		}
	}
	return nil
}

// transportOf finds what is the same TCP in ns-3. newreno and sack are the RFCs alone in both. reno and dctcp are
// Linux's here; ns-3 has their windows, PRR and timestamps, but no RACK, TLP, F-RTO or undo.
func transportOf(g *experiment.Guests) (transport, error) {
	const plain, prr = "ns3::TcpClassicRecovery", "ns3::TcpPrrRecovery"
	switch g.CC {
	case "newreno", "sack":
		if *g.DelayedACK {
			return transport{}, fmt.Errorf("guests.cc %s with delayed ACKs: TcpNewReno grows by acknowledgements, ours by segments; say delayed_ack: false", g.CC)
		}
		return transport{"ns3::TcpNewReno", plain, g.CC == "sack", false}, nil
	case "reno":
		return transport{"ns3::TcpLinuxReno", prr, *g.SACK, true}, nil
	case "dctcp":
		return transport{"ns3::TcpDctcp", prr, *g.SACK, true}, nil
	}
	return transport{}, fmt.Errorf("guests.cc %s: newreno, sack, reno and dctcp are compared with ns-3", g.CC)
}

// thresholdOf is from where on RED marks, in the bytes of its queue: the least number of them for which our port
// holds more than the threshold. 0: nothing is marked.
func thresholdOf(r *experiment.Run) (int64, error) {
	if len(r.Laws) != 1 {
		return 0, fmt.Errorf("laws %v: ns-3 has one, droptail or ecn", r.Laws)
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
		return 0, fmt.Errorf("not_ect: %s: ns-3's RED drops what it cannot mark; say drop", params.NotECT)
	case params.Threshold.Packets || params.Threshold.N < least.N:
		return 0, fmt.Errorf("a threshold of %v: in ns-3 it is in bytes, and of %v at least", params.Threshold, least)
	}
	return theirBytes(params.Threshold.N) + 1, nil
}
