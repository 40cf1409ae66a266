package result

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Severity says what an Unmet means for the claims about its run.
type Severity string

// The severities, from the mildest.
const (
	// Note: the world never gives this (the lab adds no delay). Claims are decided as usual.
	Note Severity = "note"
	// Warning: the run differs from what was asked for, and the claims are decided all the same. Look at it before you
	// believe one.
	Warning Severity = "warning"
	// Fatal: what a claim compares was not there. A claim about this run is undecided; with a Group, a claim about that
	// group.
	Fatal Severity = "fatal"
)

// Unmet is something that was asked for in a run and is not as asked.
type Unmet struct {
	Key      string   `json:"key"`             // what: a key of the file (network.rtt), the name of a law, traffic, measurement, ...
	Group    string   `json:"group,omitempty"` // of traffic; empty: the whole run
	Severity Severity `json:"severity"`
	Text     string   `json:"text"` // a sentence for people, which names key and group too
}

func (u Unmet) String() string { return u.Text }

// UnmetTexts makes one Unmet of each text.
func UnmetTexts(key string, severity Severity, texts ...string) []Unmet {
	var out []Unmet
	for _, t := range texts {
		out = append(out, Unmet{Key: key, Severity: severity, Text: t})
	}
	return out
}

// OldUnmet reads a text of a build that knew texts only. Its key is the text's first word; it is never fatal.
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

// UnmarshalJSON reads the mapping, or the text that documents of earlier builds have in its place.
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

// UnmetTexts lists the texts of what is unmet, each once, sorted. What is fatal says so.
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

// FatalTo gives what is fatal to a claim that looks at this path (see Metric) of the run; false: nothing is.
func (r *Run) FatalTo(path []string) (Unmet, bool) {
	for _, u := range r.Unmet {
		if u.Severity == Fatal && (u.Group == "" || r.groupOf(path) == u.Group) {
			return u, true
		}
	}
	return Unmet{}, false
}

// groupOf names the group that a path is about, or "".
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

// addUnconnected says for each group of which no connection ever opened that there is nothing to decide about it.
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
