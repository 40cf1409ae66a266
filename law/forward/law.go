// Package forward is the law by which Weir's controller forwards. It finds switches, links and hosts, and the ports for their
// frames. It is a step function over plain values (law.Law), without input or output, clock or randomness.
//
//	law.go      what it knows; one event at a time
//	tables.go   what every switch holds
//	switches.go switches and their ports
//	lldp.go     the frame that finds links
//	links.go    links between switches
//	hosts.go    hosts: learnt, moved, forgotten
//	frames.go   frames that come to the controller: answered, delivered, flooded
//	routes.go   shortest paths
//	wave.go     routes changed without a loop at any moment
//	pins.go     single flows on a path of their own, the same both ways
//	status.go   what it knows, for people
//
// No frame ever loops, even while switches are changed one by one: see wave.go.
package forward

import (
	"fmt"
	"time"

	"weir/law"
	"weir/law/fabric"
)

// Config configures the law. Default sets every value except Key.
type Config struct {
	Key []byte // signs the probes that find links; only this process has it, so that older probes are invalid

	ProbeEvery time.Duration // link discovery, each port
	LinkAge    time.Duration // a link that no probe crossed for this time is down
	Settle     time.Duration // a port where no other switch was found for this time may have hosts; one that was part of a link waits for 6 times LinkAge
	MoveHold   time.Duration // least time between two moves of a host
	HostIdle   uint16        // seconds; a host that sent nothing for this time is forgotten
	TakeOver   time.Duration // switches that were found forwarding stay unchanged until their links are found, at most this long
	Adopt      time.Duration // flows that were found, of hosts not seen yet, stay for this time; for HostIdle while a link is missing

	SwitchesMax            int
	HostsMax, HostsPerPort int
	AddressesPerHost       int
	PinsMax                int
	FloodsPerSecond        int // from one port
	FloodBurst             int

	Rates Rates
}

// Rates limits the packets that one switch sends to the controller, in packets per second of each kind.
type Rates struct {
	Probe, ARP, Copy, Source, Miss uint32
}

// Default returns values for a fabric of some hundred ports. Copy limits SYN, FIN and RST each.
func Default() Config {
	return Config{
		ProbeEvery: 500 * time.Millisecond, LinkAge: 5 * time.Second, Settle: time.Second,
		MoveHold: time.Second, HostIdle: 300, TakeOver: 3 * time.Second, Adopt: 10 * time.Second,
		SwitchesMax: 1024, HostsMax: 4096, HostsPerPort: 64, AddressesPerHost: 8, PinsMax: 1024,
		FloodsPerSecond: 50, FloodBurst: 100,
		Rates: Rates{Probe: 1000, ARP: 500, Copy: 2000, Source: 500, Miss: 500},
	}
}

// Check returns an error for values that cannot work.
func (c *Config) Check() error {
	switch {
	case len(c.Key) < 16:
		return fmt.Errorf("forward: Key has %d bytes: use at least 16", len(c.Key))
	case c.ProbeEvery < tick || c.LinkAge < 2*c.ProbeEvery || c.LinkAge > 10*c.ProbeEvery:
		return fmt.Errorf("forward: ProbeEvery is %v and LinkAge %v: ProbeEvery must be at least %v, and LinkAge 2 to 10 times ProbeEvery", c.ProbeEvery, c.LinkAge, tick)
	case c.SwitchesMax < 1 || c.HostsMax < 1 || c.HostsPerPort < 1 || c.AddressesPerHost < 1 || c.PinsMax < 0 || c.FloodsPerSecond < 1 || c.FloodBurst < 1:
		return fmt.Errorf("forward: each limit must be 1 or more (PinsMax: 0 or more): %+v", *c)
	}
	return nil
}

const tick = 100 * time.Millisecond // between two checks of timeouts

// Law forwards. Make one with New.
type Law struct {
	cfg    Config
	now    time.Duration
	next   time.Duration // tick
	probes uint64        // sent, numbers them

	switches  map[law.Switch]*datapath
	hosts     map[fabric.MAC]*host
	unplaced  map[fabric.MAC]*host                 // some switch may not have their flow yet
	clearing  map[fabric.MAC]map[law.Switch]uint64 // flows that are being removed, and the barriers that confirm it
	owners    map[fabric.IPv4]owner
	routes    map[law.Switch]*route // to each switch that has hosts
	groupIDs  map[uint32]law.Switch
	pins      map[fabric.Tuple]*pin
	unpinning map[law.Switch]uint64 // pins that are being removed, and the barriers that confirm it

	ordered      []*datapath   // switches that got an order in this step
	takingOver   time.Duration // end of the take-over; 0: none
	takeOverMost time.Duration // its latest end
	takeOverNext time.Duration // begin of the next one at the earliest
	graphChanged bool          // routes must be found again
	waving       bool          // a wave is not complete
	pinsWait     bool          // a pin may find a path now
	collect      bool          // there may be unused flows or groups
	counts       Counts
	out          []law.Action
	frame        []byte // of actions of this step
}

