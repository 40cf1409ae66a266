package switchd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"weir/datapath/attach"
	"weir/datapath/reading"
	"weir/law"
)

// Observation is the expected effect of a law on some ports. docs/observe.md says how it is derived.
type Observation struct {
	Seconds float64        `json:"seconds"`
	Along   string         `json:"along,omitempty"` // the switch whose tables were read; "": a program of the observation's own was attached
	Ports   []ObservedPort `json:"ports"`
}

// ObservedPort is one port of an Observation. Windows are payload; queues are as the kernel counts them.
type ObservedPort struct {
	Port          string `json:"port"`
	Ifindex       int    `json:"ifindex"`
	Enforce       string `json:"enforce"` // which of its flows were limited meanwhile: none, part or all
	FormerEnforce string `json:"hold"`    // former name of enforce, for one release (docs/names.md)

	RateBps      uint64  `json:"rate_bps"`
	BufferBytes  uint64  `json:"buffer_bytes"`
	TargetBytes  uint64  `json:"target_bytes"`
	RTTMs        float64 `json:"rtt_ms"`           // of an empty queue, as used in the calculation
	HandshakeMs  float64 `json:"handshake_rtt_ms"` // shortest one measured; 0: none
	Flows        float64 `json:"flows"`            // mean over the time with flows
	FlowsMost    float64 `json:"flows_most"`
	FlowsSeen    int     `json:"flows_seen"`    // different ones
	OtherPercent float64 `json:"other_percent"` // of the rate: traffic that is not data of these flows

	Now  QueueNow  `json:"now"`
	Then QueueThen `json:"then"`

	Limited      int           `json:"limited"` // flows that mostly had more in flight than the window
	LimitedFlows []LimitedFlow `json:"limited_flows"`
	LimitedNow   int           `json:"limited_now"` // flows that are limited already
	Notes        []string      `json:"notes,omitempty"`
}

// QueueNow is what was measured.
type QueueNow struct {
	Samples        uint64  `json:"samples"`
	MeanBytes      float64 `json:"queue_mean_bytes"`
	P99Bytes       float64 `json:"queue_p99_bytes"`
	MostBytes      uint32  `json:"queue_most_bytes"`
	DropsPerSecond float64 `json:"drops_per_s"`
	SentBps        float64 `json:"sent_bps"`
	GrantBytes     float64 `json:"grant_bytes"` // mean of the window that flows were limited to; 0: no flow was limited
}

// QueueThen is what is expected when the law limits all flows.
type QueueThen struct {
	WindowBytes     uint64  `json:"window_bytes"`      // of each flow that fills its window
	WindowMostBytes uint64  `json:"window_most_bytes"` // if flows that need less leave the rest
	CanaryBytes     uint64  `json:"canary_bytes"`      // window of the limited flows of a small canary
	MeanBytes       float64 `json:"queue_mean_bytes"`
	LeastBytes      float64 `json:"queue_least_bytes"`
	MostBytes       float64 `json:"queue_most_bytes"`
	DropsPerSecond  float64 `json:"drops_per_s"`
	DropsMost       float64 `json:"drops_most_per_s"`
	NewFlows        int     `json:"new_flows"` // flows that may begin at the same time without a drop

	PacedPercent    float64 `json:"paced_percent"` // of the time: a port with credits would pace
	ParkedPerSecond float64 `json:"parked_per_s"`  // acknowledgements that would wait with credits, mean over the whole time
	WaitMs          float64 `json:"wait_ms"`       // of each of them

	Newcomers int `json:"newcomers"` // former name of new_flows, for one release (docs/names.md)
}

// ObserveFor is the duration of an observation, and the number of flows to list per port.
type ObserveFor struct {
	Time time.Duration // 1s to 24h
	List int           // 0 to 10000
}

// Check returns an error if a value is out of range.
func (o *ObserveFor) Check() error {
	if o.Time < time.Second || o.Time > 24*time.Hour {
		return fmt.Errorf("observe for %s: use 1s to 24h", law.Duration(o.Time))
	}
	if o.List < 0 || o.List > flowsListMax {
		return fmt.Errorf("list %d flows: use 0 to %d", o.List, flowsListMax)
	}
	return nil
}

// Observe predicts the effect of the law of c on the ports that c names. It observes for the time of o, or until ctx is
// done, and changes no packet. If a running weir switch has all of the ports, it reads the tables of that. If none has
// any of them, it attaches a program that only observes, and detaches it at the end. Otherwise it returns
// *ObserveApart.
func Observe(ctx context.Context, c *Config, o ObserveFor) (*Observation, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	found, err := observedDevices(c)
	if err != nil {
		return nil, err
	}
	w, err := watchThem(c, found)
	if err != nil {
		return nil, err
	}
	err = w.run(ctx, o.Time)
	if err = errors.Join(err, w.source.close()); err != nil {
		return nil, err
	}
	return w.report(o.List), nil
}

// observedDevices returns the existing ports that can be observed. Each port given by name must be one.
func observedDevices(c *Config) ([]candidate, error) {
	rules := newRules(c.laws(), c.Ports)
	all, err := rules.look()
	if err != nil {
		return nil, err
	}
	var found []candidate
	for i := range all {
		switch n := &all[i]; {
		case n.err == nil:
			found = append(found, *n)
		case n.byName:
			return nil, n.err
		default:
			c.logger().Warn("cannot observe", "port", n.name, "reason", n.err.Error())
		}
	}
	for _, name := range rules.names() {
		if !slices.ContainsFunc(found, func(n candidate) bool { return n.name == name }) {
			return nil, fmt.Errorf("port %s: no such device; check the name and the network namespace", name)
		}
	}
	if len(found) == 0 {
		return nil, errors.New("no port to observe: no device matches; name at least one")
	}
	return found, nil
}

