package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"weir/experiment"
	"weir/law"
)

// Registers of the block (docs/fairswitch-rtl.md).
const (
	regControl      = 0x04 // bit 2: rewrite windows; bit 3: mark. Reserved bits stay: the receiving shim clears them
	regSample       = 0x08 // avg_queue_time, cycles
	regUpdates      = 0x0c
	regTarget       = 0x10 // right shift of the queue's size
	regMark         = 0x14
	regFloor        = 0x18
	regAggregateMax = 0x1c
	regMSSMax       = 0x20
	regIdle         = 0x24 // samples
	regFrames       = 0x28
	regSegments     = 0x2c
	regRewritten    = 0x34
	regQueues       = 0x400
	regQueueSize    = 0x20

	controlRewrite = 1 << 2
	controlMark    = 1 << 3
)

// Hardware is a law as the registers of a FairSwitch.
type Hardware struct {
	Registers map[uint32]uint32
	Shim      bool // the hosts' shims write window scales into segments
	// Sample returns the law's metrics of a queue from its registers; nil: it has none.
	Sample func(flows, windowBytes uint32) []law.Value
	// Tally returns the law's counters from those of all switches; nil: it counts nothing.
	Tally func(frames, segments, rewritten uint64) law.Tally
}

// hardwareStats are the counters of a switch since the laws were attached.
type hardwareStats struct {
	Queues    int           `json:"queues"`
	LagMost   time.Duration `json:"lag_most_ns"`
	Rebased   uint64        `json:"rebased"`
	Received  uint64        `json:"received"`
	Unknown   uint64        `json:"unknown"`
	Overflows uint64        `json:"overflows"`
	Ports     []struct {
		Device string `json:"device"`
		Sent   uint64 `json:"sent"`
		Drops  uint64 `json:"drops"`
		Failed uint64 `json:"failed"`
		Peak   uint64 `json:"peak_bytes"`
	} `json:"ports"`
}

// late returns how far the model was behind the clock.
func (s *hardwareStats) late(scale float64) string {
	return fmt.Sprintf("the model was up to %v behind the clock, %v in the experiment's time", s.LagMost.Round(time.Microsecond), s.own(scale).Round(time.Microsecond))
}

// own returns the lag in the experiment's own time.
func (s *hardwareStats) own(scale float64) time.Duration {
	return time.Duration(float64(s.LagMost) / scale)
}

func (s *hardwareStats) trouble(scale float64) (words []string) {
	if s.own(scale) > hardwareLag {
		words = append(words, fmt.Sprintf("%s, and %v is the limit: this run is void", s.late(scale), hardwareLag))
	}
	if s.Rebased > 0 {
		words = append(words, fmt.Sprintf("the model left out the time of %d stalls: this run is void", s.Rebased))
	}
	if s.Overflows > 0 {
		words = append(words, fmt.Sprintf("%d frames found no room before the block", s.Overflows))
	}
	for _, p := range s.Ports {
		if p.Failed > 0 {
			words = append(words, fmt.Sprintf("%d frames were not sent at %s", p.Failed, p.Device))
		}
	}
	return words
}

// hardwareControl is a connection to the program of a switch.
type hardwareControl struct{ conn net.Conn }

func (l *Lab) dialHardware(node string) (*hardwareControl, error) {
	conn, err := net.DialTimeout("unixpacket", l.claim.hardwareFile(node, "ctl"), ovsPatience)
	if err != nil {
		return nil, fmt.Errorf("connect to the switch: %w", err)
	}
	return &hardwareControl{conn}, nil
}

func (c *hardwareControl) close() { _ = c.conn.Close() }

