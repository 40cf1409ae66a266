package controller

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/controller/record"
	"weir/law"
	"weir/law/inventory"
	"weir/law/telemetry"
)

// answeringSpec is the law of the tests as a replay makes it: it grants each VM a window as large as the backlog.
func answeringSpec() law.Spec {
	return law.Spec{
		Name: "answering", Sites: []law.Site{law.Controller}, Params: func() any { return &struct{}{} },
		New: func(law.Site, any, *law.Topology) (law.Law, error) { return &ordered{vms: map[law.VM]bool{}}, nil },
	}
}

// ordered is a law whose actions have an order, as those of all laws must.
type ordered struct{ vms map[law.VM]bool }

func (*ordered) Wake() time.Duration { return 0 }

func (l *ordered) Step(_ time.Duration, e law.Event, out []law.Action) []law.Action {
	switch e := e.(type) {
	case *inventory.Host:
		for _, vm := range e.VMs {
			l.vms[vm.Number] = true
		}
	case *telemetry.Telemetry:
		for _, vm := range sortedKeys(l.vms) {
			out = append(out, law.Grant{Kind: law.WindowGrant, Key: law.Key{Pair: law.Pair{VM: vm}}, Value: e.Ports[0].BacklogBytes, Lease: time.Second})
		}
	}
	return out
}

// A controller records what its laws got and gave. Each grant that an agent gets names the event that it answers.
func TestRecord(t *testing.T) {
	k := newBusKit(t)
	k.cfg.Record = filepath.Join(k.dir, "rec", "c1")
	k.cfg.Laws = []Law{{Name: "answering", Params: []byte("{}"), New: func() (law.Law, error) { return &ordered{vms: map[law.VM]bool{}}, nil }}}
	stop := k.run()
	sw, h1 := k.agent("sw"), k.agent("h1")
	h1.hosts(t, 7, 1, 1, 5)
	causes := map[uint64]uint64{} // of grants, by their value
	backlog := uint64(1000)
	k.until("ten commands", func() bool {
		backlog++
		sw.report(t, backlog)
		for len(h1.grants) > 0 {
			for _, g := range <-h1.grants {
				causes[g.Value] = g.Cause
			}
		}
		return len(causes) >= 10
	})
	if s := k.status().Record; s == nil || s.Path != k.cfg.Record || s.Lost != 0 || s.Error != "" {
		t.Errorf("status %+v", s)
	}
	stop()
	r, err := record.Open(k.cfg.Record)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	backlogs := map[uint64]uint64{} // by cause
	for {
		e, err := r.Next()
		if err != nil {
			break
		}
		if m, is := e.Event.Value.(*telemetry.Telemetry); is {
			backlogs[e.Cause] = m.Ports[0].BacklogBytes
		}
	}
	for value, cause := range causes {
		if backlogs[cause] != value {
			t.Errorf("the grant of %d B answers event %d, which reports %d B", value, cause, backlogs[cause])
		}
	}
	again, err := record.Open(k.cfg.Record)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	res, err := record.Replay(again, record.Options{Specs: law.Specs{answeringSpec()}})
	if err != nil || !res.Same() || !res.Ended || res.Laws[0].Recorded.Grants["window"] < 20 || res.Laws[0].Recorded.VMs != 2 {
		t.Errorf("%v, %+v", err, res)
	}
}

// A recording that cannot be made does not end control, and is not hidden.
func TestRecord_NoDirectory(t *testing.T) {
	k := newBusKit(t)
	k.cfg.Record = "/dev/null/rec"
	k.run()
	if s := k.status().Record; s == nil || !strings.Contains(s.Error, "not a directory") {
		t.Errorf("%+v", s)
	}
}

func TestRecord_OfAFile(t *testing.T) {
	for text, says := range map[string]string{
		"record: here/c1\n":                    `c.yaml:2: record: "here/c1" is no absolute path; such as /var/lib/weir/record/c1`,
		"record_size: 5MB\n":                   "c.yaml:2: record_size: nothing is recorded; record: PATH",
		"record: /var/c1\nrecord_size: 20KB\n": "c.yaml:3: record_size: 20KB is too small; 1MB or more",
	} {
		_, err := loadLaws(t, text)
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q:\n%v\nshould be\n%s", text, err, says)
		}
	}
}
