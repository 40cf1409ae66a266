package main

import (
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

const (
	giveUp = 30 * time.Second // for what a controller does in the end
	again  = 250 * time.Millisecond
	still  = 500 * time.Millisecond
)

// hear waits until the controller acts upon every switch: packet-ins are lost until it is ready for them.
func (s *switches) hear(packetIns bool) error {
	var lastNs, sentNs int64
	before, begun := uint64(0), s.nowNs()
	return s.run(func(now int64) (bool, error) {
		deaf, heard := 0, uint64(0)
		send := packetIns && now-sentNs > int64(again)
		for _, p := range s.peers {
			heard += p.heard
			if p.heard > 0 {
				continue
			}
			deaf++
			if send {
				p.out = append(p.out, s.packetIns[:s.packetInLen]...)
				if err := s.flush(p); err != nil {
					return false, err
				}
			}
		}
		if send {
			sentNs = now
		}
		if heard != before {
			before, lastNs = heard, now
		}
		if now-begun > int64(2*giveUp) {
			return false, fmt.Errorf("the controller did not answer %d of %d switches", deaf, len(s.peers))
		}
		return deaf == 0 && (!packetIns || now-lastNs > int64(still)), nil
	})
}

// lasting works for that long.
func (s *switches) lasting(d time.Duration) error {
	end := s.nowNs() + int64(d)
	return s.run(func(now int64) (bool, error) { return now >= end, nil })
}

// fill has so many packet-ins under way at each switch from here on.
func (s *switches) fill(n int) error {
	s.again = true
	for _, p := range s.peers {
		s.packets(p, n, s.nowNs())
		if err := s.flush(p); err != nil {
			return err
		}
		if err := s.turn(); err != nil {
			return err
		}
	}
	return nil
}

// quiet waits until every packet-in has its flow-mod.
func (s *switches) quiet() error {
	s.again = false
	end := s.nowNs() + int64(giveUp)
	return s.run(func(now int64) (bool, error) {
		if now > end {
			return false, fmt.Errorf("%d flow-mods are missing: the controller lost packet-ins", s.waiting)
		}
		return s.waiting == 0, nil
	})
}

// pace sends perSecond packet-ins a second evenly, in groups, through one switch after the other, and waits for the last
// flow-mods. The wait of a packet-in begins at its due time. The generator's own lateness is recorded apart.
func (s *switches) pace(perSecond float64, atOnce int, lasts time.Duration) (late *hdrhistogram.Histogram, err error) {
	const writes = 16 // then it reads
	late = hdrhistogram.New(1, longest, 3)
	gapNs := 1e9 * float64(atOnce) / perSecond
	began, next := s.nowNs(), 0
	last := int(float64(lasts) / gapNs)
	err = s.run(func(now int64) (bool, error) {
		for range writes {
			if next >= last {
				return true, nil
			}
			p := s.peers[next%len(s.peers)]
			n := 0
			for ; next < last && s.peers[next%len(s.peers)] == p; next++ {
				due := began + int64(float64(next)*gapNs)
				if due > now {
					break
				}
				_ = late.RecordValue(min(max(now-due, 1), longest)) // in its range by min and max
				s.packets(p, atOnce, due)
				n++
			}
			if n == 0 {
				break
			}
			if err := s.flush(p); err != nil {
				return false, err
			}
			now = s.nowNs()
		}
		return false, nil
	})
	if err != nil {
		return nil, err
	}
	return late, s.quiet()
}
