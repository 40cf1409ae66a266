package soak

import (
	"bufio"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"weir/datapath/attach"
	"weir/datapath/testnet"
)

// span is a time during which ACKs at the VM had one window of a controller.
type span struct {
	window      int
	first, last time.Time
	acks        int
}

// A grant that is released grows through all windows. So a window counts as granted if some ACKs in a row have it for a time in
// which a released one grows by half.
const (
	spanACKs = 5
	spanTime = 15 * time.Millisecond
)

func (s *span) granted() bool { return s.acks >= spanACKs && s.last.Sub(s.first) >= spanTime }

// watch sees which grants packets at the VM's port obey.
type watch struct {
	w     *world
	tap   *testnet.Tap
	shift map[netip.AddrPort]uint8
	spans []span
	free  time.Time // the last ACK with a window above all grants
}

func newWatch(w *world) *watch {
	w.tb.Helper()
	inside := attach.PortRef{Name: "guest", Enter: w.Guests[0].Enter}
	w.Guests[0].Must(w.tb, func() error {
		l, err := netlink.LinkByName("eth0")
		if err == nil {
			inside.Ifindex = l.Attrs().Index
		}
		return err
	})
	return &watch{w: w, tap: testnet.NewTap(w.tb, inside), shift: map[netip.AddrPort]uint8{}}
}

// windows calls seen with the ACKs that have come to the VM, and their windows in bytes.
func (o *watch) windows(seen func(s *testnet.Segment, window int)) {
	o.w.tb.Helper()
	o.tap.Each(o.w.tb, func(s *testnet.Segment) {
		switch {
		case s.Out:
			return
		case s.Flags&testnet.SYN != 0:
			if option := s.Option(3); len(option) > 0 {
				o.shift[s.To] = option[0]
			}
			return
		case s.Flags&testnet.ACK == 0:
			return
		}
		seen(s, int(s.Window)<<o.shift[s.To])
	})
}

// look reads the packets that have passed.
func (o *watch) look() {
	o.w.tb.Helper()
	o.windows(func(s *testnet.Segment, window int) {
		if _, known := o.w.windows[window]; !known {
			if window > 2<<20 {
				o.free = s.At
			}
			window = 0
		}
		if n := len(o.spans); n > 0 && o.spans[n-1].window == window {
			o.spans[n-1].last = s.At
			o.spans[n-1].acks++
			return
		}
		o.spans = append(o.spans, span{window, s.At, s.At, 1})
	})
}

// until looks until a grant of a controller in the list is seen after a time, and returns the time of its first packet.
func (o *watch) until(tb testing.TB, since time.Time, of ...*node) (at time.Time) {
	tb.Helper()
	testnet.Until(tb, "the VM's packets obey a controller", func() bool {
		o.look()
		for i := len(o.spans) - 1; i >= 0 && o.spans[i].last.After(since); i-- {
			s := &o.spans[i]
			for _, n := range of {
				if s.granted() && s.window == n.window() {
					if at = s.first; at.Before(since) {
						at = since
					}
					return true
				}
			}
		}
		return false
	})
	return at
}

// last returns the last packet that obeyed a window's grant.
func (o *watch) last(window int) (at time.Time) {
	for i := range o.spans {
		if s := &o.spans[i]; s.window == window && s.granted() {
			at = s.last
		}
	}
	return at
}

var newTerm = regexp.MustCompile(`msg="a new term".* controller=(\S+)`)

// checkTurns checks that packets never obeyed two controllers by turns: each change of the controller that packets obey is a new
// term that the agent has logged.
func (o *watch) checkTurns(tb testing.TB) {
	tb.Helper()
	var terms, seen []string
	for lines := bufio.NewScanner(strings.NewReader(o.w.agent.log.String())); lines.Scan(); {
		if m := newTerm.FindStringSubmatch(lines.Text()); m != nil {
			terms = append(terms, m[1])
		}
	}
	for i := range o.spans {
		if s := &o.spans[i]; s.granted() && s.window != 0 {
			if name := o.w.windows[s.window]; len(seen) == 0 || seen[len(seen)-1] != name {
				seen = append(seen, name)
			}
		}
	}
	left := terms
	for _, name := range seen {
		for len(left) > 0 && left[0] != name {
			left = left[1:]
		}
		if len(left) == 0 {
			tb.Errorf("packets obeyed %q, and the agent's terms were those of %q", seen, terms)
			return
		}
	}
}
