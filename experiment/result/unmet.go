package result

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Severity is the effect of an Unmet on the claims about its run.
type Severity string

// The severities, from the mildest.
const (
	// Note: the world never provides this (the lab adds no delay). Claims are decided as usual.
	Note Severity = "note"
	// Warning: the run differs from what was asked for, but claims are decided. Read it before you rely on one.
	Warning Severity = "warning"
	// Fatal: something that claims compare is missing. A claim about this run is undecided; with a Group, a claim
	// about that group.
	Fatal Severity = "fatal"
)

// Unmet is a setting or request that a run did not fulfil.
type Unmet struct {
	Key      string   `json:"key"`             // a key of the file (network.rtt), the name of a law, traffic, measurement, ...
	Group    string   `json:"group,omitempty"` // a group of traffic; empty: the whole run
	Severity Severity `json:"severity"`
	Text     string   `json:"text"` // a sentence for people; it also names key and group
}

func (u Unmet) String() string { return u.Text }

// UnmetTexts returns one Unmet for each text.
func UnmetTexts(key string, severity Severity, texts ...string) []Unmet {
	var out []Unmet
	for _, t := range texts {
		out = append(out, Unmet{Key: key, Severity: severity, Text: t})
	}
	return out
}

// OldUnmet reads a text of a build that had texts only. Its key is the text's first word; it is never fatal.
func OldUnmet(text string) Unmet {
	u := Unmet{Key: text, Severity: Warning, Text: text}
	if end := strings.IndexAny(text, ": "); end > 0 {
		u.Key = text[:end]
	}
	if u.Key == "network.rtt" {
		u.Severity = Note
	}
	return u
}

// UnmarshalJSON reads the mapping, or the text that documents of earlier builds have instead.
func (u *Unmet) UnmarshalJSON(b []byte) error {
	if b = bytes.TrimSpace(b); len(b) > 0 && b[0] == '"' {
		var text string
		if err := json.Unmarshal(b, &text); err != nil {
			return err
		}
		*u = OldUnmet(text)
		return nil
	}
	type plain Unmet
	*u = Unmet{}
	if err := json.Unmarshal(b, (*plain)(u)); err != nil {
		return err
	}
	if !slices.Contains([]Severity{Note, Warning, Fatal}, u.Severity) {
		return fmt.Errorf("unmet %s: severity is %q; it must be note, warning or fatal", u.Key, u.Severity)
	}
	return nil
}

// UnmetTexts lists the texts of the unmet settings, each once, sorted. Fatal ones are marked.
func (r *Run) UnmetTexts() []string {
	var out []string
	for _, u := range r.Unmet {
		text := u.Text
		if u.Severity == Fatal {
			text += " (claims about it are undecided)"
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// FatalTo returns the unmet setting that is fatal to a claim about this path (see Metric) of the run; false: there
// is none.
func (r *Run) FatalTo(path []string) (Unmet, bool) {
	for _, u := range r.Unmet {
		if u.Severity == Fatal && (u.Group == "" || r.isAbout(path, u.Group)) {
			return u, true
		}
	}
	return Unmet{}, false
}

// isAbout reports whether a path is about a group. A run of a table has no Groups, only paths: GROUP.METRIC or
// WINDOW.GROUP.METRIC.
func (r *Run) isAbout(path []string, group string) bool {
	if r.Figures != nil {
		return slices.Contains(path[:min(len(path), 2)], group)
	}
	return r.groupOf(path) == group
}

// groupOf returns the group that a path is about, or "".
func (r *Run) groupOf(path []string) string {
	if len(path) > 0 && r.Groups[path[0]] != nil {
		return path[0]
	}
	if len(path) > 1 && r.Groups[path[1]] != nil {
		if _, ok := r.Windows[path[0]]; ok {
			return path[1]
		}
	}
	return ""
}

// addUnconnected adds a fatal Unmet for each group of which no connection ever opened.
func (r *Run) addUnconnected() {
	for name, g := range r.Groups {
		if g.NeverConnected != nil && g.Flows > 0 && *g.NeverConnected == g.Flows {
			text := fmt.Sprintf("traffic %s: none of its %d connections ever opened", name, g.Flows)
			if g.Flows == 1 {
				text = fmt.Sprintf("traffic %s: its connection never opened", name)
			}
			r.Unmet = append(r.Unmet, Unmet{Key: "never_connected", Group: name, Severity: Fatal, Text: text})
		}
	}
	slices.SortFunc(r.Unmet, func(a, b Unmet) int { return strings.Compare(a.Text, b.Text) })
}
