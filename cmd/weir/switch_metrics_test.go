package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"weir/agent/metrics"
	"weir/agent/switchd"
	"weir/datapath/testnet"
)

// loopback lets the switch's namespace connect to itself.
func (m *machine) loopback() {
	m.t.Helper()
	m.Switch.Must(m.t, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(lo)
	})
}

// dial connects from the switch's namespace.
func (m *machine) dial(address string) (c net.Conn) {
	m.t.Helper()
	m.Switch.Must(m.t, func() (err error) {
		c, err = net.DialTimeout("tcp4", address, time.Minute)
		return err
	})
	m.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return c
}

// get requests a page and returns status code and body.
func (m *machine) get(address, path string) (code int, body string) {
	m.t.Helper()
	c := m.dial(address)
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path)
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		m.t.Fatalf("GET %s: %v", path, err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		m.t.Fatalf("GET %s: %v", path, err)
	}
	return answer.StatusCode, string(text)
}

// healthy waits until /healthz reports the switch as enforced.
func (m *machine) healthy(p *process, address string) {
	m.t.Helper()
	m.until(p, "/healthz says that all is enforced", func() bool {
		code, text := m.get(address, "/healthz")
		return code == 200 && text == string(switchd.Enforced)+"\n"
	})
}

// servedAt returns the address at which a weir switch serves its metrics.
func (m *machine) servedAt(p *process) (address string) {
	m.t.Helper()
	m.until(p, "metrics are served", func() bool {
		found := regexp.MustCompile(`msg=metrics .*address=(\S+)`).FindStringSubmatch(p.log.String())
		if found != nil {
			address = found[1]
		}
		return found != nil
	})
	return address
}

// value returns the value of one line of the metrics.
func value(t *testing.T, body, series string) float64 {
	t.Helper()
	for line := range strings.Lines(body) {
		if rest, ok := strings.CutPrefix(line, series+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	t.Errorf("no %s", series)
	return 0
}

// The metrics are the kernel's values, and scrapers that hang delay neither the next scrape nor the heartbeat.
func TestSwitch_Metrics(t *testing.T) {
	parallel(t)
	m := newMachine(t)
	m.loopback()
	streams := m.NewStreams(t, testnet.ReceiverIPv4, 4)
	p := m.switchUp("weir", "--metrics", "127.0.0.1:0")
	address := m.servedAt(p)
	m.until(p, "windows are limited", m.limited)
	streams.Progress(t, 100_000)
	out := `port="out0",switch="default"`
	var body string
	of := func(name, labels string) float64 {
		return value(t, body, fmt.Sprintf("weir_switch_port_%s{%s}", name, labels))
	}
	m.until(p, "all streams count, and are limited", func() bool { // a stream that waits for its retransmission timer does not
		var code int
		code, body = m.get(address, "/metrics")
		return code == 200 && of("flows", out) == 4 && of("grant_bytes", out) > 0 && value(t, body, `weir_switch_up{switch="default"}`) == 1 &&
			of("group_flows", `group="treatment",`+out) == 4 && of("rewritten_packets_total", `port="in0",switch="default"`) > 0
	})
	if n := of("group_acknowledged_bytes_total", `group="treatment",`+out); n != 0 {
		t.Errorf("nobody watches what flows do, and %g bytes were counted", n)
	}
	m.until(p, "what flows do is counted while an observer watches", func() bool {
		m.watch()
		code, now := m.get(address, "/metrics")
		if code != 200 { // more often than it answers
			return false
		}
		body = now
		return of("group_acknowledged_bytes_total", `group="treatment",`+out) > 0
	})
	if n := of("target_bytes", out); n != machineBuffer/5 {
		t.Errorf("target %g", n)
	}
	for _, series := range []string{"queue_max_bytes", "data_packets_total", "qdisc_sent_bytes_total", "packets_total"} {
		if of(series, out) <= 0 {
			t.Errorf("%s is 0", series)
		}
	}
	age := value(t, body, `weir_switch_heartbeat_age_seconds{switch="default"}`)
	if limit(t, "age of the heartbeat", time.Duration(age*float64(time.Second)), time.Second); age < 0 {
		t.Errorf("heartbeat %g s old", age)
	}
	if value(t, body, "process_resident_memory_bytes") < 1e6 {
		t.Error("without memory")
	}
	m.healthy(p, address)

	for n := range 40 { // more than may be connected
		c := m.dial(address)
		if n%2 == 0 {
			fmt.Fprint(c, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
		} else {
			fmt.Fprint(c, "GET /met")
		}
	}
	var last, oldest time.Duration
	heartbeats := 0
	m.until(p, "heartbeats continue with hanging scrapers", func() bool {
		age := m.read().HeartbeatAge
		if age < last {
			heartbeats++
		}
		last, oldest = age, max(oldest, age)
		return heartbeats >= 8
	})
	limit(t, "oldest heartbeat beside 40 stuck scrapers", oldest, time.Second)
	m.until(p, "a scraper behind hanging ones is answered", func() bool {
		code, _ := m.get(address, "/metrics")
		return code == 200
	})

	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		t.Errorf("ends with %d", code)
	}
	m.Switch.Must(t, func() error {
		if c, err := net.DialTimeout("tcp4", address, time.Second); err == nil {
			_ = c.Close()
			return errors.New("figures are still served")
		}
		return nil
	})
}

// A configured address that is in use ends the start before anything is changed. A process that takes over gets the
// address from the one before.
func TestSwitch_MetricsAddress(t *testing.T) {
	parallel(t)
	m := newMachine(t)
	m.loopback()
	first := m.switchUp("weir", "--metrics", "127.0.0.1:0")
	address := m.servedAt(first)

	other := m.start("weir", "switch", "later0", "--wait", "--name", "other", "--metrics", address)
	if code := other.wait(); code != exitError || !strings.Contains(other.log.String(), "another switch of this machine, has this port") {
		t.Errorf("%d: %s", code, other.log)
	}
	if names := m.pins(); strings.Contains(strings.Join(names, "\n"), "other") {
		t.Errorf("it left %v", names)
	}

	next := m.switchUp("weir", "--metrics", address, "--take-over")
	if code := first.wait(); code != 0 {
		t.Errorf("who was taken over from ends with %d", code)
	}
	if got := m.servedAt(next); got != address {
		t.Errorf("serves at %s, want %s", got, address)
	}
	m.healthy(next, address)
}

// The default address may be in use: the switch begins without it, and uses it when it becomes free.
func TestSwitch_MetricsAddressTaken(t *testing.T) {
	parallel(t)
	m := newMachine(t)
	var other net.Listener
	m.Switch.Must(t, func() (err error) {
		other, err = net.Listen("tcp4", metrics.DefaultListen)
		return err
	})
	p := m.switchUp("weir")
	if !strings.Contains(p.log.String(), "metrics are not served yet") || !strings.Contains(p.log.String(), "another program") {
		t.Errorf("it does not say so: %s", p.log)
	}
	_ = other.Close()
	if address := m.servedAt(p); address != metrics.DefaultListen {
		t.Errorf("serves at %s", address)
	}
}
