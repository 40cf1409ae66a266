package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"weir/controller/record"
	"weir/controller/sflow"
	"weir/internal/localsock"
	"weir/law"
	"weir/law/fabric"
	"weir/law/forward"
	"weir/law/poll"
	"weir/openflow/channel"
)

// Status is the state of a controller.
type Status struct {
	Name       string                   `json:"name"`
	Version    string                   `json:"version"`
	UpSeconds  int64                    `json:"up_seconds"`
	Active     string                   `json:"active,omitempty"` // the active controller, if this one stands by; then the fields below are empty
	Generation uint64                   `json:"generation"`
	Raises     uint64                   `json:"generation_raises"` // of Generation, because a switch called it stale
	Refused    map[string]string        `json:"refused"`           // switches that are not managed, with the reason
	Forward    forward.Status           `json:"forward"`
	Poll       map[string]poll.Counts   `json:"poll"`
	Ports      map[string][]PortCounter `json:"ports"`
	Core       CoreStatus               `json:"core"`
	Bus        *BusStatus               `json:"bus,omitempty"`      // null: the file has no bus
	SFlow      *sflow.Counts            `json:"sflow,omitempty"`    // null: the file has no key sflow
	Policies   *PoliciesStatus          `json:"policies,omitempty"` // null: the file has no bus
	Peers      PeersStatus              `json:"peers"`
	Record     *record.Status           `json:"record,omitempty"` // null: the file has no key record
}

// PeersStatus counts the connections, including those of peers that are no managed switches.
type PeersStatus struct {
	Now      int               `json:"now"`
	HalfOpen int               `json:"half_open"` // of Now: before the end of hello and features
	Accepted uint64            `json:"accepted"`
	Ended    map[string]uint64 `json:"ended"` // or refused, by cause
}

// PortCounter has the counters of one port from the last answer.
type PortCounter struct {
	Port      uint32 `json:"port"`
	RxPackets uint64 `json:"rx_packets"`
	TxPackets uint64 `json:"tx_packets"`
	RxBytes   uint64 `json:"rx_bytes"`
	TxBytes   uint64 `json:"tx_bytes"`
	RxDropped uint64 `json:"rx_dropped"`
	TxDropped uint64 `json:"tx_dropped"`
}

// CoreStatus has the figures of the core.
type CoreStatus struct {
	Frames        uint64 `json:"frames"`         // that came to the controller
	FramesDropped uint64 `json:"frames_dropped"` // above a limit of the controller
	EventsDropped uint64 `json:"events_dropped"` // changes of switches before they joined: these were read again
	Orders        uint64 `json:"orders"`
	Changes       uint64 `json:"changes"`        // of these: of flows, groups and meters
	OrdersRefused uint64 `json:"orders_refused"` // by switches
	ActionsLate   uint64 `json:"actions_late"`   // of laws, for a switch that had left: not carried out
	SlowestStepUs int64  `json:"slowest_step_us"`
	Steps         uint64 `json:"steps"`   // events and ticks
	LawsUs        int64  `json:"laws_us"` // of all steps, with the orders that follow from them

	// Grants counts the windows and rates that laws granted without effect, by law: the controller's file has no bus.
	Grants map[string]uint64 `json:"grants"`
	// Unknown counts the actions that this controller has no route for, by law and kind. They had no effect.
	Unknown map[string]uint64 `json:"unknown_actions"`
}

func (r *term) status() *Status {
	generation, raises := r.core.fence.now()
	s := &Status{
		Name: r.cfg.Name, Version: r.cfg.Version, UpSeconds: int64(time.Since(r.begun).Seconds()), Generation: generation, Raises: raises,
		Refused: map[string]string{}, Poll: map[string]poll.Counts{}, Ports: map[string][]PortCounter{}, Forward: r.forward.Status(),
		Core: r.core.status(), Bus: r.core.agents.status(), SFlow: r.sflow.status(), Policies: r.core.policies(), Peers: r.peers(), Record: r.recordStatus(),
	}
	for id, why := range r.core.refused {
		s.Refused[id.String()] = why
	}
	for id, c := range r.poll.Counts() {
		s.Poll[id.String()] = c
	}
	for id, of := range r.core.sessions {
		for _, p := range of.ports {
			s.Ports[id.String()] = append(s.Ports[id.String()], PortCounter{
				Port: p.Port, RxPackets: p.RxPackets, TxPackets: p.TxPackets, RxBytes: p.RxBytes, TxBytes: p.TxBytes,
				RxDropped: p.RxDropped, TxDropped: p.TxDropped,
			})
		}
	}
	return s
}

func (r *term) peers() PeersStatus {
	st := r.server.Stats()
	p := PeersStatus{Now: st.Connections, HalfOpen: st.HalfOpen, Accepted: st.Accepted, Ended: map[string]uint64{}}
	for cause, n := range st.Ended {
		p.Ended[cause.String()] = n
	}
	return p
}

// overRate returns the number of packets that connections dropped above the rate of the meters. It never decreases.
func (c *Core) overRate() uint64 {
	n := c.counts.overRate.Load() // of ended connections
	c.byConn.Range(func(conn, _ any) bool {
		n += conn.(*channel.Conn).Stats().PacketInsDropped
		return true
	})
	c.overRateSaid = max(c.overRateSaid, n)
	return c.overRateSaid
}

