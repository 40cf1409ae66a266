package fairq_test

import (
	"os"
	"strings"
	"testing"

	"weir/datapath/fairq"
	"weir/datapath/testnet"
)

// A port's note is read from the pinned tables, outlives the process, can be removed, and ends with the rest.
func TestFairQ_Note(t *testing.T) {
	dir := testnet.Mount(t, "bpf") + "/notes"
	p, ports := pinnedPath(t)
	f := attachTo(t, pinnedConfig(dir), ports...)
	note := func(port string) string {
		t.Helper()
		v, err := fairq.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer v.Close()
		s, err := v.Read()
		if err != nil {
			t.Fatal(err)
		}
		for i := range s.Ports {
			if s.Ports[i].Port == port {
				text, err := v.Note(s.Ports[i].ID)
				if err != nil {
					t.Fatal(err)
				}
				return text
			}
		}
		t.Fatalf("no port %s", port)
		return ""
	}
	out, in := p.Port.Name, p.In.Name
	if got := note(out); got != "" {
		t.Errorf("before anything was said: %q", got)
	}
	long := strings.Repeat("x", 300)
	for _, say := range []struct{ port, text string }{{out, "first"}, {out, "second"}, {in, long}, {"no such port", "nothing"}} {
		if err := f.Note(say.port, say.text); err != nil {
			t.Fatal(err)
		}
	}
	if note(out) != "second" || note(in) != long[:255] {
		t.Errorf("notes are %q and %q", note(out), note(in))
	}
	if err := f.Leave(); err != nil {
		t.Fatal(err)
	}
	if note(out) != "second" {
		t.Errorf("without the process the note is %q", note(out))
	}
	f = attachTo(t, pinnedConfig(dir), ports...)
	if err := f.Note(out, ""); err != nil || note(out) != "" || note(in) == "" {
		t.Errorf("taken back: %q, and %q of the other: %v", note(out), note(in), err)
	}
	if err := f.ClearNotes(); err != nil || note(in) != "" {
		t.Errorf("all taken back: %q, %v", note(in), err)
	}
	if err := f.Note(in, "again"); err != nil || note(in) != "again" {
		t.Errorf("said again: %q, %v", note(in), err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", dir, err)
	}
}

// One pass over the table gives each port the flows that Flows gives it.
func TestFairQ_EachFlow(t *testing.T) {
	p, ports := pinnedPath(t)
	f := attachTo(t, fairq.Config{Flows: 4096}, ports...)
	defer f.Close()
	streams := p.NewStreams(t, testnet.ReceiverIPv4, 3)
	streams.Progress(t, 100_000)
	each := map[string]map[string]fairq.Flow{}
	err := f.EachFlow(func(port string, flow fairq.Flow) bool {
		if each[port] == nil {
			each[port] = map[string]fairq.Flow{}
		}
		each[port][flow.From.String()+flow.To.String()] = flow
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(each[p.Port.Name]) != 3 || len(each[p.In.Name]) != 3 {
		t.Errorf("three streams: %v", each)
	}
	for _, port := range ports {
		n := 0
		for flow, err := range f.Flows(port.Name) {
			if err != nil {
				t.Fatal(err)
			}
			n++
			if same, ok := each[port.Name][flow.From.String()+flow.To.String()]; !ok || same.Scale != flow.Scale {
				t.Errorf("%s: %+v is not among %v", port.Name, flow, each[port.Name])
			}
		}
		if n != len(each[port.Name]) {
			t.Errorf("%s: %d flows, in one pass %d", port.Name, n, len(each[port.Name]))
		}
	}
	seen := 0
	if err := f.EachFlow(func(string, fairq.Flow) bool { seen++; return false }); err != nil || seen != 1 {
		t.Errorf("ended after the first: %d, %v", seen, err)
	}
}
