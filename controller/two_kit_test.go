package controller

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"weir/datapath/testnet"
)

// judge reads Open vSwitch's log of its OpenFlow connections, and finds the refused and the accepted orders of a controller that
// is not MASTER. Each bridge reaches each controller through an address of its own, so that a line identifies both.
type judge struct {
	mu      sync.Mutex
	rest    []byte
	bridges map[string]*judged // by the address
	other   bytes.Buffer       // lines of something else
	orders  int                // of the MASTER
	refused int                // of others, with an error
	changes int                // of the MASTER of a bridge, to another controller
}

type judged struct {
	master     string // the connection
	before     string // the one that was it last
	generation uint64
	open       map[string]string // orders of others that were not refused yet, by connection and xid
}

var (
	vconnLine = regexp.MustCompile(`vconn\|DBG\|tcp:([0-9.]+):(\d+): (received|sent \([^)]*\)): (\w+) .*?\(xid=(0x[0-9a-f]+)\):?(.*)`)
	askedRole = regexp.MustCompile(`role=(?:primary|master) generation_id=(\d+)`)
)

func (j *judge) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.rest = append(j.rest, p...)
	for {
		line, rest, whole := bytes.Cut(j.rest, []byte("\n"))
		if !whole {
			return len(p), nil
		}
		j.line(string(line))
		j.rest = append([]byte{}, rest...)
	}
}

func (j *judge) line(text string) {
	m := vconnLine.FindStringSubmatch(text)
	if m == nil {
		if j.other.Len() < 10000 && !strings.Contains(text, "vconn|DBG") {
			fmt.Fprintln(&j.other, text)
		}
		return
	}
	b := j.bridges[m[1]]
	if b == nil {
		b = &judged{open: map[string]string{}}
		j.bridges[m[1]] = b
	}
	conn, received, kind, order := m[2], m[3] == "received", m[4], m[2]+" "+m[5]
	switch {
	case received && kind == "OFPT_HELLO" && b.master == conn: // a new connection
		b.master = ""
	case received && kind == "OFPT_ROLE_REQUEST":
		if g := askedRole.FindStringSubmatch(m[6]); g != nil {
			if id, err := strconv.ParseUint(g[1], 10, 64); err == nil && id >= b.generation {
				if b.before != "" && b.before != conn {
					j.changes++
				}
				b.generation, b.master, b.before = id, conn, conn
			}
		}
	case received && (kind == "OFPT_FLOW_MOD" || kind == "OFPT_GROUP_MOD" || kind == "OFPT_METER_MOD" || kind == "OFPT_PACKET_OUT"):
		if b.master == conn {
			j.orders++
		} else {
			b.open[order] = text
		}
	case kind == "OFPT_ERROR" && b.open[order] != "" && (strings.Contains(m[6], "IS_SLAVE") || strings.Contains(m[6], "IS_SECONDARY")):
		j.refused++
		delete(b.open, order)
	}
}

// obeyed returns the orders that were taken from a controller that was not MASTER.
func (j *judge) obeyed() (lines []string) {
	for _, b := range j.bridges {
		for _, line := range b.open {
			lines = append(lines, line)
		}
	}
	return lines
}

// pair is a fabric with two controllers that share a generation file.
type pair struct {
	*racks
	judge *judge
	of    map[string]*testnet.Process
	turns atomic.Uint64 // requests: flows pinned or unpinned
	lost  atomic.Uint64 // such that no controller took
}

var pairPorts = map[string]int{"a": 6653, "b": 6654}

func newPair(tb testing.TB) *pair {
	p := &pair{racks: newRacks(tb, 2, 1, 1), of: map[string]*testnet.Process{}, judge: &judge{bridges: map[string]*judged{}}}
	// Begin the switches again, with a log.
	p.Switches.Kill()
	_ = os.Remove(p.Path("vswitchd.ctl"))
	cmd := p.Env(exec.Command("ovs-vswitchd", "unix:"+p.Path("db.sock"), "--unixctl="+p.Path("vswitchd.ctl"), "-vconsole:err", "-vvconn:console:dbg"))
	cmd.Stderr = p.judge
	p.Switches = testnet.Start(tb, p.fabric, cmd)
	testnet.Until(tb, "no limit to what the switches log", func() bool {
		return p.Env(exec.Command("ovs-appctl", "-t", p.Path("vswitchd.ctl"), "vlog/disable-rate-limit", "vconn")).Run() == nil
	})
	for i, b := range p.bridges() {
		target := func(name string) string { return fmt.Sprintf(`target="tcp:127.0.0.%d:%d"`, 10+i, pairPorts[name]) }
		p.Vsctl(tb, "--id=@a", "create", "controller", target("a"), "max_backoff=1000", "--", "--id=@b", "create", "controller",
			target("b"), "max_backoff=1000", "--", "set", "bridge", b, "controller=[@a,@b]")
	}
	p.startOne("a")
	p.startOne("b")
	p.active(tb, "a", "b")
	p.reach(tb)
	return p
}

