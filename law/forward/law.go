// Package forward is the law by which Weir's controller forwards: which switches there are and how they are
// linked, where hosts are, and along which ports frames go. It is a step function over plain values
// (law.Law), without input or output, clock or randomness.
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
// No frame ever goes round, also while switches are being changed one by one: see wave.go.
package forward

import (
	"fmt"
	"time"

	"weir/law"
	"weir/law/fabric"
)

// Config says how the law works. Default gives every value.
type Config struct {
	Key []byte // signs what finds links; of this process alone, so that what was signed before is void

	ProbeEvery time.Duration // link discovery, each port
	LinkAge    time.Duration // a link that no probe crossed for so long is gone
	Settle     time.Duration // a port where no other switch was found for so long may have hosts
	MoveHold   time.Duration // between two moves of a host
	HostIdle   uint16        // seconds; a host that sent nothing for so long is forgotten
	TakeOver   time.Duration // switches that were found forwarding are left as they are until their links are found, at most so long
	Adopt      time.Duration // what was found of hosts not seen yet stays for so long

	SwitchesMax            int
	HostsMax, HostsPerPort int
	AddressesPerHost       int
	PinsMax                int
	FloodsPerSecond        int // from one port
	FloodBurst             int

	Rates Rates
}

// Rates limit what comes to the controller from one switch, packets a second of each kind.
type Rates struct {
	Probe, ARP, Copy, Source, Miss uint32
}

// Default is right for a fabric of some hundred ports. Copy bounds SYN, FIN and RST each.
func Default() Config {
	return Config{
		ProbeEvery: 500 * time.Millisecond, LinkAge: 5 * time.Second, Settle: time.Second,
		MoveHold: time.Second, HostIdle: 300, TakeOver: 3 * time.Second, Adopt: 10 * time.Second,
		SwitchesMax: 1024, HostsMax: 4096, HostsPerPort: 64, AddressesPerHost: 8, PinsMax: 1024,
		FloodsPerSecond: 50, FloodBurst: 100,
		Rates: Rates{Probe: 1000, ARP: 500, Copy: 2000, Source: 500, Miss: 500},
	}
}

// Check refuses what cannot work.
func (c *Config) Check() error {
	switch {
	case len(c.Key) < 16:
		return fmt.Errorf("forward: a key of %d bytes: at least 16", len(c.Key))
	case c.ProbeEvery < tick || c.LinkAge < 2*c.ProbeEvery || c.LinkAge > 10*c.ProbeEvery:
		return fmt.Errorf("forward: probes every %v, links gone after %v: at least %v, and 2 to 10 times that", c.ProbeEvery, c.LinkAge, tick)
	case c.SwitchesMax < 1 || c.HostsMax < 1 || c.HostsPerPort < 1 || c.AddressesPerHost < 1 || c.PinsMax < 0 || c.FloodsPerSecond < 1 || c.FloodBurst < 1:
		return fmt.Errorf("forward: a limit is missing: %+v", *c)
	}
	return nil
}

const tick = 100 * time.Millisecond // between two looks at what time alone changes

// Law forwards. Make one with New.
type Law struct {
	cfg    Config
	now    time.Duration
	next   time.Duration // tick
	probes uint64        // sent, numbers them

	switches  map[law.Switch]*datapath
	hosts     map[fabric.MAC]*host
	unplaced  map[fabric.MAC]*host                 // some switch may not have their flow yet
	clearing  map[fabric.MAC]map[law.Switch]uint64 // flows being taken off, and the barriers that confirm it
	owners    map[fabric.IPv4]fabric.MAC
	routes    map[law.Switch]*route // to each switch that has hosts
	groupIDs  map[uint32]law.Switch
	pins      map[fabric.Tuple]*pin
	unpinning map[law.Switch]uint64 // pins being taken off, and the barriers that confirm it

	told         []*datapath   // in this step
	takingOver   time.Duration // until then; 0: not
	graphChanged bool          // routes are to be found again
	waving       bool          // a wave is not through
	pinsWait     bool          // a pin may find a path now
	collect      bool          // something may be of no use any more
	counts       Counts
	out          []law.Action
	frame        []byte // of actions of this step
}

// Counts are of what the law refused, and of what it did, since it began.
type Counts struct {
	LinksForged     uint64 `json:"links_forged"`     // probes with a wrong tag, a stale one, or from a host's port
	SwitchesRefused uint64 `json:"switches_refused"` // over the limit
	PortsRefused    uint64 `json:"ports_refused"`    // over the limit of a switch
	HostsRefused    uint64 `json:"hosts_refused"`    // over a limit
	MovesRefused    uint64 `json:"moves_refused"`    // too soon after another
	Moves           uint64 `json:"moves"`            //
	FloodsRefused   uint64 `json:"floods_refused"`   // over the limit of a port
	Floods          uint64 `json:"floods"`           //
	Answered        uint64 `json:"answered"`         // ARP requests
	Delivered       uint64 `json:"delivered"`        // single frames, by the controller
	PinsRefused     uint64 `json:"pins_refused"`     //
	SYN             uint64 `json:"syn"`              // copies seen
	FIN             uint64 `json:"fin"`              //
	RST             uint64 `json:"rst"`              //
	Waves           uint64 `json:"waves"`            // changes of routes
}

// New makes a law that knows nothing yet.
func New(c Config) (*Law, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	return &Law{
		cfg: c, next: tick,
		switches: map[law.Switch]*datapath{}, hosts: map[fabric.MAC]*host{}, owners: map[fabric.IPv4]fabric.MAC{},
		unplaced: map[fabric.MAC]*host{}, clearing: map[fabric.MAC]map[law.Switch]uint64{},
		routes: map[law.Switch]*route{}, groupIDs: map[uint32]law.Switch{}, pins: map[fabric.Tuple]*pin{}, unpinning: map[law.Switch]uint64{},
	}, nil
}

// Wake is when time alone may change something.
func (l *Law) Wake() time.Duration { return l.next }

// Step takes one event and appends what is to be done.
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

// tick sees to what time alone changes.
func (l *Law) tick() {
	for _, d := range sorted(l.switches) {
		l.tickPorts(d)
	}
	l.ageLinks()
	l.ageHosts()
	l.clean()
}

// confirmed notes how far a switch has come.
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
		l.unpin(e.Flow.Match.Tuple)
	}
}

// settle brings the switches towards what is wanted, as far as the order of changes allows now.
func (l *Law) settle() {
	if l.graphChanged && !l.held() {
		l.graphChanged = false
		l.findRoutes()
	}
	if l.checkPins() {
		l.advance()
	}
	l.placeHosts()
	l.placePins()
}
