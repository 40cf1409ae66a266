package main

import (
	"fmt"
	"os"
	"runtime"
	"time"
)

// row is what was measured of one controller. Times are of what a switch sees: from when its packet-in was due to the
// flow-mod.
type row struct {
	work
	Work       string  `json:"work"`
	Controller string  `json:"controller"`
	PerCPU     float64 `json:"messages_per_cpu_second"` // of the controller's processor time, the kernel's for it with it
	PerSecond  float64 `json:"messages_per_second"`
	FullP50us  float64 `json:"full_p50_us,omitempty"` // as many under way as the case allows
	FullP99us  float64 `json:"full_p99_us,omitempty"`
	Paced      *paced  `json:"half_load,omitempty"`
	KiBPerConn float64 `json:"kib_per_connection"` // resident, above none
}

// paced holds the figures at half load: half of PerCPU, sent evenly.
type paced struct {
	PerSecond float64 `json:"messages_per_second"`
	Busy      float64 `json:"controller_busy"` // share of its processor
	P50us     float64 `json:"p50_us"`
	P99us     float64 `json:"p99_us"`
	LateP99us float64 `json:"sent_late_p99_us"` // the switches' own lateness, in the waits above
}

func (s *settings) measure(name string, w work) (row, error) {
	r := row{work: w, Work: w.String(), Controller: name}
	program, args, err := s.command(name, w)
	if err != nil {
		return r, err
	}
	c, err := start(runtime.NumCPU()-1, program, args...)
	if err != nil {
		return r, err
	}
	defer c.stop()
	bare, err := c.memory()
	if err != nil {
		return r, err
	}
	all, err := newSwitches(c.port, w.Connections)
	if all != nil {
		defer all.close()
	}
	if err == nil {
		err = s.load(c, all, &r)
	}
	if err != nil {
		return r, err
	}
	full, err := c.memory()
	r.KiBPerConn = float64(full-bare) / 1024 / float64(w.Connections)
	return r, err
}

// measureTries is how often a controller is measured that got no processor time.
const measureTries = 10

// load measures as much as the controller can do and then, of packet-ins, half of it.
func (s *settings) load(c *controller, all *switches, r *row) error {
	if err := all.hear(r.PacketIns > 0); err != nil {
		return err
	}
	if err := all.fill(r.PacketIns); err != nil {
		return err
	}
	if err := all.lasting(s.seconds / 4); err != nil { // start-up
		return err
	}
	did, err := all.count(c, func() error { return all.lasting(s.seconds) })
	for tries := 1; err == nil && (did.messages == 0 || did.used == 0); tries++ { // others had the processor
		if tries == measureTries {
			return fmt.Errorf("the controller did nothing in %d measurements of %v each: measure on a machine that is less busy, or for longer (--for)", tries, s.seconds)
		}
		fmt.Fprintf(os.Stderr, "%s: it did nothing within %v: measured again\n", r.Controller, s.seconds)
		did, err = all.count(c, func() error { return all.lasting(s.seconds) })
	}
	if err != nil {
		return err
	}
	r.PerCPU, r.PerSecond = did.messages/did.used.Seconds(), did.messages/did.took.Seconds()
	if r.PacketIns == 0 {
		return nil
	}
	r.FullP50us, r.FullP99us = us(all.latency.ValueAtQuantile(50)), us(all.latency.ValueAtQuantile(99))
	if err := all.quiet(); err != nil || r.Controller == "bare" {
		return err
	}
	p := &paced{PerSecond: r.PerCPU / 2}
	did, err = all.count(c, func() error {
		late, err := all.pace(p.PerSecond, r.PacketIns, s.seconds)
		if err == nil {
			p.LateP99us = us(late.ValueAtQuantile(99))
		}
		return err
	})
	p.Busy = did.used.Seconds() / did.took.Seconds()
	p.P50us, p.P99us = us(all.latency.ValueAtQuantile(50)), us(all.latency.ValueAtQuantile(99))
	r.Paced = p
	return err
}

func us(ns int64) float64 { return float64(ns) / 1000 }

// done is what a controller did, and how long that took.
type done struct {
	messages   float64
	used, took time.Duration
}

// count returns the messages that the switches counted while f ran, and the controller's processor time.
func (s *switches) count(c *controller, f func() error) (done, error) {
	s.latency.Reset()
	began, n := time.Now(), s.done
	before, err := c.cpu()
	if err != nil {
		return done{}, err
	}
	if err := f(); err != nil {
		return done{}, err
	}
	after, err := c.cpu()
	return done{messages: float64(s.done - n), used: after - before, took: time.Since(began)}, err
}
