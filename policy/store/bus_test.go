package store

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/bus"
	"weir/bus/pki"
	"weir/policy"
)

// fabric is a bus with a CA.
type fabric struct {
	t      testing.TB
	ca     *pki.CA
	dir    string
	config bus.ServerConfig
	server *bus.Server
	url    string
}

func newFabric(t testing.TB) *fabric {
	t.Helper()
	f := &fabric{t: t, dir: t.TempDir()}
	f.ca = &pki.CA{Dir: filepath.Join(f.dir, "ca")}
	if err := f.ca.Create(); err != nil {
		t.Fatal(err)
	}
	f.config = bus.ServerConfig{Listen: "127.0.0.1:0", Files: f.enrol("bus/b1", "127.0.0.1"), Store: filepath.Join(f.dir, "store")}
	f.start()
	t.Cleanup(func() { f.server.Close() })
	return f
}

func (f *fabric) start() {
	f.t.Helper()
	var err error
	if f.server, err = bus.StartServer(f.config); err != nil {
		f.t.Fatal(err)
	}
	f.url = f.server.URL()
}

func (f *fabric) enrol(id string, addresses ...string) pki.Files {
	f.t.Helper()
	who, err := pki.ParseIdentity(id)
	if err != nil {
		f.t.Fatal(err)
	}
	out := filepath.Join(f.dir, who.Name)
	if _, err := f.ca.Enrol(who, out, addresses, 0); err != nil {
		f.t.Fatal(err)
	}
	return pki.In(out, who.Name)
}

// dial returns the KV as an identity sees it.
func (f *fabric) dial(id string, replicas int) (KV, error) {
	f.t.Helper()
	c, err := bus.Dial(bus.ClientConfig{URLs: []string{f.url}, Files: f.enrol(id)})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(c.Close)
	within, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	if err := c.Ready(within); err != nil {
		f.t.Fatal(err)
	}
	return Bus(within, c, replicas)
}

func (f *fabric) store(id string) (*Store, KV) {
	f.t.Helper()
	replicas := 0
	if strings.HasPrefix(id, "controller/") {
		replicas = 1
	}
	kv, err := f.dial(id, replicas)
	if err != nil {
		f.t.Fatal(err)
	}
	return New(kv, Author{id, "tester"}), kv
}

// On a real bus: versions, the log, two writers at once, deletion, and a restart of the bus.
func TestBus(t *testing.T) {
	f := newFabric(t)
	if _, err := f.dial("operator/early", 0); err == nil || err.Error() != "the bus has no store of policies yet: start a controller, which makes it" {
		t.Fatalf("%v", err)
	}
	controller, _ := f.store("controller/c1")
	a, akv := f.store("operator/alice")
	b, _ := f.store("operator/bob")
	mustSet(t, a, "gold", "1")
	base := mustRead(t, b)
	mustSet(t, a, "gold", "2")
	var conflict *ConflictError
	if _, err := b.Commit(ctx, base, Apply, []Text{{"gold", []byte("3")}}, nil); !errors.As(err, &conflict) || conflict.Other.By != "operator/alice" {
		t.Fatalf("%v", err)
	}
	mustSet(t, b, "gold", "3")
	if _, err := a.Commit(ctx, mustRead(t, a), Delete, nil, []string{"gold"}); err != nil {
		t.Fatal(err)
	}
	if err := controller.PutNode(ctx, &policy.Node{Name: "h1"}); err != nil {
		t.Fatal(err)
	}
	f.server.Close()
	f.config.Listen = strings.TrimPrefix(f.url, "tls://")
	f.start()
	again, _ := f.store("operator/alice")
	snap := mustRead(t, again)
	log, err := again.Log(ctx, 10)
	if err != nil || len(log) != 4 || log[0].Action != Delete || log[1].By != "operator/bob" || log[3].Policies[0] != (ChangedPolicy{"gold", 0, 1}) {
		t.Errorf("%v, %+v", err, log)
	}
	if text, err := again.Version(ctx, snap, "gold", 2); err != nil || string(text) != "2" {
		t.Errorf("%q, %v", text, err)
	}
	nodes, problems, err := again.Inventory(ctx)
	if err != nil || len(problems) > 0 || len(nodes) != 1 {
		t.Errorf("%v, %v, %v", nodes, problems, err)
	}
	second, ckv := f.store("controller/c2")
	if err := second.DeleteNode(ctx, "h1"); err != nil {
		t.Fatal(err)
	}
	if nodes, _, err := again.Inventory(ctx); err != nil || len(nodes) != 0 {
		t.Errorf("%v, %v", nodes, err)
	}
	f.refuses(akv, ckv)
}

// refuses checks that an operator cannot write the inventory, and that the store limits values.
func (f *fabric) refuses(operator, controller KV) {
	f.t.Helper()
	within, cancel := context.WithTimeout(ctx, 300*time.Millisecond) // the bus answers nothing
	defer cancel()
	if err := operator.Put(within, inventoryPrefix+"h9", []byte("x")); err == nil {
		f.t.Error("an operator writes the inventory")
	}
	if err := controller.Put(ctx, "text.controller.c2.x", make([]byte, 200<<10)); err == nil {
		f.t.Error("a value of 200 KiB is stored")
	}
}

// A controller hears of each change of the policies, and not of other keys.
func TestBus_Watch(t *testing.T) {
	f := newFabric(t)
	controller, kv := f.store("controller/c1")
	changes, done := make(chan struct{}, 100), make(chan error, 1)
	stop, cancel := context.WithCancel(ctx)
	go func() { done <- Watch(stop, kv, func() { changes <- struct{}{} }) }()
	<-changes
	if err := controller.PutNode(ctx, &policy.Node{Name: "h1"}); err != nil {
		t.Fatal(err)
	}
	a, _ := f.store("operator/alice")
	for i := range 3 {
		mustSet(t, a, "gold", fmt.Sprint(i))
		<-changes
	}
	cancel()
	if err := <-done; err != nil || len(changes) > 0 {
		t.Errorf("%v, %d more", err, len(changes))
	}
}

// BenchmarkBus stores and reads a thousand policies, as one change, on a bus that writes to disk at once.
func BenchmarkBus(b *testing.B) {
	f := newFabric(b)
	f.store("controller/c1")
	s, _ := f.store("operator/alice")
	for n := 0; b.Loop(); n++ {
		var set []Text
		for i := range 1000 {
			set = append(set, Text{fmt.Sprintf("p%d", i), fmt.Appendf(nil, "kind: Policy\nversion: 1\nname: p%d\nselect:\n  vms: {labels: {tenant: t%d}}\nguarantee: {rate: %dMbit}\n", i, i/10, n+1)})
		}
		if _, err := s.Commit(ctx, mustRead(b, s), Apply, set, nil); err != nil {
			b.Fatal(err)
		}
		if snap := mustRead(b, s); len(snap.Policies) != 1000 || snap.Policies[0].Version != n+1 {
			b.Fatalf("%d policies", len(snap.Policies))
		}
	}
}
