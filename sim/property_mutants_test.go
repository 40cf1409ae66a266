package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var mutate = flag.Bool("mutate", false, "TestMutants: build and run each mutant; some minutes")

// mutant is a bug: one text of one file replaced by another.
type mutant struct {
	name, file, old, new string
}

// mutants are bugs of the kinds that such code has had elsewhere. TestRandom must find each.
var mutants = []mutant{
	{"a full buffer takes one packet more", "network/port.go",
		"return p.backlog+int64(pk.bytes) <= p.bytes && int64(p.end-p.left) < p.packets",
		"return p.backlog < p.bytes && int64(p.end-p.left) <= p.packets"},
	{"what a flap loses stays in the backlog", "network/port.go",
		"p.backlog -= int64(s.pk.bytes)\n\t\tp.drop(s.pk, DropDown, now)",
		"p.drop(s.pk, DropDown, now)"},
	{"an arrival is not set again behind a flap", "network/port.go",
		"if p.first == p.end {\n\t\tp.net.Queue.Stop(&p.arrival)\n\t}",
		"p.net.Queue.Stop(&p.arrival)"},
	{"sequence numbers are compared as if they did not wrap", "tcp/segments.go",
		"func before(a, b uint32) bool { return int32(a-b) < 0 }",
		"func before(a, b uint32) bool { return a < b }"},
	{"what came early is acknowledged and never given to the program", "tcp/receive.go",
		"n := int64(e.rcvNxt - from)",
		"n := int64(end - from)"},
	{"SACK blocks are reported after they were acknowledged", "tcp/receive.go",
		"if after(e.sacks[i].To, e.rcvNxt) {",
		"if i < 4 {"},
	{"the window in a SYN is scaled", "tcp/handshake.go",
		"e.sndWnd = uint32(pk.Window())\n\te.maxWnd = e.sndWnd",
		"e.sndWnd = uint32(pk.Window()) << 4\n\te.maxWnd = e.sndWnd"},
	{"a FIN may pass the window's edge", "tcp/output.go",
		"if e.finQueued && !after(e.nxt+n+1, e.windowEnd()) {",
		"if e.finQueued {"},
	{"a closed window is not probed", "tcp/output.go",
		"e.setTimer(timerPersist, now+e.persistInterval())",
		"_ = now"},
	{"a SACKed segment that is acknowledged stays counted", "tcp/ack.go",
		"if !fresh {\n\t\te.sackedOut--\n",
		"if !fresh {\n\t\te.sackedOut -= 0\n"},
	{"what could be marked is echoed as marked", "tcp/acking.go",
		"marked := pk.ECN() == network.CE",
		"marked := pk.ECN() != network.NotECT"},
	{"client ports depend on the machine's clock", "traffic.go",
		"port := h.next\n",
		"port := h.next | uint16(time.Now().UnixNano()>>12&1)\n"},
	{"a FIN alone starts no timer", "tcp/output.go",
		"if empty || e.timer.kind == timerProbe {\n\t\te.armRTO(now)",
		"if n > 0 && (empty || e.timer.kind == timerProbe) {\n\t\te.armRTO(now)"},
	{"the wheel hands out the last event of a slot first", "event/queue.go",
		"if ev.at < next.at {",
		"if ev.at > next.at {"},
	{"FairQ widens a window", "laws/fairq_packet.go",
		"pk.SetWindow(f.Left())\n",
		"pk.SetWindow(max(f.Left(), pk.Window()+1))\n"},
	{"FairQ's timer runs at double its rate", "laws/fairq_port.go",
		"next := q.tick\n",
		"next := q.tick / 2\n"},
	{"a virtual switch leaves its feedback in what it delivers", "laws/acdc_guard.go",
		"pk.SetBytes(pk.Bytes() - network.FeedbackBytes)\n",
		"_ = network.FeedbackBytes\n"},
	{"a virtual switch forgets that it made a packet ECT", "laws/acdc_guard.go",
		"pk.SetECN(network.NotECT)\n",
		"_ = network.NotECT\n"},
	{"a virtual switch polices by the last window it granted", "laws/acdc_guard.go",
		"!e.granted || isAfter(right, e.right)",
		"right != e.right || !e.granted"},
	{"feedback of a virtual switch is not freed", "network/guard.go",
		"a.Ended.add(pk)\n	n.Free(pk)\n",
		"a.Ended.add(pk)\n"},
}

// overlay returns the arguments with which go build uses a mutant instead of a file. The tree does not change.
func (m *mutant) overlay(t *testing.T, dir string) []string {
	t.Helper()
	path, err := filepath.Abs(m.file)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(text, []byte(m.old)); n != 1 {
		t.Fatalf("%s has the text %d times, want 1:\n%s", m.file, n, m.old)
	}
	changed := filepath.Join(dir, "mutant.go")
	if err := os.WriteFile(changed, bytes.Replace(text, []byte(m.old), []byte(m.new), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	list, err := json.Marshal(map[string]any{"Replace": map[string]string{path: changed}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, list, 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"-overlay", file}
}

// Every mutant still has its place in the code; with -mutate each is built, and TestRandom must fail on it.
func TestMutants(t *testing.T) {
	for _, m := range mutants {
		t.Run(strings.ReplaceAll(m.name, " ", "_"), func(t *testing.T) {
			dir := t.TempDir()
			args := m.overlay(t, dir)
			if !*mutate {
				return
			}
			binary := filepath.Join(dir, "sim.test")
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
			defer cancel()
			args = append([]string{"test", "-vet=off", "-c", "-o", binary}, append(args, ".")...)
			if out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput(); err != nil {
				t.Fatalf("it does not build: %v\n%s", err, out)
			}
			run := exec.CommandContext(ctx, binary, "-test.run", "^TestRandom$", "-test.timeout", "4m", "-trials", "1000")
			out, err := run.CombinedOutput()
			var exit *exec.ExitError
			switch {
			case errors.As(err, &exit):
				t.Logf("found:\n%.1500s", out)
			case err == nil:
				t.Errorf("not found by 1000 experiments")
			default:
				t.Fatal(err)
			}
		})
	}
}
