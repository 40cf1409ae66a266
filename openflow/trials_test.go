package openflow_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
	"time"

	of "weir/openflow"
	"weir/openflow/oftest"
)

var (
	trials = flag.Uint64("trials", 200_000, "messages that TestTrials decodes")
	seed   = flag.Uint64("seed", 1, "TestTrials: which messages")
	first  = flag.Uint64("first", 0, "TestTrials: the first trial")
)

// tally counts what became of messages, by type, of one worker.
type tally struct{ read, refused [256]uint64 }

// Random, mutated and truncated messages: none makes the decoder panic or hang. Each error has a place and a cause. A message that
// can be read is the same after it was written and read again. `make fuzz-openflow` makes millions of them.
func TestTrials(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(1000)) // nothing is kept: collecting every 4 MB would be a third of the work
	corpus := oftest.Corpus(16)
	workers := runtime.GOMAXPROCS(0)
	tallies := make([]tally, workers)
	var running sync.WaitGroup
	began := time.Now()
	for w := range workers {
		running.Go(func() { trialWorker(t, corpus, uint64(w), uint64(workers), &tallies[w]) })
	}
	running.Wait()
	var all tally
	var read, refused uint64
	for i := range tallies {
		for typ := range all.read {
			all.read[typ] += tallies[i].read[typ]
			all.refused[typ] += tallies[i].refused[typ]
			read += tallies[i].read[typ]
			refused += tallies[i].refused[typ]
		}
	}
	if !t.Failed() && read+refused != *trials {
		t.Errorf("%d of %d trials were made", read+refused, *trials)
	}
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	took := time.Since(began)
	t.Logf("%d messages, seed %d, over %d workers in %.1f s (%.2f million a second): %d read, %d refused; the process has %d MiB",
		read+refused, *seed, workers, took.Seconds(), float64(read+refused)/took.Seconds()/1e6, read, refused, mem.Sys>>20)
	for typ := of.TypeHello; typ <= of.TypeMeterMod; typ++ {
		t.Logf("%-25s %10d read %10d refused", typ, all.read[typ], all.refused[typ])
		if *trials >= 200_000 && (all.read[typ] == 0 || all.refused[typ] == 0) && typ != of.TypeEchoRequest && typ != of.TypeEchoReply {
			t.Errorf("%s: %d read, %d refused: the trials say nothing", typ, all.read[typ], all.refused[typ])
		}
	}
}

// trialWorker makes every n-th trial. The first that fails ends it.
func trialWorker(t *testing.T, corpus [][]byte, w, n uint64, count *tally) {
	trial := *first + w
	defer func() {
		if p := recover(); p != nil {
			t.Errorf("a panic: %v\nagain: go test ./openflow -run TestTrials -args -seed %d -first %d -trials 1", p, *seed, trial)
		}
	}()
	mutator := oftest.NewMutator(corpus)
	var buf [2][]byte
	for end := *first + *trials; trial < end; trial += n {
		b := mutator.Message(*seed, trial)
		read, err := tryOnce(b, &buf, trial%1024 == 0)
		if err != nil {
			t.Errorf("%v\nagain: go test ./openflow -run TestTrials -args -seed %d -first %d -trials 1", err, *seed, trial)
			return
		}
		typ := byte(255)
		if len(b) >= 2 {
			typ = b[1]
		}
		if read {
			count.read[typ]++
		} else {
			count.refused[typ]++
		}
	}
}

// tryOnce is oftest.Check on bytes only, at a fiftieth of the cost: written bytes must be readable, and equal when written
// again. With slow it also compares the messages field by field.
func tryOnce(b []byte, buf *[2][]byte, slow bool) (read bool, err error) {
	h, m, refused := of.Decode(b)
	if slow {
		var f failure
		oftest.Check(&f, b)
		if f != "" {
			return true, fmt.Errorf("%s", f)
		}
	}
	if refused == nil {
		err = writeAgain(b, h, m, buf)
	}
	return refused == nil, err
}

func writeAgain(b []byte, h of.Header, m of.Message, buf *[2][]byte) (err error) {
	buf[0], err = of.Append(buf[0][:0], h.XID, m)
	if errors.Is(err, of.ErrTooLong) { // padding that was missing may make it so
		return nil
	}
	if err != nil {
		return fmt.Errorf("%x: read, and cannot be written: %w", b, err)
	}
	_, m2, err := of.Decode(buf[0])
	if err != nil {
		return fmt.Errorf("%x\nwritten as\n%x: %w", b, buf[0], err)
	}
	buf[1], err = of.Append(buf[1][:0], h.XID, m2)
	if err != nil || !bytes.Equal(buf[0], buf[1]) {
		return fmt.Errorf("%x\nwritten as\n%x, then\n%x, %w", b, buf[0], buf[1], err)
	}
	return nil
}

// failure stands for a test in a worker, where Fatalf must not be called.
type failure string

func (*failure) Helper()                             {}
func (f *failure) Fatalf(format string, args ...any) { *f = failure(fmt.Sprintf(format, args...)) }

func FuzzDecode(f *testing.F) {
	for _, b := range oftest.Corpus(1) {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if oftest.Check(t, b) {
			h, m, err := of.Decode(b)
			if err != nil || of.Text(h, m) == "" {
				t.Errorf("read once, then not: %v", err)
			}
		}
	})
}