func (c *Core) policies() *PoliciesStatus {
	if c.agents == nil {
		return nil
	}
	return c.agents.policies.status()
}

func (c *Core) status() CoreStatus {
	over := c.overRate()
	s := CoreStatus{
		Frames: c.counts.frames.Load() + over, FramesDropped: c.counts.framesDropped.Load() + over,
		EventsDropped: c.counts.eventsDropped.Load(), Orders: c.counts.orders.Load(), Changes: c.counts.changes.Load(),
		OrdersRefused: c.counts.ordersRefused.Load(), ActionsLate: c.counts.actionsLate.Load(),
		SlowestStepUs: c.counts.slowestStepNanos.Load() / 1000, Steps: c.counts.steps.Load(), LawsUs: c.counts.lawNanos.Load() / 1000, Grants: map[string]uint64{}, Unknown: map[string]uint64{},
	}
	for k, n := range c.ignored {
		switch k.why {
		case grants:
			s.Grants[k.law] += n
		case unknown:
			s.Unknown[fmt.Sprintf("%s: %v", k.law, k.kind)] += n
		}
	}
	return s
}

// status asks the laws' goroutine, if there is one; nil: the controller ends.
func (r *role) status(ctx context.Context) (s *Status) {
	t := r.term.Load()
	if t == nil {
		s = &Status{Name: r.cfg.Name, Version: r.cfg.Version, UpSeconds: int64(time.Since(r.begun).Seconds()), Active: "nobody yet"}
		if active := r.waits.Load(); active != nil {
			s.Active = *active
		}
		return s
	}
	t.core.Do(ctx, func() { s = t.status() })
	return s
}

// PinRequest asks for one path for both directions of a flow; Drop ends the pin.
type PinRequest struct {
	Proto       uint8  `json:"proto"`
	Src         string `json:"src"` // address:port
	Dst         string `json:"dst"`
	IdleSeconds uint16 `json:"idle_seconds"`
	Drop        bool   `json:"drop,omitempty"`
}

func (q PinRequest) event() (law.Event, error) {
	t, err := tuple(q.Proto, q.Src, q.Dst)
	if err != nil {
		return nil, err
	}
	if q.Drop {
		return &fabric.PinDropped{Tuple: t}, nil
	}
	return &fabric.PinAsked{Tuple: t, IdleSeconds: q.IdleSeconds}, nil
}

// serveControl answers on the controller's socket: GET /status, POST /pin.
func (r *role) serveControl() (*http.Server, error) {
	l, err := localsock.Listen(localsock.Controller, r.cfg.Name)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, q *http.Request) {
		s := r.status(q.Context())
		if s == nil {
			http.Error(w, "the controller ends", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(s) // fails if the client has left
	})
	mux.HandleFunc("POST /pin", func(w http.ResponseWriter, q *http.Request) {
		var p PinRequest
		if err := json.NewDecoder(http.MaxBytesReader(w, q.Body, 4096)).Decode(&p); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		e, err := p.event()
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if t := r.term.Load(); t == nil {
			http.Error(w, errStandby.Error(), http.StatusServiceUnavailable)
		} else {
			if err := t.pin(q.Context(), e); err != nil {
				http.Error(w, err.Error(), http.StatusConflict)
			}
		}
	})
	return localsock.Serve(l, mux, 10*time.Second), nil
}

// pin passes a request to pin a flow, or to drop the pin, to the law. The error is why the law refuses.
func (t *term) pin(ctx context.Context, e law.Event) error {
	refused := errors.New("the controller ends")
	t.core.Do(ctx, func() {
		refused = nil
		if asked, is := e.(*fabric.PinAsked); is {
			refused = t.forward.CanPin(asked)
		}
		t.core.step(e)
	})
	return refused
}

// Within runs f on a thread in a controller's network namespace.
type Within = localsock.Within

// Here is Within for a controller in the namespace of this process.
func Here(f func() error) error { return localsock.Here(f) }

// ReadStatus asks the controller of this name.
func ReadStatus(ctx context.Context, name string, in Within) (*Status, error) {
	var s Status
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://controller/status", nil)
	if err != nil {
		return nil, err
	}
	a, err := client(name, in).Do(q)
	if err != nil {
		return nil, unreached(name, err)
	}
	defer a.Body.Close()
	if a.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("controller %s: %s", name, a.Status)
	}
	return &s, json.NewDecoder(a.Body).Decode(&s)
}

// unreached explains why a controller could not be reached.
func unreached(name string, err error) error {
	if nobody := new(localsock.NobodyError); errors.As(err, &nobody) {
		return fmt.Errorf("%w: start it with weir controller, or give its --name; if another user started it, run this command as that user", nobody)
	}
	return fmt.Errorf("ask controller %s: %w", name, err)
}

func client(name string, in Within) *http.Client {
	return localsock.Client(localsock.Controller, name, in, 10*time.Second)
}

// Well reports whether all switches that were ever seen are connected and in their wanted state, and none refused an order. It is
// true for a controller that stands by.
func (s *Status) Well() bool {
	if s.Active != "" {
		return true
	}
	for _, d := range s.Forward.Switches {
		if !d.Joined {
			return false
		}
	}
	return s.Forward.Settled && len(s.Refused) == 0 && s.Core.OrdersRefused == 0
}
