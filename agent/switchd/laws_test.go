package switchd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"weir/config"
	"weir/datapath/attach"
	"weir/datapath/mark"
	"weir/datapath/reading"
	"weir/law"
)

// marking is a law that marks packets above a threshold with the kernel program of package mark. It logs its calls.
type marking struct {
	name      string
	calls     []string
	fail      string // a call that fails, once
	gone      func() []string
	heartbeat func() error // nil: heartbeats succeed

	pin   string
	ports map[string]LawPort
	at    *mark.Mark
}

type markingAll struct {
	Note string `json:"note,omitempty"`
}

type markingPort struct {
	Threshold law.Bytes `json:"threshold,omitempty"`
}

// markingParams is a threshold in bytes.
type markingParams uint32

func (p markingParams) Figures() Figures {
	return Figures{Target: uint32(p), Buffer: 125_000, MTU: 1500}
}
func (p markingParams) With(Enforcement) Params { return p }
func (p markingParams) Differs(Params) string   { return fmt.Sprintf("threshold %d", p) }

func (m *marking) Facts() *Facts {
	return &Facts{Spec: &law.Spec{Name: m.name, Claims: []law.Resource{law.Marking}}, Title: strings.ToUpper(m.name), All: &markingAll{Note: "none"}, Port: &markingPort{Threshold: 60e3}}
}

func (m *marking) Check(c *config.Checker, at []string, keys any) {
	if k, ok := keys.(*markingPort); ok && k.Threshold < 10_000 {
		c.Fail(append(slices.Clone(at), "threshold"), "the threshold is too small", "10KB or more")
	}
}

func (m *marking) At(_ Site, keys any) (Params, error) {
	return markingParams(keys.(*markingPort).Threshold), nil
}

func (m *marking) call(format string, args ...any) error {
	what := fmt.Sprintf(format, args...)
	m.calls = append(m.calls, what)
	if what == m.fail {
		m.fail = ""
		return errFault
	}
	return nil
}

func (m *marking) Own(c *Common) (Running, error) {
	m.pin, m.ports = c.Pin, map[string]LawPort{}
	return m, m.call("own %s", c.Keys.(*markingAll).Note)
}

// apply attaches the program to the ports, as they are now.
func (m *marking) apply() (err error) {
	c := mark.Config{Pin: m.pin, Tail: true, PortThresholds: map[string]uint32{}}
	var refs []attach.PortRef
	for _, name := range slices.Sorted(maps.Keys(m.ports)) {
		c.PortThresholds[name] = uint32(m.ports[name].Params.(markingParams))
		refs = append(refs, m.ports[name].PortRef)
	}
	if m.at != nil {
		err = m.at.Leave()
	}
	at, err2 := mark.Attach(refs, c)
	m.at = at
	return errors.Join(err, err2)
}

func (m *marking) Attach(ports ...LawPort) error {
	for _, p := range ports {
		if err := m.call("attach %s %d", p.Name, p.Params); err != nil {
			return err
		}
		m.ports[p.Name] = p
	}
	return m.apply()
}

func (m *marking) Remove(ports ...string) error {
	for _, p := range ports {
		delete(m.ports, p)
	}
	return errors.Join(m.call("remove %v", ports), m.apply())
}

func (m *marking) Change(c *Common) (func() error, error) {
	return func() error { return m.call("change back") }, m.call("change to %s", c.Keys.(*markingAll).Note)
}

func (m *marking) End(how Ending) error {
	err := m.call("end %d", how)
	if m.at == nil {
		return err
	}
	return errors.Join(err, m.at.Close())
}

func (m *marking) ReleasePort(port string) error                  { return m.call("release %s", port) }
func (m *marking) Stats(...string) ([]reading.Stats, error)       { return nil, nil }
func (m *marking) EachFlow(func(string, reading.Flow) bool) error { return nil }
func (m *marking) Note(port, text string) error                   { return m.call("note %s %s", port, text) }
func (m *marking) Release(context.Context) error                  { return m.call("release") }
func (m *marking) CheckTaken(string, ...attach.PortRef) error     { return nil }
func (m *marking) Rehearse() error                                { return nil }
func (m *marking) Memory(any, int) (int, uint64, error)           { return 1, 1000, nil }
func (m *marking) Heartbeat() error {
	if m.heartbeat == nil {
		return nil
	}
	return m.heartbeat()
}
func (m *marking) Gone() []string {
	if m.gone == nil {
		return nil
	}
	return m.gone()
}

