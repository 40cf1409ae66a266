package agentd

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"weir/bus"
	"weir/bus/pki"
	"weir/bus/weirv1"
	"weir/datapath/attach"
	"weir/datapath/host"
	"weir/law"
)

const (
	stateEvery     = 250 * time.Millisecond
	inventoryEvery = 5 * time.Second
	// wholeAtMost limits how often announcements make the agent send everything.
	wholeAtMost = 100 * time.Millisecond
	// A message has at most grantsAMessage live grants, so that it fits the bus, and a report grantsAReport.
	grantsAMessage = 500
	grantsAReport  = 8 * grantsAMessage
)

// link is the agent's end of the bus: it reports the agent's state and inventory, and passes grants to the role host.
type link struct {
	*bus.Agent
	version string
	log     *slog.Logger
	host    *hostRole // nil: not this role
	plans   *planned  // nil: policies choose no laws
	hostOf  law.Host
	number  law.Switch // 0: not this role

	wake     chan struct{}
	declared chan struct{} // a program declared a deadline
	whole    atomic.Bool   // send everything
	fresh    atomic.Bool   // send the inventory
	lost     atomic.Uint64
	stray    atomic.Uint64 // grants for an agent without the role host
	tracer   tracer

	mu     sync.Mutex
	parts  map[bool][]*weirv1.Inventory // by whether it is the host's
	have   map[bool]*weirv1.Inventory   // the whole
	serial uint64
}

// certificate returns the files of the agent's certificate, and the name in it. name is the configured one.
func certificate(dir, name string, log *slog.Logger) (pki.Files, string, error) {
	if name == "" {
		var err error
		if name, err = pki.NameIn(dir); err != nil {
			return pki.Files{}, "", err
		}
	}
	files := pki.In(dir, name)
	keys, err := pki.Load(files, log)
	if err != nil {
		return files, "", fmt.Errorf("bus.keys: %w; enrol this agent: weir bus enrol agent/%s", err, name)
	}
	if id := keys.Identity(); id.Role != pki.Agent || id.Name != name {
		return files, "", fmt.Errorf("bus.keys: the certificate %s is for %v, want agent/%s", files.Own, id, name)
	}
	return files, name, nil
}

func clock() time.Duration { return time.Duration(attach.MonotonicNs()) }

// newLink connects the agent. Without a server it continues to try.
func newLink(c *Config, files pki.Files, h *hostRole, plans *planned, log *slog.Logger) (*link, error) {
	l := &link{
		version: c.Version, log: log, host: h, plans: plans, wake: make(chan struct{}, 1), declared: make(chan struct{}, 1),
		parts: map[bool][]*weirv1.Inventory{}, have: map[bool]*weirv1.Inventory{}, serial: uint64(time.Now().UnixMilli()),
	}
	if c.Host != nil {
		l.hostOf = c.Host.Number
	}
	if c.Switch != nil {
		l.number = c.Switch.Number
	}
	l.whole.Store(true)
	if h != nil && h.deadlines != nil {
		h.deadlines.wake = l.declaring
	}
	l.tracer = tracer{clock: clock, limited: func(vm law.VM) (uint64, bool) {
		if h, _ := l.host.host(); h != nil {
			return h.Limited(vm)
		}
		return 0, false
	}}
	cfg := bus.AgentConfig{
		Client:  bus.ClientConfig{URLs: c.Bus.URLs, Files: files, Log: log, Connected: l.everything},
		Buckets: c.Bus.Buckets, Terms: bus.TermFile{Path: c.State}, Clock: clock, Obey: l.obey, Announced: l.everything,
	}
	if h != nil && h.half != nil && h.half.pairs != nil {
		cfg.Marks = h.half.heard
	}
	var err error
	l.Agent, err = bus.NewAgent(cfg)
	return l, err
}

// everything has the whole state sent soon.
func (l *link) everything() {
	l.whole.Store(true)
	l.poke()
	if l.host != nil && l.host.deadlines != nil {
		l.host.deadlines.again()
		l.declaring()
	}
}

func (l *link) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// obey passes grants on. The fence has accepted the command.
func (l *link) obey(c *weirv1.Command, grants []law.Grant) {
	if plan := c.GetPlan(); plan != nil && l.plans != nil {
		l.plans.take(plan)
	}
	if plan := c.GetHostPlan(); plan != nil && l.host != nil {
		l.host.promise(plan)
	}
	if len(grants) == 0 {
		return
	}
	if l.host == nil {
		l.stray.Add(uint64(len(grants)))
		return
	}
	came := clock()
	w := l.tracer.begins(grants)
	l.host.obey(c.GetTerm(), time.Duration(c.GetEchoNs()), grants)
	l.tracer.obeyed(c, grants, came, clock(), w)
}

