package doctor

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Level is how bad a finding is.
type Level string

// The levels, from the best.
const (
	OK      Level = "ok"      // as it should be
	Note    Level = "note"    // Weir works; for information
	Problem Level = "problem" // Weir works in part, or only after this is fixed
	Blocked Level = "blocked" // Weir does not work with this
)

var ranks = map[Level]int{OK: 0, Note: 1, Problem: 2, Blocked: 3}

// worse returns the worse of two levels.
func worse(a, b Level) Level {
	if ranks[b] > ranks[a] {
		return b
	}
	return a
}

// Area groups findings.
type Area string

// The areas, in the order of the report.
const (
	AreaKernel   Area = "kernel"
	AreaRights   Area = "rights"
	AreaPorts    Area = "ports"
	AreaPrograms Area = "other programs"
	AreaBypass   Area = "past the kernel"
	AreaMTU      Area = "MTU"
	AreaTCP      Area = "TCP and tunnels"
	AreaMemory   Area = "memory"
	AreaState    Area = "Weir here"
	AreaUnseen   Area = "not seen"
)

var areas = []Area{
	AreaKernel, AreaRights, AreaPorts, AreaPrograms, AreaBypass, AreaMTU, AreaTCP, AreaMemory, AreaState, AreaUnseen,
}

// Finding is the result of one check.
type Finding struct {
	Area    Area   `json:"area"`
	Check   string `json:"check"`             // name of the check; it does not change between versions
	Subject string `json:"subject,omitempty"` // port, feature
	Level   Level  `json:"level"`
	Text    string `json:"text"`
	Remedy  string `json:"remedy,omitempty"` // what to do, in one line
	// Abilities that do not work because of it; that work after it is fixed; that are not known because of it.
	bars, asks, hides []Ability
	// port is the device that a finding is about; "" for the machine.
	port string
}

// Ability is a use of Weir on a machine.
type Ability string

// The abilities of the summary.
const (
	Switching Ability = "switch"
	Observing Ability = "observe"
	Marking   Ability = "marking"
	Edging    Ability = "edge"
	Lab       Ability = "lab"
)

// Can is an answer of the summary.
type Can struct {
	What Ability `json:"what"`
	Can  string  `json:"can"` // yes, changes (after what the findings ask for), no, unknown (root sees more)
	Why  string  `json:"why"`
}

// The answers.
const (
	Yes     = "yes"
	Changes = "changes"
	No      = "no"
	Unknown = "unknown"
)

// Report is the result of weir doctor.
type Report struct {
	Schema   int       `json:"schema"` // of this document
	Weir     string    `json:"weir"`
	Host     Host      `json:"host"`
	Level    Level     `json:"level"` // the worst
	Summary  []Can     `json:"summary"`
	Findings []Finding `json:"findings"`
}

// reportSchema is raised when a field changes its meaning or is removed. New fields do not raise it.
const reportSchema = 1

// textMax limits the part of a line that a name, a driver or an error may fill, in bytes.
const textMax = 400

// clean makes foreign text safe to print: names of devices, drivers, aliases and programs may contain any bytes, also control
// sequences of terminals and marks that reverse the direction of text.
func clean(s string) string {
	var b strings.Builder
	for i, w := 0, 0; i < len(s); i += w {
		r, width := utf8.DecodeRuneInString(s[i:])
		w = width
		if b.Len() > textMax {
			b.WriteString("...")
			break
		}
		switch {
		case r == utf8.RuneError && width == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r == ' ' || unicode.IsGraphic(r) && !unicode.IsSpace(r) && !unicode.In(r, unicode.Cf, unicode.Mn, unicode.Me):
			b.WriteRune(r)
		case r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// shell quotes a device's name for a shell, so that a command can be pasted: names may contain quotes and dollars.
func shell(name string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-@+", r)
	}
	if name != "" && name[0] != '-' && strings.IndexFunc(name, func(r rune) bool { return !plain(r) }) < 0 {
		return name
	}
	if clean(name) != name || strings.HasPrefix(name, "-") {
		return "DEVICE"
	}
	return "'" + strings.ReplaceAll(name, "'", `'\''`) + "'"
}

// some lists up to a few of many.
func some(names []string) string {
	const most = 6
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// plural counts things: "1 port", "3 ports".
func plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}

// Fine reports whether there is no problem and nothing is blocked.
func (r *Report) Fine() bool { return ranks[r.Level] < ranks[Problem] }
