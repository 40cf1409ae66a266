package lawtrace_test

import (
	"strings"
	"testing"
	"time"

	"weir/datapath/fairq"
	"weir/datapath/fairq/lawtrace"
	"weir/datapath/testnet"
	"weir/internal/testroot"
)

// The recorder never returns a trace with holes. If the ring buffer is full, or the trace too long, the run
// fails with one error that names what is missing.
func TestRecorder_SaysWhatWasLost(t *testing.T) {
	p := testnet.NewPath(t, testnet.PathOptions{PortBps: 100e6, Limit: 125_000, NoIPv6: true})
	testnet.Shape(t, p.In, 100e6, 125_000, 3028)
	for says, begin := range map[string]func() (*lawtrace.Recorder, error){
		"records were lost":               func() (*lawtrace.Recorder, error) { return lawtrace.NewDeaf(4096) },
		"more than 4096 bytes of records": func() (*lawtrace.Recorder, error) { return lawtrace.NewShort(4096) },
	} {
		r, err := begin()
		if err != nil {
			t.Fatal(err)
		}
		law := fairq.Law{TargetBytes: 62_500, Tick: time.Millisecond, Period: time.Millisecond}
		ports := []fairq.Port{{PortRef: p.Port, Law: law}, {PortRef: p.In, Law: law}}
		f, err := fairq.Attach(ports, fairq.Config{Trace: r, Lease: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		pair := p.Dial(t, p.Listen(t, testnet.ReceiverIPv4))
		testnet.Send(t, pair.Client, pair.Server, 200_000) // far more ACKs than the 10 turns that fit
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if trace, err := r.Stop(); trace != nil || err == nil || strings.Count(err.Error(), says) != 1 {
			t.Errorf("%s: a trace %v, error %v", says, trace != nil, err)
		}
	}
}

// The recorder refuses to begin a trace that cannot be complete.
func TestRecorder_IsRefused(t *testing.T) {
	testroot.Need(t, "makes maps")
	r, err := lawtrace.New()
	if err != nil {
		t.Fatal(err)
	}
	pinned := fairq.Config{Trace: r, Pin: "/sys/fs/bpf/weir-law-trace-test"}
	if _, err := fairq.Attach(nil, pinned); err == nil || !strings.Contains(err.Error(), "without Pin") {
		t.Errorf("%+v: %v", pinned, err)
	}
	f, err := fairq.Attach(nil, fairq.Config{Trace: r})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fairq.Attach(nil, fairq.Config{Trace: r}); err == nil || !strings.Contains(err.Error(), "already records") {
		t.Errorf("a second switch on one recorder: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if trace, err := r.Stop(); err != nil || trace == nil {
		t.Errorf("a trace of nothing: %v", err)
	}
	if _, err := r.Stop(); err == nil || !strings.Contains(err.Error(), "stopped before") {
		t.Errorf("stopped twice: %v", err)
	}
}