func (m *marking) Purge(_ string, before func() error) error {
	return errors.Join(m.call("purge"), before())
}
func (m *marking) Watch() error { return nil }
func (m *marking) Close() error { return nil }

// markingView reads what the law has pinned.
type markingView struct {
	*marking
	dir string
}

func (m *marking) Open(dir string) (View, error) {
	if _, err := os.Stat(dir); err != nil {
		return nil, err
	}
	return markingView{m, dir}, nil
}

func (v markingView) Read() (*reading.Switch, error) {
	pins, err := attach.ReadPins(v.dir)
	if err != nil {
		return nil, err
	}
	s := &reading.Switch{Holder: attach.Holder{PID: os.Getpid()}, Lease: 1}
	for _, name := range slices.Sorted(maps.Keys(v.ports)) {
		p := v.ports[name]
		s.Ports = append(s.Ports, reading.Pinned{Stats: reading.Stats{Port: name, Enforced: true, TargetBytes: uint32(p.Params.(markingParams))}, ID: uint32(p.Ifindex), Ifindex: p.Ifindex, HasDevice: true})
	}
	if len(pins.Links) != len(s.Ports) {
		return nil, fmt.Errorf("%d links are pinned, and the law is on %d ports", len(pins.Links), len(s.Ports))
	}
	return s, nil
}

func (v markingView) Stats(uint32) (reading.Stats, error) { return reading.Stats{}, nil }

func (v markingView) EachFlow(map[uint32]string, func(string, reading.Flow) bool) error { return nil }

const (
	twoLawsBefore = `kind: Switch
version: 2
fairq: {flows: 1024}
marks: {note: first}
ports:
  - {match: [p0, p1], marks: {threshold: 50KB}}
`
	twoLawsAfter = `kind: Switch
version: 2
fairq: {flows: 1024, signed: drop}
marks: {note: second}
ports:
  - {match: p0, marks: {threshold: 20KB}}
  - {match: p2}
`
)

// programsAt lists the programs at the ports, in the order of their chains.
func (s *state) programsAt() (out []string) {
	for _, line := range s.Chains {
		if port, program, _ := strings.Cut(line, " "); strings.HasPrefix(program, "weir_") {
			out = append(out, port+" "+program)
		}
	}
	return out
}

// A switch runs two laws at the same ports, each with a kernel program and keys of its own. A reload that fails in the
// second law leaves the first as it was, too.
func TestTwoLaws(t *testing.T) {
	m := &marking{name: "marks"}
	b := newBench(t, twoLawsBefore, m)
	calls := func(what string, want ...string) {
		t.Helper()
		if !slices.Equal(m.calls, want) {
			t.Errorf("%s: calls %q\nwant %q", what, m.calls, want)
		}
		m.calls = nil
	}
	chains := func(what string, want ...string) {
		t.Helper()
		if s := b.state(); !slices.Equal(s.programsAt(), want) {
			t.Errorf("%s: programs %q\nwant %q", what, s.programsAt(), want)
		}
	}
	calls("begin", "own first", "attach p0 50000", "attach p1 50000", "note  ")
	chains("begin", "p0 weir_fairq", "p0 weir_mark", "p1 weir_fairq", "p1 weir_mark")

	before := b.state()
	for _, fault := range []string{"change to second", "attach p0 20000", "attach p2 60000", "remove [p1]"} {
		m.fail = fault
		if _, err := b.reload(twoLawsAfter, 0); !errors.Is(err, errFault) {
			t.Errorf("%s failed: %v", fault, err)
		}
		if now := b.state(); !reflect.DeepEqual(now, before) {
			t.Errorf("%s failed, and something has changed:\n%+v\n%+v", fault, before, now)
		}
	}
	m.calls = nil
	changes, err := b.reload(twoLawsAfter, 0)
	if want := []string{"signed: pass became drop", "note: first became second", "port p0: marks: threshold 20000", "port p2: attached", "port p1: detached"}; err != nil || !slices.Equal(changes, want) {
		t.Errorf("reload: %q, %v\nwant %q", changes, err, want)
	}
	calls("reload", "change to second", "attach p0 20000", "attach p2 60000", "remove [p1]")
	chains("reload", "p0 weir_fairq", "p0 weir_mark", "p2 weir_fairq", "p2 weir_mark")

	if _, err := b.reload(strings.Replace(twoLawsBefore, "marks: {note: first}\n", "", 1)+"    rtt: 1ms\n", 0); err == nil {
		t.Error("a broken file is accepted")
	}
	one := "kind: Switch\nversion: 2\nfairq: {flows: 1024}\nports: [{match: [p0, p2]}]\n"
	if _, err := b.reload(one, 0); err == nil || !strings.Contains(err.Error(), "the laws were FairQ and MARKS and became FairQ, but a running switch cannot change its laws") {
		t.Errorf("another list of laws: %v", err)
	}

	b.n.Must(t, func() error {
		r, err := b.r.cfg.agent.Status("default")
		if err != nil {
			return err
		}
		var got []string
		for _, s := range r.Switches {
			for _, p := range s.Ports {
				got = append(got, fmt.Sprint(s.Name, " ", s.Law, " ", p.Port, " ", p.TargetBytes))
			}
		}
		if want := []string{"default  p0 25000", "default  p2 25000", "default marks p0 20000", "default marks p2 60000"}; !slices.Equal(got, want) {
			t.Errorf("status: %q, want %q", got, want)
		}
		return nil
	})
	m.calls = nil
	b.n.Must(t, b.r.end)
	calls("the end", "release", fmt.Sprintf("end %d", Detach))
	b.ended = true
	chains("the end")
}