// changed sends the inventory if it is another than before.
func (l *link) changed(sw, host *weirv1.Inventory) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for isHost, now := range map[bool]*weirv1.Inventory{true: host, false: sw} {
		if isHost && l.hostOf == 0 || !isHost && l.number == 0 || l.have[isHost] != nil && proto.Equal(l.have[isHost], now) {
			continue
		}
		l.serial++
		numbered := &weirv1.Inventory{Serial: l.serial, Ports: now.GetPorts(), Guests: now.GetGuests(), Laws: now.GetLaws(), Hypervisor: now.GetHypervisor()}
		parts, err := numbered.Split()
		if err != nil {
			l.log.Error("controllers do not learn what this agent has", "error", err)
			continue
		}
		l.have[isHost], l.parts[isHost] = now, parts
		l.fresh.Store(true)
		l.poke()
	}
}

// events returns an empty message of a role.
func (l *link) events(isHost bool) *weirv1.Events {
	if isHost {
		return &weirv1.Events{Host: uint32(l.hostOf)}
	}
	return &weirv1.Events{Switch: uint64(l.number)}
}

// roles lists the roles of the agent: whether each is the host's.
func (l *link) roles() (out []bool) {
	if l.hostOf != 0 {
		out = append(out, true)
	}
	if l.number != 0 {
		out = append(out, false)
	}
	return out
}

// run sends the state and the inventory until stop.
func (l *link) run(stop <-chan struct{}) {
	state, inventory := time.NewTicker(stateEvery), time.NewTicker(inventoryEvery)
	defer state.Stop()
	defer inventory.Stop()
	var sent time.Time // when everything was sent last
	due := false
	for {
		select {
		case <-stop:
			return
		case <-inventory.C:
			l.fresh.Store(true)
		case <-l.wake:
		case <-state.C:
			due = true
		}
		if !l.Conn().Connected() {
			continue
		}
		if l.whole.Load() && time.Since(sent) >= wholeAtMost {
			l.whole.Store(false)
			l.fresh.Store(true)
			sent, due = time.Now(), false
			l.sendState(true)
		}
		if due {
			due = false
			l.sendState(false)
		}
		if l.fresh.Swap(false) {
			l.sendInventory()
		}
	}
}

// sendState reports what the agent obeys; with grants also those that are live.
func (l *link) sendState(grants bool) {
	for _, isHost := range l.roles() {
		var live []*weirv1.LiveGrant
		more := 0
		if grants && isHost {
			live, more = l.live()
		}
		for first := true; first || len(live) > 0; first = false {
			e := l.events(isHost)
			e.State = l.State(l.version)
			n := min(len(live), grantsAMessage)
			e.State.Grants, live = live[:n], live[n:]
			e.State.MoreGrants = uint32(len(live) + more)
			if isHost {
				e.State.Refused, e.State.HostPlan = l.host.grants.refusals(), l.host.promised()
			} else {
				e.State.Plan = l.plans.report()
			}
			l.sent(l.SendEvents(e))
		}
	}
}

// live lists the grants that the kernel has and that are valid, and returns how many more there are.
func (l *link) live() (out []*weirv1.LiveGrant, more int) {
	h, _ := l.host.host()
	if h == nil {
		return nil, 0
	}
	all, err := h.Grants(0)
	if err != nil {
		l.log.Warn("cannot read the live grants", "error", err)
	}
	bucket := l.Bucket()
	terms := l.host.grants.termsOf()
	for i := range all {
		g := &all[i]
		switch {
		case !g.Valid:
		case len(out) == grantsAReport:
			more++
		default:
			g.Lease = g.Expiry
			out = append(out, &weirv1.LiveGrant{Grant: weirv1.NewGrant(g.Grant), Bucket: bucket, Term: terms[g.Owner%host.Owners]})
		}
	}
	return out, more
}

func (l *link) sendInventory() {
	for _, isHost := range l.roles() {
		l.mu.Lock()
		parts := l.parts[isHost]
		l.mu.Unlock()
		for _, p := range parts {
			e := l.events(isHost)
			e.Inventory = p
			l.sent(l.SendEvents(e))
		}
	}
}

func (l *link) sent(err error) {
	if err != nil {
		l.lost.Add(1)
	}
}
