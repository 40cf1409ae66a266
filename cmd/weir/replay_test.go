package main

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/controller/record"
	"weir/law"
	"weir/law/inventory"
	"weir/law/sicc"
	"weir/law/telemetry"
)

// recorded records a law with ten incasts. params are those that the recording says.
func recorded(t *testing.T, params string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rec")
	w, err := record.New(record.Config{Path: path, Controller: "c1", Weir: "1.2"})
	if err != nil {
		t.Fatal(err)
	}
	p := *sicc.Default()
	p.OffRule = sicc.OffOr
	made, err := sicc.New(p)
	if err != nil {
		t.Fatal(err)
	}
	l := w.Tap(made, "sicc", 0, []byte(params))
	serial, now := uint64(0), time.Duration(0)
	step := func(e law.Event) {
		serial++
		w.Cause(serial)
		l.Step(now, e, nil)
	}
	vm := netip.MustParseAddr("10.0.0.1")
	step(&inventory.Switch{At: 1, Ports: []inventory.Port{{N: 3, BufferBytes: 85300}}})
	step(&inventory.Host{At: 1, VMs: []inventory.VM{{Number: 12, Addresses: []netip.Prefix{netip.PrefixFrom(vm, 32)}}}})
	for range 10 {
		step(&telemetry.Arrivals{At: 1, Ports: []telemetry.PortArrivals{{N: 3, Counts: telemetry.Counts{SYN: 24},
			Pairs: []telemetry.Pair{{Source: vm, Destination: netip.MustParseAddr("10.0.0.9"), Kinds: telemetry.SYN}}}}})
		for range 40 {
			now += time.Millisecond
			step(&telemetry.Telemetry{At: 1, T: time.Millisecond, Ports: []telemetry.Port{{N: 3, BacklogBytes: 30000}}})
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func replayed(t *testing.T, args ...string) (code int, out, complaints string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = run(t.Context(), append([]string{"replay"}, args...), &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

func TestReplay(t *testing.T) {
	path := recorded(t, `{"off_rule": "or"}`)
	if code, out, complaints := replayed(t, path); code != 0 || !strings.Contains(out, "law sicc: equal: every action, to the byte\n") || complaints != "" {
		t.Errorf("%d\n%s%s", code, out, complaints)
	}
	code, out, _ := replayed(t, path, "--set", "sicc.mouse_duration=30ms")
	t.Logf("\n%s", out)
	if code != 0 || !strings.Contains(out, "law sicc: different after 20 of ") || !strings.Contains(out, "limited, all together     150ms     300ms  +100 %") ||
		!strings.Contains(out, "The events are the recorded ones") {
		t.Errorf("%d\n%s", code, out)
	}
	if code, out, _ = replayed(t, recorded(t, `{"off_rule": "or", "mouse_duration": "20ms"}`)); code != exitDiffers || !strings.Contains(out, "    recorded: window of VM 12 and 10.0.0.9 released\n    replayed: nothing\n") {
		t.Errorf("another law than recorded: %d\n%s", code, out)
	}
	code, out, _ = replayed(t, path+".000001", "--json")
	var res record.Result
	if err := json.Unmarshal([]byte(out), &res); err != nil || code != 0 || !res.Laws[0].Equal || res.Laws[0].Recorded.Holds != 10 {
		t.Errorf("%v, %d, %+v", err, code, res)
	}
	code, out, _ = replayed(t, path, "--times")
	if code != 0 || strings.Count(out, "times in which") != 1 || !strings.Contains(out, "recorded: 10 times in which") || !strings.Contains(out, "  1ms   16ms    15ms             1") {
		t.Errorf("%d\n%s", code, out)
	}
	code, out, _ = replayed(t, path, "--events")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if code != 0 || len(lines) != 413 || !strings.Contains(lines[0], `"kind":"inventory.Switch"`) || !strings.Contains(lines[3], `"VM":12,"Peer":"10.0.0.9"`) {
		t.Errorf("%d, %d lines\n%s", code, len(lines), lines[3])
	}
	for _, row := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{path + "x"}, exitError, "there is no file"},
		{[]string{path, "--set", "sicc.speed=1"}, exitUsage, "law sicc has no parameter speed"},
		{[]string{path, "--law", "fairq"}, exitUsage, "this build has no law fairq of a controller"},
		{nil, exitUsage, "usage: weir replay FILE"},
	} {
		if code, _, complaints := replayed(t, row.args...); code != row.code || !strings.Contains(complaints, row.says) {
			t.Errorf("%q: %d, %q", row.args, code, complaints)
		}
	}
}

// The simulator records the law of a controller, too: its events, through the law alone, give its actions.
func TestRun_RecordInTheSimulator(t *testing.T) {
	dir := t.TempDir()
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), []string{
		"run", "../../experiments/sicc/SJ1.yaml", "--world", "sim", "--scheme", "sicc", "--seed", "1", "--record", "--out", dir, "--set", "duration=100ms", "--set", "traffic.elephants.stop=100ms", "--set", "traffic.mice.epochs=1",
	}, &stdout, &stderr)
	if code != 0 && code != exitRefuted {
		t.Fatalf("%d\n%s", code, stderr.String())
	}
	files, err := filepath.Glob(filepath.Join(dir, "record", "sim-sicc-*seed=1.000001"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%q, %v", files, err)
	}
	code, out, _ := replayed(t, files[0], "--json")
	var res record.Result
	if err := json.Unmarshal([]byte(out), &res); err != nil || code != 0 || !res.Ended || !res.Laws[0].Equal || len(res.Laws[0].Recorded.Times) == 0 {
		t.Errorf("%v, %d, %+v", err, code, res)
	}
}