// Two laws that claim one exclusive resource are refused with both names, in a file and by Own. So is a law that marks
// next to the key mark.
func TestTwoLaws_ThatConflict(t *testing.T) {
	laws := []Law{TestLaw, &marking{name: "marks"}, &marking{name: "also"}}
	a := New(laws...)
	for _, row := range []struct{ text, says string }{
		{"marks: {}\nalso: {}\nports: [{match: p0}]\n", "laws marks and also cannot run at one place: both claim marking"},
		{"marks: {}\nports: [{match: p0, also: {threshold: 50KB}}]\n", "laws marks and also cannot run at one place: both claim marking"},
		{"marks: {}\nports: [{match: p0, mark: {threshold: 50KB}}]\n", "laws marks and mark cannot run at one place: both claim marking"},
		{"also: {}\nports: [{match: p0, also: {threshold: 9KB}}]\n", "ports.p0.also.threshold: the threshold is too small"},
	} {
		if _, err := a.Parse("f", []byte("kind: Switch\nversion: 2\n"+row.text)); err == nil || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s: %v\nwant %s", row.text, err, row.says)
		}
	}
	var conflict *law.ConflictError
	if _, err := Own(Setting{Law: laws[1]}, Setting{Law: laws[2]}); !errors.As(err, &conflict) || conflict.A != "marks" || conflict.B != "also" {
		t.Errorf("Own: %v", err)
	}
}

// A port whose device is deleted while the switch looks at its ports is gone, and nobody has detached its program: the kernel takes a
// device from its list first. So status can report it.
func TestFollow_PortDeletedMeanwhile(t *testing.T) {
	m := &marking{name: "marks"}
	b := newBench(t, "kind: Switch\nversion: 2\nmarks: {}\nports: [{match: p0}]\n", m)
	m.gone = func() []string {
		l, err := netlink.LinkByName("p0")
		if err == nil {
			err = netlink.LinkDel(l)
		}
		if err != nil {
			t.Error(err)
		}
		return []string{"p0"}
	}
	b.n.Must(t, b.r.follow)
	if _, on := b.r.ports["p0"]; !on || b.r.refused["p0"] != errGone.Error() {
		t.Errorf("port: %v, refused: %q, calls %q", on, b.r.refused["p0"], m.calls)
	}
	m.gone = nil
}

// A switch runs the laws whose sections its file has, wherever they are; without any it runs the first.
func TestLoad_ChoosesLaws(t *testing.T) {
	a := New(TestLaw, &marking{name: "marks"})
	for text, want := range map[string]string{
		"ports: [{match: p0}]\n":                                                   "FairQ",
		"ports: [{match: p0, fairq: {paths: 2}}]\n":                                "FairQ",
		"marks: {}\nports: [{match: p0}]\n":                                        "MARKS",
		"defaults: {marks: {threshold: 30KB}}\nports: [{match: p0}]\n":             "MARKS",
		"ports: [{match: p0, marks: {threshold: 30KB}}, {match: p1, fairq: {}}]\n": "FairQ and MARKS",
	} {
		c, err := a.Parse("f", []byte("kind: Switch\nversion: 2\n"+text))
		if err != nil || titles(c.Laws) != want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
