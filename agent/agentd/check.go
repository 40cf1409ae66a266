package agentd

import (
	"fmt"
	"math"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"weir/agent/metrics"
	"weir/bus/weirv1"
	"weir/config"
	"weir/law"
)

// check checks what the schema cannot express.
func check(c *config.Checker, f *File) {
	for i, u := range f.Bus.URLs {
		address, ok := strings.CutPrefix(u, "tls://")
		host, port, err := net.SplitHostPort(address)
		if n, bad := strconv.ParseUint(port, 10, 16); !ok || err != nil || host == "" || bad != nil || n == 0 {
			c.Fail(at("bus", "urls", i), fmt.Sprintf("%q is no address of the bus", config.Clip(u)), "tls://ADDRESS:PORT, such as tls://10.0.0.5:4222")
		}
	}
	if f.Host == nil && f.Switch == nil {
		c.Fail(nil, "the agent has no role", "host, switch or both")
	}
	if err := metrics.CheckListen(f.Metrics.Listen); err != nil {
		c.Fail(at("metrics", "listen"), err.Error(), "")
	}
	if f.Host != nil {
		checkHost(c, f.Host)
	}
	if f.Switch != nil {
		checkSwitch(c, f.Switch)
	}
}

// at makes a path of keys and indexes.
func at(steps ...any) (path []string) {
	for _, s := range steps {
		path = append(path, fmt.Sprint(s))
	}
	return path
}

func checkHost(c *config.Checker, h *fileHost) {
	if h.Uplink.Rate > 1000e9 {
		c.Fail(at("host", "uplink", "rate"), fmt.Sprintf("%v is out of range", h.Uplink.Rate), "at most 1000Gbit")
	}
	checkTexts(c, h.Labels, "", "host")
	for i, name := range h.Switches {
		if !weirv1.ValidName(name) {
			c.Fail(at("host", "switches", i), fmt.Sprintf("%q is not a name", config.Clip(name)), "the name of the switch's agent: 1 to 63 of a-z, 0-9 and -")
		}
	}
	if d := h.Deadlines; d != nil {
		families := newOnce(c, "version of IP")
		for i, text := range d.Metadata {
			if wrong := wrongMetadata(text); wrong != "" {
				c.Fail(at("host", "deadlines", "metadata", i), wrong, "such as 169.254.169.253 or fe80::a9fe:a9fd")
				continue
			}
			families.add(map[bool]string{true: "IPv6", false: "IPv4"}[strings.Contains(text, ":")], "host", "deadlines", "metadata", i)
		}
		for key, q := range map[string]fileQuota{"vm": d.VM, "tenant": d.Tenant} {
			if q.Demand < 0 || q.Demand > weirv1.MaxRate {
				c.Fail(at("host", "deadlines", key, "demand"), fmt.Sprintf("%v is out of range", q.Demand), "above 0kbit, or leave it out")
			}
		}
	}
	vms, ports, names := newOnce(c, "VM"), newOnce(c, "port"), newOnce(c, "name")
	ports.add(h.Uplink.Port, "host", "uplink", "port")
	for i := range h.VMs {
		v := &h.VMs[i]
		vms.add(v.VM, "host", "vms", i, "vm")
		ports.add(v.Port, "host", "vms", i, "port")
		if v.Name != "" {
			names.add(v.Name, "host", "vms", i, "name")
		}
		if mac, err := net.ParseMAC(v.MAC); err != nil || len(mac) != 6 || mac[0]&1 != 0 {
			c.Fail(at("host", "vms", i, "mac"), fmt.Sprintf("%q is no MAC address of a device", config.Clip(v.MAC)), "six bytes, such as 52:54:00:00:00:01")
		}
		for j, text := range v.Addresses {
			if wrong := wrongRange(text); wrong != "" {
				c.Fail(at("host", "vms", i, "addresses", j), wrong, "an address, or a prefix such as 10.0.0.0/24 or fe80::/64")
			}
		}
		checkTexts(c, v.Labels, v.Name, "host", "vms", i)
	}
	agents, addresses := newOnce(c, "agent"), newOnce(c, "address")
	for i := range h.Peers {
		agents.add(h.Peers[i].Agent, "host", "peers", i, "agent")
		for j, text := range h.Peers[i].Addresses {
			if wrong := wrongRange(text); wrong != "" {
				c.Fail(at("host", "peers", i, "addresses", j), wrong, "an address, or a prefix such as 10.0.0.0/24")
				continue
			}
			p, _ := parseRange(text)
			addresses.add(p, "host", "peers", i, "addresses", j)
		}
	}
}

