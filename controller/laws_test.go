package controller

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/law"
	"weir/law/fabric"
)

// toyParams are those of a law that grants everybody the same window.
type toyParams struct {
	Window law.Bytes    `json:"window" above:"0" jsonschema:"required" jsonschema_description:"of every connection"`
	Every  law.Duration `json:"every" above:"0" jsonschema_description:"how often"`
}

func (p *toyParams) Check() error {
	if p.Window < 1461 {
		return errors.New("a window below a segment and a byte stops a connection: at least 1461B")
	}
	return nil
}

type toy struct {
	p    *toyParams
	next time.Duration
}

func (l *toy) Step(now time.Duration, _ law.Event, out []law.Action) []law.Action {
	if now < l.next {
		return out
	}
	l.next = now + time.Duration(l.p.Every)
	return append(out, law.Grant{Kind: law.WindowGrant, Value: uint64(l.p.Window)})
}
func (l *toy) Wake() time.Duration { return max(l.next, 1) }

// toySpecs are laws of a build: two for a controller that cannot be composed, and one for a port.
func toySpecs() law.Specs {
	spec := func(name string, claims ...law.Resource) law.Spec {
		return law.Spec{
			Name: name, Sites: []law.Site{law.Controller}, Claims: claims, Params: func() any { return &toyParams{Every: law.Duration(time.Millisecond)} },
			New: func(site law.Site, params any, _ *law.Topology) (law.Law, error) {
				if site != law.Controller {
					return nil, errors.New("not for this site")
				}
				p := params.(*toyParams)
				if p.Every > law.Duration(time.Hour) {
					return nil, errors.New("every: an hour at most")
				}
				return &toy{p: p}, nil
			},
		}
	}
	port := spec("port")
	port.Sites = []law.Site{law.SwitchPort}
	return law.Specs{spec("table", law.ReceiveWindow), spec("fixed", law.ReceiveWindow, law.Shim), spec("shims", law.Shim), port, {Name: "core", Sites: []law.Site{law.Controller}}}
}

func loadLaws(t *testing.T, text string) (*Config, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(file, []byte("kind: Controller\n"+text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(file, toySpecs())
	if err != nil {
		err = errors.New(strings.ReplaceAll(err.Error(), file, "c.yaml"))
	}
	return c, err
}

func TestLawsOfAFile(t *testing.T) {
	c, err := loadLaws(t, "laws:\n  table: {window: 3KB}\n  fixed: {window: 2KB, every: 1s}\n")
	if err != nil || len(c.Laws) != 2 || c.Laws[0].Name != "fixed" || c.Laws[1].Name != "table" {
		t.Fatalf("%+v, %v", c, err)
	}
	for i, want := range []toyParams{{2000, law.Duration(time.Second)}, {3000, law.Duration(time.Millisecond)}} {
		a, err1 := c.Laws[i].New()
		b, err2 := c.Laws[i].New()
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		if got := *a.(*toy).p; got != want {
			t.Errorf("%s: %+v, should be %+v", c.Laws[i].Name, got, want)
		}
		if a == b || a.(*toy).p == b.(*toy).p {
			t.Error("two terms share a law")
		}
	}
	for _, row := range []struct{ text, says string }{
		{"laws: {tabel: {window: 3KB}}\n", `c.yaml:2: laws.tabel: "tabel" is not a law of a controller; did you mean table? allowed: fixed, shims, table`},
		{"laws: {port: {window: 3KB}}\n", `c.yaml:2: laws.port: "port" is not a law of a controller; allowed: fixed, shims, table`},
		{"laws: {core: {}}\n", `c.yaml:2: laws.core: "core" is not a law of a controller; allowed: fixed, shims, table`},
		{"laws:\n  table: {}\n", "c.yaml:3: laws.table.window: the key is missing; it must be given: a size is a number and B, KB, MB, KiB or MiB"},
		{"laws:\n  table:\n    windows: 3KB\n    window: 3KB\n", "c.yaml:4: laws.table.windows: unknown key; did you mean window? allowed: every, window"},
		{"laws:\n  table:\n    window: 3KB\n    every: 0s\n", "c.yaml:5: laws.table.every: 0 is not allowed; above 0"},
		{"laws:\n  table: {window: 3KB, every: 4000s}\n", "c.yaml:3: laws.table: every: an hour at most"},
		{"laws:\n  table:\n    window: 5\n", ""},
		{"laws:\n  table:\n    window: 1KB\n", "c.yaml:3: laws.table: a window below a segment and a byte stops a connection: at least 1461B"},
		{"laws:\n  fixed: {window: 3KB}\n  shims: {window: 3KB}\n", "c.yaml:2: laws: " + (&law.ConflictError{A: "fixed", B: "shims", Resource: law.Shim}).Error()},
	} {
		if _, err := loadLaws(t, row.text); err == nil || row.says != "" && err.Error() != row.says {
			t.Errorf("%q:\n%v\nshould be\n%s", row.text, err, row.says)
		}
	}
}

// A law of a file runs in addition to forwarding and gets its ticks, and its grants are counted.
func TestLawsRunBesideForwarding(t *testing.T) {
	c, err := loadLaws(t, "laws: {table: {window: 3KB}}\n")
	if err != nil {
		t.Fatal(err)
	}
	inBubble(t, func(b *bubble) {
		r := b.controller("a", nil, c.Laws...)
		b.until("it is at work", func() bool { return b.serves(0) })
		begun := time.Now()
		time.Sleep(time.Second)
		s := r.status(b.ctx)
		if n := s.Core.Grants["table"]; n < uint64(time.Since(begun)/time.Millisecond) || n > 1200 || len(s.Core.Unknown) != 0 || s.Core.Orders != 0 {
			t.Errorf("in a second, at one each millisecond: %+v", s.Core)
		}
	})
}

// busy has the next event of a switch waiting before it has seen the last.
type busy struct {
	c    *Core
	from *session
}

func (l *busy) Step(_ time.Duration, e law.Event, out []law.Action) []law.Action {
	if e, is := e.(*fabric.Confirmed); is {
		l.c.turns.must(l.from, &fabric.Confirmed{Switch: l.from.id, Serial: e.Serial + 1})
	}
	return out
}
func (*busy) Wake() time.Duration { return 0 }

// ticking acts on ticks alone.
type ticking struct {
	next time.Duration
	left int
	end  func()
}

func (l *ticking) Step(now time.Duration, e law.Event, out []law.Action) []law.Action {
	if _, tick := e.(law.Tick); !tick || now < l.next {
		return out
	}
	l.next = now + time.Millisecond
	if l.left--; l.left == 0 {
		l.end()
	}
	return out
}
func (l *ticking) Wake() time.Duration { return l.next }

// A law gets the ticks that it wants also while events come without a pause.
func TestTicksBesideEvents(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ended := false
	s, l := &session{id: 1}, &busy{}
	c := newCore(newFence(nil, 1, nil), nil, namedLaw{name: "busy", Law: l}, namedLaw{name: "ticking", Law: &ticking{next: 1, left: 20, end: func() { ended = true; cancel() }}})
	l.c, l.from, c.sessions[1] = c, s, s
	c.turns.must(s, &fabric.Confirmed{Switch: 1})
	c.work(ctx)
	if !ended {
		t.Error("no ticks in a minute of events")
	}
}
