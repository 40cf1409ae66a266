package store

import (
	"bytes"
	"compress/flate"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"weir/policy"
)

func sound() []record {
	at := ref{"operator.alice.abc", 0}
	return []record{
		&headRecord{1, 2, logKey(2, "abc", "operator.alice"), []headEntry{{"gold", 2, 1, at, false}, {"old", 1, 2, at, true}}},
		&pack{1, []packEntry{{"gold", 2, "kind: Policy", []ref{at}}}},
		&Change{2, time.Unix(7, 0).UTC(), "operator/alice", "root", Apply, []ChangedPolicy{{"gold", 1, 2}}, logKey(1, "abc", "operator.bob")},
		&nodeRecord{policy.Node{Name: "h1", Host: &policy.NodeHost{ID: 1, VMs: []policy.NodeVM{{ID: 1, Name: "web1"}}}}},
	}
}

func empty(r record) record { return reflect.New(reflect.TypeOf(r).Elem()).Interface().(record) }

func TestRecords_AreReadAsWritten(t *testing.T) {
	for _, r := range sound() {
		b, err := encode(r)
		if err != nil {
			t.Fatal(err)
		}
		got := empty(r)
		if err := decode(b, got); err != nil || !reflect.DeepEqual(got, r) {
			t.Errorf("%v\n%+v\n%+v", err, got, r)
		}
	}
}

func compressed(t testing.TB, text []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := flate.NewWriter(&out, flate.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// Records that others wrote are refused if they are too large, or do not make sense.
func TestDecode_Refuses(t *testing.T) {
	for says, r := range map[string]record{
		"format 2, and this build knows 1": &headRecord{Format: 2},
		"change 0":                         &headRecord{Format: 1, Log: logKey(0, "a", "a.b")},
		"change 3, ":                       &headRecord{Format: 1, Change: 3, Log: logKey(2, "a", "a.b")},
		"policy \"a\" is not in order":     &headRecord{1, 1, logKey(1, "a", "a.b"), []headEntry{{"b", 1, 1, ref{"a.b.c", 0}, false}, {"a", 1, 1, ref{"a.b.c", 0}, false}}},
		"since change 5 of 1":              &headRecord{1, 1, logKey(1, "a", "a.b"), []headEntry{{"b", 1, 5, ref{"a.b.c", 0}, false}}},
		`text "head", 0`:                   &headRecord{1, 1, logKey(1, "a", "a.b"), []headEntry{{"b", 1, 1, ref{"head", 0}, false}}},
		`text "a.>.c", 0`:                  &headRecord{1, 1, logKey(1, "a", "a.b"), []headEntry{{"b", 1, 1, ref{"a.>.c", 0}, false}}},
		`text "a.b.c", -1`:                 &headRecord{1, 1, logKey(1, "a", "a.b"), []headEntry{{"b", 1, 1, ref{"a.b.c", -1}, false}}},
		"version 0":                        &pack{1, []packEntry{{"a", 0, "", nil}}},
		"65537 bytes":                      &pack{1, []packEntry{{"a", 1, strings.Repeat("x", 65537), nil}}},
		"33 earlier versions":              &pack{1, []packEntry{{"a", 1, "", make33()}}},
		"2001 texts":                       &pack{1, make([]packEntry, 2001)},
		`of policy "A"`:                    &Change{Number: 1, By: "a/b", Action: Apply, Policies: []ChangedPolicy{{Name: "A"}}},
		`by "nobody"`:                      &Change{Number: 1, By: "nobody", Action: Apply},
		"is not a key of change 1":         &Change{Number: 2, By: "a/b", Action: Apply, Before: logKey(2, "a", "a.b")},
		"a name has 1 to 63":               &nodeRecord{policy.Node{Name: "H"}},
	} {
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := decode(compressed(t, text), empty(r)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %s", err, says)
		}
		if _, err := encode(r); err == nil {
			t.Errorf("%s: written all the same", says)
		}
	}
	if err := decode(make([]byte, maxValue+1), &pack{}); err == nil || !strings.Contains(err.Error(), "want at most 122880") {
		t.Error(err)
	}
	bomb := compressed(t, bytes.Repeat([]byte(" "), 100<<20)) // 100 KB
	if err := decode(bomb[:min(len(bomb), maxValue)], &pack{}); err == nil || !strings.Contains(err.Error(), "more than 4194304 bytes") {
		t.Errorf("%v, %d bytes", err, len(bomb))
	}
}

func make33() []ref {
	out := make([]ref, 33)
	for i := range out {
		out[i] = ref{"a.b.c", 0}
	}
	return out
}

// FuzzDecode: no value stops the process, and a record that is accepted is written and read again as the same.
func FuzzDecode(f *testing.F) {
	for i, r := range sound() {
		text, err := json.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(i), text, true)
		b, err := encode(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(i), b, false)
	}
	f.Fuzz(func(t *testing.T, kind uint8, b []byte, plain bool) {
		if plain { // so that the fuzzer need not find compressed texts
			b = compressed(t, b)
		}
		r := empty(sound()[int(kind)%len(sound())])
		if decode(b, r) != nil {
			return
		}
		again, err := encode(r)
		if err != nil {
			t.Fatalf("%v: %+v", err, r)
		}
		same := empty(r)
		if err := decode(again, same); err != nil {
			t.Fatal(err)
		}
		x, _ := json.Marshal(r)
		if y, _ := json.Marshal(same); !bytes.Equal(x, y) {
			t.Fatalf("%s\n%s", x, y)
		}
	})
}
