package controller

import (
	"context"
	"sync/atomic"
	"testing"

	"weir/datapath/testnet"
	"weir/policy/store"
)

// slowKV is an empty store that does not answer writes.
type slowKV struct {
	store.KV
	begun   chan struct{}
	refused atomic.Bool // a write ended
}

func (*slowKV) Get(context.Context, string) ([]byte, uint64, error) { return nil, 0, store.ErrNoKey }

func (k *slowKV) Put(ctx context.Context, _ string, _ []byte) error {
	select {
	case k.begun <- struct{}{}:
	default:
	}
	<-ctx.Done()
	k.refused.Store(true)
	return ctx.Err()
}

// The policies are compiled again while the store does not answer a report.
func TestPolicies_CompileWhileTheStoreHangs(t *testing.T) {
	core := newCore(newFence(nil, 1, silent), silent)
	core.agents = newAgents(core, silent)
	p, kv := newPolicies(core, &Config{Specs: policySpecs()}, silent), &slowKV{begun: make(chan struct{}, 1)}
	core.agents = nil // none reports
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{}, 2)
	var changed atomic.Bool
	changed.Store(true)
	p.poke()
	go func() { core.work(ctx); ended <- struct{}{} }()
	go func() { p.serve(ctx, store.New(kv, store.Author{}), "c1", &changed); ended <- struct{}{} }()
	defer func() { cancel(); <-ended; <-ended }()
	<-kv.begun // a report waits, so the policies were compiled once
	applied := func() (w *wanted) { core.Do(ctx, func() { w = p.applied }); return w }
	first := applied()
	p.nudge()
	testnet.Until(t, "the policies are compiled again", func() bool { return applied() != first })
	if kv.refused.Load() {
		t.Error("they were compiled only after the store had refused the report")
	}
}
