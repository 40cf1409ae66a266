package fairq_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/cilium/ebpf/link"

	"weir/datapath/attach"
	"weir/datapath/fairq"
	"weir/datapath/testnet"
)

// A port has one switch, because two laws on one queue would each count the flows of the other as its own. The
// error names the switch that has the port, also if its process is gone. An observing process may attach.
func TestFairQ_PortOfAnotherSwitch(t *testing.T) {
	root := testnet.Mount(t, "bpf")
	a, b := filepath.Join(root, "weir", "switch", "a"), filepath.Join(root, "weir", "switch", "b")
	p, ports := pinnedPath(t)
	first := attachTo(t, pinnedConfig(a), ports[0])
	refused := func(c fairq.Config, want string) {
		t.Helper()
		var taken *fairq.Taken
		f, err := fairq.Attach(ports, c)
		if err == nil {
			t.Error(f.Close())
		}
		if !errors.As(err, &taken) || taken.Error() != want {
			t.Errorf("a second law on a port: %v\nwant %s", err, want)
		}
		if testnet.AttachedTo(t, p.Port) != 1 || testnet.AttachedTo(t, p.In) != 0 {
			t.Errorf("%d and %d programs are left", testnet.AttachedTo(t, p.Port), testnet.AttachedTo(t, p.In))
		}
	}
	alive := fmt.Sprintf("port %s: switch \"a\" (process %d) already runs FairQ here; stop it or choose another port", p.Port.Name, os.Getpid())
	refused(pinnedConfig(b), alive)
	if err := fairq.CheckTaken(b, p.In, p.Port); err == nil || err.Error() != alive {
		t.Errorf("asked beforehand: %v", err)
	}
	if err := errors.Join(fairq.CheckTaken(a, p.Port, p.In), fairq.CheckTaken(b, p.In)); err != nil {
		t.Errorf("its own port, or one that nobody has: %v", err)
	}

	look := fairq.Config{Flows: 1024, Observe: true}
	observed := ports[0]
	if f, err := fairq.Attach(ports, look); err == nil {
		t.Error("an observing process limits windows: ", f.Close())
	}
	observed.Law.Mode, observed.Law.PipeBytes = fairq.EnforceNone, 1
	watcher := attachTo(t, look, observed)
	if testnet.AttachedTo(t, p.Port) != 2 {
		t.Errorf("%d programs while another process observes", testnet.AttachedTo(t, p.Port))
	}
	// An observing process does not keep a switch from its port either.
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	first = attachTo(t, pinnedConfig(a), ports[0])
	if err := watcher.Close(); err != nil {
		t.Fatal(err)
	}

	if err := first.Leave(); err != nil { // as after a kill, except for its last heartbeat
		t.Fatal(err)
	}
	testnet.Until(t, "its lease is over", func() bool { return !readSwitch(t, a).Alive() })
	refused(pinnedConfig(b), fmt.Sprintf("port %s: switch \"a\" left FairQ here and no process has it; remove it (weir switch --purge --name a) or choose another port", p.Port.Name))
	if err := fairq.Purge(a, nil); err != nil {
		t.Fatal(err)
	}

	unpinned := attachTo(t, fairq.Config{Flows: 1024}, ports[0])
	refused(pinnedConfig(b), fmt.Sprintf("port %s: another program of Weir already runs FairQ here, and is not pinned (a lab's, or a switch in another mount namespace); end it or choose another port", p.Port.Name))
	if err := unpinned.Close(); err != nil {
		t.Fatal(err)
	}
	if err := attachTo(t, pinnedConfig(b), ports...).Close(); err != nil {
		t.Fatal(err)
	}
}

// If several switches attach to one port at the same time, one gets it, and the others are refused. Without the
// revision of the chain that the kernel compares, two of four succeed within some rounds.
func TestFairQ_OnePortManySwitchesAtOnce(t *testing.T) {
	p, _ := pinnedPath(t)
	const rounds, many = 60, 4
	var attachers [many]func(attach.PortRef) (link.Link, error)
	for i := range many {
		f := attachTo(t, fairq.Config{Flows: 1024})
		defer f.Close()
		var err error
		if attachers[i], err = f.Attacher(); err != nil {
			t.Fatal(err)
		}
	}
	for range rounds {
		begin := make(chan struct{})
		var all sync.WaitGroup
		var links [many]link.Link
		var errs [many]error
		for i := range many {
			all.Go(func() {
				<-begin
				links[i], errs[i] = attachers[i](p.Port)
			})
		}
		close(begin)
		all.Wait()
		winners := 0
		for i := range many {
			var taken *fairq.Taken
			switch {
			case errs[i] == nil:
				winners++
			case !errors.As(errs[i], &taken):
				t.Errorf("switch %d: %v", i, errs[i])
			}
		}
		for _, l := range links {
			if l != nil {
				if err := errors.Join(l.Detach(), l.Close()); err != nil {
					t.Fatal(err)
				}
			}
		}
		if winners != 1 {
			t.Fatalf("%d switches have the port", winners)
		}
	}
}
