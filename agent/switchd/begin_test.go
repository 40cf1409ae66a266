package switchd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weir/datapath/attach"
	"weir/datapath/fairq"
	"weir/datapath/testnet"
)

// machine is a namespace with a BPF file system of its own and two veths, and the switches that run there.
type machine struct {
	*testnet.Namespace
	net, mounts *os.File
}

func newMachine(t *testing.T, ports ...string) *machine {
	t.Helper()
	m := &machine{Namespace: testnet.NewNamespace(t)}
	m.Must(t, func() (err error) {
		if err := ownBPFFS(); err != nil {
			return err
		}
		for _, name := range ports {
			if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: "peer" + name}); err != nil {
				return err
			}
		}
		if m.net, err = os.Open("/proc/thread-self/ns/net"); err != nil {
			return err
		}
		m.mounts, err = os.Open("/proc/thread-self/ns/mnt")
		return err
	})
	t.Cleanup(func() { _ = m.net.Close(); _ = m.mounts.Close() })
	return m
}

// run runs a switch in the namespace until ctx is done, like a process of its own.
func (m *machine) run(ctx context.Context, c *Config) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := errors.Join(unix.Unshare(unix.CLONE_FS), unix.Setns(int(m.mounts.Fd()), unix.CLONE_NEWNS), unix.Setns(int(m.net.Fd()), unix.CLONE_NEWNET))
		if err == nil {
			err = Run(ctx, c)
		}
		result <- err
	}()
	return <-result
}

// shaping is a switch that shapes ports.
func shaping(name string, ports ...string) *Config {
	c, err := testAgent().Parse("", []byte("kind: Switch\nversion: 2\nports: [{match: p}]\nfairq: {flows: 1024}\n"))
	if err != nil {
		panic(err)
	}
	c.Name, c.Metrics.Listen = name, ""
	set := defaultPort(testKeys())
	set.Shape = 100e6
	c.Ports = []PortRule{{Match: ports, PortSettings: set}}
	return c
}

// Of several processes started at once under one name, one runs and the others get an error. They must not remove the
// records of the first: without them nobody would remove its shaper after a crash.
func TestRun_SeveralAtOnce(t *testing.T) {
	m := newMachine(t, "p0", "p1", "p2")
	for round := range 4 {
		ctx, cancel := context.WithCancel(context.Background())
		const many = 3
		begun := make(chan struct{}, many)
		refused := make(chan error, many)
		var all sync.WaitGroup
		for range many {
			c := shaping("default", "p0", "p1", "p2")
			c.Log = logBegun(begun)
			all.Go(func() { refused <- m.run(ctx, c) })
		}
		running, others := false, 0
		for !running || others < many-1 {
			select {
			case <-begun:
				running = true
			case err := <-refused:
				if others++; !errors.As(err, new(*attach.Busy)) || others == many {
					cancel()
					t.Fatalf("round %d: process %d: %v", round, others, err)
				}
			}
		}
		var recorded, shaped int
		m.Must(t, func() error {
			s, err := recordedShapes("default")
			if err != nil {
				return err
			}
			recorded = len(s.made)
			list, err := listQdiscs()
			for _, of := range list {
				if rootOf(of).handle == shapeHandle {
					shaped++
				}
			}
			return err
		})
		if recorded != 3 || shaped != 3 {
			t.Errorf("round %d: %d ports are shaped, and %d recorded as shaped; want 3 and 3", round, shaped, recorded)
		}
		cancel()
		all.Wait()
		if err := <-refused; err != nil {
			t.Fatal(err)
		}
	}
}

// Two switches have a port in common. The second is refused before it changes anything, whether it lists the port by
// name or by a pattern. It can have the other ports.
func TestRun_PortOfAnotherSwitch(t *testing.T) {
	m := newMachine(t, "p0", "p1")
	ctx, cancel := context.WithCancel(context.Background())
	begun := make(chan struct{}, 1)
	first := shaping("default", "p0")
	first.Log = logBegun(begun)
	ended := make(chan error, 1)
	go func() { ended <- m.run(ctx, first) }()
	<-begun
	want := fmt.Sprintf(`port p0: switch "default" (process %d) already runs FairQ here; stop it or choose another port`, os.Getpid())
	for _, ports := range [][]string{{"p1", "p0"}, {"p*"}} {
		var taken *fairq.Taken
		if err := m.run(ctx, shaping("other", ports...)); !errors.As(err, &taken) || taken.Error() != want {
			t.Errorf("%v: %v\nwant %s", ports, err, want)
		}
	}
	m.Must(t, func() error {
		if names, err := testAgent().Names(); err != nil || len(names) != 1 {
			t.Errorf("switches: %v, %v", names, err)
		}
		p1, err := netlink.LinkByName("p1")
		if err != nil {
			return err
		}
		list, err := listQdiscs()
		if got := rootOf(list[p1.Attrs().Index]); got.handle != 0 {
			t.Errorf("the one that was refused left %+v at p1", got)
		}
		return err
	})
	second := shaping("other", "p1")
	second.Log = logBegun(begun)
	go func() { ended <- m.run(ctx, second) }()
	<-begun
	cancel()
	if err := errors.Join(<-ended, <-ended); err != nil {
		t.Error(err)
	}
}
