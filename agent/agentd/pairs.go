package agentd

import (
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"weir/bus/weirv1"
	"weir/datapath/host"
	"weir/law"
	"weir/law/telemetry"
)

const (
	// readCameAtMost limits how often marks are read.
	readCameAtMost = time.Millisecond
	// marksMessages is how many messages with marks an agent sends in a second at most, half of what the bus allows it. Further marks
	// wait, and are added up.
	marksMessages = 2000
	marksAtOnce   = marksMessages / 20
	// owedMost limits the pairs whose marks wait. Marks of further pairs are counted and not returned.
	owedMost = 1 << 16
)

// pairs is the half of a law at the ports of the VMs that receive. The host counts marked packets by source. The law's messages go to the
// agents of the hosts that sent them. One goroutine steps the law.
type pairs struct {
	law   law.Law
	every time.Duration // between two readings
	log   *slog.Logger
	send  func(to string, m *weirv1.PairMarks) error

	owed   map[string]map[owedPair]uint64 // by agent: packets
	waits  int                            // pairs in owed
	came   []host.Came                    // memory of a reading
	budget float64                        // messages
	filled time.Duration                  // when the budget was

	mu     sync.Mutex
	counts ReturnsStatus
}

// owedPair is the sender and the receiver of marked packets.
type owedPair struct {
	source netip.Addr
	vm     law.VM
}

// ReturnsStatus is the marks that this host returns to others, and gets from them.
type ReturnsStatus struct {
	Came      uint64 `json:"marked_packets"` // for VMs of this host
	Sent      uint64 `json:"sent"`           // messages
	Lost      uint64 `json:"lost"`           // messages that the bus did not take
	Nowhere   uint64 `json:"nowhere"`        // marks whose source belongs to no peer
	Full      uint64 `json:"full"`           // marks of pairs beyond the limit of those that wait
	Failed    uint64 `json:"failed"`         // readings
	Heard     uint64 `json:"heard"`          // messages of other hosts
	Strangers uint64 `json:"strangers"`      // of them, of agents that are no peers: they have no effect
	Unknown   uint64 `json:"unknown"`        // marks of addresses that no VM of this host has
}

func newPairs(spec *law.Spec, params any, log *slog.Logger) (*pairs, error) {
	l, err := spec.New(law.VMPort, params, &law.Topology{})
	if err != nil {
		return nil, err
	}
	p := &pairs{law: l, every: readCameAtMost, log: log, owed: map[string]map[owedPair]uint64{}, budget: marksAtOnce}
	if spec.Interval != nil {
		p.every = max(p.every, spec.Interval(params).Std())
	}
	return p, nil
}

// runPairs reads marks and returns them until stop.
func (h *half) runPairs(stop <-chan struct{}) {
	timer := time.NewTicker(h.pairs.every)
	defer timer.Stop()
	for {
		select {
		case <-stop:
			return
		case <-timer.C:
		}
		h.returnMarks(clock() - h.begun)
	}
}

// returnMarks steps the law with the marks since the last call, and sends what it wants sent.
func (h *half) returnMarks(now time.Duration) {
	p := h.pairs
	k, _ := h.role.host()
	if k == nil {
		return
	}
	var err error
	p.came, err = k.Came(p.came[:0])
	h.mu.Lock()
	peers := h.peers
	h.mu.Unlock()
	out, marks, strange := p.step(now, peers)
	if w := p.law.Wake(); w != 0 && w <= now {
		out = p.law.Step(now, law.Tick{}, out)
	}
	nowhere, full := p.owe(out, peers)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts.Came += marks
	p.counts.Nowhere += nowhere + strange
	p.counts.Full += full
	if err != nil {
		p.counts.Failed++
	}
	p.flush(now)
}

// step passes the marks that came from peers to the law. The source of others may be forged, and each would take a place in the law's
// table. It returns the law's actions, and how many marks came, in all and from strangers.
func (p *pairs) step(now time.Duration, from *peers) (out []law.Action, marks, strange uint64) {
	for i := range p.came {
		c := &p.came[i]
		marks += c.Packets
		if _, known := from.of(c.Source); !known {
			strange += c.Packets
			continue
		}
		out = p.law.Step(now, &telemetry.Came{VM: c.VM, Source: c.Source, Marks: c.Packets}, out)
	}
	return out, marks, strange
}