// wrongRange returns what is wrong with a range of addresses.
func wrongRange(text string) string {
	p, err := parseRange(text)
	switch {
	case err != nil || p.Addr().Is4In6():
		return fmt.Sprintf("%q is no address and no prefix", config.Clip(text))
	case p != p.Masked():
		return fmt.Sprintf("%v has bits beyond its length: %v is meant, or /%d", p, p.Masked(), p.Addr().BitLen())
	case p.Addr().Is6() && p.Contains(netip.AddrFrom16([16]byte{10: 0xff, 11: 0xff})):
		return fmt.Sprintf("%v covers ::ffff:0:0/96, which is all of IPv4", p)
	case p.Bits() == p.Addr().BitLen() && p.Addr().IsUnspecified():
		return fmt.Sprintf("%v is no address of a device", p.Addr())
	}
	return ""
}

func checkSwitch(c *config.Checker, s *fileSwitch) {
	between := func(key string, d law.Duration, low, high time.Duration) {
		if c.Given("switch", key) && (d.Std() < low || d.Std() > high) {
			c.Fail(at("switch", key), fmt.Sprintf("%v is out of range", d.Std()), fmt.Sprintf("%v to %v", low, high))
		}
	}
	between("interval", s.Interval, time.Millisecond, 10*time.Second)
	between("idle", s.Idle, time.Millisecond, time.Hour)
	wanted, ports, numbers, sources := newOnce(c, "signal"), newOnce(c, "port"), newOnce(c, "number"), newOnce(c, "address")
	for i, name := range s.Signals {
		if _, ok := signals[name]; !ok {
			c.Fail(at("switch", "signals", i), fmt.Sprintf("%q is no signal", config.Clip(name)), "allowed: marks, arrivals, progress")
		}
		wanted.add(name, "switch", "signals", i)
	}
	for i, p := range s.Ports {
		ports.add(p.Port, "switch", "ports", i, "port")
		numbers.add(p.Number, "switch", "ports", i, "number")
		checkTexts(c, p.Labels, p.Port, "switch", "ports", i)
		checkPort(c, &p, i)
	}
	if s.Laws == byPolicy && s.File != "" {
		c.Fail(at("switch", "file"), "laws: policy is given, too", "file for the laws of a file, or laws: policy for those of policies")
	}
	total := 0
	for i, from := range s.Sources {
		for j, text := range from.Addresses {
			a, err := netip.ParseAddr(text)
			if err != nil || a.Zone() != "" || a.Is4In6() || a.IsUnspecified() {
				c.Fail(at("switch", "sources", i, "addresses", j), fmt.Sprintf("%q is no address", config.Clip(text)), "an address, such as 10.0.0.1")
				continue
			}
			sources.add(a, "switch", "sources", i, "addresses", j)
			total++
		}
	}
	if total > maxSources {
		c.Fail(at("switch", "sources"), fmt.Sprintf("%d addresses", total), fmt.Sprintf("at most %d", maxSources))
	}
}

// checkPort checks what laws need to know of a port.
func checkPort(c *config.Checker, p *filePort, i int) {
	fail := func(key string, is fmt.Stringer, do string) {
		c.Fail(at("switch", "ports", i, key), fmt.Sprintf("%v is out of range", is), do)
	}
	given := func(key string) bool { return c.Given(at("switch", "ports", i, key)...) }
	switch {
	case given("rate") && (p.Rate <= 0 || p.Rate > weirv1.MaxRate):
		fail("rate", p.Rate, "above 0kbit, or leave it out")
	case given("buffer") && (p.Buffer < 1514 || p.Buffer > math.MaxUint32):
		fail("buffer", p.Buffer, "1514B (one full frame) to 4.29GB")
	case given("rtt") && (p.RTT <= 0 || p.RTT > law.Duration(time.Second)):
		fail("rtt", p.RTT, "above 0s, up to 1s")
	}
}

const maxSources = 16384 // of datapath/telemetry

// once refuses a value that is there twice.
type once struct {
	c     *config.Checker
	what  string
	first map[string]string // by value: where it is
}

func newOnce(c *config.Checker, what string) *once { return &once{c, what, map[string]string{}} }

func (o *once) add(v any, path ...any) {
	text, here := fmt.Sprint(v), at(path...)
	if first, twice := o.first[text]; twice {
		o.c.Fail(here, fmt.Sprintf("the %s %s is there twice (%s)", o.what, config.Clip(text), first), "each once")
		return
	}
	o.first[text] = strings.Join(here, ".")
}

func checkTexts(c *config.Checker, labels map[string]string, name string, path ...any) {
	allowed := fmt.Sprintf("at most %d labels; names, keys and values of at most %d bytes that can be printed", weirv1.MaxLabels, weirv1.MaxText)
	if err := weirv1.CheckTexts(labels, name); err != nil {
		c.Fail(at(path...), err.Error(), allowed)
	}
}
