package switchd

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weir/datapath/attach"
	"weir/datapath/testnet"
)

// faulty is a running law of which one call fails without an effect.
type faulty struct {
	Running
	calls, failAt int // failAt 0: none
	failed        string
}

var errFault = errors.New("a fault that the test makes")

func (f *faulty) fault(what string) error {
	f.calls++
	if f.calls != f.failAt {
		return nil
	}
	f.failed = what
	return errFault
}

func (f *faulty) Attach(ports ...LawPort) error {
	what := "attach"
	for _, p := range ports {
		what += " " + p.Name
	}
	if err := f.fault(what); err != nil {
		return err
	}
	return f.Running.Attach(ports...)
}

func (f *faulty) ReleasePort(port string) error {
	if err := f.fault("release " + port); err != nil {
		return err
	}
	return f.Running.ReleasePort(port)
}

func (f *faulty) Change(c *Common) (func() error, error) {
	if err := f.fault("change"); err != nil {
		return nil, err
	}
	return f.Running.Change(c)
}

func (f *faulty) Remove(ports ...string) error {
	if err := f.fault("remove " + strings.Join(ports, " ")); err != nil {
		return err
	}
	return f.Running.Remove(ports...)
}

// bench is a running role on four ports of a namespace with a BPF file system of its own. p3 has the kernel's default
// queue discipline, the others a tbf.
type bench struct {
	t    *testing.T
	n    *testnet.Namespace
	r    *role
	f    *faulty
	file string

	ended bool // by the test
}

// benchLaw is the test law with the bench's faults.
type benchLaw struct {
	Law
	b *bench
}

func (l benchLaw) Own(c *Common) (Running, error) {
	r, err := l.Law.Own(c)
	l.b.f.Running = r
	return l.b.f, err
}

// newBench begins a switch with this file. more are laws in addition to the test law.
func newBench(t *testing.T, text string, more ...Law) *bench {
	t.Helper()
	b := &bench{t: t, n: testnet.NewNamespace(t), f: &faulty{}, file: filepath.Join(t.TempDir(), "switch.yaml")}
	b.n.Must(t, func() error {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return err
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return err
		}
		if err := unix.Mount("bpf", "/sys/fs/bpf", "bpf", 0, ""); err != nil {
			return err
		}
		for i := range 4 {
			name := fmt.Sprintf("p%d", i)
			if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: "peer" + name}); err != nil {
				return err
			}
			dev, err := netlink.LinkByName(name)
			if err != nil {
				return err
			}
			if i == 3 {
				break
			}
			tbf := &netlink.Tbf{
				QdiscAttrs: netlink.QdiscAttrs{LinkIndex: dev.Attrs().Index, Parent: netlink.HANDLE_ROOT, Handle: handle(1, 0)},
				Rate:       1e8 / 8, Limit: 125_000, Buffer: netlink.Xmittime(1e8/8, 3028),
			}
			if err := netlink.QdiscReplace(tbf); err != nil {
				return err
			}
		}
		return nil
	})
	b.write(text)
	c, err := New(append([]Law{benchLaw{TestLaw, b}}, more...)...).Load(b.file)
	if err != nil {
		t.Fatal(err)
	}
	b.r = newRole(c)
	b.n.Must(t, b.r.begin)
	t.Cleanup(func() {
		if !b.ended {
			b.n.Must(t, b.r.end)
		}
	})
	return b
}

