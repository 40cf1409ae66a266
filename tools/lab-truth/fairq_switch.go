package main

import (
	"context"
	"errors"
	"time"

	"weir/datapath/fairq"
	"weir/lab"
	"weir/law"
)

// The law's parameters in the checks of this file's callers, as in experiments: T, M, alpha (docs/spec 1.1).
const (
	fairqTick    = 50 * time.Microsecond
	fairqSamples = 10
	fairqAlpha   = 0.5
	labRTT       = 200 * time.Microsecond

	bottleneck = "switch->receiver1"
)

// fairqLaw returns the law of a port with this rate and buffer, as the lab derives it for `fairq`.
func fairqLaw(rate law.Rate, buffer law.Bytes) fairq.Law {
	target := float64(buffer) * fairqAlpha
	pipe := float64(rate) / 8 * labRTT.Seconds()
	drain := time.Duration(target * 8 / float64(rate) * float64(time.Second))
	return fairq.Law{
		TargetBytes: uint32(target), BufferBytes: uint32(buffer), CapBytes: uint32(pipe + target),
		Tick: fairqTick, Period: fairqTick * fairqSamples, Active: 4 * (labRTT + drain),
	}
}

// running is FairQ on all ports of the lab's switches, with a goroutine that sends its heartbeats. Stats and the
// tables may be read meanwhile.
type running struct {
	*fairq.Attachment
	cancel     context.CancelFunc
	heartbeats chan error
}

// startFairQ attaches FairQ to the ports of the lab's switches. lawOf returns the law of a port and whether it
// gets one; nil: all get the lab's.
func startFairQ(l *lab.Lab, c fairq.Config, lawOf func(p *lab.Port) (fairq.Law, bool)) (*running, error) {
	r := &running{heartbeats: make(chan error, 1)}
	var ports []fairq.Port
	for _, p := range l.Ports() {
		if !p.OfSwitch {
			continue
		}
		law, wanted := fairqLaw(p.Rate, p.Buffer), true
		if lawOf != nil {
			law, wanted = lawOf(&p)
		}
		if wanted {
			ports = append(ports, fairq.Port{PortRef: l.PortRef(p), Law: law})
		}
	}
	f, err := fairq.Attach(ports, c)
	if err != nil {
		return nil, err
	}
	r.Attachment = f
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	go func() { r.heartbeats <- f.Run(ctx) }()
	return r, nil
}

// stop detaches FairQ. It may be called more than once.
func (r *running) stop() error {
	if r.Attachment == nil {
		return nil
	}
	r.cancel()
	err := errors.Join(<-r.heartbeats, r.Close())
	r.Attachment = nil
	return err
}
