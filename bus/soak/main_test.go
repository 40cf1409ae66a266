// Package soak has tests that break real processes on real links while traffic passes: controllers, an agent, servers of the
// bus. `make soak-bus` draws 100 faults.
//
//	main_test.go    the processes: this binary is all of them
//	world_test.go   namespaces, links, files, certificates
//	clock_test.go   wall clocks of processes, which step
//	ovs_test.go     Open vSwitch between the hypervisor and its peers
//	messages_test.go  grants by the bus and in frames, side by side
//	effect_test.go  from marks to a VM's rate, and from a deadline to a flow's window
//	watch_test.go   what packets at the VM's port show
//	faults_test.go  the faults
//	soak_test.go    the test and the benchmark
package soak

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/pprof"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"weir/agent/agentd"
	"weir/bus"
	"weir/bus/pki"
	"weir/controller"
	"weir/law"
	"weir/law/gcc"
	"weir/law/inventory"
	"weir/law/sed"
)

const (
	roleVariable     = "WEIR_SOAK_ROLE"
	argumentVariable = "WEIR_SOAK_ARGUMENT"
	profileVariable  = "WEIR_SOAK_PROFILE" // file for the CPU profile of the controller
)

func TestMain(m *testing.M) {
	run, ok := map[string]func(context.Context, string) error{
		"agent": runAgent, "bus": runBus, "busy": runBusy, "clock": func(context.Context, string) error { return printClocks() }, "controller": runController, "leader": runLeader, "marks": runMarks, "publisher": runPublisher, "reporter": runReporter,
	}[os.Getenv(roleVariable)]
	if !ok {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	err := run(ctx, os.Getenv(argumentVariable))
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func logger() *slog.Logger { return slog.New(slog.NewTextHandler(os.Stderr, nil)) }

func runAgent(ctx context.Context, file string) error {
	c, err := agentd.Load(file)
	if err != nil {
		return err
	}
	c.Options = agentd.Options{Version: "soak", Log: logger(), Specs: law.Specs{gcc.Spec()}}
	c.OneProcessor()
	return agentd.Run(ctx, c)
}

func runBus(ctx context.Context, config string) error {
	var cfg bus.ServerConfig
	if err := json.Unmarshal([]byte(config), &cfg); err != nil {
		return err
	}
	cfg.Log = logger()
	s, err := bus.StartServer(cfg)
	if err != nil {
		return err
	}
	defer s.Close()
	<-ctx.Done()
	return nil
}

func runController(ctx context.Context, file string) error {
	c, err := controller.Load(file, law.Specs{steadySpec(), probeSpec(), gcc.Spec(), sed.Spec()})
	if err != nil {
		return err
	}
	c.Log, c.Version = logger(), "soak"
	if path := os.Getenv(profileVariable); path != "" {
		f, err := os.Create(path)
		if err == nil {
			err = pprof.StartCPUProfile(f)
		}
		if err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	return controller.Run(ctx, c)
}

// runLeader prints which server leads the store of leases.
func runLeader(ctx context.Context, config string) error {
	var asked struct {
		Files pki.Files
		URLs  string
	}
	if err := json.Unmarshal([]byte(config), &asked); err != nil {
		return err
	}
	keys, err := pki.Load(asked.Files, logger())
	if err != nil {
		return err
	}
	nc, err := nats.Connect(asked.URLs, nats.Secure(keys.ClientTLS()), nats.ClientTLSConfig(keys.Own, keys.Roots), nats.TLSHandshakeFirst(),
		nats.CustomInboxPrefix(bus.InboxPrefix(keys.Identity())))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	s, err := js.Stream(ctx, "KV_weir-leases")
	if err != nil {
		return err
	}
	i := s.CachedInfo()
	if i.Cluster == nil {
		return errors.New("the store is not replicated")
	}
	fmt.Print(i.Cluster.Leader)
	return nil
}

// steadyParams are those of a law that grants each VM the same window for ever. The window shows in packets whose grants are
// obeyed.
type steadyParams struct {
	Window law.Bytes `json:"window" above:"0" jsonschema:"required" jsonschema_description:"of every connection"`
}

func steadySpec() law.Spec {
	return law.Spec{
		Name: "steady", Sites: []law.Site{law.Controller}, Params: func() any { return &steadyParams{} },
		New: func(_ law.Site, params any, _ *law.Topology) (law.Law, error) {
			return &steady{window: uint64(params.(*steadyParams).Window), hosts: map[law.Host][]law.VM{}}, nil
		},
	}
}

const grantEvery = 50 * time.Millisecond

type steady struct {
	window uint64
	hosts  map[law.Host][]law.VM
	next   time.Duration
}

func (l *steady) Wake() time.Duration { return max(l.next, 1) }

func (l *steady) Step(now time.Duration, e law.Event, out []law.Action) []law.Action {
	switch e := e.(type) {
	case *inventory.Host:
		l.hosts[e.At] = nil
		for _, vm := range e.VMs {
			l.hosts[e.At] = append(l.hosts[e.At], vm.Number)
		}
	case *inventory.HostLeft:
		delete(l.hosts, e.At)
	}
	if now < l.next {
		return out
	}
	l.next = now + grantEvery
	for _, vms := range l.hosts {
		for _, vm := range slices.Clone(vms) {
			out = append(out, law.Grant{Kind: law.WindowGrant, Key: law.Key{Pair: law.Pair{VM: vm}}, Value: l.window, Lease: time.Minute})
		}
	}
	return out
}