func (p *pair) startOne(name string, env ...string) {
	p.of[name] = p.start(name, fmt.Sprintf("0.0.0.0:%d", pairPorts[name]), "", env...)
}

// pausedDraw has a controller hang between taking the lease and drawing its generation id, and go on when the other one
// has replaced it: it draws the higher id, without the lease. The other one begins anew then, with an id above that.
func (p *pair) pausedDraw(tb testing.TB) {
	tb.Helper()
	name, other := p.active(tb, "a", "b")
	before := p.statusOf(tb, name).Generation
	p.of[other].Kill()
	p.startOne(other, testPause+"=1")
	testnet.Until(tb, other+" stands by", func() bool {
		s := p.statusOf(tb, other)
		return s != nil && s.Active == name
	})
	p.of[name].Kill()
	hung := p.of[other]
	testnet.Until(tb, other+" hangs before it draws", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", hung.Cmd.Process.Pid))
		_, state, _ := strings.Cut(string(stat), ") ")
		return err == nil && strings.HasPrefix(state, "T")
	})
	p.startOne(name)
	p.active(tb, name)
	p.signal(tb, hung, syscall.SIGCONT)
	testnet.Until(tb, "the fabric has a controller with the highest id", func() bool {
		n, _ := p.active(tb, "a", "b")
		s := p.statusOf(tb, n)
		return s != nil && s.Generation >= before+3
	})
}

// active waits until one of them has the whole fabric, and gives its name and the other's.
func (p *pair) active(tb testing.TB, names ...string) (name, other string) {
	tb.Helper()
	last := map[string]*Status{}
	found := false
	defer func() {
		for n, s := range last {
			if text, err := json.Marshal(s); !found {
				tb.Logf("the last status of %s: %s %v", n, text, err)
			}
		}
	}()
	testnet.Until(tb, fmt.Sprintf("one of %v has the fabric", names), func() bool {
		for _, n := range names {
			s := p.statusOf(tb, n)
			last[n] = s
			if s != nil && s.Active == "" && s.Forward.Settled && len(s.Forward.Switches) == 3 && len(s.Forward.Links) == 2 && s.Well() {
				name, found = n, true
				return true
			}
		}
		return false
	})
	return name, map[string]string{"a": "b", "b": "a"}[name]
}

// churn pins and unpins flows without pause, so that orders are always on their way.
func (p *pair) churn() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for name := range pairPorts {
		all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				q := PinRequest{Proto: protoTCP, Src: fmt.Sprintf("%v:%d", p.hosts[0].ip, 1000+n/2%50),
					Dst: fmt.Sprintf("%v:80", p.hosts[1].ip), IdleSeconds: 600, Drop: n%2 == 1}
				one, end := context.WithTimeout(ctx, time.Second)
				err := Pin(one, name, p.fabric.Enter, q)
				end()
				if err == nil {
					p.turns.Add(1)
				} else {
					p.lost.Add(1)
				}
				time.Sleep(5 * time.Millisecond) // the log of all of it is read
			}
		})
	}
	return func() { cancel(); all.Wait() }
}

// change takes the fabric from the active controller, which is killed or stopped at a random moment of what it
// does, and gives it to the other one. Then the first one comes back.
func (p *pair) change(tb testing.TB, rng *rand.Rand, stops bool) (took time.Duration) {
	tb.Helper()
	name, other := p.active(tb, "a", "b")
	for moment := p.turns.Load() + rng.Uint64N(40); p.turns.Load() < moment; time.Sleep(time.Duration(rng.IntN(1000)) * time.Microsecond) {
	}
	old, begun := p.of[name], time.Now()
	if stops {
		p.signal(tb, old, syscall.SIGSTOP)
	} else {
		old.Kill()
	}
	p.active(tb, other)
	took = time.Since(begun)
	if stops {
		p.signal(tb, old, syscall.SIGCONT)
	} else {
		p.startOne(name)
	}
	testnet.Until(tb, name+" stands by", func() bool {
		s := p.statusOf(tb, name)
		return s != nil && s.Active == other
	})
	return took
}

func (p *pair) signal(tb testing.TB, c *testnet.Process, s syscall.Signal) {
	tb.Helper()
	if err := c.Cmd.Process.Signal(s); err != nil {
		tb.Fatal(err)
	}
}
