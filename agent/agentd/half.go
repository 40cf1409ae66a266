package agentd

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"weir/bus/weirv1"
	"weir/config"
	"weir/datapath/host"
	"weir/law"
	"weir/law/inventory"
	"weir/law/telemetry"
)

// halfOwner is the owner of the rates that a law's half at this host grants. Controllers have the others.
const halfOwner = law.Owner(host.Owners - 1)

// readSentAtMost limits how often the half learns what the VMs sent.
const readSentAtMost = 5 * time.Millisecond

// half is the part of a controller's law that runs at a host: it decides the rates of the VMs from the controller's marks. One
// goroutine steps the law.
type half struct {
	name  string
	clear string // what the host does with the ECN field
	above string // what it does with packets above a rate
	law   law.Law
	every time.Duration // between two events with what the VMs sent
	role  *hostRole
	log   *slog.Logger
	begun time.Duration

	pairs *pairs // of a law whose hosts return marks to one another; nil: a controller sends them

	poke chan struct{}

	mu     sync.Mutex
	peers  *peers // agents that may return marks
	vms    ranges[law.VM]
	marked []telemetry.Marked // of commands
	has    *inventory.Host    // the VMs; nil: not known yet
	shares map[law.VM]inventory.Guarantee
	news   bool // has or shares changed
	counts HalfStatus

	returns ReturnsStatus // what other hosts returned
}

// HalfStatus is the state of a law's half at this host.
type HalfStatus struct {
	Law     string `json:"law"`
	Marks   uint64 `json:"marks"`  // messages
	Lost    uint64 `json:"lost"`   // of them, because they came faster than they were taken
	Steps   uint64 `json:"steps"`  // of the law
	Granted uint64 `json:"rates"`  // set
	Failed  uint64 `json:"failed"` // readings of what the VMs sent
	// Guarantees is the number of VMs to which policies guarantee something.
	Guarantees int `json:"guarantees"`
	// Returns is what hosts return to one another; nil: a controller sends marks.
	Returns *ReturnsStatus `json:"returns,omitempty"`
}

// marksWaiting is how many messages may wait for the law.
const marksWaiting = 4096

// newHalf makes the law that a file names under host.laws; nil: it names none.
func newHalf(c *Host, specs law.Specs, log *slog.Logger) (*half, error) {
	name, params, spec, err := c.half(specs)
	if err != nil || name == "" {
		return nil, err
	}
	l, err := spec.New(law.Uplink, params, &law.Topology{})
	if err != nil {
		return nil, fmt.Errorf("host.laws.%s: %w", name, err)
	}
	h := &half{name: name, law: l, every: readSentAtMost, log: log.With("law", name), begun: clock(), poke: make(chan struct{}, 1)}
	h.counts.Law = name
	if spec.Clear != nil {
		h.clear = spec.Clear(params)
	}
	if spec.Excess != nil {
		h.above = spec.Excess(params)
	}
	if spec.Interval != nil {
		h.every = max(h.every, spec.Interval(params).Std())
	}
	if spec.ReturnsMarks() {
		if h.pairs, err = newPairs(spec, params, h.log); err != nil {
			return nil, fmt.Errorf("host.laws.%s: %w", name, err)
		}
		h.setPeers(c.Peers)
	}
	return h, nil
}

// half reads the law that host.laws names, with its parameters.
func (c *Host) half(specs law.Specs) (name string, params any, spec *law.Spec, err error) {
	for name = range c.Laws {
	}
	if name == "" {
		return "", nil, nil, nil
	}
	spec, known := specs.Named(name)
	if !known || !hasHalf(spec) {
		var allowed []string
		for i := range specs {
			if hasHalf(&specs[i]) {
				allowed = append(allowed, specs[i].Name)
			}
		}
		return "", nil, nil, fmt.Errorf("host.laws: %q is no law with a half at a host; %s", config.Clip(name), config.OneOf(name, allowed))
	}
	if c.Rate == 0 {
		return "", nil, nil, fmt.Errorf("host.laws.%s: it limits rates: set host.uplink.rate", name)
	}
	text, err := json.Marshal(c.Laws[name])
	if err != nil {
		return "", nil, nil, fmt.Errorf("host.laws.%s: %w", name, err)
	}
	params = spec.Params()
	if err := config.DecodeParams(text, params); err != nil {
		return "", nil, nil, fmt.Errorf("host.laws.%s: %w", name, err)
	}
	if _, err := spec.New(law.Uplink, params, &law.Topology{}); err != nil {
		return "", nil, nil, fmt.Errorf("host.laws.%s: %w", name, err)
	}
	if spec.Agents != nil {
		if err := spec.Agents(params); err != nil {
			return "", nil, nil, fmt.Errorf("host.laws.%s: %w", name, err)
		}
	}
	if spec.ReturnsMarks() && len(c.Peers) == 0 {
		return "", nil, nil, fmt.Errorf("host.laws.%s: it returns marks to the hosts that sent the packets: set host.peers", name)
	}
	return name, params, spec, nil
}

// hasHalf reports whether a law has a half at hosts, and marks come to it: of a controller, or of other hosts.
func hasHalf(s *law.Spec) bool {
	return s.ReturnsMarks() || s.New != nil && slices.Contains(s.Sites, law.Uplink) && slices.Contains(s.Sites, law.Controller)
}

// CheckLaws checks the laws of a host's file against those of a build.
func (c *Config) CheckLaws(specs law.Specs) error {
	if c.Host == nil {
		return nil
	}
	_, _, _, err := c.Host.half(specs)
	return err
}

// sameLaws reports whether two files name the same law with the same parameters.
func sameLaws(a, b map[string]map[string]any) bool {
	x, err := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return errors.Join(err, err2) == nil && bytes.Equal(x, y)
}

