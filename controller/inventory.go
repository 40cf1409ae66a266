package controller

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"weir/bus"
	"weir/policy"
	"weir/policy/store"
)

const (
	storeAgain = time.Second // between two attempts to reach the store
	storeCall  = 5 * time.Second
	pruneEvery = time.Hour
)

// nodes writes what agents have to the store of policies, where `weir policy` reads it. The laws do not wait for it. Without the store
// they continue, and the newest state of each agent is written when the store is back.
type nodes struct {
	conn     *bus.Conn
	replicas int
	log      *slog.Logger
	wake     chan struct{}

	mu      sync.Mutex
	waiting map[string]*policy.Node // by agent
	store   *store.Store            // nil: not open yet
}

func newNodes(conn *bus.Conn, replicas int, log *slog.Logger) *nodes {
	return &nodes{conn: conn, replicas: replicas, log: log, wake: make(chan struct{}, 1), waiting: map[string]*policy.Node{}}
}

// put queues what an agent has. It may be called by any goroutine, and does not wait.
func (n *nodes) put(node policy.Node) {
	n.mu.Lock()
	n.waiting[node.Name] = &node
	n.mu.Unlock()
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// take returns all that waits.
func (n *nodes) take() (list []*policy.Node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for name, node := range n.waiting {
		list = append(list, node)
		delete(n.waiting, name)
	}
	return list
}

// again queues a node that could not be written, unless a newer state waits.
func (n *nodes) again(node *policy.Node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.waiting[node.Name] == nil {
		n.waiting[node.Name] = node
	}
}

// forget removes a node from the store.
func (n *nodes) forget(ctx context.Context, name string) error {
	n.mu.Lock()
	s := n.store
	delete(n.waiting, name)
	n.mu.Unlock()
	if s == nil {
		return errors.New("the store of policies is not open yet: try again")
	}
	if err := s.DeleteNode(ctx, name); err != nil {
		return err
	}
	n.log.Info("an operator had an agent removed from the inventory", "agent", name)
	return nil
}

// run writes until ctx is done.
func (n *nodes) run(ctx context.Context) {
	_, s := n.open(ctx)
	if s == nil {
		return
	}
	n.mu.Lock()
	n.store = s
	n.mu.Unlock()
	prune := time.NewTicker(pruneEvery)
	defer prune.Stop()
	var seen map[string]bool
	failed := false
	retry := time.NewTicker(storeAgain)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-prune.C:
			var err error
			if seen, err = n.prune(ctx, s, seen); err != nil {
				n.log.Warn("cannot remove old entries of the store of policies", "error", err)
			}
			continue
		case <-n.wake:
		case <-retry.C:
		}
		for _, node := range n.take() {
			call, cancel := context.WithTimeout(ctx, storeCall)
			err := s.PutNode(call, node)
			cancel()
			if err != nil {
				n.again(node)
				if !failed {
					n.log.Warn("cannot store what an agent has, so weir policy does not know it: trying again", "agent", node.Name, "error", err)
				}
			}
			failed = err != nil
		}
	}
}

func (n *nodes) prune(ctx context.Context, s *store.Store, seen map[string]bool) (map[string]bool, error) {
	call, cancel := context.WithTimeout(ctx, storeCall)
	defer cancel()
	return s.Prune(call, seen)
}

// open makes the store, or opens it. It tries until ctx is done, and then returns nil.
func (n *nodes) open(ctx context.Context) (store.KV, *store.Store) {
	said := false
	for {
		call, cancel := context.WithTimeout(ctx, storeCall)
		kv, err := store.Bus(call, n.conn, n.replicas)
		cancel()
		if err == nil {
			return kv, store.New(kv, store.Author{Identity: n.conn.Identity().String()})
		}
		if !said && ctx.Err() == nil {
			n.log.Warn("cannot open the store of policies: trying again", "error", err)
			said = true
		}
		select {
		case <-ctx.Done():
			return nil, nil
		case <-time.After(storeAgain):
		}
	}
}

// live lists what agents have now, sorted by name. Nobody may change it.
func (a *agents) live() []policy.Node {
	out := make([]policy.Node, 0, len(a.known))
	for _, name := range sortedKeys(a.known) {
		ag := a.known[name]
		if ag.own == nil {
			own := ag.node
			if own.Switch != nil && a.switches.of(ag.sw) != ag {
				own.Switch = nil
			}
			if own.Host != nil && a.hosts.of(ag.host) != ag {
				own.Host = nil
			}
			if own.Host != nil {
				h := *own.Host
				h.VMs = slices.DeleteFunc(slices.Clone(h.VMs), func(v policy.NodeVM) bool { return a.vms.of(v.ID) != ag })
				own.Host = &h
			}
			ag.own = &own
		}
		if ag.own.Name != "" {
			out = append(out, *ag.own)
		}
	}
	return out
}
