package result

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Documents of earlier builds have texts instead of mappings.
func TestUnmet_ReadsBothForms(t *testing.T) {
	text := `["network.rtt 200us: the lab adds no delay", "traffic: 1 flows failed: x", {"key":"guests.cc","severity":"fatal","text":"t"},
		{"key":"never_connected","group":"g","severity":"fatal","text":"u"}]`
	want := []Unmet{
		{Key: "network.rtt", Severity: Note, Text: "network.rtt 200us: the lab adds no delay"},
		{Key: "traffic", Severity: Warning, Text: "traffic: 1 flows failed: x"},
		{Key: "guests.cc", Severity: Fatal, Text: "t"},
		{Key: "never_connected", Group: "g", Severity: Fatal, Text: "u"},
	}
	var got []Unmet
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
	b, err := json.Marshal(got[3])
	if err != nil || string(b) != `{"key":"never_connected","group":"g","severity":"fatal","text":"u"}` {
		t.Errorf("%s, %v", b, err)
	}
	for _, bad := range []string{`[{"key":"k","text":"t"}]`, `[{"key":"k","severity":"grave","text":"t"}]`, `[3]`} {
		if json.Unmarshal([]byte(bad), &got) == nil {
			t.Errorf("%s was read", bad)
		}
	}
}

func TestNeverConnected(t *testing.T) {
	of := func(group string, start time.Duration, o Opening) Flow {
		return Flow{Group: group, Key: tcpKey(1, 1), Start: start, End: 100 * ms, Opening: o}
	}
	raw := &Raw{Duration: 100 * ms, Flows: []Flow{
		of("all", 0, NeverOpened), of("all", 60*ms, NeverOpened),
		of("share", 0, Opened), of("share", 10*ms, NeverOpened), of("share", 60*ms, NeverOpened),
		of("none", 0, Opened), of("udp", 0, OpeningUnknown),
		of("old", 0, Opened), of("old", 0, OpeningUnknown),
	}}
	r := Build(Info{World: "sim", Scheme: "x", Windows: map[string][2]time.Duration{"late": {50 * ms, 100 * ms}}}, raw)
	point(t, r, map[string]any{
		"all.never_connected": 2, "late.all.never_connected": 1, "share.never_connected": 2, "late.share.never_connected": 1,
		"none.never_connected": 0, "udp.never_connected": nil, "old.never_connected": nil, "late.none.never_connected": nil,
	})
	want := []Unmet{{Key: "never_connected", Group: "all", Severity: Fatal, Text: "traffic all: none of its 2 connections ever opened"}}
	if d := cmp.Diff(want, r.Unmet); d != "" { // a part of a group without connections is a result
		t.Errorf("-want +got\n%s", d)
	}
	for path, fatal := range map[string]bool{
		"all.bytes": true, "late.all.bytes": true, "share.bytes": false, "late.share.bytes": false,
	} {
		if _, got := r.FatalTo(split(path)); got != fatal {
			t.Errorf("%s: fatal %v, want %v", path, got, fatal)
		}
		if _, got := r.reduced(map[string]bool{path: true}).FatalTo(split(path)); got != fatal { // as in the table of a large summary
			t.Errorf("%s in a table: fatal %v, want %v", path, got, fatal)
		}
	}
}
