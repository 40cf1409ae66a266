package vector

import "fmt"

// Machine is a world that runs a law.
type Machine interface {
	// Begin sets a configuration and a state.
	Begin(config, state Fields) error
	// Do runs an event. It returns the whole state afterwards and the result, 0 if it has none.
	Do(event string, args Fields) (state Fields, result uint64, err error)
}

// Mismatch is an is line that differs from the machine's result.
type Mismatch struct {
	Line      int
	Case      string
	Event     Line
	Want, Got Fields
}

func (m Mismatch) String() string {
	return fmt.Sprintf("line %d, case %q: %s\n want%s\n got %s", m.Line, m.Case, m.Event, m.Want, m.Got)
}

// Run runs the file on the machine. It returns the number of is lines it checked, and the lines that differ.
func (f *File) Run(m Machine) (checked int, wrong []Mismatch, err error) {
	err = f.walk(m, func(name string, event Line, is *Line, got Fields) {
		checked++
		if !is.Fields.Equal(got) {
			wrong = append(wrong, Mismatch{is.Number, name, event, is.Fields, got})
		}
	})
	return checked, wrong, err
}

// Update rewrites every is line to the machine's result. It adds the line to a do line without one.
func (f *File) Update(m Machine) error {
	var lines []Line
	for i, l := range f.Lines {
		lines = append(lines, l)
		if l.Keyword == "do" && (i+1 == len(f.Lines) || f.Lines[i+1].Keyword != "is") {
			lines = append(lines, Line{Keyword: "is", Number: l.Number})
		}
	}
	f.Lines = lines
	return f.walk(m, func(_ string, _ Line, is *Line, got Fields) { is.Fields = got })
}

func (f *File) walk(m Machine, visit func(name string, event Line, is *Line, got Fields)) error {
	var config, state Fields
	var name string
	var event *Line
	var got Fields
	begun := false
	for i := range f.Lines {
		l := &f.Lines[i]
		var err error
		switch l.Keyword {
		case "case":
			name, config, state, begun = l.Name, nil, nil, false
		case "config":
			config, begun = l.Fields, false
		case "state":
			state, begun = l.Fields, false
		case "do":
			if event != nil {
				return fmt.Errorf("line %d: the event before has no is line", l.Number)
			}
			if !begun {
				err, begun = m.Begin(config, state), true
			}
			if err == nil {
				var result uint64
				got, result, err = m.Do(l.Name, l.Fields)
				state = got
				if result != 0 {
					got = append(got, Field{"result", result})
				}
			}
			event = l
		case "is":
			if event == nil {
				return fmt.Errorf("line %d: no event before this is line", l.Number)
			}
			visit(name, *event, l, got)
			event = nil
		}
		if err != nil {
			return fmt.Errorf("line %d: %s: %w", l.Number, l, err)
		}
	}
	if event != nil {
		return fmt.Errorf("line %d: this event has no is line", event.Number)
	}
	return nil
}
