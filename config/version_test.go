package config

import (
	"strings"
	"testing"
)

// house is a kind of file with moved keys: windows were once at the top, and doors directly in the rooms.
type house struct {
	Kind    string `json:"kind" jsonschema:"required,enum=House"`
	Version int    `json:"version" jsonschema:"required,enum=2"`
	Outside struct {
		Windows int `json:"windows,omitempty" jsonschema:"minimum=1"`
		Color   struct {
			Name string `json:"name,omitempty"`
		} `json:"color,omitzero"`
	} `json:"outside,omitzero"`
	Rooms []struct {
		Name string `json:"name" jsonschema:"required"`
		Wall struct {
			Doors int `json:"doors,omitempty" jsonschema:"minimum=1"`
		} `json:"wall,omitzero"`
	} `json:"rooms,omitempty"`

	warning string
}

func houses() *Kind[house] {
	v := Version{Newest: 2, Command: "house -f", Moved: []Move{
		{"windows", "outside.windows"}, {"color", "outside.color"}, {"rooms.*.doors", "rooms.*.wall.doors"},
	}}
	return NewKind("House", v, DefaultLimits, func() *house { return &house{} }, func(c *Checker, h *house) { h.warning = c.Warning })
}

// A file of the version before is read like one of the newest, with one warning that explains what to write.
func TestVersion_Before(t *testing.T) {
	old := "kind: House\nwindows: 3\nrooms:\n  - {name: hall, doors: 4} # the large one\n  - &b {name: bath, doors: 1}\n  - *b\ncolor: {name: red}\n"
	h, err := houses().Parse("h.yaml", []byte(old))
	if err != nil || h.Outside.Windows != 3 || h.Rooms[0].Wall.Doors != 4 || h.Rooms[2].Wall.Doors != 1 || h.Outside.Color.Name != "red" {
		t.Fatalf("%+v, %v", h, err)
	}
	const says = "h.yaml has version 1, which is still read: write version: 2, windows -> outside.windows (line 2), doors -> wall.doors (line 4), " +
		"color -> outside.color (line 7); to print the whole file in that version: house -f h.yaml"
	if h.warning != says {
		t.Errorf("warned: %s", h.warning)
	}
	text, err := houses().Newest("h.yaml", []byte(old))
	want := "kind: House\nversion: 2\noutside:\n  windows: 3\n  color: {name: red}\nrooms:\n  - {name: hall, wall: {doors: 4}} # the large one\n  - &b {name: bath, wall: {doors: 1}}\n  - *b\n"
	if err != nil || string(text) != want {
		t.Errorf("printed, %v:\n%s", err, text)
	}
	now, err := houses().Parse("h.yaml", text)
	if err != nil || now.warning != "" || now.Outside != h.Outside || now.Rooms[0].Wall != h.Rooms[0].Wall {
		t.Errorf("%+v, %v", now, err)
	}
}

// Errors name the keys of the file's own version.
func TestVersion_Errors(t *testing.T) {
	for _, row := range []struct{ text, says string }{
		{"kind: House\nwindows: 0\n", `h.yaml:2: windows: "0" is out of range; at least 1`},
		{"kind: House\nversion: 2\noutside: {windows: 0}\n", `h.yaml:3: outside.windows: "0" is out of range; at least 1`},
		{"kind: House\nrooms:\n  - {name: hall, doors: 0}\n", `h.yaml:3: rooms.hall.doors: "0" is out of range; at least 1`},
		{"kind: House\nrooms:\n  - {name: hall, dors: 1}\n", "h.yaml:3: rooms.hall.dors: unknown key; did you mean doors? allowed: doors, name"},
		{"kind: House\ncolor: {nam: red}\n", "h.yaml:2: color.nam: unknown key; allowed: name"},
		{"kind: House\nversion: 2\nwindows: 1\n", "h.yaml:3: windows: unknown key; since version 2 it is outside.windows"},
		{"kind: House\nversion: 2\nrooms: [{name: hall, doors: 1}]\n", "h.yaml:3: rooms.hall.doors: unknown key; since version 2 it is rooms.hall.wall.doors"},
		{"kind: House\noutside: {windows: 1}\n", "h.yaml:2: outside: the file has version 1, and this is a key of version 2; write version: 2 after kind, and all keys as in that version"},
		{"kind: House\nrooms: &r [*r]\n", "h.yaml:2: r: an alias that contains itself; a value"},
	} {
		_, err := houses().Parse("h.yaml", []byte(row.text))
		if err == nil || !strings.HasPrefix(err.Error(), row.says) {
			t.Errorf("%q:\n%v\nwanted\n%s", row.text, err, row.says)
		}
	}
}

// An unknown version is refused, and a file of another kind is not changed.
func TestVersion_Unknown(t *testing.T) {
	for _, row := range []struct{ text, says string }{
		{"kind: House\nversion: 3\n", `h.yaml:2: version: "3" is not known; allowed: 2`},
		{"kind: House\nversion: 0\n", `h.yaml:2: version: "0" is not known; allowed: 2`},
		{"kind: House\nversion: [1]\n", "h.yaml:2: version: a list is not a whole number; allowed: 2"},
		{"kind: Hut\nwindows: 1\n", `h.yaml:1: kind: "Hut" is another kind of file; allowed: House`},
	} {
		if _, err := houses().Parse("h.yaml", []byte(row.text)); err == nil || err.Error() != row.says {
			t.Errorf("%q:\n%v\nwanted\n%s", row.text, err, row.says)
		}
	}
	for _, text := range []string{"kind: Hut\nwindows: 1\n", "kind: House\nversion: 2\n", "7\n"} {
		if got, err := houses().Newest("h.yaml", []byte(text)); got != nil || err != nil {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}
