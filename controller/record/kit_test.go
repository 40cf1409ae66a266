package record

import (
	"errors"
	"io"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"weir/law"
	"weir/law/inventory"
	"weir/law/sicc"
	"weir/law/telemetry"
)

// specs has the law with a rule that ends each incast of the tests, whatever its default is.
var specs = law.Specs{func() law.Spec {
	s := sicc.Spec()
	s.Params = func() any { return params() }
	return s
}()}

func params() *sicc.Params {
	p := sicc.Default()
	p.OffRule = sicc.OffOr
	return p
}

// world runs laws with events as a controller does, and records them.
type world struct {
	t      testing.TB
	w      *Writer
	laws   []law.Law
	serial uint64
	now    time.Duration
	grants int
}

func newWorld(t testing.TB, c Config, said string, laws ...law.Law) *world {
	t.Helper()
	if c.Path == "" {
		c.Path = filepath.Join(t.TempDir(), "deep", "rec")
	}
	c.Controller, c.Weir = "c1", "1.2"
	w, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	out := &world{t: t, w: w}
	for _, l := range laws {
		out.laws = append(out.laws, w.Tap(l, "sicc", 3, []byte(said)))
	}
	return out
}

func (x *world) step(e law.Event) {
	x.serial++
	x.w.Cause(x.serial + 1000)
	for _, l := range x.laws {
		x.grants += len(l.Step(x.now, e, nil))
	}
}

func (x *world) close() string {
	x.t.Helper()
	if err := x.w.Close(); err != nil {
		x.t.Fatal(err)
	}
	return x.w.cfg.Path
}

func newSICC(t testing.TB, change func(*sicc.Params)) law.Law {
	t.Helper()
	p := params()
	if change != nil {
		change(p)
	}
	l, err := sicc.New(*p)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// silent is a law that does nothing.
type silent struct{}

func (silent) Wake() time.Duration { return 0 }

func (silent) Step(_ time.Duration, _ law.Event, out []law.Action) []law.Action { return out }

// incasts plays reports of a switch with 4 ports, at which incasts of 40 VMs begin and end.
func incasts(x *world, rnd *rand.Rand, intervals int) {
	x.step(&inventory.Switch{At: 1, Ports: []inventory.Port{{N: 1, Name: "a", Rate: 1e9, BufferBytes: 1e5}, {N: 2, Name: "b", Rate: 1e9, BufferBytes: 1e5}}})
	var vms []inventory.VM
	for n := range 40 {
		vms = append(vms, inventory.VM{Number: law.VM(n + 1), Addresses: []netip.Prefix{netip.PrefixFrom(vmAddress(n), 32)}})
	}
	x.step(&inventory.Host{At: 1, VMs: vms})
	for range intervals {
		x.now += time.Millisecond
		n := uint32(1 + rnd.IntN(2))
		if rnd.IntN(4) == 0 {
			a := telemetry.PortArrivals{N: n, Counts: telemetry.Counts{SYN: uint64(rnd.IntN(40)), FIN: uint64(rnd.IntN(10))}}
			for range rnd.IntN(8) {
				a.Pairs = append(a.Pairs, telemetry.Pair{Source: vmAddress(rnd.IntN(40)), Destination: netip.AddrFrom4([4]byte{10, 1, 0, byte(rnd.IntN(4))}), Kinds: telemetry.SYN})
			}
			x.step(&telemetry.Arrivals{At: 1, T: time.Millisecond, Ports: []telemetry.PortArrivals{a}})
		}
		x.step(&telemetry.Telemetry{At: 1, T: time.Millisecond, Ports: []telemetry.Port{{N: n, BacklogBytes: uint64(rnd.IntN(1e5)), Packets: uint64(rnd.IntN(100))}}})
	}
}

func vmAddress(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(n + 1)}) }

func open(t testing.TB, path string) *Reader {
	t.Helper()
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// all reads a recording to its end.
func all(t testing.TB, r *Reader) (out []*Entry) {
	t.Helper()
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, e)
	}
}

// always gives the same actions.
type always struct{ out []law.Action }

func (*always) Wake() time.Duration { return 0 }

func (l *always) Step(_ time.Duration, _ law.Event, out []law.Action) []law.Action {
	return append(out, l.out...)
}
