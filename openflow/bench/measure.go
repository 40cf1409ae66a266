package main

import (
	"fmt"
	"io"
	"runtime"
	"text/tabwriter"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// row is what was measured of one controller. Times are of what a switch sees: from its packet-in to the flow-mod.
type row struct {
	Work        string  `json:"work"`
	Connections int     `json:"connections"`
	Controller  string  `json:"controller"`
	PerCPU      float64 `json:"messages_per_cpu_second"` // of the controller's processor time
	PerSecond   float64 `json:"messages_per_second"`
	P50us       float64 `json:"full_p50_us,omitempty"` // as many under way as the case allows
	P99us       float64 `json:"full_p99_us,omitempty"`
	PacedRate   float64 `json:"paced_messages_per_second,omitempty"` // sent evenly: half of PerSecond, pacedMost at most
	PacedP50us  float64 `json:"paced_p50_us,omitempty"`
	PacedP99us  float64 `json:"paced_p99_us,omitempty"`
	KiBPerConn  float64 `json:"kib_per_connection"` // resident, above none
}

func (s *settings) measure(name string, w work) (row, error) {
	r := row{Work: w.String(), Connections: w.connections, Controller: name}
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
	peers := make([]*peer, w.connections)
	defer func() {
		for _, p := range peers {
			if p != nil {
				_ = p.conn.Close()
			}
		}
	}()
	if err := s.load(c, w, peers, &r); err != nil {
		return r, err
	}
	full, err := c.memory()
	r.KiBPerConn = float64(full-bare) / 1024 / float64(w.connections)
	return r, err
}

// load connects the switches, measures as much as the controller can do and then, of packet-ins, up to half of it.
func (s *settings) load(c *controller, w work, peers []*peer, r *row) error {
	for i := range peers {
		var err error
		if peers[i], err = newPeer(c.addr, i); err != nil {
			return fmt.Errorf("connect switch %d: %w", i, err)
		}
	}
	if err := hear(peers, w); err != nil {
		return err
	}
	for _, p := range peers {
		p.setAgain(true)
		if err := p.send(w.packetIns); err != nil {
			return err
		}
	}
	time.Sleep(s.seconds / 4) // start-up
	messages, used, took, err := s.count(c, peers, func() error { time.Sleep(s.seconds); return nil })
	if err != nil {
		return err
	}
	r.PerCPU, r.PerSecond = messages/used.Seconds(), messages/took.Seconds()
	if w.packetIns == 0 {
		return nil
	}
	r.P50us, r.P99us = quantiles(peers)
	for _, p := range peers {
		p.setAgain(false)
	}
	if err := quiet(peers); err != nil {
		return err
	}
	r.PacedRate = min(r.PerSecond/2, pacedMost)
	if _, _, _, err = s.count(c, peers, func() error { return pace(peers, r.PacedRate, s.seconds) }); err != nil {
		return err
	}
	r.PacedP50us, r.PacedP99us = quantiles(peers)
	return quiet(peers)
}

// count gives the messages that the switches counted while f ran, and the controller's processor time.
func (s *settings) count(c *controller, peers []*peer, f func() error) (messages float64, used, took time.Duration, err error) {
	for _, p := range peers {
		p.forget()
	}
	sum := func() (n uint64) {
		for _, p := range peers {
			n += p.count()
		}
		return n
	}
	began, n := time.Now(), sum()
	before, err := c.cpu()
	if err != nil {
		return 0, 0, 0, err
	}
	if err := f(); err != nil {
		return 0, 0, 0, err
	}
	after, err := c.cpu()
	return float64(sum() - n), after - before, time.Since(began), err
}

// hear waits until the controller listens to every switch.
func hear(peers []*peer, w work) error {
	errs := make(chan error, len(peers))
	for _, p := range peers {
		go func() {
			if w.packetIns == 0 {
				errs <- p.asked()
				return
			}
			errs <- p.heard()
		}()
	}
	for range peers {
		if err := <-errs; err != nil {
			return err
		}
	}
	return nil
}

// quiet waits until every packet-in has its flow-mod.
func quiet(peers []*peer) error {
	for range 1000 {
		waiting := 0
		for _, p := range peers {
			waiting += p.waiting()
		}
		if waiting == 0 {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return fmt.Errorf("flow-mods are missing: the controller lost packet-ins")
}

func quantiles(peers []*peer) (p50us, p99us float64) {
	all := hdrhistogram.New(1, longest, 3)
	for _, p := range peers {
		p.mu.Lock()
		all.Merge(p.latency)
		p.mu.Unlock()
	}
	return float64(all.ValueAtQuantile(50)) / 1000, float64(all.ValueAtQuantile(99)) / 1000
}

// table prints Weir's figures, each with its ratio to os-ken's of the same case where that was measured.
func table(to io.Writer, rows []row) {
	t := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "case\tconnections\tcontroller\tmessages/CPU-s\tmessages/s\tp50 us\tp99 us\tpaced/s\tp50 us\tp99 us\tKiB/connection\tmessages/CPU-s to os-ken's\t")
	for i, r := range rows {
		ratio := ""
		if i+1 < len(rows) && rows[i+1].Controller != r.Controller && rows[i+1].Work == r.Work && rows[i+1].Connections == r.Connections {
			ratio = fmt.Sprintf("%.0f", r.PerCPU/rows[i+1].PerCPU)
		}
		latency := "\t\t\t\t"
		if r.PacedRate > 0 {
			latency = fmt.Sprintf("%.0f\t%.0f\t%.0f\t%.0f\t%.0f", r.P50us, r.P99us, r.PacedRate, r.PacedP50us, r.PacedP99us)
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%.0f\t%.0f\t%s\t%.0f\t%s\t\n", r.Work, r.Connections, r.Controller, r.PerCPU, r.PerSecond, latency, r.KiBPerConn, ratio)
	}
	_ = t.Flush()
}
