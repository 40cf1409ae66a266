package main

import (
	"context"
	"errors"
	"time"

	"weir/datapath/fairq"
	"weir/lab"
	"weir/law"
)

// The law of the checks of this file's callers, as experiments have it: T, M, alpha (docs/spec 1.1).
const (
	fairqTick    = 50 * time.Microsecond
	fairqSamples = 10
	fairqAlpha   = 0.5
	labRTT       = 200 * time.Microsecond

	bottleneck = "switch->receiver1"
)

// fairqLaw is the law of a port of this rate and buffer, as the lab derives it for `fairq`.
func fairqLaw(rate law.Rate, buffer law.Bytes) fairq.Law {
	target := float64(buffer) * fairqAlpha
	pipe := float64(rate) / 8 * labRTT.Seconds()
	drain := time.Duration(target * 8 / float64(rate) * float64(time.Second))
	return fairq.Law{
		TargetBytes: uint32(target), BufferBytes: uint32(buffer), CapBytes: uint32(pipe + target),
		Tick: fairqTick, Period: fairqTick * fairqSamples, Active: 4 * (labRTT + drain),
	}
}

// running is FairQ on all ports of the lab's switches, with somebody who beats. Stats and the tables
// may be read meanwhile.
type running struct {
	*fairq.Attachment
	cancel context.CancelFunc
	beats  chan error
}

// startFairQ attaches FairQ to the ports of the lab's switches. lawOf gives the law of a port and whether
// it is to have one; nil: all have the lab's.
func startFairQ(l *lab.Lab, c fairq.Config, lawOf func(p *lab.Port) (fairq.Law, bool)) (*running, error) {
	r := &running{beats: make(chan error, 1)}
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
	go func() { r.beats <- f.Run(ctx) }()
	return r, nil
}

// stop takes FairQ off again. It may be called more than once.
func (r *running) stop() error {
	if r.Attachment == nil {
		return nil
	}
	r.cancel()
	err := errors.Join(<-r.beats, r.Close())
	r.Attachment = nil
	return err
}
