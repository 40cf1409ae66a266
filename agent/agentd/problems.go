package agentd

import (
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"time"
)

// problems are what is wrong with VMs or ports, by name. Each is logged once.
type problems struct {
	log *slog.Logger
	now map[string]string
}

func newProblems(log *slog.Logger) problems { return problems{log, map[string]string{}} }

func (p *problems) of(who string) string { return p.now[who] }

// report replaces the problems.
func (p *problems) report(now map[string]string) {
	for _, who := range slices.Sorted(maps.Keys(now)) {
		if p.now[who] != now[who] {
			p.log.Warn("not managed", "what", who, "reason", now[who])
		}
	}
	p.now = now
}

// retry spaces attempts: a second, doubled each time, at most half a minute.
type retry struct {
	wait  time.Duration
	after time.Time
}

func (r *retry) due() bool { return !time.Now().Before(r.after) }

func (r *retry) failed() {
	r.wait = min(max(2*r.wait, time.Second), 30*time.Second)
	r.after = time.Now().Add(r.wait)
}

// differences describes what became of the items of a list, by their names.
func differences[T any](was, is []T, of func(*T) (name string, value any)) (changes []string) {
	before, after := map[string]any{}, map[string]any{}
	for i := range was {
		name, v := of(&was[i])
		before[name] = v
	}
	for i := range is {
		name, v := of(&is[i])
		after[name] = v
		switch old, known := before[name]; {
		case !known:
			changes = append(changes, name+": added")
		case !reflect.DeepEqual(old, v):
			changes = append(changes, name+": changed")
		}
	}
	for i := range was {
		if name, _ := of(&was[i]); after[name] == nil {
			changes = append(changes, name+": removed")
		}
	}
	return changes
}

// least returns the first n of a list of changes, and how many more there are.
func least(changes []string, n int) []string {
	if more := len(changes) - n; more > 0 {
		return append(changes[:n:n], fmt.Sprintf("and %d more", more))
	}
	return changes
}
