package agentd_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/agent/agentd"
	"weir/bus/inband"
	"weir/bus/pki"
	"weir/bus/weirv1"
	"weir/datapath/testnet"
	"weir/law"
	"weir/law/telemetry"
)

// Marks in the papers' packets of protocol 143 reach the law at the host, with their number in the command or in the identification.
// Packets that are forged, sent again, late or for no VM are refused and counted. Those of a guest are dropped at its port. Only the tag keeps
// others out: an attacker with the key lowers a VM's rate.
func TestFrames_Protocol143(t *testing.T) {
	for _, form := range []inband.Form{inband.IP, inband.IPID} {
		t.Run(string(form), func(t *testing.T) { protocol143(t, form) })
	}
}

func protocol143(t *testing.T, form inband.Form) {
	m := newMachine(t, 1, testnet.PathOptions{})
	m.sendFrames(form)
	file := strings.Replace(m.hostFile(", rate: 200Mbit", 0), "  number: 7\n", "  number: 7\n  messages: "+string(form)+"\n", 1)
	m.start(strings.Replace(file, "  vms:", "  laws: {gcc: {}}\n  vms:", 1))
	testnet.Until(t, "the controller knows the VM", func() bool { return slices.Equal(m.guests(), []uint32{1}) })
	stop := m.keep(law.Grant{Kind: law.MarksGrant, Key: law.Key{Pair: law.Pair{VM: 1}}, Value: 5*telemetry.OneMark/2 + 1, Lease: time.Second})
	status := m.until("marks came in frames", func(s *agentd.Status) bool {
		return framesOf(s, "taken") >= 5 && s.Host.Half != nil && s.Host.Half.Marks >= 5
	})
	stop()
	if c := m.frames.Counts(); c["failed"] != 0 {
		t.Errorf("frames of the controller: %v, the agent's: %+v", c, status.Host.Frames)
	}
	if status.Bus.Commands["malformed"] != 0 || status.Bus.Commands["sequence"] != 0 {
		t.Errorf("refused: %v", status.Bus.Commands)
	}
	k, err := pki.FrameKey(filepath.Join(m.dir, "agent-"+agentName))
	if err != nil {
		t.Fatal(err)
	}
	a := attack143{machine: m, form: form, knows: m.attacker(form, k), guesses: m.attacker(form, inband.Key{1}.Of(agentName))}
	a.refused()
	a.dropped(k)
	before := m.status().Host.Half.Marks
	a.knows.frame(a.is(40), a.marks)
	m.until("marks of an attacker with the key are taken", func(s *agentd.Status) bool { return s.Host.Half.Marks > before })
}

type attack143 struct {
	*machine
	form           inband.Form
	knows, guesses *attacker
}

// is returns a frame of the form with marks for VM 1.
func (a *attack143) is(counter uint64) *inband.Frame {
	f := &inband.Frame{Run: 99, Counter: counter}
	if a.form == inband.IPID {
		f.VM, f.Marks = [4]byte(testnet.GuestIPv4(0).To4()), 65535
	}
	return f
}

// marks gives a command the marks that is does not carry.
func (a *attack143) marks(c *weirv1.Command) {
	c.Grants = nil
	if a.form == inband.IP {
		c.Grants = []*weirv1.Grant{weirv1.NewGrant(law.Grant{Kind: law.MarksGrant, Key: law.Key{Pair: law.Pair{VM: 1}}, Value: 1e6, Lease: time.Second})}
	}
}

// refused sends frames that the agent must refuse.
func (a *attack143) refused() {
	fence := func(reason string) func(*agentd.Status) uint64 {
		return func(s *agentd.Status) uint64 { return s.Bus.Commands[reason] }
	}
	frame := func(reason string) func(*agentd.Status) uint64 {
		return func(s *agentd.Status) uint64 { return framesOf(s, reason) }
	}
	late := func(c *weirv1.Command) { c.EchoNs -= uint64(2 * time.Second) }
	stray := a.is(20)
	if a.form == inband.IPID {
		stray.VM[3]++
	}
	for _, row := range []struct {
		name    string
		by      *attacker
		f       *inband.Frame
		change  func(*weirv1.Command)
		counted func(*agentd.Status) uint64
	}{
		{"another key", a.guesses, a.is(1), nil, frame("tag")},
		{"late", a.knows, a.is(10), late, fence("late")},
		{"again", a.knows, a.is(10), nil, frame("replayed")},
		{"reordered", a.knows, a.is(9), nil, frame("replayed")},
		{"an old term", a.knows, a.is(12), func(c *weirv1.Command) { c.Term-- }, fence("stale_term")},
		{"of before the agent's restart", a.knows, a.is(13), func(c *weirv1.Command) { c.Incarnation++ }, fence("incarnation")},
		{"an announcement", a.knows, a.is(14), func(c *weirv1.Command) { c.Incarnation, c.EchoNs = 0, 0 }, fence("malformed")},
		{"for no VM", a.knows, stray, late, frame("address")},
	} {
		change := func(c *weirv1.Command) {
			a.marks(c)
			if row.change != nil {
				row.change(c)
			}
		}
		if a.form == inband.IP && (row.f == stray || row.name == "an announcement") {
			continue // its header names no VM, and its command is never empty
		}
		before := a.status()
		row.by.frame(row.f, change)
		a.until(row.name+" is counted", func(s *agentd.Status) bool { return row.counted(s) > row.counted(before) })
		if after := a.status(); after.Host.Half.Marks != before.Host.Half.Marks {
			a.t.Errorf("%s: the law got marks", row.name)
		}
	}
}

// dropped sends frames from the guest, with the right key, to its own host and to others.
func (a *attack143) dropped(k inband.Key) {
	before := a.status()
	f := a.is(30)
	f.Run, f.Command = 100, []byte{1}
	a.Guests[0].Must(a.t, func() error {
		guest, err := inband.NewSender("eth0")
		if err != nil {
			return err
		}
		defer guest.Close()
		for _, to := range []inband.MAC{a.knows.to, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff}} {
			f.To, f.From, f.Source = to, guest.Address(), guest.IPv4()
			raw, err := inband.NewTagger(a.form, k).Append(nil, f)
			if err == nil {
				err = guest.Send(raw)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	after := a.until("the guest's frame is dropped", func(s *agentd.Status) bool {
		return s.Host.VMs[0].Counts.Control > before.Host.VMs[0].Counts.Control
	})
	for _, reason := range []string{"taken", "tag", "malformed", "address", "replayed"} {
		if framesOf(after, reason) != framesOf(before, reason) {
			a.t.Errorf("the guest's frames reached the agent: %+v", after.Host.Frames)
		}
	}
}
