package openflow_test

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	of "weir/openflow"
	"weir/openflow/oftest"
)

var each = flag.Int("each", 10, "messages of each type, and of each kind of multipart, that os-ken and tshark read")

// osken has os-ken read or write, a line of each for each line.
func osken(t *testing.T, python, verb string, lines [][]byte) []json.RawMessage {
	t.Helper()
	cmd := exec.Command(python, "testdata/osken.py", verb)
	cmd.Stdin = bytes.NewReader(append(bytes.Join(lines, []byte("\n")), '\n'))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("os-ken: %v: %s", err, stderr.Bytes())
	}
	answers := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
	if len(answers) != len(lines) {
		t.Fatalf("os-ken: %d answers to %d messages", len(answers), len(lines))
	}
	all := make([]json.RawMessage, len(answers))
	for i := range answers {
		all[i] = answers[i]
	}
	return all
}

// report logs how many messages were compared of each sort, and why others were not.
func report(t *testing.T, what string, counts map[string]int) {
	t.Helper()
	total := 0
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		t.Logf("%6d %s", counts[name], name)
		total += counts[name]
	}
	t.Logf("%6d %s", total, what)
}

// name returns the message's type, with the kind of a multipart message.
func name(m of.Message) string {
	switch m := m.(type) {
	case *of.MultipartRequest:
		return "MULTIPART_REQUEST " + m.Type.String()
	case *of.MultipartReply:
		return "MULTIPART_REPLY " + m.Type.String()
	}
	return m.MessageType().String()
}

// os-ken decodes a switch's messages, and flow-mods, to the same fields as this package. If os-ken is known to be wrong or to
// lack something, the message is counted with the reason instead.
func TestOskenReads(t *testing.T) {
	python := oftest.OskenPython(t)
	var messages []of.Message
	var lines [][]byte
	same, left := map[string]int{}, map[string]int{}
	for _, b := range oftest.KnownCorpus(*each) {
		_, m, err := of.Decode(b)
		if err != nil {
			t.Fatal(err)
		}
		if why := oskenCannotRead(m); why != "" {
			left[name(m)+": "+why]++
			continue
		}
		messages, lines = append(messages, m), append(lines, []byte(hex.EncodeToString(b)))
	}
	for i, answer := range osken(t, python, "read", lines) {
		got, err := oftest.OskenJSON(answer)
		if err != nil {
			t.Fatal(err)
		}
		if d := gocmp.Diff(oftest.OskenFields(messages[i]), got); d != "" {
			t.Errorf("%s\n%s\nours -, os-ken's +: %s", lines[i], messages[i], d)
			continue
		}
		same[name(messages[i])]++
	}
	report(t, "messages are the same to os-ken", same)
	report(t, "messages are left out", left)
}

// This package decodes the messages that os-ken writes as a controller to the same values.
func TestOskenWrites(t *testing.T) {
	python := oftest.OskenPython(t)
	var messages []of.Message
	var lines [][]byte
	same, left := map[string]int{}, map[string]int{}
	for i, b := range oftest.KnownCorpus(*each) {
		h, m, err := of.Decode(b)
		if err != nil {
			t.Fatal(err)
		}
		h.XID = uint32(i)
		if why := oskenCannotWrite(m); why != "" {
			left[name(m)+": "+why]++
			continue
		}
		line, err := json.Marshal(map[string]any{"type": int(h.Type), "xid": h.XID, "fields": oftest.OskenFields(m)})
		if err != nil {
			t.Fatal(err)
		}
		messages, lines = append(messages, m), append(lines, line)
	}
	for i, answer := range osken(t, python, "write", lines) {
		var text string
		if err := json.Unmarshal(answer, &text); err != nil {
			t.Errorf("%s: %s", lines[i], answer)
			continue
		}
		b, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		_, got, err := of.Decode(b)
		if err != nil {
			t.Errorf("%s: %s: %v", lines[i], text, err)
			continue
		}
		sortMatches(messages[i])
		sortMatches(got)
		if !oftest.Equal(messages[i], got) {
			t.Errorf("%s: %s", text, gocmp.Diff(fmt.Sprint(messages[i]), fmt.Sprint(got)))
			continue
		}
		same[name(got)]++
	}
	report(t, "messages are what os-ken meant", same)
	report(t, "messages are left out", left)
}

// sortMatches puts fields into one order: os-ken has its own, and it says nothing.
func sortMatches(m of.Message) {
	var match of.Match
	switch m := m.(type) {
	case *of.FlowMod:
		match = m.Match
	case *of.MultipartRequest:
		switch body := m.Body.(type) {
		case of.FlowStatsRequest:
			match = body.Match
		case of.AggregateStatsRequest:
			match = body.Match
		}
	}
	slices.SortFunc(match, func(a, b of.Field) int { return cmp.Compare(a.ID, b.ID) })
}