// observedPort is a port during the observation.
type observedPort struct {
	candidate
	law        string // its title
	gather     *gather
	handshake  time.Duration // shortest
	mode       reading.Mode
	most       uint32  // longest queue
	grants     float64 // sum of the limits over so many samples
	granted    int
	begin, end portReading
}

// observer observes ports.
type observer struct {
	source observeSource
	ports  []*observedPort
	byName map[string]*observedPort
	began  time.Time
	lasted time.Duration
	queues map[int]uint32 // as last read from the queue disciplines
	readAt time.Time
}

const (
	samplePort  = 500 * time.Microsecond // between two samples, per port
	sampleLeast = 5 * time.Millisecond
	sampleMost  = 100 * time.Millisecond
	sampleFresh = 25 * time.Millisecond // an older sample of the kernel program is not used
	queuesEvery = 50 * time.Millisecond // between two readings of the queue disciplines, for ports that the kernel program does not sample
	warmUp      = 3                     // heartbeats until the flows that existed before are known
)

func watchThem(c *Config, found []candidate) (*observer, error) {
	w := &observer{byName: map[string]*observedPort{}}
	for i := range found {
		n := &found[i]
		f := n.params[0].Figures()
		frame := float64(f.MTU) + ethernet
		p := &observedPort{candidate: *n, law: c.Laws[0].title}
		p.gather = newGather(load{
			Rate: n.line.rate, RTT: n.line.rtt.Seconds(), Buffer: n.line.buffer, Target: n.line.target,
			Cap: float64(f.Cap), Floor: float64(f.Floor), LongestWait: f.LongestWait.Seconds(), Frame: frame, Segment: n.line.segment,
		})
		w.ports = append(w.ports, p)
		w.byName[n.name] = p
	}
	var err error
	w.source, err = newObserveSource(c, found)
	return w, err
}

// run observes for the given time or until ctx is done.
func (w *observer) run(ctx context.Context, long time.Duration) error {
	sample := time.NewTicker(min(max(time.Duration(len(w.ports))*samplePort, sampleLeast), sampleMost))
	defer sample.Stop()
	tick := time.NewTicker(reading.HeartbeatInterval)
	defer tick.Stop()
	ticks := 0
	var over <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return w.finish()
		case <-over:
			return w.finish()
		case <-tick.C:
			ticks++
			if err := w.source.heartbeat(); err != nil {
				return err
			}
			if ticks == warmUp {
				if err := w.start(); err != nil {
					return err
				}
				over = time.After(long)
			}
			if ticks >= warmUp {
				if err := w.look(); err != nil {
					return err
				}
			}
		case <-sample.C:
			if ticks >= warmUp {
				if err := w.sample(); err != nil {
					return err
				}
			}
		}
	}
}

func (w *observer) start() error {
	w.began = time.Now()
	return w.read(func(p *observedPort) *portReading { return &p.begin })
}

func (w *observer) finish() error {
	if w.began.IsZero() {
		return errors.New("ended before anything was observed; observe for longer")
	}
	w.lasted = time.Since(w.began)
	return w.read(func(p *observedPort) *portReading { return &p.end })
}

// read reads the counters.
func (w *observer) read(into func(*observedPort) *portReading) error {
	queues, err := attach.ReadRootQueues()
	if err != nil {
		return err
	}
	for _, p := range w.ports {
		stats, err := w.source.stats(p.name)
		if err != nil {
			return err
		}
		*into(p) = portReading{stats: stats, queue: queues.Of(p.ifindex)}
	}
	return nil
}

// sample reads the queues.
func (w *observer) sample() error {
	for _, p := range w.ports {
		s, err := w.source.stats(p.name)
		if err != nil {
			return err
		}
		bytes := s.QueueBytes
		if s.SampledAt == 0 || s.SampleAge > sampleFresh {
			if bytes, err = w.queueOf(p.ifindex); err != nil {
				return err
			}
		}
		p.gather.sampled(bytes)
		if s.GrantBytes > 0 {
			p.grants += float64(s.GrantBytes)
			p.granted++
		}
		p.most = max(p.most, bytes)
		if w.source.name() == "" { // it counts from the beginning of the observation
			p.most = max(p.most, s.QueueMax)
		}
	}
	return nil
}

// queueOf returns the queue of a port that the kernel program did not sample because it has no flows.
func (w *observer) queueOf(ifindex int) (uint32, error) {
	if time.Since(w.readAt) > queuesEvery {
		q, err := Queues()
		if err != nil {
			return 0, err
		}
		w.queues, w.readAt = q, time.Now()
	}
	return w.queues[ifindex], nil
}

// look reads the flows in one pass over the table.
func (w *observer) look() error {
	flows := map[string][]flowNow{}
	err := w.source.eachFlow(func(port string, f reading.Flow) bool {
		if f.Signed || f.InFlightBytes == 0 || len(flows[port]) == flowsKept {
			return true
		}
		now := flowNow{From: f.From, To: f.To, InFlight: float64(f.InFlightBytes), Offered: float64(f.OfferedBytes), Scale: f.Scale}
		if f.Limited && f.GrantedBytes < f.OfferedBytes {
			now.Limit = float64(f.GrantedBytes)
		}
		flows[port] = append(flows[port], now)
		return true
	})
	if err != nil {
		return err
	}
	for _, p := range w.ports {
		s, err := w.source.stats(p.name)
		if err != nil {
			return err
		}
		p.mode = s.Mode
		if h := s.HandshakeRTT; h > 0 && (p.handshake == 0 || h < p.handshake) {
			p.handshake = h
			p.gather.base.RTT = min(p.line.rtt, h).Seconds()
		}
		p.gather.looked(s.Flows, flows[p.name])
	}
	return nil
}