// owe notes marks that must be returned. It returns those of sources that belong to no peer, and those beyond the limit.
func (p *pairs) owe(actions []law.Action, to *peers) (nowhere, full uint64) {
	for _, a := range actions {
		g, is := a.(law.Grant)
		if !is || g.Kind != law.MarksGrant || !g.Key.Peer.IsValid() {
			p.log.Error("the law has an action that a receiving host cannot carry out", "kind", fmt.Sprintf("%T", a))
			continue
		}
		marks := g.Value / telemetry.OneMark
		agent, known := to.of(g.Key.Peer)
		if !known {
			nowhere += marks
			continue
		}
		pair := owedPair{g.Key.Peer, g.Key.VM}
		if _, waits := p.owed[agent][pair]; !waits {
			if p.waits == owedMost {
				full += marks
				continue
			}
			p.waits++
		}
		if p.owed[agent] == nil {
			p.owed[agent] = map[owedPair]uint64{}
		}
		p.owed[agent][pair] += marks
	}
	return nowhere, full
}

// flush sends what is owed, as much as the budget allows. The order of a map is random, so no agent is always the last. The caller holds
// mu.
func (p *pairs) flush(now time.Duration) {
	p.budget = min(p.budget+(now-p.filled).Seconds()*marksMessages, marksAtOnce)
	p.filled = now
	for agent, owed := range p.owed {
		if p.budget < 1 {
			return
		}
		p.budget--
		m := &weirv1.PairMarks{}
		for pair, marks := range owed {
			if len(m.Pairs) == weirv1.MaxMarkedPairs {
				break
			}
			m.Pairs = append(m.Pairs, &weirv1.MarkedPair{Source: pair.source.AsSlice(), Vm: uint32(pair.vm), Packets: min(marks, telemetry.MaxMarks)})
			delete(owed, pair)
			p.waits--
		}
		if len(owed) == 0 {
			delete(p.owed, agent)
		}
		if err := p.send(agent, m); err != nil {
			p.counts.Lost++ // the connection logs why it is down
			continue
		}
		p.counts.Sent++
	}
}

// count adds the counts to a status.
func (p *pairs) count(s *ReturnsStatus) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.Came, s.Sent, s.Lost, s.Failed = p.counts.Came, p.counts.Sent, p.counts.Lost, p.counts.Failed
	s.Nowhere, s.Full = p.counts.Nowhere, p.counts.Full
}

// heard takes the marks that an agent returned. The bus has checked that it is this agent.
func (h *half) heard(from string, m *weirv1.PairMarks) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.returns.Heard++
	if !h.peers.has(from) {
		h.returns.Strangers++
		return
	}
	for _, pair := range m.GetPairs() {
		source, _ := netip.AddrFromSlice(pair.GetSource()) // the decoder has checked it
		vm, here := h.vms.of(source)
		if !here {
			h.returns.Unknown += pair.GetPackets()
			continue
		}
		h.mark(vm, pair.GetPackets()*telemetry.OneMark)
	}
	h.wake()
}

// setPeers makes these the hosts with which marks are exchanged.
func (h *half) setPeers(list []Peer) {
	if h == nil || h.pairs == nil {
		return
	}
	p := newPeers(list)
	h.mu.Lock()
	h.peers = p
	h.mu.Unlock()
}

// peers are the agents of other hosts, and the addresses of their VMs.
type peers struct {
	names  map[string]bool
	agents ranges[string]
}

func newPeers(list []Peer) *peers {
	p := &peers{names: map[string]bool{}}
	for i := range list {
		p.names[list[i].Agent] = true
		for _, a := range list[i].Addresses {
			p.agents.add(a, list[i].Agent)
		}
	}
	return p
}

func (p *peers) of(a netip.Addr) (agent string, ok bool) { return p.agents.of(a) }

func (p *peers) has(agent string) bool { return p.names[agent] }

// ranges finds a value by an address: that of the longest prefix with it. The zero value is empty.
type ranges[V any] struct {
	by      map[netip.Prefix]V
	lengths [129]int // how many prefixes of so many bits there are
}

func (r *ranges[V]) add(p netip.Prefix, v V) {
	if r.by == nil {
		r.by = map[netip.Prefix]V{}
	}
	if _, twice := r.by[p]; !twice {
		r.lengths[p.Bits()]++
	}
	r.by[p] = v
}

func (r *ranges[V]) of(a netip.Addr) (v V, ok bool) {
	for bits := a.BitLen(); bits >= 0; bits-- {
		if r.lengths[bits] == 0 {
			continue
		}
		p, err := a.Prefix(bits)
		if err != nil {
			continue
		}
		if v, ok = r.by[p]; ok {
			return v, true
		}
	}
	return v, false
}
