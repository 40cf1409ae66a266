package sed

import (
	"bufio"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/law"
	"weir/law/flows"
	"weir/law/inventory"
	"weir/law/lawtest"
)

const (
	ms   = time.Millisecond
	gbit = law.Rate(1e9)
)

// script drives a law that has one switch with the ports 1 and 2, of 1 Gbit/s, and an RTT of 200 us. Flow n is from VM n to 10.0.9.9.
type script struct {
	t   testing.TB
	law law.Law
	l   *Law
	now time.Duration
}

// paper is the printed algorithm.
func paper(p *Params) {
	p.Period, p.Overhead, p.RoundTrip, p.Shortage, p.Overload, p.Spare, p.First = 0, false, TripEmpty, ShortageNone, OverloadEarliest, SpareOthers, FirstOpen
}

func newScript(t testing.TB, change func(*Params)) *script {
	t.Helper()
	return newRepair(t, change, "")
}

func newRepair(t testing.TB, change func(*Params), repair string) *script {
	t.Helper()
	p := Default()
	p.First = FirstOpen // TestFirst has the other choice
	if change != nil {
		change(p)
	}
	l, err := New(*p, repair, 200e3)
	if err != nil {
		t.Fatal(err)
	}
	twin, _ := New(*p, repair, 200e3)
	s := &script{t: t, law: lawtest.Checked(t, l, twin), l: l}
	s.step(&inventory.Switch{At: 1, Ports: []inventory.Port{{N: 1, Rate: gbit}, {N: 2, Rate: gbit}}})
	for n := 1; n <= 200; n++ {
		s.step(&inventory.Host{At: law.Host(n), VMs: []inventory.VM{{Number: law.VM(n), Addresses: []netip.Prefix{netip.PrefixFrom(address(n), 32)}}}})
	}
	return s
}

func address(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(n)}) }

func flowN(n int) law.Flow {
	return law.Flow{Src: netip.AddrPortFrom(address(n), uint16(1000+n)), Dst: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 9, 9}), 80), Proto: 6}
}

// step passes an event, and returns the grants, by flow: bytes, "paused" or "free".
func (s *script) step(e law.Event) map[int]string {
	s.t.Helper()
	got := map[int]string{}
	for _, a := range s.law.Step(s.now, e, nil) {
		g, ok := a.(law.Grant)
		if !ok {
			continue
		}
		n := int(g.Key.VM)
		if g.Key.Flow != flowN(n) || g.Lease != time.Duration(s.l.p.Lease) {
			s.t.Fatalf("%+v", g)
		}
		switch {
		case g.Kind == law.PauseGrant:
			got[n] = "paused"
		case g.Value == noLimit:
			got[n] = "free"
		default:
			got[n] = strconv.FormatUint(g.Value, 10)
		}
	}
	return got
}

func (s *script) began(ns ...int) (got map[int]string) {
	s.t.Helper()
	for _, n := range ns {
		got = s.step(&flows.Began{At: law.Port{Switch: 1, N: 1}, Flow: flowN(n)})
	}
	return got
}

func (s *script) declared(n int, left time.Duration, bytes uint64) map[int]string {
	s.t.Helper()
	return s.step(&flows.Declared{Flow: flowN(n), Left: left, Bytes: bytes})
}

func (s *script) congested(now bool) map[int]string {
	s.t.Helper()
	return s.step(&flows.Congested{At: law.Port{Switch: 1, N: 1}, Now: now})
}

// sent reports how far flows came, at port 1, which is congested.
func (s *script) sent(bytes map[int]uint64) map[int]string {
	s.t.Helper()
	e := &flows.Progress{At: 1, Congested: []uint32{1}}
	for n := range 201 {
		if b, ok := bytes[n]; ok {
			e.Sent = append(e.Sent, flows.Sent{Port: 1, Flow: flowN(n), Bytes: b})
		}
	}
	return s.step(e)
}

func (s *script) want(what string, got map[int]string, want string) {
	s.t.Helper()
	if is := show(got); is != want {
		s.t.Errorf("%s: %q, want %q", what, is, want)
	}
}

// show writes grants in the order of the flows, equal neighbours as a range: "1=2920 2..4=1460 5=paused".
func show(got map[int]string) string {
	var ns []int
	for n := range got {
		ns = append(ns, n)
	}
	slices.Sort(ns)
	var out []string
	for i := 0; i < len(ns); {
		j := i
		for j+1 < len(ns) && ns[j+1] == ns[j]+1 && got[ns[j+1]] == got[ns[i]] {
			j++
		}
		if j > i {
			out = append(out, fmt.Sprintf("%d..%d=%s", ns[i], ns[j], got[ns[i]]))
		} else {
			out = append(out, fmt.Sprintf("%d=%s", ns[i], got[ns[i]]))
		}
		i = j + 1
	}
	return strings.Join(out, " ")
}

// The scenarios in testdata: each line is a time, an event, and behind ">" the grants that must follow.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) < 4 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) { scenario(t, file) })
	}
}

func scenario(t *testing.T, file string) {
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	s, lines := (*script)(nil), bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		text, _, _ := strings.Cut(lines.Text(), "#")
		event, want, _ := strings.Cut(text, ">")
		words := strings.Fields(event)
		if len(words) == 0 {
			continue
		}
		if s == nil { // the first line names the choices
			if s = newScript(t, map[string]func(*Params){"ours": nil, "paper": paper}[words[0]]); words[0] != "ours" && words[0] != "paper" {
				t.Fatalf("%s begins with %q", file, words)
			}
			continue
		}
		if s.now, err = time.ParseDuration(words[0]); err != nil {
			t.Fatal(file, n, err)
		}
		s.want(fmt.Sprintf("%s:%d", file, n), s.line(words[1:]), strings.TrimSpace(want))
	}
}

// line carries out a line of a scenario.
func (s *script) line(words []string) map[int]string {
	s.t.Helper()
	number := func(text string) int {
		n, err := strconv.Atoi(text)
		if err != nil {
			s.t.Fatal(words, err)
		}
		return n
	}
	switch words[0] {
	case "began":
		return s.began(number(words[1]))
	case "ended":
		return s.step(&flows.Ended{At: law.Port{Switch: 1, N: 1}, Flow: flowN(number(words[1]))})
	case "declared":
		left, err := time.ParseDuration(words[2])
		if err != nil {
			s.t.Fatal(words, err)
		}
		return s.declared(number(words[1]), left, uint64(number(words[3])))
	case "congested":
		return s.congested(true)
	case "recovered":
		return s.congested(false)
	case "sent":
		bytes := map[int]uint64{}
		for _, w := range words[1:] {
			n, b, _ := strings.Cut(w, "=")
			bytes[number(n)] = uint64(number(b))
		}
		return s.sent(bytes)
	}
	s.t.Fatal("no such event: ", words)
	return nil
}
