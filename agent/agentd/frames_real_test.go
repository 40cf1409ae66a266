package agentd_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"weir/agent/agentd"
	"weir/bus"
	"weir/bus/inband"
	"weir/bus/lease"
	"weir/bus/pki"
	"weir/bus/weirv1"
	"weir/datapath/attach"
	"weir/datapath/testnet"
)

// messages returns the file of a host with guest 0 and this way of grants. With in-band the controller sends frames from the far end
// of the uplink.
func (m *machine) messages(how string) string {
	m.t.Helper()
	if how == "bus" {
		return m.hostFile("", 0)
	}
	m.sendFrames(inband.Form(how))
	return strings.Replace(m.hostFile("", 0), "  number: 7\n", "  number: 7\n  messages: "+how+"\n", 1)
}

// sendFrames starts the controller again, with grants in frames.
func (m *machine) sendFrames(form inband.Form) {
	m.t.Helper()
	m.stopController()
	k, err := pki.FrameKey(filepath.Dir(m.enrol("controller/c1").Own))
	if err != nil {
		m.t.Fatal(err)
	}
	m.Peer.Must(m.t, func() (err error) {
		m.frames, err = inband.NewMessenger("eth0", form, k, m.logger("frames"))
		return err
	})
	m.t.Cleanup(m.frames.Close)
	if err := (bus.TermFile{Path: filepath.Join(m.dir, "term")}).Save(lease.Seen{Term: 5}); err != nil { // so that there are earlier terms
		m.t.Fatal(err)
	}
	m.startController()
}

// frames returns how many frames the agent took, or refused for a reason.
func framesOf(s *agentd.Status, result string) uint64 {
	if s.Host == nil || s.Host.Frames == nil {
		return 0
	}
	return s.Host.Frames.Counts[result]
}

// attacker sends frames to the agent from the far end of its uplink. It knows the key that it was made with.
type attacker struct {
	m      *machine
	sender *inband.Sender
	tagger *inband.Tagger
	to     inband.MAC
}

func (m *machine) attacker(form inband.Form, k inband.Key) *attacker {
	m.t.Helper()
	a := &attacker{m: m, tagger: inband.NewTagger(form, k)}
	m.Peer.Must(m.t, func() (err error) { a.sender, err = inband.NewSender("eth0"); return err })
	m.t.Cleanup(func() { _ = a.sender.Close() })
	e := m.newest(func(e *weirv1.Events) bool { return len(e.GetInventory().GetHypervisor().GetFrames()) > 0 })
	a.to = inband.MAC(e.GetInventory().GetHypervisor().GetFrames())
	return a
}

// send sends a command of the present controller in a frame, after change.
func (a *attacker) send(run, counter uint64, change func(*weirv1.Command)) {
	a.frame(&inband.Frame{Type: inband.On, Run: run, Counter: counter}, change)
}

// frame sends a command in this frame.
func (a *attacker) frame(f *inband.Frame, change func(*weirv1.Command)) {
	m := a.m
	m.t.Helper()
	m.mu.Lock()
	origin := m.origin
	m.mu.Unlock()
	term, _ := m.runner.Holds(agentName)
	c := &weirv1.Command{
		Bucket: m.bucket(), Term: term, Controller: &weirv1.Controller{Name: m.runner.Self().Name, Run: m.runner.Self().Run}, Sequence: 1 << 40,
		Incarnation: origin.GetIncarnation(), EchoNs: origin.GetStampNs(), Grants: []*weirv1.Grant{weirv1.NewGrant(window(1, testnet.PeerIPv4(0), forgedWindow))},
	}
	if change != nil {
		change(c)
	}
	b, err := proto.Marshal(c)
	if err == nil {
		f.To, f.From, f.Command = a.to, a.sender.Address(), b
		b, err = a.tagger.Append(nil, f)
	}
	if err == nil {
		err = a.sender.Send(b)
	}
	if err != nil {
		m.t.Fatal(err)
	}
}

// bucket is the agent's.
func (m *machine) bucket() uint32 {
	e := m.newest(func(e *weirv1.Events) bool { return len(e.GetState().GetTerms()) > 0 })
	return e.GetState().GetTerms()[0].GetBucket()
}