// ecn is what the host does with the ECN field.
func (h *half) ecn() string {
	if h == nil {
		return ""
	}
	return h.clear
}

// excess is what the host does with packets above a VM's rate; "": the default.
func (h *half) excess() string {
	if h == nil {
		return ""
	}
	return h.above
}

// take takes the marks out of a command's grants. It returns the others.
func (h *half) take(list []law.Grant) []law.Grant {
	h.mu.Lock()
	defer h.mu.Unlock()
	rest := slices.DeleteFunc(list, func(g law.Grant) bool {
		if g.Kind != law.MarksGrant {
			return false
		}
		h.mark(g.Key.VM, g.Value)
		return true
	})
	if len(h.marked) > 0 {
		h.wake()
	}
	return rest
}

// mark has the law get marks of a VM. The caller holds mu.
func (h *half) mark(vm law.VM, marks uint64) {
	h.counts.Marks++
	if len(h.marked) == marksWaiting {
		h.counts.Lost++
		return
	}
	h.marked = append(h.marked, telemetry.Marked{VM: vm, Marks: marks})
}

// set passes the law another list of VMs.
func (h *half) set(has *inventory.Host) {
	h.mu.Lock()
	h.has, h.news = has, true
	h.vms = ranges[law.VM]{}
	for _, vm := range has.VMs {
		for _, p := range vm.Addresses {
			h.vms.add(p, vm.Number)
		}
	}
	h.mu.Unlock()
	h.wake()
}

// promise passes the law the guarantees of VMs. VMs that the plan leaves out have none.
func (h *half) promise(plan *weirv1.HostPlan) {
	shares := map[law.VM]inventory.Guarantee{}
	for _, g := range plan.GetGuests() {
		shares[law.VM(g.GetVm())] = inventory.Guarantee{Rate: law.Rate(g.GetRate()), Weight: g.GetWeight()}
	}
	h.mu.Lock()
	h.shares, h.news = shares, true
	h.counts.Guarantees = len(shares)
	h.mu.Unlock()
	h.wake()
}

// guests returns the VMs with their guarantees; nil: the law has them. The caller holds mu.
func (h *half) guests() *inventory.Host {
	if !h.news || h.has == nil {
		return nil
	}
	h.news = false
	has := &inventory.Host{At: h.has.At, Rate: h.has.Rate, VMs: slices.Clone(h.has.VMs)}
	for i := range has.VMs {
		has.VMs[i].Guarantee = h.shares[has.VMs[i].Number]
	}
	return has
}

func (h *half) wake() {
	select {
	case h.poke <- struct{}{}:
	default:
	}
}

// status returns the counts.
func (h *half) status() *HalfStatus {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.counts
	if h.pairs != nil {
		returns := h.returns
		h.pairs.count(&returns)
		s.Returns = &returns
	}
	return &s
}

// run steps the law until stop.
func (h *half) run(stop <-chan struct{}) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	sent := map[law.VM]uint64{} // at the last reading
	read := clock()
	for {
		select {
		case <-stop:
			return
		case <-h.poke:
		case <-timer.C:
		}
		out := h.stepNews(nil)
		now := clock()
		if now-read >= h.every {
			if e := h.sent(sent, now-read); e != nil {
				out = h.step(e, out)
			}
			read = now
		}
		if w := h.law.Wake(); w != 0 && w <= clock()-h.begun {
			out = h.step(law.Tick{}, out)
		}
		h.enforce(out)
		next := read + h.every
		if w := h.law.Wake(); w != 0 {
			next = min(next, h.begun+w)
		}
		timer.Reset(max(next-clock(), 0))
	}
}

func (h *half) step(e law.Event, out []law.Action) []law.Action {
	h.mu.Lock()
	h.counts.Steps++
	h.mu.Unlock()
	return h.law.Step(clock()-h.begun, e, out)
}

// stepNews steps the law with what came since the last call.
func (h *half) stepNews(out []law.Action) []law.Action {
	h.mu.Lock()
	has, marked := h.guests(), h.marked
	h.marked = nil
	h.mu.Unlock()
	if has != nil {
		out = h.step(has, out)
	}
	for i := range marked {
		out = h.step(&marked[i], out)
	}
	return out
}

// sent returns what the VMs sent since the last reading; nil: it cannot be read.
func (h *half) sent(before map[law.VM]uint64, t time.Duration) *telemetry.Sent {
	k, _ := h.role.host()
	if k == nil {
		return nil
	}
	now := map[law.VM]uint64{}
	if err := k.Sent(now); err != nil {
		h.mu.Lock()
		h.counts.Failed++
		h.mu.Unlock()
		return nil
	}
	e := &telemetry.Sent{T: t}
	for _, vm := range slices.Sorted(maps.Keys(now)) {
		if was, known := before[vm]; known && now[vm] > was {
			e.VMs = append(e.VMs, telemetry.VMSent{VM: vm, Packets: now[vm] - was})
		}
	}
	clear(before)
	maps.Copy(before, now)
	return e
}

// enforce sets the rates that the law decided.
func (h *half) enforce(actions []law.Action) {
	k, _ := h.role.host()
	if k == nil || len(actions) == 0 {
		return
	}
	var list []law.Grant
	for _, a := range actions {
		g, is := a.(law.Grant)
		if !is {
			h.log.Error("the law has an action that a host cannot carry out", "kind", fmt.Sprintf("%T", a))
			continue
		}
		g.Owner = halfOwner
		list = append(list, g)
	}
	n := h.role.grants.Own(k, list)
	h.mu.Lock()
	h.counts.Granted += uint64(n)
	h.mu.Unlock()
}
