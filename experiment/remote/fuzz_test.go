package remote

import (
	"bytes"
	"compress/gzip"
	"encoding/gob"
	"encoding/json"
	"reflect"
	"testing"

	"weir/cmd/weir/laws"
	"weir/experiment/result"
	"weir/experiment/store"
)

// FuzzTask checks that any bytes are refused or name a run that has the task's key.
func FuzzTask(f *testing.F) {
	asked, plan := planOf(f)
	text, err := Pack(asked)
	if err != nil {
		f.Fatal(err)
	}
	for _, r := range plan.Runs[:2] {
		key, err := store.Key(r)
		if err != nil {
			f.Fatal(err)
		}
		b, err := (&Task{Version: version, Job: newID(), World: r.World, Code: codeOfTests, Key: key, Scheme: r.Scheme, Seed: r.Seed, Asked: text}).encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`{"version":1}`))
	known := plans{laws: laws.All()}
	f.Fuzz(func(t *testing.T, b []byte) {
		task, err := decodeTask(b)
		if err != nil {
			return
		}
		again, err := json.Marshal(task)
		if err != nil {
			t.Fatal(err)
		}
		if other, err := decodeTask(again); err != nil || !reflect.DeepEqual(task, other) {
			t.Fatalf("%+v is read as %+v (%v)", task, other, err)
		}
		run, err := known.find(task)
		if err != nil {
			return
		}
		if key, err := store.Key(run); err != nil || key != task.Key || run.Seed != task.Seed || run.Scheme != task.Scheme {
			t.Fatalf("%+v is the run %s, %v", task, key, err)
		}
	})
}

// FuzzState checks the decoders of what workers and submitters publish.
func FuzzState(f *testing.F) {
	b, err := json.Marshal(&State{Version: 1, Instance: newID(), Weir: "v1", Codes: map[string]string{"sim": codeOfTests}, Slots: 2, Running: []Running{{Job: newID(), Key: codeOfTests}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"job":"0011223344556677","weir":"v1","codes":{"sim":"x"}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := decodeState(b); err == nil && (s.Slots < 1 || !plainText(s.Weir) || len(s.Running) > maxRunning) {
			t.Fatalf("%+v", s)
		}
		if n, err := decodeNotice(b); err == nil && (!isHex(n.Job, 16) || !plainText(n.Weir)) {
			t.Fatalf("%+v", n)
		}
	})
}

// FuzzResult changes the encoded measurements of a run. They are refused, or statistics can be made of them.
func FuzzResult(f *testing.F) {
	_, plan := planOf(f)
	run := plan.Runs[0]
	e := entryOf(run)
	e.Form = 1
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(e); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, text []byte) {
		var b bytes.Buffer
		z, err := gzip.NewWriterLevel(&b, gzip.NoCompression) // inside, because no fuzzer finds a checksum
		if err != nil {
			t.Fatal(err)
		}
		if _, err := z.Write(text); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		e, err := decodeResult(b.Bytes(), run, codeOfTests)
		if err != nil {
			return
		}
		doc := &result.Document{Runs: []*result.Run{result.Build(run.Info(), e.Raw)}}
		if err := doc.WriteJSON(&bytes.Buffer{}); err != nil {
			t.Fatalf("%v", err)
		}
	})
}