// Counts holds the law's counters since it began.
type Counts struct {
	LinksForged     uint64 `json:"links_forged"`     // probes with a wrong tag, a stale one, or from a host's port
	SwitchesRefused uint64 `json:"switches_refused"` // over the limit
	PortsRefused    uint64 `json:"ports_refused"`    // over the limit of a switch
	HostsRefused    uint64 `json:"hosts_refused"`    // over a limit
	MovesRefused    uint64 `json:"moves_refused"`    // too soon after another
	Moves           uint64 `json:"moves"`            //
	FloodsRefused   uint64 `json:"floods_refused"`   // over the limit of a port
	Floods          uint64 `json:"floods"`           //
	LinkLocal       uint64 `json:"link_local"`       // frames for the next bridge only, not forwarded
	Answered        uint64 `json:"answered"`         // ARP requests
	Delivered       uint64 `json:"delivered"`        // single frames, by the controller
	PinsRefused     uint64 `json:"pins_refused"`     //
	SYN             uint64 `json:"syn"`              // copies seen
	FIN             uint64 `json:"fin"`              //
	RST             uint64 `json:"rst"`              //
	Waves           uint64 `json:"waves"`            // changes of routes
}

// New makes a law without any state.
func New(c Config) (*Law, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	return &Law{
		cfg: c, next: tick,
		switches: map[law.Switch]*datapath{}, hosts: map[fabric.MAC]*host{}, owners: map[fabric.IPv4]owner{},
		unplaced: map[fabric.MAC]*host{}, clearing: map[fabric.MAC]map[law.Switch]uint64{},
		routes: map[law.Switch]*route{}, groupIDs: map[uint32]law.Switch{}, pins: map[fabric.Tuple]*pin{}, unpinning: map[law.Switch]uint64{},
	}, nil
}

// Wake returns the time of the next tick.
func (l *Law) Wake() time.Duration { return l.next }

// Step takes one event and appends actions.
func (l *Law) Step(now time.Duration, e law.Event, out []law.Action) []law.Action {
	l.now, l.out = max(now, l.now), out
	switch e := e.(type) {
	case *fabric.Joined:
		l.joined(e)
	case *fabric.Left:
		l.left(e.Switch)
	case *fabric.PortChanged:
		l.portChanged(e)
	case *fabric.PacketIn:
		l.packetIn(e)
	case *fabric.Confirmed:
		l.confirmed(e)
	case *fabric.Expired:
		l.expired(e)
	case *fabric.PinAsked:
		l.pinAsked(e)
	case *fabric.PinDropped:
		l.pinDropped(e.Tuple)
	}
	if l.now >= l.next {
		l.tick()
		l.next = l.now + tick
	}
	l.settle()
	l.barriers()
	out, l.out = l.out, nil
	return out
}

// tick handles timeouts.
func (l *Law) tick() {
	for _, d := range sorted(l.switches) {
		l.tickPorts(d)
	}
	l.ageLinks()
	l.ageHosts()
	l.clean()
}

// confirmed records the newest barrier that a switch has confirmed.
func (l *Law) confirmed(e *fabric.Confirmed) {
	if d := l.switches[e.Switch]; d != nil && d.joined && e.Serial <= d.serial {
		d.confirmed = max(d.confirmed, e.Serial)
	}
}

func (l *Law) expired(e *fabric.Expired) {
	d := l.switches[e.Switch]
	if d == nil {
		return
	}
	flow, ours := d.flows[e.Flow]
	if !ours {
		return
	}
	delete(d.flows, e.Flow)
	switch flow.Kind {
	case fabric.Source:
		if h := l.hosts[e.Flow.Match.EthSrc]; h != nil && h.at == (law.Port{Switch: e.Switch, N: e.Flow.Match.InPort}) {
			l.forget(h)
		}
	case fabric.Pinned:
		l.expiredPin(e.Switch, e.Flow.Match.Tuple)
	}
}

// settle changes the switches towards the wanted state, as far as the order of changes allows now.
func (l *Law) settle() {
	if l.graphChanged && !l.findingLinks() {
		l.graphChanged = false
		l.findRoutes()
	}
	if l.checkPins() {
		l.advance()
	}
	l.placeHosts()
	l.placePins()
}