func (c *hardwareControl) call(format string, args ...any) (string, error) {
	if err := c.conn.SetDeadline(time.Now().Add(ovsPatience)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintf(c.conn, format, args...); err != nil {
		return "", fmt.Errorf("ask the switch: %w", err)
	}
	reply := make([]byte, 64<<10)
	n, err := c.conn.Read(reply)
	if err != nil {
		return "", fmt.Errorf("the switch does not answer: %w", err)
	}
	if text := string(reply[:n]); text != "error" {
		return text, nil
	}
	return "", errors.New("the switch refused a request")
}

func (c *hardwareControl) write(register, value uint32) error {
	_, err := c.call("w %#x %#x", register, value)
	return err
}

func (c *hardwareControl) read(register uint32) (uint32, error) {
	text, err := c.call("r %#x", register)
	if err != nil {
		return 0, err
	}
	value, err := strconv.ParseUint(text, 10, 32)
	return uint32(value), err
}

func (c *hardwareControl) stats() (*hardwareStats, error) {
	text, err := c.call("stats")
	if err != nil {
		return nil, err
	}
	s := &hardwareStats{}
	if err := json.Unmarshal([]byte(text), s); err != nil {
		return nil, fmt.Errorf("counters of the switch: %w", err)
	}
	return s, nil
}

func (l *Lab) hardwareStats(node string) (*hardwareStats, error) {
	c, err := l.dialHardware(node)
	if err != nil {
		return nil, err
	}
	defer c.close()
	return c.stats()
}

// hardwareLaw is a law in the blocks of a lab's switches.
type hardwareLaw struct {
	Hardware
	ports    map[string]hardwarePort
	switches []*hardwareControl
	shims    func() error // detaches them
	before   [3]uint64    // frames, segments and rewritten ones when the law was attached
}

type hardwarePort struct {
	at    *hardwareControl
	queue uint32
}

// startHardware writes a law into the registers of the switches.
func (l *Lab) startHardware(r *experiment.Run, h Hardware) (_ Attached, err error) {
	w := &hardwareLaw{Hardware: h, ports: map[string]hardwarePort{}, shims: func() error { return nil }}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.Close())
		}
	}()
	if h.Shim {
		if w.shims, err = l.attachShims(); err != nil {
			return nil, err
		}
	}
	for _, node := range r.At {
		c, err := l.dialHardware(node)
		if err != nil {
			return nil, err
		}
		w.switches = append(w.switches, c)
		for i, p := range l.plan.byName[node].ports {
			w.ports[p.name] = hardwarePort{c, uint32(i)}
		}
		for register, value := range h.Registers {
			if err := c.write(register, value); err != nil {
				return nil, err
			}
		}
		if _, err := c.call("reset"); err != nil {
			return nil, err
		}
	}
	w.before, err = w.counts()
	return w, err
}

func (w *hardwareLaw) counts() (sum [3]uint64, err error) {
	for _, c := range w.switches {
		for i, register := range []uint32{regFrames, regSegments, regRewritten} {
			n, err := c.read(register)
			if err != nil {
				return sum, err
			}
			sum[i] += uint64(n)
		}
	}
	return sum, nil
}

// Has reports whether Sample has metrics of the port.
func (w *hardwareLaw) Has(port string) bool {
	return w.Hardware.Sample != nil && w.ports[port].at != nil
}

// Sample reads the registers of a port's queue.
func (w *hardwareLaw) Sample(port string) ([]law.Value, error) {
	if !w.Has(port) {
		return nil, nil
	}
	at := w.ports[port]
	flows, err := at.at.read(regQueues + regQueueSize*at.queue)
	if err != nil {
		return nil, err
	}
	window, err := at.at.read(regQueues + regQueueSize*at.queue + 4)
	return w.Hardware.Sample(flows, window), err
}

// Tally returns the counters of all switches.
func (w *hardwareLaw) Tally() (law.Tally, error) {
	if w.Hardware.Tally == nil {
		return nil, nil
	}
	now, err := w.counts()
	b := w.before
	return w.Hardware.Tally(now[0]-b[0], now[1]-b[1], now[2]-b[2]), err
}

// Close makes the switches forward without a law.
func (w *hardwareLaw) Close() error {
	errs := []error{w.shims()}
	for _, c := range w.switches {
		errs = append(errs, c.write(regControl, 0))
		c.close()
	}
	return errors.Join(errs...)
}
