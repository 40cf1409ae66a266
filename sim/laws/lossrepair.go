package laws

import (
	"fmt"

	"weir/datapath/native"
	"weir/experiment"
	"weir/law"
	"weir/law/sed"
	"weir/sim/event"
	"weir/sim/network"
)

// LossRepair returns the law `lossrepair`: ports keep the TCP segments that a full buffer would drop.
func LossRepair() Law { return inC(Law{Put: putLossRepair}) }

// repairs is the law at the ports of some switches.
type repairs struct {
	Quiet
	ports []*repairPort
}

func putLossRepair(n *network.Network, r *experiment.Run, name string) (Attached, error) {
	params, err := law.Params[sed.LossRepairParams](r.Params, name)
	if err != nil {
		return nil, err
	}
	w := &repairs{}
	for _, p := range n.SwitchPorts(r.At) {
		at, err := params.At(p.Rate, p.Buffer.Bytes())
		if err != nil {
			w.Close()
			return nil, fmt.Errorf("port %s: %w", p.Name, err)
		}
		q := newRepairPort(n, p, at, at.Most)
		w.ports = append(w.ports, q)
		add(p, q)
	}
	return w, nil
}

// Tally returns the sums of all ports.
func (w *repairs) Tally() law.Tally {
	t := law.Tally{}
	for _, q := range w.ports {
		q.count(t)
	}
	return t
}

// Close stops the timers. Kept packets stay with the ports, which the network frees.
func (w *repairs) Close() {
	for _, q := range w.ports {
		q.net.Queue.Stop(&q.back)
	}
}

// repairPort is the repair of losses at a port: datapath/bpf/repair, with the decisions of datapath/core/repair.h. The parking sends
// packets in order, at the port's rate, and up to a burst at once after it was idle.
type repairPort struct {
	net     *network.Network
	port    *network.Port
	config  native.RepairConfig
	due     event.Time
	burst   event.Time // at the port's rate
	line    int64      // bytes that a frame counts for in addition, so that packets come back as the line sends them
	free    event.Time // when all that was kept will have been sent at the rate
	back    event.Event
	waiting []kept // in order
	first   int    // of waiting
	bytes   uint32 // that wait
	backNs  uint64 // when the packet that came back last was kept
	flows   map[dataKey]*native.RepairFlow

	over, behind, full, other, repaired, inTime, sentInTime uint64
	longest                                                 event.Time
}

// kept is a packet that waits.
type kept struct {
	pk    *network.Packet
	since event.Time
	over  bool // the buffer had no room for it; else it went behind its flow
}

// newRepairPort returns the repair at a port that keeps at most so many bytes.
func newRepairPort(n *network.Network, p *network.Port, at law.Repair, most law.Bytes) *repairPort {
	q := &repairPort{
		net: n, port: p, config: native.RepairConfig{LimitBytes: uint32(at.Limit), ParkBytes: uint32(most)},
		due: event.Time(at.Due), burst: event.Time(at.Burst), flows: map[dataKey]*native.RepairFlow{},
	}
	q.back.Init(q)
	return q
}

// Packet passes, keeps or drops a packet.
func (q *repairPort) Packet(p *network.Port, pk *network.Packet, now event.Time) network.Verdict {
	isTCP := pk.Proto() == network.TCP
	var key dataKey
	waits := false
	if isTCP && len(q.flows) > 0 {
		key = keyOfData(pk)
		f := q.flows[key]
		waits = f != nil && native.RepairWaits(f, q.backNs, uint64(now))
	}
	switch native.Repair(&q.config, uint32(p.Backlog()), q.bytes, uint32(pk.Bytes()), isTCP, waits) {
	case native.RepairOver:
		q.over++
		q.keep(pk, true, now)
		return network.Take
	case native.RepairBehind:
		q.behind++
		q.keep(pk, false, now)
		return network.Take
	case native.RepairFull:
		q.full++
		return network.Drop
	case native.RepairOther:
		q.other++
		return network.Drop
	}
	return network.Pass
}

func (q *repairPort) keep(pk *network.Packet, over bool, now event.Time) {
	key := keyOfData(pk)
	f := q.flows[key]
	if f == nil {
		f = &native.RepairFlow{}
		q.flows[key] = f
	}
	f.ParkedNs = uint64(now)
	f.Waiting++
	q.bytes += uint32(pk.Bytes())
	if q.waiting = append(q.waiting, kept{pk, now, over}); len(q.waiting)-q.first == 1 {
		q.schedule(now)
	}
}

// schedule sets the time at which the first packet comes back.
func (q *repairPort) schedule(now event.Time) {
	q.net.Queue.Set(&q.back, max(now, q.free-q.burst))
}

// Happen puts the first packet back.
func (q *repairPort) Happen(_ *event.Event, now event.Time) {
	w := q.waiting[q.first]
	if native.RepairAgain(&q.config, uint32(q.port.Backlog()), uint32(w.pk.Bytes()), false, uint64(now-w.since)) {
		q.net.Queue.Set(&q.back, now+q.sends(int64(w.pk.Bytes())))
		return
	}
	q.waiting[q.first] = kept{}
	q.first++
	if 2*q.first >= len(q.waiting) {
		q.waiting = append(q.waiting[:0], q.waiting[q.first:]...)
		q.first = 0
	}
	key := keyOfData(w.pk)
	if f := q.flows[key]; f.Waiting > 1 {
		f.Waiting--
	} else {
		delete(q.flows, key)
	}
	q.bytes -= uint32(w.pk.Bytes())
	q.backNs = uint64(w.since)
	q.free = max(q.free, now) + q.sends(int64(w.pk.Bytes())+q.line)
	if w.over {
		q.repair(now - w.since)
	}
	if len(q.waiting) > q.first {
		q.schedule(now)
	}
	q.net.Return(w.pk)
}

// sends returns how long the port takes for so many bytes.
func (q *repairPort) sends(bytes int64) event.Time {
	return event.Time(float64(bytes) * 8e9 / float64(q.port.Rate))
}

// repair counts a packet that was kept for so long, and is put back.
func (q *repairPort) repair(wait event.Time) {
	q.repaired++
	q.longest = max(q.longest, wait)
	if wait > q.due {
		return
	}
	q.inTime++
	if wait+q.sends(q.port.Backlog()) <= q.due {
		q.sentInTime++
	}
}

// count adds what the port did.
func (q *repairPort) count(t law.Tally) {
	t[law.Repairs] += q.repaired
	t[law.InTime] += q.inTime
	t[law.SentInTime] += q.sentInTime
	t[law.Kept] += q.over + q.behind
	t[law.LostFull] += q.full
	t[law.LostOther] += q.other
	t[law.LongestUs] = max(t[law.LongestUs], uint64(q.longest/event.Microsecond))
}
