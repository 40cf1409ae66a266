package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weir/datapath/testnet"
)

// Upgrade and downgrade under load: two versions take over from each other. Nothing is detached, the timers continue,
// and the former process ends by itself.
func TestSwitch_Upgrade(t *testing.T) {
	parallel(t)
	m := newMachine(t)
	p := m.switchUp(older)
	streams := m.NewStreams(t, testnet.ReceiverIPv4, 8) // started after it, so that their window scale is known
	m.until(p, "windows are limited", m.limited)
	first := m.read()
	ticks := m.watchTicks("out0")
	var stall, gap, undisturbed time.Duration
	for n := range rounds(3, 10) {
		ticks.mark()
		streams.Progress(t, 300_000)
		longest, _ := ticks.since()
		undisturbed = max(undisturbed, longest)

		version := newer
		if n%2 == 1 {
			version = older
		}
		before := m.read()
		streams.Mark()
		ticks.mark()
		next := m.switchUp(version, "--take-over")
		if code := p.wait(); code != 0 || !strings.Contains(p.log.String(), "another process takes over") {
			t.Errorf("round %d: the one taken over from ended with %d:\n%s", n, code, p.log)
		}
		streams.Progress(t, 300_000)
		longest, seen := ticks.since()
		gap, stall = max(gap, longest), max(stall, streams.LongestGap())
		t.Logf("round %d: %d ticks, longest gap %v; longest stall %v", n, seen, longest.Round(10*time.Microsecond), streams.LongestGap().Round(time.Millisecond))
		now := m.read()
		if now.Holder.Version != version {
			t.Errorf("round %d: %+v has the ports, not %s", n, now.Holder, version)
		}
		for i := range now.Ports {
			is, was := &now.Ports[i], portOf(before, now.Ports[i].Port)
			if is.LinkID != portOf(first, is.Port).LinkID || is.ProgramID == was.ProgramID {
				t.Errorf("round %d: %s: link %d became %d, program %d became %d", n, is.Port, was.LinkID, is.LinkID, was.ProgramID, is.ProgramID)
			}
			if is.Opened != was.Opened || is.Samples < was.Samples {
				t.Errorf("round %d: %s: the tables were lost: %+v, before %+v", n, is.Port, is, was)
			}
		}
		p = next
	}
	limit(t, "stall of a stream", stall, 300*time.Millisecond)
	limit(t, "gap between ticks, taken over", gap, undisturbed+5*time.Millisecond)
	t.Logf("gap between ticks, undisturbed: worst %v", undisturbed.Round(10*time.Microsecond))
	testnet.Until(t, "no more programs use the tables than at first", func() bool { return len(m.objects().programs) <= 2*len(ports)+3 })
}

// A second switch of the same name is refused without harm to the first. A stopped one is not taken over.
func TestSwitch_OneAtATime(t *testing.T) {
	parallel(t)
	m := newMachine(t)
	p := m.switchUp("weir")
	before := m.read()
	second := m.start("weir", append([]string{"switch"}, ports...)...)
	if code := second.wait(); code != exitError || !strings.Contains(second.log.String(), "--take-over") {
		t.Errorf("a second one ends with %d:\n%s", code, second.log)
	}
	purge := m.start("weir", "switch", "--purge")
	if code := purge.wait(); code != exitError {
		t.Errorf("purging under a living one ends with %d:\n%s", code, purge.log)
	}
	p.signal(syscall.SIGSTOP)
	stuck := m.start("weir", append([]string{"switch", "--take-over"}, ports...)...)
	if code := stuck.wait(); code != exitError || !strings.Contains(stuck.log.String(), "end it") {
		t.Errorf("taking over from one that is stuck ends with %d:\n%s", code, stuck.log)
	}
	p.signal(syscall.SIGCONT)
	m.until(p, "the first continues", func() bool { return m.read().Alive() })
	after := m.read()
	for _, name := range ports {
		if was, is := portOf(before, name), portOf(after, name); is.LinkID != was.LinkID || is.ProgramID != was.ProgramID {
			t.Errorf("%s: link %d became %d, program %d became %d", name, was.LinkID, is.LinkID, was.ProgramID, is.ProgramID)
		}
	}
	// A switch of another name may not have the same ports; the error names their owner.
	other := m.start("weir", append([]string{"switch", "--name", "other"}, ports...)...)
	want := fmt.Sprintf("weir: port in0: switch \"default\" (process %d) already runs FairQ here; stop it or choose another port\n", p.cmd.Process.Pid)
	if code := other.wait(); code != exitError || !strings.HasSuffix(other.log.String(), want) {
		t.Errorf("a second switch on the same ports ends with %d:\n%s\nwant %s", code, other.log, want)
	}
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		t.Errorf("ended with %d", code)
	}
}

// Tables of another layout: refused with a remedy, then replaced with --renew, under load.
func TestSwitch_OtherLayout(t *testing.T) {
	parallel(t)
	m := newMachine(t)
	streams := m.NewStreams(t, testnet.ReceiverIPv4, 4)
	p := m.switchUp("weir")
	m.until(p, "windows are limited", m.limited)
	p.kill()
	old := m.read()
	m.setSchema(99)
	refused := m.start("weir", append([]string{"switch"}, ports...)...)
	if code := refused.wait(); code != exitError || !strings.Contains(refused.log.String(), "layout 99") || !strings.Contains(refused.log.String(), "--renew") {
		t.Errorf("ended with %d:\n%s", code, refused.log)
	}
	status := m.start("weir", "status")
	if code := status.wait(); code != exitError || !strings.Contains(status.log.String(), "layout 99") {
		t.Errorf("status ends with %d:\n%s", code, status.log)
	}
	p = m.switchUp("weir", "--renew")
	m.until(p, "windows are limited", m.limited)
	now := m.read()
	if is, was := portOf(now, "out0"), portOf(old, "out0"); is.LinkID == was.LinkID {
		t.Errorf("link %d is still there", is.LinkID)
	}
	// Windows are limited as soon as one connection is adopted.
	m.until(p, "all streams are adopted", func() bool {
		var adopted uint64
		for _, port := range m.read().Ports {
			adopted += port.Adopted
		}
		return adopted >= 4
	})
	streams.Progress(t, 100_000)
}

// setSchema changes the layout number of the tables, which is always their first word.
func (m *machine) setSchema(schema uint32) {
	m.t.Helper()
	m.changeControl(func(value []byte) { binary.NativeEndian.PutUint32(value, schema) })
}

// Without a BPF file system the error names the command that mounts one, and nothing else is made.
func TestSwitch_NoBPFFileSystem(t *testing.T) {
	parallel(t)
	m := newMachine(t)
	// Mounted over that of the test and the machine's below it: an unmount would uncover the machine's.
	m.Switch.Must(t, func() error { return unix.Mount("tmpfs", bpffs, "tmpfs", 0, "") })
	p := m.start("weir", append([]string{"switch"}, ports...)...)
	if code := p.wait(); code != exitError || !strings.Contains(p.log.String(), "mount -t bpf bpf /sys/fs/bpf") {
		t.Errorf("ended with %d:\n%s", code, p.log)
	}
	m.Switch.Must(t, func() error {
		if _, err := os.Stat(bpffs + "/weir"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s/weir was made outside of a BPF file system: %v", bpffs, err)
		}
		return nil
	})
}