const forgedWindow = 5000

// Grants in frames limit ACKs on the wire as those of the bus do. Frames that are forged, sent again, late, or of another term have
// no effect, and are counted. When the controller dies, the pair is released within 1.5 s.
func TestFrames_Limit(t *testing.T) {
	m, _, s, stop := limitBy(t, "in-band")
	m.until("grants came in frames", func(s *agentd.Status) bool { return framesOf(s, "taken") >= 5 })
	if c := m.frames.Counts(); c["sent"] < 5 || c["failed"] != 0 {
		t.Errorf("frames of the controller: %v", c)
	}
	k, err := pki.FrameKey(filepath.Join(m.dir, "agent-"+agentName))
	if err != nil {
		t.Fatal(err)
	}
	fence := func(reason string) func(*agentd.Status) uint64 {
		return func(s *agentd.Status) uint64 { return s.Bus.Commands[reason] }
	}
	frame := func(reason string) func(*agentd.Status) uint64 {
		return func(s *agentd.Status) uint64 { return framesOf(s, reason) }
	}
	knows, guesses := m.attacker(inband.Ethernet, k), m.attacker(inband.Ethernet, inband.Key{1}.Of(agentName))
	for i, row := range []struct {
		name    string
		by      *attacker
		counter uint64
		change  func(*weirv1.Command)
		counted func(*agentd.Status) uint64
	}{
		{"another key", guesses, 1, nil, frame("tag")},
		{"late", knows, 10, func(c *weirv1.Command) { c.EchoNs -= uint64(2 * time.Second) }, fence("late")},
		{"again", knows, 10, nil, frame("replayed")},
		{"reordered", knows, 9, nil, frame("replayed")},
		{"of before the agent's restart", knows, 11, func(c *weirv1.Command) { c.Incarnation++ }, fence("incarnation")},
		{"an old term", knows, 12, func(c *weirv1.Command) { c.Term-- }, fence("stale_term")},
		{"another controller", knows, 13, func(c *weirv1.Command) { c.Controller.Run++ }, fence("other")},
		{"an old sequence", knows, 14, func(c *weirv1.Command) { c.Sequence = 1 }, fence("sequence")},
		{"of the future", knows, 15, func(c *weirv1.Command) { c.EchoNs = attach.MonotonicNs() + uint64(time.Hour) }, fence("future")},
		{"no grants", knows, 16, func(c *weirv1.Command) { c.Grants = nil }, fence("malformed")},
	} {
		before := row.counted(m.status())
		row.by.send(99, row.counter, row.change)
		m.until(row.name+" is counted", func(s *agentd.Status) bool { return row.counted(s) > before })
		for _, g := range m.status().Host.VMs[0].Grants {
			if g.Value == forgedWindow {
				t.Errorf("row %d, %s: %+v", i, row.name, g)
			}
		}
	}
	// Frames of the guest, even with the right key, do not reach the agent of its host. To another host they are dropped.
	before := m.status()
	m.Guests[0].Must(t, func() error {
		guest, err := inband.NewSender("eth0")
		if err != nil {
			return err
		}
		defer guest.Close()
		for n, to := range []inband.MAC{knows.to, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff}} {
			raw, err := inband.NewTagger(inband.Ethernet, k).Append(nil, &inband.Frame{To: to, From: guest.Address(), Type: inband.On, Run: 100, Counter: uint64(n + 1), Command: []byte{1}})
			if err != nil {
				return err
			}
			if err := guest.Send(raw); err != nil {
				return err
			}
		}
		return nil
	})
	after := m.until("the guest's frame is dropped", func(s *agentd.Status) bool {
		return s.Host.VMs[0].Counts.Control > before.Host.VMs[0].Counts.Control
	})
	for _, reason := range []string{"tag", "malformed", "address", "replayed"} {
		if framesOf(after, reason) != framesOf(before, reason) || after.Bus.Commands[reason] != before.Bus.Commands[reason] {
			t.Errorf("the guest's frames reached the agent: %+v %v", after.Host.Frames, after.Bus.Commands)
		}
	}
	stop()
	m.stopController()
	released(t, s, time.Now())
	m.until("no grant is live", func(s *agentd.Status) bool { return s.Host.Live == 0 })
}