func (b *bench) write(text string) {
	b.t.Helper()
	if err := os.WriteFile(b.file, []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// reload reads the file again with this text; the call with this number fails.
func (b *bench) reload(text string, failAt int) (changes []string, err error) {
	b.t.Helper()
	b.write(text)
	b.f.calls, b.f.failAt, b.f.failed = 0, failAt, ""
	b.n.Must(b.t, func() error {
		changes, err = b.r.reread()
		return nil
	})
	b.f.failAt = 0
	return changes, err
}

// state is the complete state of the kernel and the role.
type state struct {
	Ports    map[string]PortLaws
	Refused  map[string]string
	Chains   []string // programs and queue disciplines of every device
	Laws     []string
	Scope    int
	Shaped   []uint32
	Marked   map[markPort]uint32
	Config   *Config
	Canaries []string
}

func (b *bench) state() (s state) {
	b.t.Helper()
	s = state{
		Ports: maps.Clone(b.r.ports), Refused: maps.Clone(b.r.refused), Config: b.r.cfg,
		Marked: maps.Clone(b.r.marks.set), Canaries: slices.Sorted(maps.Keys(b.r.canaries)),
		Shaped: slices.Sorted(maps.Keys(b.r.shapes.made)),
	}
	b.n.Must(b.t, func() error {
		links, err := netlink.LinkList()
		if err != nil {
			return err
		}
		for _, l := range links {
			chain, err := attach.ProgramsAt(l.Attrs().Index, ebpf.AttachTCXEgress)
			if err != nil {
				return err
			}
			for _, p := range chain {
				prog, err := ebpf.NewProgramFromID(p.ID)
				if err != nil {
					return err
				}
				info, err := prog.Info()
				_ = prog.Close()
				if err != nil {
					return err
				}
				s.Chains = append(s.Chains, l.Attrs().Name+" "+info.Name)
			}
			qdiscs, err := netlink.QdiscList(l)
			if err != nil {
				return err
			}
			for _, q := range qdiscs {
				s.Chains = append(s.Chains, fmt.Sprint(l.Attrs().Name, " ", q, " ", q.Type()))
			}
		}
		v, err := TestLaw.Open(b.r.cfg.Laws[0].pin(b.r.cfg.Name))
		if err != nil {
			return err
		}
		defer func() { _ = v.Close() }()
		k, err := v.Read()
		if err != nil {
			return err
		}
		for _, p := range k.Ports {
			s.Laws = append(s.Laws, fmt.Sprintf("%s: %d, ifindex %d, mode %v, target %d, releasing %t", p.Port, p.ID, p.Ifindex, p.Mode, p.TargetBytes, p.Releasing))
		}
		scope, err := ebpf.LoadPinnedMap(filepath.Join(b.r.cfg.Laws[0].pin(b.r.cfg.Name), "scope"), nil)
		if err != nil {
			return err
		}
		defer func() { _ = scope.Close() }()
		var key, value []byte
		for all := scope.Iterate(); all.Next(&key, &value); {
			s.Scope++
		}
		return nil
	})
	return s
}

const (
	benchBefore = `kind: Switch
version: 2
ports:
  - {match: [p0, p1], mark: {threshold: 50KB}}
`
	// A new scope, another law, one mark less, a port with a queue, one to be shaped, and one that goes.
	benchAfter = `kind: Switch
version: 2
scope: [10.0.0.0/8]
ports:
  - {match: p0, fairq: {target_fraction: 0.1}}
  - {match: p2, mark: {threshold: 20KB}}
  - {match: p3, shape: 50Mbit, buffer: 60KB}
`
)

// After a failure of any call of a reload, everything is as before. Without a failure everything is as the file says,
// and changing back works, too.
func TestReload_FailsMidway(t *testing.T) {
	b := newBench(t, benchBefore)
	before := b.state()
	var failed []string
	for failAt := 1; ; failAt++ {
		changes, err := b.reload(benchAfter, failAt)
		if b.f.failed == "" {
			if err != nil {
				t.Fatalf("without a fault: %v", err)
			}
			t.Logf("faults: %q; applied:\n%s", failed, strings.Join(changes, "\n"))
			break
		}
		failed = append(failed, b.f.failed)
		if !errors.Is(err, errFault) {
			t.Errorf("%s failed: %v", b.f.failed, err)
		}
		if now := b.state(); !reflect.DeepEqual(now, before) {
			t.Errorf("%s failed, and something has changed:\n%+v\n%+v", b.f.failed, before, now)
		}
	}
	if want := []string{"change", "attach p0", "attach p2", "attach p3", "remove p1"}; !slices.Equal(slices.Sorted(slices.Values(failed)), slices.Sorted(slices.Values(want))) {
		t.Errorf("calls that failed: %q, want %q", failed, want)
	}
	after := b.state()
	if got := slices.Sorted(maps.Keys(after.Ports)); !slices.Equal(got, []string{"p0", "p2", "p3"}) {
		t.Errorf("ports: %v", got)
	}
	if after.Ports["p0"].Params[0].Figures().Target != 12_500 || after.Ports["p3"].Params[0].Figures().Target != 12_000 || len(after.Shaped) != 1 || after.Scope == 0 || len(after.Marked) != 1 {
		t.Errorf("not what the file says: %+v", after)
	}
	if _, err := b.reload(benchBefore, 0); err != nil {
		t.Fatal(err)
	}
	now := b.state()
	before.Config, now.Config = nil, nil
	// A port that was detached and comes back is attached again, perhaps at another index of the table.
	if !slices.Equal(now.Chains, before.Chains) || len(now.Shaped) != 0 || now.Scope != 0 || !reflect.DeepEqual(now.Marked, before.Marked) || len(now.Ports) != 2 {
		t.Errorf("the way back:\n%+v\n%+v", before, now)
	}
}

// A port that was refused before does not prevent a reload; one that the new file makes invalid does.
func TestReload_RefusedPorts(t *testing.T) {
	b := newBench(t, benchBefore)
	b.n.Must(t, func() error {
		dev, err := netlink.LinkByName("p1")
		if err != nil {
			return err
		}
		err = netlink.QdiscDel(&netlink.Tbf{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: dev.Attrs().Index, Parent: netlink.HANDLE_ROOT, Handle: handle(1, 0)}})
		return errors.Join(err, b.r.follow())
	})
	if b.r.refused["p1"] == "" {
		t.Fatal("a port without a queue is not refused: the test shows nothing")
	}
	if _, err := b.reload(strings.Replace(benchBefore, "50KB", "60KB", 1), 0); err != nil {
		t.Errorf("the reload is refused because of a port that was refused before: %v", err)
	}
	before := b.state()
	_, err := b.reload(strings.Replace(benchBefore, "p1]", "p1, p3]", 1), 0)
	var queue *attach.NoQueue
	if !errors.As(err, &queue) || queue.Port != "p3" {
		t.Errorf("a port without a queue is accepted: %v", err)
	}
	if now := b.state(); !reflect.DeepEqual(now, before) {
		t.Errorf("refused, and something has changed:\n%+v\n%+v", before, now)
	}
}

// A reload that does not change enforcement keeps the result of a rollback; with a change, the ports that were rolled
// back get another chance.
func TestKeptCanaries(t *testing.T) {
	c := func(stage stage, percent int) *canary { return &canary{stage: stage, percent: percent} }
	all := map[string]*canary{
		"enforcing": c(stageEnforcing, 10), "before": c(stageBefore, 10), "rolled back": c(stageRolledBack, 10), "observed": c(stageEnforcing, 0),
	}
	was := &Config{Enforce: Enforce{Percent: 10}, Rollback: Rollback{If: []Rule{{Drops, 2}}, Over: RollbackOver}}
	same := *was
	if got := slices.Sorted(maps.Keys(keptCanaries(was, &same, all))); !slices.Equal(got, []string{"before", "enforcing"}) {
		t.Errorf("kept: %v", got)
	}
	more := *was
	more.Enforce.Percent = 50
	if got := keptCanaries(was, &more, all); len(got) != 0 {
		t.Errorf("with another percentage: %v", got)
	}
	other := *was
	other.Rollback.If = []Rule{{Drops, 3}}
	if got := keptCanaries(was, &other, all); len(got) != 0 {
		t.Errorf("with another rule: %v", got)
	}
}
